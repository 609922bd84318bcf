"""What is kept of a cluster, small: tens of thousands of claims and volumes share a few dozen values.

A claim is its name, the name of its volume, and a *shape*: a ``Claim`` without names, which all claims that agree in
every other field share. A volume likewise. The model's value is put together when it is asked for.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Generic, Protocol, TypeVar

import msgspec
import orjson
from msgspec import Raw, Struct

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
    ClaimRef,
    LeanClaim,
    LeanVolume,
    Source,
    Zones,
    served_release,
)
from webhook.cluster.objects import (
    NOT_SOURCES,
    created,
    first_classes,
    parse_claim,
    parse_csi_driver,
    parse_labels,
    parse_namespace,
    parse_run,
    parse_runtime,
    parse_storage_class,
    parse_volume,
)
from webhook.cluster.served import unknown_parts
from webhook.model.budget import worth
from webhook.model.cluster import (
    Claim,
    CsiDriver,
    Gap,
    Namespace,
    PersistentVolume,
    Run,
    RunDirectory,
    Runtime,
    StorageClass,
    finished,
)
from webhook.model.names import ALLOW, LAST_APPLIED, PREFIX
from webhook.model.release import Release
from webhook.model.request import MalformedObject
from webhook.model.shape import check_shape

Key = tuple[str, str]
"""Namespace (empty where there is none) and name."""

_Free = tuple[Key | None, Mapping[str, str]]
"""Of a volume that no claim holds: the claim that it is kept for, and its labels."""
_NOTHING: Final[_Free] = (None, {})
_SHAPES: Final = 8192
"""Shapes that are known at a time. Past it they are forgotten (those in use live on with their users)."""
_PENDING: Final = 2000
_HEAVY: Final = 500
_UNHELD: Final = ("", "Available", "Pending")


class Table(Protocol):
    """The objects of one kind."""

    def put(self, raw: Raw | bytes) -> Key | None:
        """Takes in an object as JSON, new or changed; its key, or None where it has no name or cannot be read."""
        ...

    def remove(self, key: Key) -> None:
        """Forgets an object."""
        ...

    def all_keys(self) -> Iterator[Key]: ...

    def __len__(self) -> int: ...


_ODD = (msgspec.MsgspecError, UnicodeDecodeError)
"""What the decoder raises for an object that is not of the usual form; bytes that are no UTF-8 before msgspec 0.23."""


class ClaimTable:
    """PersistentVolumeClaims."""

    def __init__(self) -> None:
        self._rows: dict[str, dict[str, _Row]] = {}
        self._shapes: dict[tuple[bytes, ...], Claim] = {}
        self._decode = msgspec.json.Decoder(LeanClaim).decode
        self._count = 0

    def put(self, raw: Raw | bytes) -> Key | None:
        try:
            lean = self._decode(raw)
        except _ODD:
            return self._put_odd(raw)
        spec, status, meta = lean.spec, lean.status, lean.metadata
        shape_key = (
            bytes(spec.access_modes) if spec else b"",
            bytes(spec.storage_class_name) if spec else b"",
            bytes(spec.volume_mode) if spec else b"",
            bytes(spec.resources) if spec else b"",
            bytes(status.phase) if status else b"",
            bytes(status.capacity) if status else b"",
            bytes(meta.annotations.value) if meta.annotations else b"",
            b"t" if meta.deletion_timestamp else b"",
            bytes(spec.selector) if spec else b"",
        )
        shape = self._shapes.get(shape_key)
        if shape is None:
            try:
                shape = _share(self._shapes, shape_key, _claim_shape(shape_key))
            except orjson.JSONDecodeError:  # no UTF-8 in what was only cut out until now
                return self._put_odd(raw)
        return self._set(meta.namespace, meta.name, (spec.volume_name or "") if spec else "", shape)

    def _put_odd(self, raw: Raw | bytes) -> Key | None:
        """An object whose fields have other types than the API's: read without trust."""
        found = load(raw)
        if found is None:
            return None
        claim = parse_claim(found)
        return self._set(
            claim.namespace, claim.name, claim.volume_name, msgspec.structs.replace(claim, labels={}, made_for="")
        )

    def _set(self, namespace: str, name: str, volume: str, shape: Claim) -> Key | None:
        if not name:
            return None
        rows = self._rows.get(namespace)
        if rows is None:
            rows = self._rows[sys.intern(namespace)] = {}
        before = rows.get(name)
        if before is None:
            self._count += 1
        elif before.shape is shape and before.volume == volume:
            return namespace, name
        # The volume has its name too: one string for both.
        rows[name] = _Row(sys.intern(volume), shape)
        return namespace, name

    def remove(self, key: Key) -> None:
        rows = self._rows.get(key[0])
        if rows is not None and rows.pop(key[1], None) is not None:
            self._count -= 1
            if not rows:
                del self._rows[key[0]]

    def get(self, namespace: str, name: str) -> Claim | None:
        rows = self._rows.get(namespace)
        row = rows.get(name) if rows is not None else None
        if row is None:
            return None
        kept = row.shape
        return Claim(
            namespace,
            name,
            kept.access_modes,
            kept.storage_class,
            row.volume,
            kept.volume_mode,
            kept.phase,
            kept.request,
            kept.capacity,
            kept.terminating,
            selector=kept.selector,
        )

    def all_keys(self) -> Iterator[Key]:
        for namespace, rows in self._rows.items():
            for name in rows:
                yield namespace, name

    def __len__(self) -> int:
        return self._count


