"""What a folder holds beside objects to apply: kustomize patches, Helm templates, files that the user leaves out.

None of them is an error: nothing that is applied is lost by passing over them. Each is counted and said.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

KUSTOMIZATIONS: Final = ("kustomization.yaml", "kustomization.yml", "Kustomization")
"""The names that kustomize looks for (source: ``pkg/konfig/general.go``)."""
CHART: Final = "Chart.yaml"
_REQUIRED: Final[Mapping[str, tuple[str, str]]] = {
    "TrainJob": ("spec", "runtimeRef"),
    "TrainingRuntime": ("spec", "template"),
    "ClusterTrainingRuntime": ("spec", "template"),
    "PersistentVolumeClaim": ("spec", "accessModes"),
    "PersistentVolume": ("spec", "capacity"),
    "StorageClass": ("provisioner", ""),
}
"""A field without which the API server takes no object of the kind: what lacks it is a part of one."""


def is_patch(obj: Mapping[str, Any]) -> bool:
    """Whether an object is a directive of kustomize's, which no API server takes: ``$patch: delete``."""
    return "$patch" in obj


def is_partial(obj: Mapping[str, Any]) -> bool:
    """Whether an object lacks what every object of its kind has, as a patch does."""
    outer, inner = _REQUIRED.get(str(obj.get("kind")), ("", ""))
    if not outer:
        return False
    value = obj.get(outer)
    return not value if not inner else not isinstance(value, dict) or not value.get(inner)


def patches_of(folder: str, kustomization: object) -> set[str]:
    """The real paths of the files that a kustomization takes as patches."""
    if not isinstance(kustomization, dict):
        return set()
    named: list[object] = []
    for field in ("patches", "patchesStrategicMerge", "patchesJson6902"):
        entries = kustomization.get(field)
        if isinstance(entries, list):
            named += [entry.get("path") if isinstance(entry, dict) else entry for entry in entries]
    # A patch may also stand in the kustomization itself: that is no path.
    paths = (name for name in named if isinstance(name, str) and name and "\n" not in name and "\0" not in name)
    return {os.path.realpath(os.path.join(folder, path)) for path in paths}  # noqa: PTH118


class Excluded:
    """``--exclude``: globs for files and folders, by path or by name."""

    def __init__(self, globs: Sequence[str]) -> None:
        self._globs = [glob.rstrip("/").removeprefix("./").removeprefix("**/") for glob in globs]
        self._given = tuple(globs)
        self._used: set[int] = set()

    def leaves_out(self, path: str, folder: str = "") -> bool:
        """Whether a file is left out: by its path, by its path below ``folder``, or by a folder that it is in."""
        if not self._globs:
            return False
        from fnmatch import fnmatchcase

        whole = path.replace("\\", "/").removeprefix("./")
        top = folder.replace("\\", "/").removeprefix("./").rstrip("/")
        above = len(top) + 1 if folder not in ("", ".", "./") else 0
        parts = whole[above:].split("/")
        below = ["/".join(parts[:end]) for end in range(1, len(parts) + 1)]
        ways = {*below, *parts, *(whole[:above] + way for way in below)}
        ways |= {"/".join(parts[start:]) for start in range(len(parts))}
        for at, glob in enumerate(self._globs):
            if any(fnmatchcase(way, glob) for way in ways):
                self._used.add(at)
                return True
        return False

    def unused(self) -> Iterable[str]:
        """The globs that nothing matched."""
        return [glob for at, glob in enumerate(self._given) if at not in self._used]
