"""Trainer's own copies of runtimes: from 2.3 on a run is built from the one that was made when it was first seen.

A runtime that nobody edited since says the same as its copies, so only those of edited runtimes are read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, cast

from webhook.cluster.objects import created, parse_run, snapshot_text
from webhook.cluster.reader import runtime_of_copy
from webhook.model.caches import cache
from webhook.model.cluster import ClusterView, Gap, Runtime
from webhook.model.release import Release

Raw = Mapping[str, Any]
_AS_OBJECT: Final = 8
"""How many times its text a runtime takes as an object, with what is prepared of it, roughly."""


class Copies:
    """Finds the copy that a run is built from. ``read`` gives its ConfigMap, None where there is none to read."""

    def __init__(self, read: Callable[[str, str], Raw | None]) -> None:
        self._read = read
        self._known = cache("copies")

    def of(self, trainjob: Raw, view: ClusterView, release: Release | None) -> Runtime | None:
        """The copy, where it may differ from the runtime as it is now; else None.

        Where the runtime is gone Trainer refuses each change of the run, whatever the copy says: None too.
        """
        if release is None or not release.at_least(Release.V2_3):
            return None
        run = parse_run(trainjob)
        live = view.runtime(run.runtime_kind, run.namespace, run.runtime_name)
        if isinstance(live, Gap) or not _edited(live, trainjob):
            return None
        raw = self._read(run.namespace, run.name)
        found = None if raw is None else snapshot_text(raw)
        if raw is None or found is None:
            return None
        # The runs of one runtime have the same text, and so one object with what is prepared of it.
        text = found[2]
        copy: Runtime | None = self._known.get(text)
        if copy is None:
            copy = runtime_of_copy(raw)
            if copy is None or (copy.kind, copy.name) != (live.kind, live.name):
                return None
            self._known.put(text, copy, _AS_OBJECT * len(text))
        return copy


def _edited(runtime: Runtime, trainjob: Raw) -> bool:
    """Whether it may have changed since the run was made: the API server counts changes in ``metadata.generation``."""
    metadata = runtime.raw.get("metadata") or {}
    return metadata.get("generation") != 1 or created(runtime.raw) > created(trainjob)


class _Seen:
    """A view in which a copy stands in the place of its runtime."""

    def __init__(self, view: ClusterView, copy: Runtime) -> None:
        self._view = view
        self._copy = copy

    def __getattr__(self, name: str) -> Any:
        return getattr(self._view, name)

    def runtime(self, kind: str, namespace: str, name: str) -> Runtime | Gap:
        if (kind, name) == (self._copy.kind, self._copy.name):
            return self._copy
        return self._view.runtime(kind, namespace, name)


def with_copy(view: ClusterView, copy: Runtime | None) -> ClusterView:
    """The view of one run: with its copy in the place of the runtime, where it has one."""
    return view if copy is None else cast(ClusterView, _Seen(view, copy))
