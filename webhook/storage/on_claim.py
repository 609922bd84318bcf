"""Where on its claim a checkpoint directory lies, so that two runs' directories can be compared."""

from __future__ import annotations

import posixpath

from webhook.model.pod import Checkpoint


def path_on_claim(checkpoint: Checkpoint) -> str | None:
    """The directory's path from the claim's root, the mount's subPath included: ``/runs/a``. ``/`` is the root.

    None where there is no directory or no mount, or where only the running pod knows a part (``subPathExpr`` with
    variables, ``<metadata.name>``, a literal ``$(VAR)``): two such paths may be the same or not.
    """
    mount, directory = checkpoint.mount, checkpoint.directory
    if mount is None or directory is None:
        return None
    inside = posixpath.relpath(directory, str(mount.get("mountPath") or "/"))
    path = posixpath.normpath("/" + posixpath.join(mount.get("subPath") or mount.get("subPathExpr") or "", inside))
    if inside.startswith("..") or "$(" in path or "<" in path:
        return None
    return path.replace("//", "/")
