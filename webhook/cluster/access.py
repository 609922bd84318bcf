"""Which cluster is meant, and what may be wrong on the way to it: the same for every connection."""

from __future__ import annotations

import os
from pathlib import Path


class NoCluster(Exception):  # noqa: N818 - a state
    """There is no usable configuration; the text says which was tried and what is wrong with it."""


class Unreachable(Exception):  # noqa: N818 - a state
    """The API server did not answer, or stopped answering midway."""


class Refused(Exception):  # noqa: N818 - a state
    """The API server answered, and not with what was asked for: ``status`` is that of HTTP, ``message`` its words."""

    def __init__(self, status: int, message: str, retry_after: float = 0.0, path: str = "") -> None:
        words = message or f"HTTP {status}"
        super().__init__(f"{path}: {words}" if path else words)
        self.status = status
        self.message = message
        self.retry_after = retry_after


def kubeconfig_of(given: Path | None, context: str | None, inside_first: bool) -> str | None:
    """The kubeconfig: ``given``, else ``$KUBECONFIG``, else ``~/.kube/config``; None for the pod's service account.

    ``inside_first`` asks for the service account before ``~/.kube/config``. A ``context`` is one of a kubeconfig.
    Raises NoCluster where there is none; the client calls that an invalid file.
    """
    chosen = str(given) if given is not None else os.environ.get("KUBECONFIG") or None
    inside = context is None and bool(os.environ.get("KUBERNETES_SERVICE_HOST"))
    if chosen is None and inside and inside_first:
        return None
    names = chosen or "~/.kube/config"
    if any(Path(part).expanduser().exists() for part in names.split(os.pathsep) if part):
        return str(Path(names).expanduser()) if chosen is None else names
    if chosen is None and inside:
        return None
    raise NoCluster(f"there is no kubeconfig at {names}" + ("" if chosen else ", and this is no pod of a cluster"))
