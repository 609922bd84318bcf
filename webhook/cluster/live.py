"""Views of a live cluster: answers from the tables, and single reads where the tables cannot be trusted.

The engine asks a view and never waits. What a table does not have, the view notes and calls unknown; the caller then
has it read (``LiveViews.read``) and asks the engine again. Before a denial everything that it rests on is read once
more, since a table may be some milliseconds behind, or minutes where the API server is away.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from time import monotonic
from typing import Any, Final

import msgspec
import orjson

from webhook.cluster.connection import Connection, NoCluster, Refused, Unreachable
from webhook.cluster.directories import checkpoint_directories
from webhook.cluster.kinds import (
    CLAIM,
    CLASS,
    CLUSTER_RUNTIME,
    CONFIG_MAP,
    CSI_DRIVER,
    KINDS,
    NAMESPACE,
    RUNTIME,
    SNAPSHOT_SUFFIX,
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
from webhook.cluster.tables import (
    LATER,
    Later,
    Tables,
    VolumeTable,
    default_class,
    keep_namespace,
    keep_runtime,
    load,
    same_version,
)
from webhook.cluster.watch import Watch
from webhook.model.budget import worth
from webhook.model.cluster import (
    Claim,
    ClusterView,
    ConfigMap,
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
from webhook.model.names import RUNTIME_KINDS
from webhook.model.policy import Policy
from webhook.model.release import Release
from webhook.model.request import Request
from webhook.model.shape import check_shape

Wanted = tuple[str, str, str]
"""Kind, namespace, name. All available volumes of a class, and the default class, are kinds of their own."""

FREE_VOLUMES: Final = "available PersistentVolumes"
DEFAULT_CLASS: Final = "default StorageClass"
TRAINJOBS: Final = "TrainJobs"
"""All of a namespace, or of all namespaces."""

PROGRAM: Final = "ConfigMap with a program"
"""Told from the ConfigMaps that are Trainer's copies of runtimes."""

_LISTS: Final = (FREE_VOLUMES, DEFAULT_CLASS, TRAINJOBS)
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
        raw = load(await self._connection.get(KINDS[_kind_of(wanted)].path(namespace, name)))
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
            return Answer(_snapshot(raw) or Gap.ABSENT)
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


