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
from typing import Any

import orjson

from webhook.cluster.directories import checkpoint_directories
from webhook.cluster.kinds import (
    CLAIM,
    CLASS,
    CLUSTER_RUNTIME,
    CONFIG_MAP,
    CSI_DRIVER,
    NAMESPACE,
    SNAPSHOT_SUFFIX,
    TRAINJOB,
    VOLUME,
)
from webhook.cluster.objects import parse_run
from webhook.cluster.reader import (
    DEFAULT_CLASS,
    EXCEPTIONS,
    FREE_VOLUMES,
    LISTS,
    PROGRAM,
    TRAINJOBS,
    Answer,
    Reader,
    Wanted,
    kind_of,
    possible,
)
from webhook.cluster.run_table import LATER, Later
from webhook.cluster.tables import Tables
from webhook.cluster.watch import Watch
from webhook.model.budget import worth, worth_of_merging
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
)
from webhook.model.exceptions import Exceptions
from webhook.model.names import EXCEPTION, RUNTIME_KINDS
from webhook.model.policy import Policy
from webhook.model.release import OVERRIDE_FIELDS, Release
from webhook.model.request import Request
from webhook.model.shape import check_shape

_log = logging.getLogger("ckptguard.cluster")


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
        if not possible(wanted):
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
        stored: CsiDriver | Gap | None = None if self._tables is None else self._tables.drivers.get(name)
        if stored is None and self._tables is not None and self._synced(CSI_DRIVER):
            # Many provisioners have none: to read that anew would cost each of their jobs a round trip.
            stored = Gap.ABSENT
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

    def exceptions(self, namespace: str) -> Exceptions | Gap:
        if not namespace:
            return Gap.ABSENT
        stored: Exceptions | Gap | None = None
        if self._tables is not None:
            watch = self._watches.get(EXCEPTION)
            if watch is None or (watch.synced.is_set() and not watch.served):
                return Gap.ABSENT
            stored = self._tables.exceptions.of(namespace) if watch.synced.is_set() else None
        found: Exceptions | Gap = self._look((EXCEPTIONS, namespace, ""), stored)
        return found

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
        elif wanted in self.touched and wanted[0] not in LISTS:
            # The table has seen the object; that the read failed takes nothing away from that.
            self._settled.add(wanted)
        else:
            self._known[wanted] = Gap.UNKNOWN
            self._why[kind_of(wanted)] = answer.why
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
        for wanted in (*self.missed, *(one for one in self.to_confirm() if one[0] in LISTS)):
            self._known[wanted] = Gap.UNKNOWN
            self._why[kind_of(wanted)] = why
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
    """What the runtime is worth that a TrainJob refers to, with what merging its overrides into it costs; 0 where it is
    not in the tables."""
    spec = trainjob.get("spec")
    reference = spec.get("runtimeRef") if isinstance(spec, dict) else None
    if not isinstance(spec, dict) or not isinstance(reference, dict):
        return 0
    kind, name = reference.get("kind") or CLUSTER_RUNTIME, reference.get("name")
    if not isinstance(kind, str) or not isinstance(name, str):
        return 0
    weight = tables.runtime_weight(kind, namespace, name)
    entries = [len(entry) for field in OVERRIDE_FIELDS if isinstance(entry := spec.get(field), list)]
    return weight + worth_of_merging(max(entries), weight) if entries else weight


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