class _Row(Struct, gc=False):
    volume: str
    shape: Claim


class VolumeTable:
    """PersistentVolumes, and of those that no claim holds yet an index by class."""

    def __init__(self) -> None:
        self._rows: dict[str, PersistentVolume] = {}
        self._free: dict[str, dict[str, _Free]] = {}
        self._built: dict[str, list[PersistentVolume]] = {}
        self._shapes: dict[tuple[bytes, ...], PersistentVolume] = {}
        self._decode = msgspec.json.Decoder(LeanVolume).decode
        self._source = msgspec.json.Decoder(Source).decode
        self._reference = msgspec.json.Decoder(ClaimRef).decode
        self._zones = msgspec.json.Decoder(Zones).decode

    def put(self, raw: Raw | bytes) -> Key | None:
        try:
            lean = self._decode(raw)
            spec, status, meta = lean.spec or {}, lean.status, lean.metadata
            parts: list[bytes] = [
                bytes(status.phase) if status else b"",
                bytes(meta.annotations.value) if meta.annotations else b"",
                _zone(self._zones(meta.labels)) if bytes(meta.labels) not in (b"", b"null") else b"",
            ]
            holder: Raw | None = None
            for name, value in spec.items():
                if name in _KEPT:
                    parts.append(name.encode())
                    parts.append(bytes(value))
                elif name == "claimRef":
                    holder = value
                elif name not in NOT_SOURCES:
                    source = self._source(value)
                    parts += (b"source", name.encode(), bytes(source.driver), bytes(source.read_only))
            shape_key = tuple(parts)
            shape = self._shapes.get(shape_key)
            if shape is None:
                shape = _share(self._shapes, shape_key, _volume_shape(shape_key))
            free = self._free_of(holder, meta.labels) if shape.phase in _UNHELD else _NOTHING
        except (*_ODD, orjson.JSONDecodeError):
            found = load(raw)
            if found is None:
                return None
            volume = parse_volume(found)
            free = (volume.claim_ref, volume.labels)
            return self._set(volume.name, msgspec.structs.replace(volume, name="", labels={}, claim_ref=None), free)
        return self._set(meta.name, shape, free)

    def _free_of(self, holder: Raw | None, labels: Raw) -> _Free:
        claim: Key | None = None
        if holder is not None:
            reference = self._reference(holder)
            claim = (reference.namespace, reference.name) if reference.name else None
        return claim, parse_labels(_value(bytes(labels)))

    def _set(self, name: str, shape: PersistentVolume, free: _Free) -> Key | None:
        if not name:
            return None
        before = self._rows.get(name)
        if before is not shape:
            if before is not None and before.phase in _UNHELD:
                self._forget(before.storage_class, name)
            self._rows[sys.intern(name)] = shape
        if shape.phase in _UNHELD:
            self._free.setdefault(shape.storage_class, {})[name] = free
            self._built.pop(shape.storage_class, None)
        return "", name

    def _forget(self, storage_class: str, name: str) -> None:
        free = self._free.get(storage_class)
        if free is not None:
            free.pop(name, None)
            if not free:
                del self._free[storage_class]
        self._built.pop(storage_class, None)

    def remove(self, key: Key) -> None:
        shape = self._rows.pop(key[1], None)
        if shape is not None and shape.phase in _UNHELD:
            self._forget(shape.storage_class, key[1])

    def get(self, name: str) -> PersistentVolume | None:
        shape = self._rows.get(name)
        return (
            None if shape is None else _named(shape, name, *self._free.get(shape.storage_class, {}).get(name, _NOTHING))
        )

    def available(self, storage_class: str) -> Sequence[PersistentVolume]:
        """The volumes of a class that no claim holds; built at the first call after a change."""
        found = self._built.get(storage_class)
        if found is None:
            free = self._free.get(storage_class, {})
            found = [_named(self._rows[name], name, *more) for name, more in free.items()]
            self._built[storage_class] = found
        return found

    def all_keys(self) -> Iterator[Key]:
        for name in self._rows:
            yield "", name

    def __len__(self) -> int:
        return len(self._rows)