class LiveView:
    """What one request sees of the cluster: the tables, and over them what was read for it."""

    __slots__ = ("_known", "_release", "_settled", "_tables", "_watches", "_why", "missed", "since", "touched")

    def __init__(self, tables: Tables | None, watches: Mapping[str, Watch], release: Release | None = None) -> None:
        self._tables = tables
        self._watches = watches
        self._known: dict[Wanted, Any] = {}
        self._why: dict[str, str] = {}
        self._settled: set[Wanted] = set()
        self._release = release
        self.missed: dict[Wanted, None] = {}
        """What was asked for and has to be read."""
        self.touched: dict[Wanted, None] = {}
        """What was asked for and stood in a table."""
        self.since = monotonic()

    def _look(self, wanted: Wanted, stored: Any) -> Any:
        """``stored`` is what the table has, None where it has nothing."""
        if self._known:
            known = self._known.get(wanted)
            if known is not None:
                return known
        if stored is not None:
            self.touched[wanted] = None
            return stored
        if not _possible(wanted):
            return Gap.ABSENT
        self.missed[wanted] = None
        return Gap.UNKNOWN

    def claim(self, namespace: str, name: str) -> Claim | Gap:
        stored = None if self._tables is None else self._tables.claims.get(namespace, name)
        found: Claim | Gap = self._look((CLAIM, namespace, name), stored)
        return found

    def volume(self, name: str) -> PersistentVolume | Gap:
        stored = None if self._tables is None else self._tables.volumes.get(name)
        found: PersistentVolume | Gap = self._look((VOLUME, "", name), stored)
        return found

    def available_volumes(self, storage_class: str) -> Sequence[PersistentVolume] | Gap:
        stored = None
        if self._tables is not None and self._synced(VOLUME):
            stored = self._tables.volumes.available(storage_class)
        found: Sequence[PersistentVolume] | Gap = self._look((FREE_VOLUMES, "", storage_class), stored)
        return found

    def storage_class(self, name: str) -> StorageClass | Gap:
        stored = None if self._tables is None else self._tables.classes.get(name)
        found: StorageClass | Gap = self._look((CLASS, "", name), stored)
        return found

    def default_storage_class(self) -> StorageClass | Gap:
        stored = None
        if self._tables is not None and self._synced(CLASS):
            stored = self._tables.classes.default()
        found: StorageClass | Gap = self._look((DEFAULT_CLASS, "", ""), stored)
        return found

    def some_classes(self) -> Sequence[StorageClass] | Gap:
        # Nothing hangs on it but words, so it is neither read nor confirmed.
        if self._tables is None or not self._synced(CLASS):
            return Gap.UNKNOWN
        return self._tables.classes.some()

    def some_claims(self, namespace: str) -> Sequence[Claim] | Gap:
        return Gap.UNKNOWN

    def csi_driver(self, name: str) -> CsiDriver | Gap:
        stored = None if self._tables is None else self._tables.drivers.get(name)
        found: CsiDriver | Gap = self._look((CSI_DRIVER, "", name), stored)
        return found

    def config_map(self, namespace: str, name: str) -> ConfigMap | Gap:
        # Never from a table: of the cluster's ConfigMaps those are read that hold a program under judgement.
        found: ConfigMap | Gap = self._look((PROGRAM, namespace, name), None)
        return found

    def namespace(self, name: str) -> Namespace | Gap:
        stored = None if self._tables is None else self._tables.namespaces.get(name)
        found: Namespace | Gap = self._look((NAMESPACE, "", name), stored)
        return found

    def runtime(self, kind: str, namespace: str, name: str) -> Runtime | Gap:
        if kind not in RUNTIME_KINDS:
            return Gap.ABSENT
        scope = "" if kind == CLUSTER_RUNTIME else namespace
        stored: Runtime | Gap | None = None
        if self._tables is not None:
            stored = self._tables.runtime(kind, scope, name)
            if stored is None and (fault := self._tables.runtime_fault(kind, scope, name)) is not None:
                self._why[kind] = fault
                stored = Gap.UNKNOWN
        found: Runtime | Gap = self._look((kind, scope, name), stored)
        return found

    def snapshot(self, namespace: str, trainjob: str) -> Runtime | Gap:
        found: Runtime | Gap = self._look((CONFIG_MAP, namespace, trainjob + SNAPSHOT_SUFFIX), None)
        return found

    def runs_of_runtime(self, kind: str, namespace: str, name: str) -> Sequence[Run] | Gap:
        if self._tables is None or not self._synced(TRAINJOB):
            return Gap.UNKNOWN
        return self._tables.runs.of_runtime(kind, namespace, name)

    def excused_runs(self, namespace: str, besides: str) -> int | Gap:
        if self._tables is None or not self._synced(TRAINJOB):
            return Gap.UNKNOWN
        return self._tables.runs.excused(namespace, besides)

    def directories(self, namespace: str, claim: str, path: str | None = None) -> Sequence[RunDirectory] | Gap:
        if self._tables is None or not self._synced(TRAINJOB):
            return Gap.UNKNOWN
        return self._tables.runs.directories(namespace, claim, path)

    def serves_kueue(self) -> bool | None:
        return None if self._tables is None else self._tables.kueue

    def release(self) -> Release | None:
        return self._release or (None if self._tables is None else self._tables.served.release)

    def trainjobs(self, namespace: str) -> list[dict[str, Any]] | Gap:
        """All TrainJobs of a namespace, or of all where that is ``""``, whole. Always read, never from a table."""
        found: list[dict[str, Any]] | Gap = self._look((TRAINJOBS, namespace, ""), None)
        return found

    def reason(self, kind: str) -> str | None:
        """Why a read of that kind failed, if one did."""
        return self._why.get(kind)

    def reasons(self) -> list[str]:
        """Why reads failed."""
        return list(self._why.values())

    def why_unknown(self, kind: str) -> str:
        if (why := self._why.get(kind)) is not None:
            return why
        watch = self._watches.get(kind)
        if watch is not None and not watch.synced.is_set() and watch.trouble:
            return f"{kind}: {watch.trouble}"
        return f"{kind} objects could not be read in time"

    def _synced(self, kind: str) -> bool:
        watch = self._watches.get(kind)
        return watch is not None and watch.synced.is_set()

    # --- for those who read

    def to_confirm(self) -> list[Wanted]:
        """What came from a table and has not been read for this request."""
        return [wanted for wanted in self.touched if wanted not in self._known and wanted not in self._settled]

    def to_read(self) -> list[Wanted]:
        """What was missed; where nothing was, everything that came from a table."""
        return list(self.missed) or self.to_confirm()

    def learn(self, wanted: Wanted, answer: Answer) -> None:
        """Takes in what was read."""
        if answer.value is not Gap.UNKNOWN:
            self._known[wanted] = answer.value
        elif wanted in self.touched and wanted[0] not in _LISTS:
            # The table has seen the object; that the read failed takes nothing away from that.
            self._settled.add(wanted)
        else:
            self._known[wanted] = Gap.UNKNOWN
            self._why[_kind_of(wanted)] = answer.why
        self.missed.pop(wanted, None)

    def programs(self) -> int:
        """Characters of the ConfigMaps that were read for their programs."""
        return sum(
            sum(map(len, found.data.values()))
            for wanted, found in self._known.items()
            if wanted[0] == PROGRAM and isinstance(found, ConfigMap)
        )

    def settle(self, why: str) -> None:
        """No more reading: what was missed is unknown for ``why``, an object that came from a table stands.

        That a list held nothing more may be a matter of milliseconds, so lists are unknown too.
        """
        for wanted in (*self.missed, *(one for one in self.to_confirm() if one[0] in _LISTS)):
            self._known[wanted] = Gap.UNKNOWN
            self._why[_kind_of(wanted)] = why
        self.missed.clear()


