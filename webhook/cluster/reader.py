"""Single reads of the API server, where the tables cannot be trusted."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from time import monotonic
from typing import Any, Final

import msgspec
import orjson

from webhook.cluster.access import NoCluster, Refused, Unreachable
from webhook.cluster.connection import Connection
from webhook.cluster.granted import exceptions_of
from webhook.cluster.kinds import (
    CLAIM,
    CLASS,
    CLUSTER_RUNTIME,
    CONFIG_MAP,
    CSI_DRIVER,
    KINDS,
    NAMESPACE,
    RUNTIME,
    TRAINJOB,
    VOLUME,
    Page,
)
from webhook.cluster.objects import (
    clipped,
    created,
    parse_claim,
    parse_config_map,
    parse_csi_driver,
    parse_run,
    parse_storage_class,
    snapshot_text,
)
from webhook.cluster.storage_tables import VolumeTable, default_class
from webhook.cluster.table import load
from webhook.cluster.tables import Tables, keep_namespace, keep_runtime, same_version
from webhook.cluster.watch import Watch
from webhook.model.cluster import Gap, Runtime, finished
from webhook.model.names import EXCEPTION

Wanted = tuple[str, str, str]
"""Kind, namespace, name. All available volumes of a class, and the default class, are kinds of their own."""

FREE_VOLUMES: Final = "available PersistentVolumes"
DEFAULT_CLASS: Final = "default StorageClass"
TRAINJOBS: Final = "TrainJobs"
"""All of a namespace, or of all namespaces."""

PROGRAM: Final = "ConfigMap with a program"
"""Told from the ConfigMaps that are Trainer's copies of runtimes."""

EXCEPTIONS: Final = "CheckpointExceptions"
"""All of a namespace. What the table has stands where reading it once more fails."""

LISTS: Final = (FREE_VOLUMES, DEFAULT_CLASS, TRAINJOBS)
_LISTED: Final = (*LISTS, EXCEPTIONS)
_FORBIDDEN_SECONDS: Final = 10.0
_LISTED_AT_MOST: Final = 5000
"""Volumes. Listing more would take longer than a request may wait."""
_SETTLE_SECONDS: Final = 0.3
_STEP_SECONDS: Final = 0.02
_STEPS: Final = 60
_NAME: Final = frozenset("abcdefghijklmnopqrstuvwxyz0123456789-.")
_page = msgspec.json.Decoder(Page).decode

_log = logging.getLogger("ckptguard.cluster")

Reads = Callable[[str], None]
"""Told the result of every live read: found, absent, forbidden, failed."""


class Answer(msgspec.Struct, frozen=True):
    """What a live read found. ``value`` is the model's value, ``why`` the reason where it is ``Gap.UNKNOWN``."""

    value: Any
    why: str = ""


ABSENT: Final = Answer(Gap.ABSENT)


class _Flight(msgspec.Struct):
    """A read on its way, and when it left."""

    task: asyncio.Task[Answer]
    left: float


