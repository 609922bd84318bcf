"""What is kept of a cluster, small: tens of thousands of claims and volumes share a few dozen values.

A claim is its name, the name of its volume, and a *shape*: a ``Claim`` without names, which all claims that agree in
every other field share. A volume likewise. The model's value is put together when it is asked for.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Generic, TypeVar

from msgspec import Raw

from webhook.cluster.granted import ExceptionTable
from webhook.cluster.kinds import (
    CLAIM,
    CLASS,
    CLUSTER_RUNTIME,
    CRD,
    CSI_DRIVER,
    NAMESPACE,
    RUNTIME,
    TRAINJOB,
    TRAINJOB_CRD,
    VOLUME,
    served_release,
)
from webhook.cluster.objects import parse_csi_driver, parse_namespace, parse_runtime
from webhook.cluster.run_table import RunTable
from webhook.cluster.served import unknown_parts
from webhook.cluster.storage_tables import ClaimTable, ClassTable, VolumeTable
from webhook.cluster.table import Key, Table, load
from webhook.model.budget import worth
from webhook.model.cluster import CsiDriver, Namespace, Runtime
from webhook.model.names import EXCEPTION, LAST_APPLIED, PREFIX
from webhook.model.release import Release
from webhook.model.request import MalformedObject
from webhook.model.shape import check_shape

_Named = TypeVar("_Named", CsiDriver, Namespace)


class NamedTable(Generic[_Named]):
    """Objects of a kind without namespaces, each by its name, made of the raw object by ``parse``."""

    def __init__(self, parse: Callable[[Mapping[str, Any]], _Named]) -> None:
        self._rows: dict[str, _Named] = {}
        self._parse: Callable[[Mapping[str, Any]], _Named] = parse

    def put(self, raw: Raw | bytes) -> Key | None:
        found = load(raw)
        made = None if found is None else self._parse(found)
        if made is None or not made.name:
            return None
        self._rows[made.name] = made
        return "", made.name

    def remove(self, key: Key) -> None:
        self._rows.pop(key[1], None)

    def get(self, name: str) -> _Named | None:
        return self._rows.get(name)

    def all_keys(self) -> Iterator[Key]:
        for name in self._rows:
            yield "", name

    def __len__(self) -> int:
        return len(self._rows)


class RuntimeTable:
    """The runtimes of one kind. What the engine prepared for one lives until it changes."""

    def __init__(self, kind: str, changed: Callable[[Key], None] = lambda key: None) -> None:
        self._kind = kind
        self._rows: dict[Key, Runtime] = {}
        self._changed = changed
        self._weights: dict[Key, int] = {}
        self.faults: dict[Key, str] = {}
        """Runtimes that cannot be read, with the reason."""

    def put(self, raw: Raw | bytes) -> Key | None:
        found = load(raw)
        if found is None:
            return None
        found["kind"] = self._kind  # items of a LIST do not say it
        made, fault = keep_runtime(found)
        key = (made.namespace, made.name)
        if not made.name:
            return None
        if fault is not None:
            self.faults[key] = fault
            self._rows.pop(key, None)
            return key
        self.faults.pop(key, None)
        self._weights[key] = worth(bytes(raw))
        before = self._rows.get(key)
        if before is None or not same_version(before, made):
            self._rows[key] = made
            self._changed(key)
        return key

    def remove(self, key: Key) -> None:
        self._rows.pop(key, None)
        self._weights.pop(key, None)
        self.faults.pop(key, None)

    def weight(self, namespace: str, name: str) -> int:
        """What a runtime as JSON is worth (``budget.worth``); 0 where it is not known."""
        return self._weights.get((namespace, name), 0)

    def get(self, namespace: str, name: str) -> Runtime | None:
        return self._rows.get((namespace, name))

    def all_keys(self) -> Iterator[Key]:
        yield from self._rows
        yield from self.faults

    def __len__(self) -> int:
        return len(self._rows) + len(self.faults)


class ServedTable:
    """The CRD of TrainJobs, of which only the release is kept that it stands for, and what no known one has."""

    def __init__(self, changed: Callable[[], None] = lambda: None) -> None:
        self.release: Release | None = None
        self.unknown: tuple[str, ...] = ()
        self._there = False
        self._changed = changed

    def put(self, raw: Raw | bytes) -> Key | None:
        found = load(raw)
        if found is None:
            return None
        try:
            self.release, self.unknown = served_release(found), unknown_parts(found)
        except (AttributeError, TypeError):
            self.release, self.unknown = None, ()
        self._there = True
        self._changed()
        return "", TRAINJOB_CRD

    def remove(self, key: Key) -> None:
        self.release, self.unknown = None, ()
        self._there = False
        self._changed()

    def all_keys(self) -> Iterator[Key]:
        if self._there:
            yield "", TRAINJOB_CRD

    def __len__(self) -> int:
        return int(self._there)


class Tables:
    """All tables, filled by watches and read by views. ``served_changed`` is called when Trainer's CRD changes."""

    def __init__(self) -> None:
        self.claims = ClaimTable()
        self.volumes = VolumeTable()
        self.classes = ClassTable()
        self.drivers = NamedTable(parse_csi_driver)
        self.namespaces = NamedTable(keep_namespace)
        self.exceptions = ExceptionTable()
        self.runs = RunTable()
        self.cluster_runtimes = RuntimeTable(
            CLUSTER_RUNTIME, lambda key: self.runs.runtime_came((CLUSTER_RUNTIME, "", key[1]))
        )
        self.runtimes = RuntimeTable(RUNTIME, lambda key: self.runs.runtime_came((RUNTIME, *key)))
        self.served = ServedTable(lambda: self.served_changed())
        self.served_changed: Callable[[], None] = lambda: None
        self.kueue: bool | None = None
        """Whether the cluster serves Kueue; None: not known (``served.follow_kueue``)."""
        self.by_kind: dict[str, Table] = {
            CLAIM: self.claims,
            VOLUME: self.volumes,
            CLASS: self.classes,
            CSI_DRIVER: self.drivers,
            NAMESPACE: self.namespaces,
            RUNTIME: self.runtimes,
            CLUSTER_RUNTIME: self.cluster_runtimes,
            TRAINJOB: self.runs,
            CRD: self.served,
            EXCEPTION: self.exceptions,
        }

    def runtime(self, kind: str, namespace: str, name: str) -> Runtime | None:
        if kind == CLUSTER_RUNTIME:
            return self.cluster_runtimes.get("", name)
        return self.runtimes.get(namespace, name)

    def runtime_weight(self, kind: str, namespace: str, name: str) -> int:
        """Bytes of a runtime as JSON; 0 where it is not known."""
        if kind == CLUSTER_RUNTIME:
            return self.cluster_runtimes.weight("", name)
        return self.runtimes.weight(namespace, name)

    def runtime_fault(self, kind: str, namespace: str, name: str) -> str | None:
        """Why a runtime that is there cannot be read."""
        if kind == CLUSTER_RUNTIME:
            return self.cluster_runtimes.faults.get(("", name))
        return self.runtimes.faults.get((namespace, name))


