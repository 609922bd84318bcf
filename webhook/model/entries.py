"""Where a TrainJob carries changes to its pods, in the three shapes that Trainer serves, and how one is written."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from msgspec import Struct

from webhook.model.draft import Draft
from webhook.model.names import MANAGER
from webhook.model.release import Release

Raw = Mapping[str, Any]

MAX_PATCHES: Final = 16
"""Most entries of ``runtimePatches`` (CRD of Trainer 2.2 and later)."""


class Target(Struct, frozen=True, omit_defaults=True):
    """What of a job is changed: its ``containers`` that get mounts.

    ``order`` are all containers of the job's pod, where there are more: an entry that names them in another order would
    reorder the pod.
    """

    containers: tuple[str, ...]
    order: tuple[str, ...] = ()


class Pod(Struct, frozen=True):
    """One PodSpec within an entry: the jobs it goes to, its place in the object, its text."""

    jobs: tuple[str, ...]
    path: tuple[str | int, ...]
    raw: Raw


def pods_of(spec: Raw, field: str) -> Iterator[Pod]:
    """Every PodSpec that the entries of ``field`` (one of ``OVERRIDE_FIELDS``) write, in the order they are merged."""
    for index, entry in enumerate(spec.get(field) or ()):
        path: tuple[str | int, ...] = ("spec", field, index)
        if field == "podSpecOverrides":
            yield Pod(_targets(entry), path, entry)
        elif field == "podTemplateOverrides":
            yield Pod(_targets(entry), (*path, "spec"), entry.get("spec") or {})
        else:
            template = (entry.get("trainingRuntimeSpec") or {}).get("template") or {}
            path = (*path, "trainingRuntimeSpec", "template", "spec", "replicatedJobs")
            for at, job in enumerate((template.get("spec") or {}).get("replicatedJobs") or ()):
                pod = (((job.get("template") or {}).get("spec") or {}).get("template") or {}).get("spec") or {}
                yield Pod((job.get("name") or "",), (*path, at, "template", "spec", "template", "spec"), pod)


def place(
    draft: Draft,
    release: Release,
    targets: Mapping[str, Target],
    volumes: Sequence[Raw],
    mounts: Sequence[Raw],
) -> bool:
    """Give the jobs of ``targets`` the volumes, and their containers the mounts. ``targets`` holds every job that
    trains: in 2.0 an entry that touches another one is not ours to change.

    False, with nothing written, where the release's shape leaves no room for it.
    """
    if release is Release.V2_0:
        return _place_for_jobs(draft, "podSpecOverrides", (), targets, volumes, mounts, one_each=True)
    if release is Release.V2_1:
        return _place_for_jobs(draft, "podTemplateOverrides", ("spec",), targets, volumes, mounts, one_each=False)
    return _place_in_patch(draft, targets, volumes, mounts)


def merge_pod(
    draft: Draft, path: tuple[str | int, ...], target: Target, volumes: Sequence[Raw], mounts: Sequence[Raw]
) -> None:
    """Add volumes and mounts to the PodSpec at ``path``, each at the end of its list; a name that is there stays."""
    for volume in volumes:
        if find(draft.get((*path, "volumes")), volume["name"]) is None:
            draft.insert((*path, "volumes"), volume)
    for name in target.containers:
        there = draft.get((*path, "containers"))
        at = find(there, name)
        if at is None:
            later = target.order[target.order.index(name) + 1 :] if name in target.order else ()
            before = [index for other in later if (index := find(there, other)) is not None]
            added = {"name": name, "volumeMounts": list(mounts)}
            draft.insert((*path, "containers"), added, min(before, default=None))
            continue
        for mount in mounts:
            if find(draft.get((*path, "containers", at, "volumeMounts")), mount["name"]) is None:
                draft.insert((*path, "containers", at, "volumeMounts"), mount)


def find(items: Sequence[Raw] | None, name: str) -> int | None:
    """The index of the item of that name in a list that Kubernetes keys by name."""
    for index, item in enumerate(items or ()):
        if item.get("name") == name:
            return index
    return None


def pod_patch(target: Target, volumes: Sequence[Raw], mounts: Sequence[Raw]) -> dict[str, Any]:
    """A PodSpec with the volumes, and the mounts in each of the containers."""
    return {
        "volumes": list(volumes),
        "containers": [{"name": name, "volumeMounts": list(mounts)} for name in target.containers],
    }


def _place_for_jobs(
    draft: Draft,
    field: str,
    below: tuple[str, ...],
    targets: Mapping[str, Target],
    volumes: Sequence[Raw],
    mounts: Sequence[Raw],
    *,
    one_each: bool,
) -> bool:
    """2.0 and 2.1: one entry names the jobs that it goes to.

    With ``one_each`` no job may stand in two entries, so an entry that names one of ours is used, or nothing at all.
    Else an entry that names just the jobs of a group is used, the last one since it is merged last.
    """
    groups: dict[tuple[str, ...], list[str]] = {}
    for job, target in targets.items():
        groups.setdefault(target.containers, []).append(job)
    merges: list[tuple[int, Target]] = []
    entries: list[tuple[int, set[str]]] = [
        (index, set(_targets(entry))) for index, entry in enumerate(draft.get(("spec", field)) or ())
    ]
    if one_each:
        left = dict(targets)
        for index, jobs in entries:
            if jobs.isdisjoint(targets):
                continue
            if not jobs <= targets.keys() or len({targets[job].containers for job in jobs}) != 1:
                return False
            merges.append((index, targets[min(jobs)]))
            for job in jobs:
                left.pop(job, None)
        groups = {containers: [job for job in jobs if job in left] for containers, jobs in groups.items()}
    else:
        for containers, jobs_of_group in list(groups.items()):
            exact = [index for index, jobs in entries if jobs == set(jobs_of_group)]
            if exact:
                merges.append((exact[-1], targets[jobs_of_group[0]]))
                del groups[containers]
    for index, target in merges:
        merge_pod(draft, ("spec", field, index, *below), target, volumes, mounts)
    for jobs_left in groups.values():
        if not jobs_left:
            continue
        pod: dict[str, Any] = pod_patch(targets[jobs_left[0]], volumes, mounts)
        named = [{"name": job} for job in jobs_left]
        draft.insert(("spec", field), {"targetJobs": named, "spec": pod} if below else {"targetJobs": named, **pod})
    return True


def _place_in_patch(draft: Draft, targets: Mapping[str, Target], volumes: Sequence[Raw], mounts: Sequence[Raw]) -> bool:
    """2.2 and later: the entry of our own manager."""
    entries = draft.get(("spec", "runtimePatches")) or ()
    for index, entry in enumerate(entries):
        if entry.get("manager") == MANAGER:
            path = ("spec", "runtimePatches", index, "trainingRuntimeSpec", "template", "spec", "replicatedJobs")
            for job, target in targets.items():
                at = find(draft.get(path), job)
                if at is None:
                    draft.insert(path, _job_patch(job, target, volumes, mounts))
                else:
                    merge_pod(draft, (*path, at, "template", "spec", "template", "spec"), target, volumes, mounts)
            return True
    if len(entries) >= MAX_PATCHES:
        return False
    jobs = [_job_patch(job, target, volumes, mounts) for job, target in targets.items()]
    draft.insert(
        ("spec", "runtimePatches"),
        {"manager": MANAGER, "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": jobs}}}},
    )
    return True


def _job_patch(job: str, target: Target, volumes: Sequence[Raw], mounts: Sequence[Raw]) -> dict[str, Any]:
    pod = pod_patch(target, volumes, mounts)
    return {"name": job, "template": {"spec": {"template": {"spec": pod}}}}


def _targets(entry: Raw) -> tuple[str, ...]:
    return tuple(target.get("name") or "" for target in entry.get("targetJobs") or ())


def mounted_elsewhere(spec: Raw, field: str, jobs: Sequence[str], container: str, mount: Raw) -> bool:
    """Whether an entry mounts another volume where ``mount`` would be, in that container of one of the jobs."""
    at = mount["mountPath"].rstrip("/")
    for pod in pods_of(spec or {}, field):
        if set(pod.jobs).isdisjoint(jobs):
            continue
        for other in pod.raw.get("containers") or ():
            if other.get("name") != container:
                continue
            for found in other.get("volumeMounts") or ():
                if (found.get("mountPath") or "").rstrip("/") == at and found.get("name") != mount["name"]:
                    return True
    return False
