"""What of an object's pods is looked at where there is more than one review can afford (``webhook.model.budget``).

Jobs that train come first, and of each what lies under its checkpoint directory: nothing that stands beside them can
take their place.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from webhook.model.budget import MERGED, NODES, Cut
from webhook.model.pod import Checkpoint, EffectiveJob, EffectiveSet, Memo, Raw

_LEAST = 64
"""Entries that one override counts for at least: its place is looked at by every rule."""
_FEW = 128
"""Overrides of all jobs together that need no counting unless they are large."""


def entries_of(pod: Raw) -> int:
    """The entries of a pod's lists, those of its containers included."""
    total = 0
    for value in pod.values():
        if type(value) is list:
            total += len(value)
    for kind in ("containers", "initContainers"):
        for container in pod.get(kind) or ():
            for value in container.values():
                if type(value) is list:
                    total += len(value)
    return total


def may_be_too_many(patches: Mapping[str, Sequence[Any]]) -> bool:
    """Whether the overrides of each job, by its name, have to be counted at all."""
    return len(patches) > _FEW or any(len(found) > 1 for found in patches.values())


def jobs_too_many_to_merge(
    jobs: Sequence[tuple[str, bool, Raw]], patches: Mapping[str, Sequence[Raw]]
) -> tuple[frozenset[str], int]:
    """The names of jobs that are left out, since merging their overrides costs too much, and what all would cost.

    ``jobs`` are name, whether it trains, and pod; ``patches`` the overrides of each job by its name.
    """
    if not may_be_too_many(patches):
        return frozenset(), 0
    left: set[str] = set()
    room, total = MERGED, 0
    sizes: dict[int, int] = {}
    for name, _, pod in sorted(jobs, key=lambda job: not job[1]):
        cost, grown = 0, entries_of(pod)
        for patch in patches.get(name, ()):
            if (size := sizes.get(id(patch))) is None:
                size = sizes[id(patch)] = entries_of(patch)
            cost += max(grown + size, _LEAST)
            grown += size
        total += cost
        if cost > room:
            left.add(name)
        else:
            room -= cost
    return frozenset(left), total


def entries_of_jobs(effective: EffectiveSet) -> int:
    """The jobs, and the entries of their pods' lists."""
    total = len(effective.jobs)
    for job in effective.jobs:
        total += entries_of(job.pod)
    return total


def is_within_limits(effective: EffectiveSet) -> bool:
    """Whether a review looks at all of the pods."""
    return entries_of_jobs(effective) <= NODES


def within_limits(effective: EffectiveSet, checkpoints: Sequence[Checkpoint]) -> EffectiveSet:
    """The jobs with no more entries than a review looks at, and in ``cut`` what was left out."""
    sizes = [1 + entries_of(job.pod) for job in effective.jobs]
    own = {id(checkpoint.mount) for checkpoint in checkpoints}
    jobs: dict[int, EffectiveJob] = {}
    room, mounts, volumes = NODES, [0, 0], [0, 0]
    order = sorted(range(len(sizes)), key=lambda at: (not effective.jobs[at].trains, at))
    for at in order:
        job = effective.jobs[at]
        if sizes[at] > room and jobs:
            continue
        if sizes[at] > room:
            job = _within(job, own, mounts, volumes)
        jobs[at] = job
        room -= min(sizes[at], room)
    more = f"({sum(sizes)} entries in their lists, and {NODES} is the most)"
    counts = (("job", (len(sizes), len(jobs))), ("volume", volumes), ("mount", mounts))
    cut = (*effective.cut, *(Cut(f"{what} {more}", found, kept) for what, (found, kept) in counts if kept < found))
    return replace(effective, jobs=tuple(jobs[at] for at in sorted(jobs)), cut=cut, memo=Memo())


def _within(job: EffectiveJob, own: set[int], mounts: list[int], volumes: list[int]) -> EffectiveJob:
    """The job with a part of its mounts and volumes: the mounts whose identities are ``own``, and what fits."""
    containers = [container for _, _, container in job.containers()]
    each = NODES // 4 // max(len(containers), 1)
    pod: dict[str, Any] = dict(job.pod)
    used: set[str] = set()
    for kind in ("containers", "initContainers"):
        kept = []
        for container in pod.get(kind) or ():
            listed = container.get("volumeMounts") or ()
            first = [mount for at, mount in enumerate(listed) if at < each or id(mount) in own]
            used.update(mount.get("name") or "" for mount in first)
            mounts[0] += len(listed)
            mounts[1] += len(first)
            kept.append({**container, "volumeMounts": first} if len(first) < len(listed) else container)
        if kind in pod:
            pod[kind] = kept
    listed = pod.get("volumes") or ()
    first = [volume for at, volume in enumerate(listed) if volume.get("name") in used or at < NODES // 4]
    volumes[0] += len(listed)
    volumes[1] += len(first)
    if listed:
        pod["volumes"] = first
    return replace(job, pod=pod, memo=Memo())


__all__ = [
    "entries_of",
    "entries_of_jobs",
    "is_within_limits",
    "jobs_too_many_to_merge",
    "may_be_too_many",
    "within_limits",
]