class Reader:
    """Single live reads. Those who want the same object at the same time share one."""

    def __init__(
        self,
        connection: Connection,
        who: str = "the guard's service account",
        seconds: float = 2.0,
        at_once: int = 256,
        told: Reads = lambda result: None,
        tables: Tables | None = None,
        volumes: Watch | None = None,
    ) -> None:
        self.who = who
        self._connection = connection
        self._seconds = seconds
        self._turn = asyncio.Semaphore(at_once)
        self._told = told
        self._tables = tables
        self._volumes = volumes
        self._flights: dict[Wanted, _Flight] = {}
        self._forbidden: dict[tuple[str, str], tuple[float, Answer]] = {}

    async def read(self, wanted: Wanted, since: float) -> Answer:
        """The object as it is. That it is absent is only believed of a read that left after ``since`` (monotonic)."""
        refused = self._forbidden.get(wanted[:2])
        if refused is not None:
            if monotonic() < refused[0]:
                return refused[1]
            del self._forbidden[wanted[:2]]
        flight = self._flights.get(wanted)
        if flight is not None and flight.left < since:
            answer = await asyncio.shield(flight.task)
            if not isinstance(answer.value, Gap):
                return answer
            flight = self._flights.get(wanted)
        if flight is None or flight.left < since:
            flight = self._start(wanted)
        return await asyncio.shield(flight.task)

    def _start(self, wanted: Wanted) -> _Flight:
        # It leaves when the task has its turn, at the earliest; whoever comes until then may share it.
        flight = _Flight(asyncio.get_running_loop().create_task(self._fly(wanted)), float("inf"))
        self._flights[wanted] = flight
        return flight

    async def _fly(self, wanted: Wanted) -> Answer:
        mine = self._flights[wanted]
        try:
            async with self._turn:
                mine.left = monotonic()
                async with asyncio.timeout(self._seconds):
                    answer = await self._ask(wanted)
            self._told("absent" if answer.value is Gap.ABSENT else "failed" if answer.value is Gap.UNKNOWN else "found")
        except Refused as refused:
            if refused.status == 404:
                self._told("absent")
                return ABSENT
            if refused.status == 403:
                self._told("forbidden")
                answer = Answer(Gap.UNKNOWN, forbidden(self.who, wanted))
                if len(self._forbidden) > 1000:
                    self._forbidden.clear()
                self._forbidden[wanted[:2]] = (monotonic() + _FORBIDDEN_SECONDS, answer)
                return answer
            self._told("failed")
            words = "does not accept the credentials" if refused.status == 401 else f"answers {refused.status}"
            return Answer(Gap.UNKNOWN, f"the API server {words} when asked for {_words(wanted)}")
        except (Unreachable, NoCluster, TimeoutError) as error:
            self._told("failed")
            words = str(error) or f"no answer within {self._seconds:g} s"
            return Answer(Gap.UNKNOWN, f"the API server was asked for {_words(wanted)}: {words}")
        except Exception as error:
            self._told("failed")
            if not isinstance(error, (msgspec.MsgspecError, orjson.JSONDecodeError, UnicodeDecodeError)):
                _log.error("%s cannot be taken in: %s", wanted[0], type(error).__name__, exc_info=error)
            return Answer(Gap.UNKNOWN, f"the API server sent {_words(wanted)} in a form that cannot be read")
        finally:
            if self._flights.get(wanted) is mine:
                del self._flights[wanted]
        return answer

    async def _ask(self, wanted: Wanted) -> Answer:
        kind, namespace, name = wanted
        if kind == FREE_VOLUMES:
            return await self._free_volumes(name)
        if kind == DEFAULT_CLASS:
            listed = (load(item) for item in await self._list(CLASS))
            classes = [(parse_storage_class(raw), created(raw)) for raw in listed if raw is not None]
            return Answer(default_class(classes) or Gap.ABSENT)
        if kind == TRAINJOBS:
            found = (load(item) for item in await self._list(TRAINJOB, namespace))
            return Answer([raw for raw in found if raw is not None])
        if kind == EXCEPTIONS:
            return await self._exceptions(namespace)
        raw = load(await self._connection.get(KINDS[kind_of(wanted)].path(namespace, name)))
        if raw is None:
            raise msgspec.DecodeError("no object")
        if kind == PROGRAM:
            return Answer(clipped(parse_config_map(raw)))
        return self._made(kind, raw)

    def _made(self, kind: str, raw: dict[str, Any]) -> Answer:
        if kind == CLAIM:
            return Answer(msgspec.structs.replace(parse_claim(raw), labels={}))
        if kind == VOLUME:
            table = VolumeTable()
            key = table.put(orjson.dumps(raw))
            return Answer((table.get(key[1]) if key is not None else None) or Gap.ABSENT)
        if kind == CLASS:
            return Answer(parse_storage_class(raw))
        if kind == CSI_DRIVER:
            return Answer(parse_csi_driver(raw))
        if kind == NAMESPACE:
            return Answer(keep_namespace(raw))
        if kind == CONFIG_MAP:
            return Answer(runtime_of_copy(raw) or Gap.ABSENT)
        if kind == TRAINJOB:  # one that is over or going needs nothing
            return ABSENT if finished(raw) or raw["metadata"].get("deletionTimestamp") else Answer(parse_run(raw))
        raw["kind"] = kind
        made, fault = keep_runtime(raw)
        if fault is not None:
            return Answer(Gap.UNKNOWN, fault)
        if self._tables is not None:
            known = self._tables.runtime(kind, made.namespace, made.name)
            if known is not None and same_version(known, made):
                made = known  # with what was prepared for it
        return Answer(made)

    async def _list(self, kind: str, namespace: str = "") -> list[Any]:
        found: list[Any] = []
        path = KINDS[kind].path(namespace, "").rstrip("/") if namespace else KINDS[kind].collection
        params = {"limit": str(KINDS[kind].page)}
        while True:
            page = _page(await self._connection.get(path, params))
            found += page.items or ()
            if not page.metadata.continue_:
                return found
            params["continue"] = page.metadata.continue_

    async def _exceptions(self, namespace: str) -> Answer:
        """Those of a namespace. Whoever may not list what the cluster does not serve is refused as well: then ask."""
        try:
            items = await self._list(EXCEPTION, namespace)
        except Refused as refused:
            if refused.status == 403:
                await self._connection.get(KINDS[EXCEPTION].base)  # a 404 says that there are none
            raise
        found = (load(item) for item in items)
        return Answer(exceptions_of(raw for raw in found if raw is not None))

    async def _free_volumes(self, storage_class: str) -> Answer:
        """The volumes of a class that no claim holds: listed, or where there are too many, from a table brought up."""
        if self._tables is not None and self._volumes is not None and len(self._tables.volumes) > _LISTED_AT_MOST:
            return await self._caught_up(self._tables.volumes, self._volumes, storage_class)
        table = VolumeTable()
        for number, item in enumerate(await self._list(VOLUME)):
            table.put(item)
            if number % 500 == 499:
                await asyncio.sleep(0)
        return Answer(list(table.available(storage_class)))

    async def _caught_up(self, table: VolumeTable, watch: Watch, storage_class: str) -> Answer:
        """From the table, once it has everything that there was when we asked; unknown where that cannot be told.

        It has where the watch got as far as the API server was then, or else (a watch is told nothing while nothing
        happens) where it holds as many volumes as the API server counts, and its events had time to arrive.
        """
        page = _page(await self._connection.get(KINDS[VOLUME].collection, {"limit": "1"}))
        version, more = page.metadata.resource_version, page.metadata.remaining_item_count
        count = len(page.items or ()) + more if more is not None else None
        for step in range(_STEPS):
            if watch.trouble is not None:
                return Answer(Gap.UNKNOWN, f"PersistentVolumes: {watch.trouble}")
            if version.isdigit() and watch.position >= int(version):
                return Answer(table.available(storage_class))
            if step * _STEP_SECONDS >= _SETTLE_SECONDS and len(table) == count:
                return Answer(table.available(storage_class))
            await asyncio.sleep(_STEP_SECONDS)
        return Answer(Gap.UNKNOWN, "PersistentVolumes: the watch is behind the API server")


