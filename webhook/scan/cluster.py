"""A live cluster, read in pages: first what rules look up, kept small, then the objects, one page at a time.

What may not be listed is said, and what depends on it is unknown. A list that breaks off in the middle is unknown too:
an object that is not in it may stand in the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import orjson

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
)
from webhook.cluster.live import LiveView, directories_by
from webhook.cluster.live_files import published_release
from webhook.cluster.objects import clipped, parse_config_map
from webhook.cluster.reader import DEFAULT_CLASS, FREE_VOLUMES, Wanted
from webhook.cluster.tables import Tables
from webhook.effective.buildable.syntax import is_dns_label, is_dns_subdomain
from webhook.model.cluster import ConfigMap, Gap, Runtime, finished
from webhook.model.exceptions import Exceptions
from webhook.model.names import API_VERSION, EXCEPTION
from webhook.model.policy import Policy
from webhook.model.release import Release
from webhook.reports.review import Fault, Place, Reviewed
from webhook.runs.api import Answer, Api
from webhook.scan.copies import Copies, with_copy
from webhook.scan.stored import enforced, enforced_namespace, judge_stored

AT: Final = Place("cluster")
"""Where the objects stand, as reports have it."""

_SCHEMA: Final = f"/openapi/v3/apis/{API_VERSION}"
_PAGE: Final = 200
_STATE: Final = (NAMESPACE, CLASS, CSI_DRIVER, VOLUME, CLAIM, CLUSTER_RUNTIME, RUNTIME)
"""In this order: a TrainJob's directory is worked out with the runtimes at hand."""
_MAPS: Final = 64
"""ConfigMaps with programs that are kept at a time."""
_LISTS: Final = {FREE_VOLUMES: VOLUME, DEFAULT_CLASS: CLASS}


class ScanView(LiveView):
    """The tables as they were filled: what is not in them is absent, or unknown where it could not be listed."""

    __slots__ = ("_maps", "_read", "_unlisted")

    def __init__(
        self,
        tables: Tables,
        unlisted: Mapping[str, str],
        release: Release | None,
        read: Callable[[str, str], ConfigMap | Gap] = lambda namespace, name: Gap.UNKNOWN,
    ) -> None:
        super().__init__(tables, {}, release)
        self._unlisted = unlisted
        self._read = read
        self._maps: dict[tuple[str, str], ConfigMap | Gap] = {}

    def _look(self, wanted: Wanted, stored: Any) -> Any:
        if stored is not None:
            return stored
        return Gap.UNKNOWN if not self._synced(_LISTS.get(wanted[0], wanted[0])) else Gap.ABSENT

    def _synced(self, kind: str) -> bool:
        return kind not in self._unlisted

    def config_map(self, namespace: str, name: str) -> ConfigMap | Gap:
        # Read when a program is looked for in one; the runs of a namespace often share it.
        found = self._maps.get((namespace, name))
        if found is None:
            if len(self._maps) >= _MAPS:
                self._maps.clear()
            found = self._maps[namespace, name] = self._read(namespace, name)
        return found

    def exceptions(self, namespace: str) -> Exceptions | Gap:
        assert self._tables is not None  # noqa: S101 - given above
        return self._tables.exceptions.of(namespace) if self._synced(EXCEPTION) else Gap.UNKNOWN

    def snapshot(self, namespace: str, trainjob: str) -> Runtime | Gap:
        return Gap.UNKNOWN

    def why_unknown(self, kind: str) -> str:
        return self._unlisted.get(kind) or super().why_unknown(kind)


