"""The runtimes that Kubeflow Trainer ships, for a TrainJob that refers to one that nobody gave.

Source: ``shipped_runtimes`` beside this module, with its NOTICE.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from webhook.cluster.objects import parse_runtime
from webhook.cluster.yaml_text import parse, split
from webhook.effective.buildable.syntax import is_dns_subdomain
from webhook.model.cluster import Runtime
from webhook.model.release import Release

_FOLDER: Final = Path(__file__).parent / "shipped_runtimes"
_SHIPPED: Final = {Release.V2_4: Release.V2_3}
"""Releases whose own were not to be had, and whose are taken instead: callers say so."""
_read: Final[dict[tuple[str, Release], Runtime | None]] = {}


def shipped_with(release: Release) -> Release:
    """The release whose runtimes are taken for those of ``release``: its own, but for 2.4, which has those of 2.3."""
    return _SHIPPED.get(release, release)


def shipped_runtime(name: str, release: Release) -> Runtime | None:
    """The ClusterTrainingRuntime of that name as ``shipped_with(release)`` ships it; None where there is none."""
    if (name, release) not in _read:
        _read[name, release] = _load(name, release)
    return _read[name, release]


def _load(name: str, release: Release) -> Runtime | None:
    path = _FOLDER / shipped_with(release).value / f"{name}.yaml"
    if not is_dns_subdomain(name) or not path.is_file():
        return None
    for piece in split(path.read_bytes()):
        for _, value in parse(piece):
            if isinstance(value, dict) and value.get("kind") == "ClusterTrainingRuntime":
                return parse_runtime(value)
    return None