def forbidden(who: str, wanted: Wanted) -> str:
    """A lack of rights in words that name what to grant."""
    kind, namespace, _ = wanted
    verb = "list" if kind in _LISTED else "get"
    where = f" in namespace {namespace}" if namespace else ""
    return f"{who} may not {verb} {KINDS[kind_of(wanted)].resource}{where}"


def runtime_of_copy(raw: Mapping[str, Any]) -> Runtime | None:
    """The runtime in a ConfigMap that is Trainer's copy of one; None where it is none that can be read."""
    found = snapshot_text(raw)
    if found is None:
        return None
    from webhook.cluster.yaml_text import Piece, TextError, parse

    try:
        documents = [value for _, value in parse(Piece(found[2].encode()))]
    except TextError:
        return None
    if len(documents) != 1 or not isinstance(documents[0], dict):
        return None
    made, fault = keep_runtime(documents[0])
    return None if fault is not None or made.kind not in (RUNTIME, CLUSTER_RUNTIME) else made


def kind_of(wanted: Wanted) -> str:
    kind = wanted[0]
    lists = {FREE_VOLUMES: VOLUME, DEFAULT_CLASS: CLASS, TRAINJOBS: TRAINJOB, EXCEPTIONS: EXCEPTION}
    return {**lists, PROGRAM: CONFIG_MAP}.get(kind, kind)


def _words(wanted: Wanted) -> str:
    kind, namespace, name = wanted
    if kind in _LISTED:
        return f"the {kind}" if kind == DEFAULT_CLASS else kind + (f" in namespace {namespace}" if namespace else "")
    kind = kind_of(wanted)
    return f'{kind} "{name}" in namespace {namespace}' if namespace else f'{kind} "{name}"'


def possible(wanted: Wanted) -> bool:
    """Whether an object may have that name at all. Names come from users and go into paths."""
    kind, namespace, name = wanted
    if kind in LISTS:
        return True
    if kind == EXCEPTIONS:
        return _is_name(namespace)
    known = KINDS[kind_of(wanted)]
    if known.namespaced and not _is_name(namespace):
        return False
    return _is_name(name)


def _is_name(name: str) -> bool:
    return bool(name) and len(name) <= 253 and _NAME.issuperset(name) and ".." not in name and name.strip("-.") == name