class ClusterScan:
    """One look at a cluster. ``namespace`` None: all of them. Call ``results`` once; it raises Unreachable.

    ``notices`` and ``faults`` are complete when the results are.
    """

    def __init__(self, api: Api, policy: Policy, namespace: str | None = None, release: Release | None = None) -> None:
        self._api = api
        self._policy = enforced(policy)
        self._namespace = namespace
        self._release = release
        self._unlisted: dict[str, str] = {}
        self._reads_copies = True
        self.notices: list[str] = []
        self.faults: list[Fault] = []
        self.passed_over = 0
        """TrainJobs that are over or are being deleted."""

    @property
    def incomplete(self) -> bool:
        """Whether TrainJobs could not be listed to the end."""
        return TRAINJOB in self._unlisted

    def results(self) -> Iterator[Reviewed]:
        """Runtimes first, then the unfinished TrainJobs, in the order in which the API server lists them."""
        release = self._release or self._served()
        tables = Tables()
        for kind in _STATE:
            for raw in self._listed(kind):
                kept = enforced_namespace(raw) if kind == NAMESPACE else raw
                tables.by_kind[kind].put(orjson.dumps(kept))
        if self._serves_exceptions():
            for raw in self._listed(EXCEPTION):
                tables.exceptions.put(orjson.dumps(raw))
        tables.runs.work_out_by(directories_by(tables, self._policy, release))
        for raw in self._listed(TRAINJOB):
            tables.runs.put(orjson.dumps(raw))
        view = ScanView(tables, self._unlisted, release, self._config_map)
        copies = Copies(self._snapshot)
        yield from self._runtimes(tables, view, release)
        if TRAINJOB in self._unlisted:
            self.faults.append(Fault(None, f"TrainJobs: {self._unlisted[TRAINJOB]}"))
            return
        for raw in self._listed(TRAINJOB):
            metadata = raw.get("metadata") or {}
            if finished(raw) or metadata.get("deletionTimestamp"):
                self.passed_over += 1
                continue
            stored = {"apiVersion": API_VERSION, "kind": TRAINJOB, **raw}
            namespace, name = str(metadata.get("namespace") or "default"), str(metadata.get("name") or "")
            seen = with_copy(view, copies.of(stored, view, release))
            yield judge_stored(TRAINJOB, namespace, name, stored, seen, self._policy, release, AT)
        if TRAINJOB in self._unlisted:
            self.faults.append(Fault(None, f"TrainJobs: {self._unlisted[TRAINJOB]}"))

    def _runtimes(self, tables: Tables, view: ScanView, release: Release | None) -> Iterator[Reviewed]:
        for kind, table in ((CLUSTER_RUNTIME, tables.cluster_runtimes), (RUNTIME, tables.runtimes)):
            if kind == CLUSTER_RUNTIME and self._namespace is not None:
                continue
            for key, fault in sorted(table.faults.items()):
                self.faults.append(Fault(None, f"{'/'.join(filter(None, key))}: {fault}"))
            for namespace, name in sorted(table.all_keys()):
                runtime = table.get(namespace, name)
                if runtime is None or (runtime.raw.get("metadata") or {}).get("deletionTimestamp"):
                    continue
                yield judge_stored(kind, namespace, name, runtime.raw, view, self._policy, release, AT)

    def _served(self) -> Release | None:
        """From the published schema, which everybody may read, unlike the CRD."""
        answer = self._api.request("GET", _SCHEMA)
        if answer.code == 404:
            self.faults.append(Fault(None, f"the cluster serves no {API_VERSION}: Kubeflow Trainer is not installed"))
            return None
        found = published_release(answer.body) if answer.ok else None
        if found is None:
            self.notices.append("the Trainer release cannot be told, so each TrainJob's fields tell it: say --trainer")
        return found

    def _serves_exceptions(self) -> bool:
        """Whether there are any to list: whoever has no right to list them may still ask what is served."""
        return self._api.request("GET", KINDS[EXCEPTION].base).code != 404

    def _listed(self, kind: str) -> Iterator[Mapping[str, Any]]:
        """The objects of a kind, page by page; why it is not complete goes into ``_unlisted``."""
        if kind in self._unlisted:
            return
        where = KINDS[kind]
        path = where.collection
        if self._namespace is not None and where.namespaced:
            path = where.path(self._namespace, "").rstrip("/")
        asked = {"limit": str(_PAGE)}
        while True:
            answer = self._api.request("GET", path, asked)
            if not answer.ok and not (answer.code == 410 and _more(answer)):
                if kind == NAMESPACE and self._namespace is not None and answer.code == 403:
                    # Whoever works in one namespace may read that one, and list none.
                    answer = self._api.request("GET", where.path("", self._namespace))
                    if answer.ok:
                        yield answer.body
                        return
                self._cannot(kind, answer)
                return
            yield from answer.body.get("items") or ()
            more = _more(answer)
            if not more:
                return
            # After 410 the token is one for the rest as it is now (Kubernetes API, "limit" and "continue").
            asked["continue"] = more

    def _snapshot(self, namespace: str, name: str) -> Mapping[str, Any] | None:
        """Trainer's copy of a run's runtime; what may not be read is said once, and no more asked for."""
        if not self._reads_copies:
            return None
        answer = self._api.request("GET", KINDS[CONFIG_MAP].path(namespace, name + SNAPSHOT_SUFFIX))
        if answer.ok:
            return answer.body
        if answer.code == 403:
            self._reads_copies = False
            self.notices.append(
                "you may not get configmaps: runs are judged by their runtimes as they are now, not by Trainer's copies"
            )
        return None

    def _config_map(self, namespace: str, name: str) -> ConfigMap | Gap:
        """One with a program, as it is now; what may not be read is said once."""
        if not is_dns_label(namespace) or not is_dns_subdomain(name):
            return Gap.ABSENT
        answer = self._api.request("GET", KINDS[CONFIG_MAP].path(namespace, name))
        if answer.ok:
            return clipped(parse_config_map(answer.body))
        if answer.code == 404:
            return Gap.ABSENT
        if CONFIG_MAP not in self._unlisted:
            why = "you may not get configmaps" if answer.code == 403 else f"a ConfigMap: {answer.message[:200]}"
            self._unlisted[CONFIG_MAP] = why
            self.notices.append(f"{why}: programs in them are not read")
        return Gap.UNKNOWN

    def _cannot(self, kind: str, answer: Answer) -> None:
        where = "" if self._namespace is None or not KINDS[kind].namespaced else f" in namespace {self._namespace}"
        words = {
            403: f"you may not list {KINDS[kind].resource}{where}",
            404: f"the cluster does not serve {KINDS[kind].resource}",
        }.get(answer.code, f"{KINDS[kind].resource} cannot be listed{where}: {answer.message[:200]}")
        self._unlisted[kind] = words
        if kind != TRAINJOB:
            self.notices.append(f"{words}: what depends on them is unknown")


def _more(answer: Answer) -> str:
    return str((answer.body.get("metadata") or {}).get("continue") or "")