class ClassTable:
    """StorageClasses."""

    def __init__(self) -> None:
        self._rows: dict[str, tuple[StorageClass, str]] = {}
        self._default: StorageClass | Gap | None = None

    def put(self, raw: Raw | bytes) -> Key | None:
        found = load(raw)
        if found is None:
            return None
        made = parse_storage_class(found)
        options = {key: value for key, value in made.parameters.items() if "option" in key.lower()}
        made = msgspec.structs.replace(made, parameters=options)
        if not made.name:
            return None
        self._rows[made.name] = (made, created(found))
        self._default = None
        return "", made.name

    def remove(self, key: Key) -> None:
        self._rows.pop(key[1], None)
        self._default = None

    def get(self, name: str) -> StorageClass | None:
        found = self._rows.get(name)
        return None if found is None else found[0]

    def default(self) -> StorageClass | Gap:
        """Of several defaults the newest, then the first by name, as Kubernetes' admission."""
        if self._default is None:
            best = default_class(self._rows.values())
            self._default = Gap.ABSENT if best is None else best
        return self._default

    def some(self) -> Sequence[StorageClass]:
        """The default one first, cut off at ``SOME_CLASSES``."""
        return first_classes(self.default(), (found for found, _ in self._rows.values()))

    def all_keys(self) -> Iterator[Key]:
        for name in self._rows:
            yield "", name

    def __len__(self) -> int:
        return len(self._rows)


def default_class(among: Iterable[tuple[StorageClass, str]]) -> StorageClass | None:
    """The default of classes with their creation times."""
    best: tuple[StorageClass, str] | None = None
    for entry in among:
        if entry[0].default and (
            best is None or entry[1] > best[1] or (entry[1] == best[1] and entry[0].name < best[0].name)
        ):
            best = entry
    return None if best is None else best[0]


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


class Later:
    """The type of ``LATER``."""


LATER: Final = Later()
Directories = Callable[[Mapping[str, Any]], Iterable[tuple[str, str]] | Later | None]
"""The directories that a TrainJob writes to, as pairs of claim and path on it; None where its runtime is not known,
``LATER`` where working them out is too heavy for here and now."""


class _Kept(Struct):
    run: Run
    generation: object
    directories: tuple[tuple[str, str], ...]