class LiveViews:
    """Hands out views and reads what they lack. The server's ``Views``."""

    def __init__(self, reader: Reader, tables: Tables, watches: Mapping[str, Watch], seconds: float) -> None:
        self._reader = reader
        self._tables = tables
        self._watches = watches
        self._late = f"the API server did not answer within {seconds:g} s"

    def at_once(self, request: Request) -> LiveView:
        """A view for one request."""
        return LiveView(self._tables, self._watches)

    def lacks(self, view: ClusterView, denies: bool) -> bool:
        """Whether a verdict by this view has to wait for live reads."""
        return isinstance(view, LiveView) and (bool(view.missed) or (denies and bool(view.to_confirm())))

    async def read(self, request: Request, view: ClusterView | None = None) -> LiveView:
        """Reads what the view lacks, all at once."""
        if not isinstance(view, LiveView):
            return self.at_once(request)
        await read_into(view, self._reader)
        return view

    def without(self, request: Request, view: ClusterView | None = None) -> LiveView:
        """The view in which nothing more will be read."""
        if not isinstance(view, LiveView):
            view = self.at_once(request)
        view.settle(self._late)
        return view

    def weight(self, request: Request) -> int:
        """What the runtime is worth that a TrainJob refers to, as the table has it."""
        return weight_of(self._tables, request.object, request.namespace) if request.kind == TRAINJOB else 0

    def read_weight(self, view: ClusterView) -> int:
        """Characters that were read for this view and will be judged: those of programs."""
        return view.programs() if isinstance(view, LiveView) else 0


def weight_of(tables: Tables, trainjob: Mapping[str, Any], namespace: str) -> int:
    """What the runtime is worth that a TrainJob refers to; 0 where it is not in the tables."""
    spec = trainjob.get("spec")
    reference = spec.get("runtimeRef") if isinstance(spec, dict) else None
    if not isinstance(reference, dict):
        return 0
    kind, name = reference.get("kind") or CLUSTER_RUNTIME, reference.get("name")
    return tables.runtime_weight(kind, namespace, name) if isinstance(kind, str) and isinstance(name, str) else 0