def keep_namespace(raw: Mapping[str, Any]) -> Namespace:
    """A Namespace with its labels and those annotations that are ours."""
    found = parse_namespace(raw)
    ours = {name: value for name, value in found.annotations.items() if name.startswith(PREFIX)}
    labels = {sys.intern(key): sys.intern(value) for key, value in found.labels.items()}
    return Namespace(found.name, labels, ours, found.terminating)


def keep_runtime(raw: dict[str, Any]) -> tuple[Runtime, str | None]:
    """A runtime without what no rule reads (``raw`` is changed), and what is wrong with its fields, if anything."""
    metadata = raw.get("metadata")
    if isinstance(metadata, dict):
        metadata.pop("managedFields", None)
        if isinstance(metadata.get("annotations"), dict):
            metadata["annotations"].pop(LAST_APPLIED, None)
    made = parse_runtime(raw)
    try:
        check_shape(made.kind, raw)
    except MalformedObject as fault:
        return made, f"{made.label} is stored with a field of a wrong type: {fault}"
    return made, None


def same_version(one: Runtime, other: Runtime) -> bool:
    """Whether both are the same state of the same object."""
    mine, its = one.raw.get("metadata") or {}, other.raw.get("metadata") or {}
    version = mine.get("resourceVersion")
    return bool(version) and version == its.get("resourceVersion") and mine.get("uid") == its.get("uid")
