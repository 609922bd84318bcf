"""TrainJobs by claim, path and runtime: who writes where."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from msgspec import Raw, Struct

from webhook.cluster.kinds import CLUSTER_RUNTIME
from webhook.cluster.objects import parse_run
from webhook.cluster.table import Key, load
from webhook.model.cluster import Run, RunDirectory, finished
from webhook.model.names import ALLOW

_PENDING: Final = 2000
_HEAVY: Final = 500


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


def _runtime_key(run: Run) -> tuple[str, str, str]:
    return run.runtime_kind, "" if run.runtime_kind == CLUSTER_RUNTIME else run.namespace, run.runtime_name


def _by_run(found: RunDirectory) -> tuple[str, str]:
    return found.run.name, found.path