class RunTable:
    """Unfinished TrainJobs and the checkpoint directories that they write to."""

    def __init__(self) -> None:
        self._directories: Directories = lambda trainjob: ()
        self._rows: dict[Key, _Kept] = {}
        self._by_runtime: dict[tuple[str, str, str], dict[Key, None]] = {}
        self._by_claim: dict[Key, dict[str, dict[str, RunDirectory]]] = {}
        self._pending: dict[Key, dict[str, Any]] = {}
        """TrainJobs whose runtime is not known yet, whole."""
        self._heavy: dict[Key, dict[str, Any]] = {}
        """TrainJobs whose directories are worked out elsewhere, whole, until they are."""
        self.heavy_came: Callable[[], None] = lambda: None
        self._excused: dict[str, set[str]] = {}
        """Namespace -> names of those with an annotation that excuses."""

    def work_out_by(self, directories: Directories) -> None:
        """What to work the directories of further TrainJobs out with."""
        self._directories = directories

    def put(self, raw: Raw | bytes) -> Key | None:
        found = load(raw)
        if found is None:
            return None
        run = parse_run(found)
        key = (run.namespace, run.name)
        if not run.name:
            return None
        if finished(found):
            self.remove(key)
            return key
        self._note_excused(key, found)
        before = self._rows.get(key)
        generation = (found.get("metadata") or {}).get("generation")
        if (
            before is not None
            and generation is not None
            and before.generation == generation
            and before.run == run
            and key not in self._pending
            and key not in self._heavy
        ):
            # Its status changed, or an annotation: the pods are the same, and so is its queue.
            return key
        self._forget(key)
        self._rows[key] = _Kept(run, generation, ())
        self._by_runtime.setdefault(_runtime_key(run), {})[key] = None
        self._work_out(key, found)
        return key

    def redo(self) -> None:
        """Works the directories of every TrainJob out again when it is next put, whatever its generation."""
        for kept in self._rows.values():
            kept.generation = None

    def _work_out(self, key: Key, found: dict[str, Any]) -> None:
        kept = self._rows[key]
        try:
            directories = self._directories(found)
        except Exception:  # a fault of the engine on this object: without it the others are still told
            directories = ()
        if directories is None:
            if len(self._pending) < _PENDING:
                self._pending[key] = found
            return
        self._pending.pop(key, None)
        if isinstance(directories, Later):
            if len(self._heavy) < _HEAVY:
                self._heavy[key] = found
                self.heavy_came()
            return
        self._settle(key, kept, directories)

    def next_heavy(self) -> tuple[Key, dict[str, Any]] | None:
        """A TrainJob whose directories are to be worked out elsewhere; it waits on until ``settle``."""
        return next(iter(self._heavy.items()), None)

    def settle(self, key: Key, found: dict[str, Any], directories: Iterable[tuple[str, str]]) -> None:
        """What was worked out for ``next_heavy``; nothing happens where the TrainJob has changed meanwhile."""
        if self._heavy.get(key) is found:
            del self._heavy[key]
            self._settle(key, self._rows[key], directories)

    def _settle(self, key: Key, kept: _Kept, directories: Iterable[tuple[str, str]]) -> None:
        kept.directories = tuple(dict.fromkeys(directories))
        for claim, path in kept.directories:
            places = self._by_claim.setdefault((key[0], claim), {})
            places.setdefault(path, {})[key[1]] = RunDirectory(kept.run, claim, path)

    def runtime_came(self, runtime: tuple[str, str, str]) -> None:
        """Works out the directories of those TrainJobs that waited for this runtime (kind, namespace, name)."""
        for key in list(self._by_runtime.get(runtime, ())):
            if (found := self._pending.get(key)) is not None:
                self._work_out(key, found)

    def _note_excused(self, key: Key, found: dict[str, Any]) -> None:
        annotations = (found.get("metadata") or {}).get("annotations")
        names = self._excused.get(key[0])
        if isinstance(annotations, dict) and annotations.get(ALLOW):
            self._excused.setdefault(key[0], set()).add(key[1])
        elif names is not None:
            names.discard(key[1])
            if not names:
                del self._excused[key[0]]

    def excused(self, namespace: str, besides: str) -> int:
        """How many carry an annotation that excuses, but for one name."""
        names = self._excused.get(namespace, ())
        return len(names) - (besides in names)

    def remove(self, key: Key) -> None:
        self._note_excused(key, {})
        self._forget(key)

    def _forget(self, key: Key) -> None:
        kept = self._rows.pop(key, None)
        self._pending.pop(key, None)
        self._heavy.pop(key, None)
        if kept is None:
            return
        runtime = _runtime_key(kept.run)
        of_runtime = self._by_runtime.get(runtime)
        if of_runtime is not None:
            of_runtime.pop(key, None)
            if not of_runtime:
                del self._by_runtime[runtime]
        for claim, path in kept.directories:
            places = self._by_claim.get((key[0], claim), {})
            runs = places.get(path, {})
            runs.pop(key[1], None)
            if not runs:
                places.pop(path, None)
            if not places:
                self._by_claim.pop((key[0], claim), None)

    def of_runtime(self, kind: str, namespace: str, name: str) -> Sequence[Run]:
        scope = "" if kind == CLUSTER_RUNTIME else namespace
        return [self._rows[key].run for key in self._by_runtime.get((kind, scope, name), ())]

    def directories(self, namespace: str, claim: str, path: str | None) -> Sequence[RunDirectory]:
        """By name of the TrainJob."""
        places = self._by_claim.get((namespace, claim))
        if places is None:
            return ()
        if path is not None:
            runs = places.get(path, {})
            return [runs[name] for name in sorted(runs)]
        return sorted((found for runs in places.values() for found in runs.values()), key=_by_run)

    def all_keys(self) -> Iterator[Key]:
        yield from self._rows

    def __len__(self) -> int:
        return len(self._rows)


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