async def read_into(view: LiveView, reader: Reader) -> None:
    """Read what a view lacks, all at once."""
    wanted = view.to_read()
    if len(wanted) == 1:  # the common case, without a task for it
        view.learn(wanted[0], await reader.read(wanted[0], view.since))
        return
    answers: Iterable[Answer] = await asyncio.gather(*(reader.read(one, view.since) for one in wanted))
    for one, answer in zip(wanted, answers, strict=True):
        view.learn(one, answer)


def directories_by(
    tables: Tables, policy: Policy | Callable[[], Policy], release: Release | None = None, heavy: int | None = None
) -> Callable[[Mapping[str, Any]], Iterable[tuple[str, str]] | Later | None]:
    """What ``RunTable`` works out the directories of a TrainJob with; None while its runtime is not in the tables.

    ``policy``: one, or what gives the one in force. ``heavy``: what runtime or spec is worth above which it is
    ``LATER``; None: never.
    """

    def directories(trainjob: Mapping[str, Any]) -> Iterable[tuple[str, str]] | Later | None:
        view = LiveView(tables, {}, release)
        run = parse_run(trainjob)
        if isinstance(view.runtime(run.runtime_kind, run.namespace, run.runtime_name), Gap):
            return None
        if heavy is not None and (
            weight_of(tables, trainjob, run.namespace) > heavy or worth(orjson.dumps(trainjob.get("spec"))) > heavy
        ):
            return LATER
        check_shape(TRAINJOB, trainjob)
        return list(checkpoint_directories(view, trainjob, policy() if callable(policy) else policy))

    return directories


Elsewhere = Callable[[Mapping[str, Any], ClusterView], Awaitable[Iterable[tuple[str, str]]]]
"""Works the directories of a TrainJob out where it keeps nobody waiting."""


async def work_out_heavy(tables: Tables, elsewhere: Elsewhere, release: Release | None = None) -> None:
    """Has the directories of heavy TrainJobs worked out, one after the other, until cancelled."""
    came = asyncio.Event()
    tables.runs.heavy_came = came.set
    came.set()
    while True:
        await came.wait()
        came.clear()
        while (entry := tables.runs.next_heavy()) is not None:
            key, trainjob = entry
            try:
                found = await elsewhere(trainjob, LiveView(tables, {}, release))
            except Exception as error:
                _log.warning("the directories of a TrainJob are not known: %s", error or type(error).__name__)
                found = ()
            tables.runs.settle(key, trainjob, found)


def forbidden(who: str, wanted: Wanted) -> str:
    """A lack of rights in words that name what to grant."""
    kind, namespace, _ = wanted
    verb = "list" if kind in _LISTS else "get"
    where = f" in namespace {namespace}" if namespace else ""
    return f"{who} may not {verb} {KINDS[_kind_of(wanted)].resource}{where}"


def _snapshot(raw: Mapping[str, Any]) -> Runtime | None:
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


def _kind_of(wanted: Wanted) -> str:
    kind = wanted[0]
    return {FREE_VOLUMES: VOLUME, DEFAULT_CLASS: CLASS, TRAINJOBS: TRAINJOB, PROGRAM: CONFIG_MAP}.get(kind, kind)


def _words(wanted: Wanted) -> str:
    kind, namespace, name = wanted
    if kind in _LISTS:
        return f"the {kind}" if kind == DEFAULT_CLASS else kind + (f" in namespace {namespace}" if namespace else "")
    kind = _kind_of(wanted)
    return f'{kind} "{name}" in namespace {namespace}' if namespace else f'{kind} "{name}"'


def _possible(wanted: Wanted) -> bool:
    """Whether an object may have that name at all. Names come from users and go into paths."""
    kind, namespace, name = wanted
    if kind in _LISTS:
        return True
    known = KINDS[_kind_of(wanted)]
    if known.namespaced and not _is_name(namespace):
        return False
    return _is_name(name)


def _is_name(name: str) -> bool:
    return bool(name) and len(name) <= 253 and _NAME.issuperset(name) and ".." not in name and name.strip("-.") == name
