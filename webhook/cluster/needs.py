"""Which unfinished runs need an object that is being deleted: found in the tables, and read once more before it counts.

The tables may be some milliseconds behind: ``kubectl delete -f`` of a TrainJob and its claim sends both at once. So a
run counts that the API server has just shown, unfinished and not being deleted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from time import monotonic
from typing import Final

from webhook.cluster.kinds import NAMESPACE, TRAINJOB
from webhook.cluster.live import LiveView
from webhook.cluster.reader import Reader
from webhook.cluster.tables import Tables
from webhook.cluster.watch import Watch
from webhook.model.cluster import Namespace, Run
from webhook.model.deletion import CLAIM, Deletion
from webhook.model.names import PROTECT
from webhook.model.release import Release

_AT_ONCE: Final = 8
_TURNS: Final = 3
"""So many times so many runs are read; where none of them is left, the tables are far behind, and nothing is known."""


class Needs:
    """Asks tables and API server."""

    def __init__(self, tables: Tables, reader: Reader, runs: Watch, release: Release | None = None) -> None:
        self._tables = tables
        self._reader = reader
        self._runs = runs
        self._release = release

    def view(self) -> LiveView:
        """What the verdict sees of the cluster."""
        return LiveView(self._tables, {}, self._release)

    async def of(self, deletion: Deletion) -> tuple[Sequence[Run], int]:
        """Runs in protected namespaces that are sure to need the object, and how many there may be. May raise."""
        if deletion.passes or not self._runs.synced.is_set():
            return (), 0
        since = monotonic()
        candidates = [run for run in self._candidates(deletion) if self._asks_for_it(run.namespace)]
        for turn in range(_TURNS):
            some = candidates[turn * _AT_ONCE : (turn + 1) * _AT_ONCE]
            found = await asyncio.gather(
                *(self._reader.read((TRAINJOB, run.namespace, run.name), since) for run in some)
            )
            sure = [answer.value for answer in found if isinstance(answer.value, Run)]
            if sure:
                namespace = await self._reader.read((NAMESPACE, "", sure[0].namespace), since)
                return (sure, len(candidates)) if _protected(namespace.value) else ((), 0)
        return (), 0

    def _candidates(self, deletion: Deletion) -> Sequence[Run]:
        runs = self._tables.runs
        if deletion.kind == CLAIM:
            found = runs.directories(deletion.namespace, deletion.name, None)
            return list({entry.run.name: entry.run for entry in found}.values())
        release = self._release or self._tables.served.release
        if release is None or not release.at_least(Release.V2_3):
            return ()  # until 2.2 Trainer's finalizers keep a runtime, and there are no snapshots
        if deletion.run:
            return (Run(deletion.namespace, deletion.run),)
        if deletion.kind.endswith("Runtime"):
            return runs.of_runtime(deletion.kind, deletion.namespace, deletion.name)
        return ()

    def _asks_for_it(self, name: str) -> bool:
        # A namespace that was just made may not be there yet; it is read before anything is refused.
        namespace = self._tables.namespaces.get(name)
        return namespace is None or _protected(namespace)


def _protected(namespace: object) -> bool:
    """Whether a namespace asks for protection, and is not on its way out."""
    return isinstance(namespace, Namespace) and namespace.labels.get(PROTECT) == "true" and not namespace.terminating