_KEPT: Final = frozenset(("accessModes", "capacity", "storageClassName", "volumeMode", "mountOptions", "nodeAffinity"))


def _claim_shape(key: tuple[bytes, ...]) -> Claim:
    modes, storage_class, mode, resources, phase, capacity, beta, terminating, selector = key
    spec = {
        "accessModes": _value(modes),
        "storageClassName": _value(storage_class),
        "volumeMode": _value(mode),
        "resources": _value(resources),
        "selector": _value(selector),
    }
    metadata: dict[str, Any] = {"deletionTimestamp": "set"} if terminating else {}
    if beta:
        metadata["annotations"] = {"volume.beta.kubernetes.io/storage-class": _value(beta)}
    status = {"phase": _value(phase), "capacity": _value(capacity)}
    return parse_claim({"metadata": metadata, "spec": spec, "status": status})


def _volume_shape(key: tuple[bytes, ...]) -> PersistentVolume:
    phase, beta, zone = key[:3]
    metadata: dict[str, Any] = {}
    if beta:
        metadata["annotations"] = {"volume.beta.kubernetes.io/storage-class": _value(beta)}
    if zone:
        metadata["labels"] = {"topology.kubernetes.io/zone": zone.decode()}
    spec: dict[str, Any] = {}
    at = 3
    while at < len(key):
        if key[at] == b"source":
            name, driver, read_only = key[at + 1 : at + 4]
            spec[name.decode()] = {"driver": _value(driver), "readOnly": _value(read_only)}
            at += 4
        else:
            spec[key[at].decode()] = _value(key[at + 1])
            at += 2
    made = parse_volume({"metadata": metadata, "spec": spec, "status": {"phase": _value(phase)}})
    return msgspec.structs.replace(made, labels={})


def _named(shape: PersistentVolume, name: str, claim: Key | None, labels: Mapping[str, str]) -> PersistentVolume:
    return PersistentVolume(
        name,
        shape.access_modes,
        shape.storage_class,
        shape.source,
        shape.driver,
        shape.read_only,
        shape.mount_options,
        shape.node_affinity,
        shape.zones,
        labels,
        shape.phase,
        claim,
        shape.volume_mode,
        shape.capacity,
    )


def _zone(labels: Zones) -> bytes:
    return (labels.zone or labels.old).encode()


def _share(shapes: dict[tuple[bytes, ...], Any], key: tuple[bytes, ...], made: Any) -> Any:
    if len(shapes) >= _SHAPES:
        shapes.clear()
    shapes[key] = made
    return made


def _value(raw: bytes) -> Any:
    return orjson.loads(raw) if raw else None


def load(raw: Raw | bytes) -> dict[str, Any] | None:
    """An object from its JSON; None where it is none."""
    try:
        found = orjson.loads(memoryview(raw))
    except orjson.JSONDecodeError:
        return None
    return found if isinstance(found, dict) else None


def _runtime_key(run: Run) -> tuple[str, str, str]:
    return run.runtime_kind, "" if run.runtime_kind == CLUSTER_RUNTIME else run.namespace, run.runtime_name


def _by_run(found: RunDirectory) -> tuple[str, str]:
    return found.run.name, found.path
