"""An UPDATE of a TrainJob that loses what we had added gets it back, each part in its old place.

Client-side apply sends whole lists and ``kubectl replace`` whole objects, so what was added is not among it; without it
the UPDATE is refused as a change of an immutable field (2.2 and later), or the run is stripped and wedged (2.0, 2.1).
Fills: what the record names, or our manager's entry holds, and the old object has and the new one lacks; the record.
Silent when: the user has written something else under the same name or at the same path.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Final

from webhook.model.default import Context, Default
from webhook.model.draft import Draft
from webhook.model.entries import Pod, find, mounted_elsewhere, pods_of
from webhook.model.injected import Added
from webhook.model.names import INJECTED, MANAGER
from webhook.model.pod import Raw

ENV: Final = ("spec", "trainer", "env")
RECORD: Final = ("metadata", "annotations", INJECTED)
ENTRIES: Final = ("spec", "runtimePatches")


def apply(draft: Draft, context: Context) -> bool:
    """See above."""
    if context.request.old is None:
        return False
    old = Draft(context.request.old)
    edits = len(draft.patch)
    if draft.get(RECORD) is None and isinstance(text := old.get(RECORD), str):
        draft.set(RECORD, text)
    # Most UPDATEs leave these lists alone, and comparing them is quick.
    if old.get(ENTRIES) != draft.get(ENTRIES):
        _entry(draft, old, context.policy.restore_managers)
    added = context.recorded
    if added is not None:
        if old.get(ENV) != draft.get(ENV):
            _env(draft, old, added)
        for field in ("podSpecOverrides", "podTemplateOverrides"):
            if old.get(("spec", field)) != draft.get(("spec", field)):
                _overrides(draft, old, field, added)
    return len(draft.patch) > edits


def _entry(draft: Draft, old: Draft, others: Collection[str]) -> None:
    """2.2 and later: the entry is ours as a whole, ``time`` included.

    Entries of the managers that get theirs back as well come with it, in the old order, so that each finds its place.
    """
    entries = old.get(ENTRIES) or ()
    there = {now.get("manager"): at for at, now in enumerate(draft.get(ENTRIES) or ())}
    mine = next((entry for entry in entries if entry.get("manager") == MANAGER), None)
    if mine is None:
        return
    if MANAGER in there:
        if not _parts(mine) <= _parts(draft.get((*ENTRIES, there[MANAGER]))):
            draft.set((*ENTRIES, there[MANAGER]), mine)
        return
    for index, entry in enumerate(entries):
        manager = entry.get("manager")
        if manager not in there and (manager == MANAGER or manager in others):
            draft.insert(ENTRIES, entry, index)


def _parts(entry: Raw) -> set[tuple[str, ...]]:
    """The names of what an entry adds: volumes by job, mounts by job and container."""
    parts: set[tuple[str, ...]] = set()
    for pod in pods_of({"runtimePatches": [entry]}, "runtimePatches"):
        job = pod.jobs[0]
        parts.update((job, volume.get("name") or "") for volume in pod.raw.get("volumes") or ())
        for container in pod.raw.get("containers") or ():
            name = container.get("name") or ""
            parts.update((job, name, mount.get("name") or "") for mount in container.get("volumeMounts") or ())
    return parts


def _env(draft: Draft, old: Draft, added: Added) -> None:
    for index, variable in enumerate(old.get(ENV) or ()):
        if variable in added.env and find(draft.get(ENV), variable["name"]) is None:
            draft.insert(ENV, variable, index)


def _overrides(draft: Draft, old: Draft, field: str, added: Added) -> None:
    """2.0 and 2.1: an entry may be ours as a whole, or hold ours beside the user's.

    What is put into entries comes first: a whole entry that is put in moves those behind it.
    """
    spec = old.get(("spec",)) or {}
    whole: list[tuple[int, Raw]] = []
    for index, before in enumerate(pods_of(spec, field)):
        volumes = [(at, volume) for at, volume in _items(before.raw, "volumes") if volume in added.volumes]
        mounts = [
            (at, container["name"], place, mount)
            for at, container in _items(before.raw, "containers")
            for place, mount in _items(container, "volumeMounts")
            if mount in added.mounts
        ]
        if not volumes and not mounts:
            continue
        if any(
            mounted_elsewhere(draft.get(("spec",)), field, before.jobs, container, mount)
            for _, container, _, mount in mounts
        ):
            continue
        entry = spec[field][index]
        now = _counterpart(draft, spec, field, index, added)
        if now is None:
            own = _is_ours(entry, before.raw, added)
            whole.append((index, entry if own else _ours(entry, field, volumes, mounts)))
            continue
        for at, volume in volumes:
            if find(draft.get((*now.path, "volumes")), volume["name"]) is None:
                draft.insert((*now.path, "volumes"), volume, at)
        for at, container, place, mount in mounts:
            found = find(draft.get((*now.path, "containers")), container)
            if found is None:
                draft.insert((*now.path, "containers"), {"name": container, "volumeMounts": [mount]}, at)
            elif find(draft.get((*now.path, "containers", found, "volumeMounts")), mount["name"]) is None:
                draft.insert((*now.path, "containers", found, "volumeMounts"), mount, place)
    for index, entry in whole:
        draft.insert(("spec", field), entry, index)


def _counterpart(draft: Draft, spec: Raw, field: str, index: int, added: Added) -> Pod | None:
    """The entry of the object under edit that entry ``index`` of the old ``spec`` has become; None where it is lost.

    Entries have no names. One that holds our volumes is it; else they are told by their order among those for the same
    jobs, and where there are fewer than before it is the ones that were ours as a whole that are lost.
    """
    olds = list(pods_of(spec, field))
    jobs = set(olds[index].jobs)
    ours = [volume for volume in olds[index].raw.get("volumes") or () if volume in added.volumes]
    news = [pod for pod in pods_of(draft.get(("spec",)) or {}, field) if set(pod.jobs) == jobs]
    for pod in news:
        if ours and all(volume in (pod.raw.get("volumes") or ()) for volume in ours):
            return pod
    alike = [at for at, pod in enumerate(olds) if set(pod.jobs) == jobs]
    if len(news) < len(alike):
        alike = [at for at in alike if not _is_ours(spec[field][at], olds[at].raw, added)]
    if index not in alike or not news:
        return None
    return news[min(alike.index(index), len(news) - 1)]


def _is_ours(entry: Raw, pod: Raw, added: Added) -> bool:
    """Whether nothing in the entry is the user's."""
    if entry is not pod and not entry.keys() <= {"targetJobs", "spec"}:
        return False
    return (
        pod.keys() <= {"targetJobs", "volumes", "containers"}
        and all(volume in added.volumes for volume in pod.get("volumes") or ())
        and all(
            container.keys() <= {"name", "volumeMounts"}
            and all(mount in added.mounts for mount in container.get("volumeMounts") or ())
            for container in pod.get("containers") or ()
        )
    )


def _ours(
    entry: Raw, field: str, volumes: Sequence[tuple[int, Raw]], mounts: Sequence[tuple[int, str, int, Raw]]
) -> dict[str, Any]:
    """An entry with our part of one that the user takes away."""
    by_container: dict[str, list[Raw]] = {}
    for _, container, _, mount in mounts:
        by_container.setdefault(container, []).append(mount)
    pod: dict[str, Any] = {"volumes": [volume for _, volume in volumes]}
    pod["containers"] = [{"name": name, "volumeMounts": found} for name, found in by_container.items()]
    targets = {"targetJobs": entry.get("targetJobs") or []}
    return {**targets, **pod} if field == "podSpecOverrides" else {**targets, "spec": pod}


def _items(raw: Raw, field: str) -> list[tuple[int, Any]]:
    return list(enumerate(raw.get(field) or ()))


DEFAULT: Final = Default("put_back", apply)
