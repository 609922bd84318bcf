"""What Kueue does to TrainJobs: what its writes lose, and which changes make it stop a run.

Kueue writes whole objects with the types of the Trainer release that it was built with. Seen with 0.17.0 and 0.19.2
(types of Trainer 2.2) on Trainer 2.3; what is said of 0.20 (types of 2.3) is read in its go.mod.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from webhook.effective.changes import same
from webhook.effective.overrides import Override, overrides_of
from webhook.model.pod import EffectiveSet, Raw
from webhook.model.release import Release

TYPES: Final[Mapping[str, Release]] = {"0.17": Release.V2_2, "0.19": Release.V2_2, "0.20": Release.V2_3}
"""Kueue's minor release -> the Trainer whose types it writes with."""
GRACE: Final = "terminationGracePeriodSeconds"
"""The one field of ``runtimePatches`` that Trainer 2.3 has and 2.2 has not."""
PARTS: Final = ("trainer", "initializer")
PARTS_OF_POD: Final = ("volumes", "initContainers", "containers", "imagePullSecrets", "securityContext")
"""Immutable in the CRD, and compared as a whole. Where all of it is empty, it is dropped whole, which passes."""
_TEXTS: Final = frozenset(("value", "apiVersion", "containerName", "subPath", "subPathExpr", "medium", "volumeName"))
_MAPS: Final = frozenset(("limits", "requests", "volumeAttributes", "options", "matchLabels", "labels", "annotations"))
"""Fields that Go leaves out where they are empty; a pointer (``image``, ``emptyDir``) stays."""
_POINTERS: Final = (".csi", ".azureDisk")
"""Where ``readOnly`` is one."""
_KEPT: Final = ("sources", "monitors")


def parse_kueue(text: str) -> str:
    """``0.19``, ``0.19.2`` or ``v0.19.2`` -> the minor release. Raises ValueError, which names those that are known."""
    number = text.strip().removeprefix("v")
    minor = ".".join(number.split(".")[:2])
    if minor not in TYPES or not all(part.isdecimal() for part in number.split(".")):
        raise ValueError(f'unknown Kueue release "{text}": known are {", ".join(TYPES)}')
    return minor


def emptied(raw: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """Path (below the part) and text of every field that Go's encoder leaves out."""
    if isinstance(raw, Mapping):
        for key, value in raw.items():
            if value == "" and key in _TEXTS:
                yield f"{path}.{key}", f"{key}: ''"
            elif value is False and key == "readOnly" and not path.endswith(_POINTERS):
                yield f"{path}.{key}", f"{key}: false"
            elif value == [] and key not in _KEPT:
                yield f"{path}.{key}", f"{key}: []"
            elif value == {} and key in _MAPS:
                yield f"{path}.{key}", f"{key}: {{}}"
            elif value and not isinstance(value, str):
                yield from emptied(value, f"{path}.{key}")
    elif isinstance(raw, list):
        for index, item in enumerate(raw):
            if item and not isinstance(item, str):
                yield from emptied(item, f"{path}[{index}]")


def dropped_grace(
    spec: Raw, label: str, release: Release, types: Release = Release.V2_2
) -> Iterator[tuple[str, Override, Any]]:
    """Job, override and value of each grace period that a write with ``types`` drops: JobSet then refuses the pods."""
    if not release.at_least(Release.V2_3) or types.at_least(Release.V2_3) or not spec.get("runtimePatches"):
        return
    for name, overrides in overrides_of(spec, label, release).items():
        for override in overrides:
            if (value := override.layer.pod.get(GRACE)) is not None:
                yield name, override, value


def lost_in_a_write(spec: Raw, label: str, release: Release, types: Release) -> list[str]:
    """What a write of Kueue loses of a TrainJob, field by field in words, where it cannot run on after that."""
    if not release.at_least(Release.V2_2):
        return ["Kueue's own entry, which this Trainer's CRD prunes"]
    lost = [f"{GRACE} of job {name} in runtimePatches" for name, _, _ in dropped_grace(spec, label, release, types)]
    for part in PARTS:
        lost += [f"spec.{part}{path.rpartition('.')[0]}.{text}" for path, text in emptied(spec.get(part))]
    for name, overrides in overrides_of(spec, label, release).items():
        for override in overrides:
            for part in PARTS_OF_POD:
                found = emptied(override.layer.pod.get(part))
                lost += [f"{part}{path.rpartition('.')[0]}.{text} of job {name}" for path, text in found]
    return lost


def container_changes(before: EffectiveSet, now: EffectiveSet) -> list[str]:
    """The containers that differ: Kueue then stops the run, deletes its Workload and queues it again.

    It compares containers, init containers and the number of pods with those of its Workload (its
    ``ComparePodSetSlices``); seen of an image and of a variable. A grace period or a volume does nothing.
    """
    changed: list[str] = []
    jobs = {job.name: job for job in before.jobs}
    for job in now.jobs:
        old = jobs.get(job.name)
        if old is None:
            changed.append(f"{job.name}: a new job")
            continue
        if old.pods != job.pods:
            changed.append(f"{job.name}: number of pods")
        for kind in ("initContainers", "containers"):
            one, two = old.pod.get(kind) or (), job.pod.get(kind) or ()
            if len(one) != len(two):
                changed.append(f"{job.name}: {kind}")
                continue
            for left, right in zip(one, two, strict=True):
                parts = dict.fromkeys((*left, *right))
                changed += [
                    f"{job.name}: {part} of {right.get('name')}"
                    for part in parts
                    if not same(left.get(part), right.get(part), part)
                ]
    return changed
