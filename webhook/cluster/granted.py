"""CheckpointExceptions as the cluster or a file has them -> the exceptions of each namespace."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec
from msgspec import Raw

from webhook.cluster.table import Key, load
from webhook.model.cluster import Gap
from webhook.model.exceptions import Exceptions
from webhook.model.moment import parse_moment
from webhook.model.names import EXCEPTION
from webhook.model.policy import Exemption

_SHOWN: Final = 200
_log = logging.getLogger("ckptguard.cluster")


class Unusable(Exception):  # noqa: N818
    """A CheckpointException that excuses nothing; the text says why."""


def parse_exception(raw: Mapping[str, Any]) -> tuple[Key, Exemption]:
    """Namespace and name of a CheckpointException, and what it excuses. Raises Unusable.

    One with a field that is not known here excuses nothing: it may be what narrows it down.
    """
    metadata = raw.get("metadata")
    metadata = metadata if isinstance(metadata, dict) else {}
    namespace, name = metadata.get("namespace"), metadata.get("name")
    key = (namespace if isinstance(namespace, str) else "default", name if isinstance(name, str) else "")
    try:
        entry = msgspec.convert(raw.get("spec"), Exemption)
    except msgspec.ValidationError as error:
        raise Unusable(str(error)) from None
    if metadata.get("deletionTimestamp"):
        raise Unusable("it is being deleted")
    if parse_moment(entry.until) is None:
        raise Unusable("until is no day")
    if entry.match.namespaces:
        raise Unusable("match.namespaces: it is for its own namespace alone")
    return key, entry


def exceptions_of(raws: Iterable[Mapping[str, Any]]) -> Exceptions | Gap:
    """The exceptions that these objects of one namespace make; ``Gap.ABSENT`` where they make none."""
    entries: dict[str, Exemption] = {}
    for raw in raws:
        try:
            (_, name), entry = parse_exception(raw)
        except Unusable:
            continue
        entries[name] = entry
    return Exceptions.of_objects(entries) if entries else Gap.ABSENT


class ExceptionTable:
    """CheckpointExceptions by namespace, and what they are found by, made at the first question after a change."""

    def __init__(self) -> None:
        self._rows: dict[str, dict[str, Exemption | None]] = {}
        self._made: dict[str, Exceptions | Gap] = {}
        self._count = 0

    def put(self, raw: Raw | bytes) -> Key | None:
        found = load(raw)
        if found is None:
            return None
        metadata = found.get("metadata")
        metadata = metadata if isinstance(metadata, dict) else {}
        namespace, name = metadata.get("namespace"), metadata.get("name")
        if not (isinstance(namespace, str) and isinstance(name, str) and name):
            return None
        entry: Exemption | None = None
        try:
            _, entry = parse_exception(found)
        except Unusable as fault:
            if not metadata.get("deletionTimestamp"):
                _log.warning("%s %s/%s excuses nothing: %s", EXCEPTION, namespace, name, str(fault)[:_SHOWN])
        rows = self._rows.setdefault(sys.intern(namespace), {})
        self._count += name not in rows
        rows[name] = entry
        self._made.pop(namespace, None)
        return namespace, name

    def remove(self, key: Key) -> None:
        rows = self._rows.get(key[0])
        if rows is None or key[1] not in rows:
            return
        del rows[key[1]]
        self._count -= 1
        self._made.pop(key[0], None)
        if not rows:
            del self._rows[key[0]]

    def of(self, namespace: str) -> Exceptions | Gap:
        """The exceptions of a namespace; ``Gap.ABSENT`` where it has none."""
        rows = self._rows.get(namespace)
        if rows is None:
            return Gap.ABSENT
        made = self._made.get(namespace)
        if made is None:
            entries = {name: entry for name, entry in rows.items() if entry is not None}
            made = self._made[namespace] = Exceptions.of_objects(entries) if entries else Gap.ABSENT
        return made

    def all_keys(self) -> Iterator[Key]:
        for namespace, rows in self._rows.items():
            for name in rows:
                yield namespace, name

    def __len__(self) -> int:
        return self._count
