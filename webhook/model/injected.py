"""The record of what the defaults added to an object: annotation ``checkpoint-guard.io/injected``.

It is JSON with sorted keys and no spaces, so equal additions give equal text. Whoever may write the object may write
the record too, so it is read with care: what does not have the expected form counts as no record.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Struct

from webhook.model.draft import Draft
from webhook.model.entries import Target, pods_of
from webhook.model.names import INJECTED
from webhook.model.release import OVERRIDE_FIELDS

Raw = Mapping[str, Any]


class Added(Struct, frozen=True, omit_defaults=True):
    """What was added to a TrainJob. Every item is the value as it was written into the object."""

    env: tuple[dict[str, Any], ...] = ()
    """Variables of ``spec.trainer.env``, in their order."""
    mounts: tuple[dict[str, Any], ...] = ()
    """Mounts that every container of ``targets`` got."""
    targets: dict[str, Target] = {}
    """The jobs that were changed."""
    volumes: tuple[dict[str, Any], ...] = ()
    """Volumes that every job of ``targets`` got."""


class AddedToJob(Struct, frozen=True, omit_defaults=True, rename="camel"):
    """What was added to one replicatedJob of a runtime."""

    backoff_limit: int | None = None
    label: str | None = None
    """The value of the ancestor label."""
    termination_grace_period_seconds: int | None = None


class AddedToRuntime(Struct, frozen=True, omit_defaults=True, rename="camel"):
    """What was added to a runtime."""

    jobs: dict[str, AddedToJob] = {}
    max_restarts: int | None = None
    """``failurePolicy.maxRestarts``."""


def read_added(*objects: Raw | None) -> Added | None:
    """The record of the first of the objects (a TrainJob's old and new state) that has a readable one."""
    for text in _records(objects):
        try:
            added = msgspec.json.decode(text, type=Added)
        except (msgspec.MsgspecError, UnicodeEncodeError, RecursionError):
            continue
        named = (*added.env, *added.mounts, *added.volumes)
        if all(isinstance(item.get("name"), str) and item["name"] for item in named) and all(
            isinstance(mount.get("mountPath"), str) for mount in added.mounts
        ):
            return added
    return None


def read_added_to_runtime(*objects: Raw | None) -> AddedToRuntime | None:
    """The same for a runtime."""
    for text in _records(objects):
        try:
            return msgspec.json.decode(text, type=AddedToRuntime)
        except (msgspec.MsgspecError, UnicodeEncodeError, RecursionError):
            continue
    return None


def still_there(obj: Raw, added: Added) -> Added:
    """What of a record the TrainJob has, by name: variables each for itself, volumes with their mounts or none.

    A TrainJob that was written out, changed and created anew may carry the record of what it does not have.
    """
    spec = obj.get("spec") or {}
    names = _names((spec.get("trainer") or {}).get("env"))
    env = tuple([variable for variable in added.env if variable["name"] in names])
    volumes = {volume["name"] for volume in added.volumes}
    mounts = {mount["name"] for mount in added.mounts}
    pods = [pod for field in OVERRIDE_FIELDS for pod in pods_of(spec, field)]
    for job, target in added.targets.items():
        here = [pod.raw for pod in pods if job in pod.jobs]
        if not volumes <= {name for raw in here for name in _names(raw.get("volumes"))}:
            return Added(env)
        for container in target.containers:
            found = [one for raw in here for one in raw.get("containers") or () if one.get("name") == container]
            if not mounts <= {name for one in found for name in _names(one.get("volumeMounts"))}:
                return Added(env)
    return Added(env, added.mounts, added.targets, added.volumes)


def without_returned(obj: Raw, old: Raw, field: str) -> Raw | None:
    """A TrainJob without the parts that its old state lacks and that the record of that state says were added.

    JobSet has refused to take these from the pods, so their return changes no pod. ``field`` is the release's override
    field. None where no such part returns.
    """
    added = read_added(old)
    if added is None:
        return None
    spec, before = obj.get("spec") or {}, old.get("spec") or {}
    draft = Draft(obj)
    _take_out(draft, ("spec", "trainer", "env"), added.env, _names((before.get("trainer") or {}).get("env")))
    if before.get("trainer") is None and draft.get(("spec", "trainer")) == {"env": []}:
        draft.set(("spec", "trainer"), None)  # its mere presence changes the pods
    for pod in pods_of(spec, field):
        olds = [other.raw for other in pods_of(before, field) if not set(pod.jobs).isdisjoint(other.jobs)]
        volumes = {name for raw in olds for name in _names(raw.get("volumes"))}
        _take_out(draft, (*pod.path, "volumes"), added.volumes, volumes)
        for at, container in enumerate(pod.raw.get("containers") or ()):
            mounts = {
                name
                for raw in olds
                for other in raw.get("containers") or ()
                if other.get("name") == container.get("name")
                for name in _names(other.get("volumeMounts"))
            }
            _take_out(draft, (*pod.path, "containers", at, "volumeMounts"), added.mounts, mounts)
    return draft.object if draft.patch else None


def _take_out(draft: Draft, path: tuple[str | int, ...], added: tuple[Raw, ...], had: set[Any]) -> None:
    """Drop from a list what was added, unless it was there before."""
    items = draft.get(path) or []
    left = [item for item in items if item not in added or item["name"] in had]
    if len(left) < len(items):
        draft.set(path, left)


def _names(items: Any) -> set[Any]:
    return {item.get("name") for item in items or ()}


def record(draft: Draft, added: Added | AddedToRuntime) -> None:
    """Write the record into the object under edit."""
    draft.set(("metadata", "annotations", INJECTED), msgspec.json.encode(added, order="deterministic").decode())


def _records(objects: tuple[Raw | None, ...]) -> list[str]:
    texts: list[str] = []
    for obj in objects:
        text = (((obj or {}).get("metadata") or {}).get("annotations") or {}).get(INJECTED)
        if isinstance(text, str):
            texts.append(text)
    return texts
