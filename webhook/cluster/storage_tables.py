"""Claims, volumes and classes, small: a claim or volume is its name and a *shape* that many share."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec
import orjson
from msgspec import Raw, Struct

from webhook.cluster.kinds import ClaimRef, LeanClaim, LeanVolume, Source, Zones
from webhook.cluster.objects import (
    NOT_SOURCES,
    created,
    first_classes,
    parse_claim,
    parse_labels,
    parse_storage_class,
    parse_volume,
)
from webhook.cluster.table import Key, load
from webhook.model.cluster import Claim, Gap, PersistentVolume, StorageClass

_Free = tuple[Key | None, Mapping[str, str]]
"""Of a volume that no claim holds: the claim that it is kept for, and its labels."""
_NOTHING: Final[_Free] = (None, {})
_SHAPES: Final = 8192
"""Shapes that are known at a time. Past it they are forgotten (those in use live on with their users)."""
_UNHELD: Final = ("", "Available", "Pending")


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
                    path = bytes(source.path) if name == "hostPath" else b""
                    parts += (b"source", name.encode(), bytes(source.driver), bytes(source.read_only), path)
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
            name, driver, read_only, path = key[at + 1 : at + 5]
            spec[name.decode()] = {"driver": _value(driver), "readOnly": _value(read_only), "path": _value(path)}
            at += 5
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
        shape.host_path,
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
