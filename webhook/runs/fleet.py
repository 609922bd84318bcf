"""The unfinished runs of a cluster or of a dump, with what Trainer builds each from, for commands that look at all."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any, Final

from webhook.cluster.kinds import SNAPSHOT_SUFFIX
from webhook.cluster.live_files import published_release
from webhook.cluster.objects import parse_runtime, snapshot_text
from webhook.cluster.yaml_text import Piece, TextError, parse
from webhook.model.cluster import Runtime, finished
from webhook.model.names import API_VERSION, QUEUE_LABEL, RUNTIME_KINDS
from webhook.model.pod import EMPTY, Raw
from webhook.model.release import Release
from webhook.model.request import MalformedObject
from webhook.model.shape import check_shape
from webhook.runs.api import Api
from webhook.runs.install_check import read_release
from webhook.runs.overview import QUEUED, RUNNING, SUSPENDED, Lists
from webhook.runs.run import JOBSETS

_SCHEMA: Final = f"/openapi/v3/apis/{API_VERSION}"
_NO_JOBSETS: Final = "whether a run has one is not known"
_NO_FILE: Final = "none is among the files"


class FleetRun:
    """One unfinished TrainJob and what is known of its runtime."""

    __slots__ = ("malformed", "name", "namespace", "reference", "trainjob")

    def __init__(self, trainjob: Raw) -> None:
        metadata = trainjob["metadata"]
        self.trainjob = trainjob
        self.namespace = str(metadata.get("namespace") or "default")
        self.name = str(metadata["name"])
        self.malformed = ""
        try:
            check_shape("TrainJob", trainjob)
            reference = (trainjob.get("spec") or EMPTY).get("runtimeRef") or EMPTY
        except MalformedObject as fault:
            self.malformed = f"{fault.field}: {fault.problem}"
            reference = EMPTY
        kind = str(reference.get("kind") or "ClusterTrainingRuntime")
        space = "" if kind == "ClusterTrainingRuntime" else self.namespace
        self.reference = (kind, space, str(reference.get("name") or ""))

    @property
    def spec(self) -> Raw:
        return self.trainjob.get("spec") or EMPTY

    @property
    def queue(self) -> str | None:
        """Its Kueue queue."""
        labels = self.trainjob["metadata"].get("labels")
        return labels.get(QUEUE_LABEL) if isinstance(labels, dict) else None

    @property
    def suspended(self) -> bool:
        return self.spec.get("suspend") is True

    @property
    def state(self) -> str:
        """Running, Suspended, or Queued (suspended by its queue, as far as the TrainJob tells)."""
        if not self.suspended:
            return RUNNING
        return QUEUED if self.queue else SUSPENDED


class Fleet:
    """All unfinished runs, each list read when asked for; ``notes`` says what could not be. Raises Unreachable."""

    def __init__(self, api: Api, namespace: str | None) -> None:
        self._api = api
        self._lists = Lists(api, namespace)
        self._runtimes: dict[tuple[str, str, str], Runtime | None] = {}
        self._snapshots: dict[tuple[str, str], Runtime | str | None] = {}
        self._copies: dict[str, Runtime | str] = {}
        self._unreadable: dict[str, str] = {}

    @cached_property
    def runs(self) -> list[FleetRun]:
        """In order of namespace and name. Raises CannotDo where TrainJobs cannot be listed."""
        found = [FleetRun(raw) for raw in self._lists.trainjobs() if not finished(raw)]
        return sorted(found, key=lambda run: (run.namespace, run.name))

    @cached_property
    def jobsets(self) -> frozenset[tuple[str, str]] | None:
        """Namespace and name of each JobSet; None where they cannot be listed."""
        listed = self._lists.of("jobsets", JOBSETS, _NO_JOBSETS)
        if listed is None:
            return None
        return frozenset(
            (str(one["metadata"].get("namespace") or "default"), str(one["metadata"]["name"])) for one in listed
        )

    @property
    def notes(self) -> tuple[str, ...]:
        """What could not be read, and what is unknown for it."""
        return (*self._lists.notes, *(f"{kind}: {why}" for kind, why in sorted(self._unreadable.items())))

    def served(self) -> Release | None:
        """The release that the cluster serves, by its CRD or by the schema that everybody may read."""
        release = read_release(self._api)
        if release is None:
            answer = self._api.request("GET", _SCHEMA)
            release = published_release(answer.body) if answer.ok else None
        return release

    def live_runtime(self, reference: tuple[str, str, str]) -> Runtime | None:
        """The runtime as it stands now; None where there is none or it cannot be read."""
        if reference not in self._runtimes:
            kind, namespace, name = reference
            raw = self._lists.runtime(namespace, kind, name) if kind in RUNTIME_KINDS else None
            self._runtimes[reference] = None if raw is None else _parsed({"kind": kind, **raw})
        return self._runtimes[reference]

    def snapshot(self, run: FleetRun) -> Runtime | str | None:
        """Trainer's own copy of the run's runtime (2.3 and later); None: there is none yet; a text: why unknown."""
        key = (run.namespace, run.name)
        if key not in self._snapshots:
            self._snapshots[key] = self._read_snapshot(*key)
        return self._snapshots[key]

    def _read_snapshot(self, namespace: str, name: str) -> Runtime | str | None:
        answer = self._api.request("GET", f"/api/v1/namespaces/{namespace}/configmaps/{name}{SNAPSHOT_SUFFIX}")
        if not answer.ok:
            if answer.code != 404 or answer.message == _NO_FILE:
                self._unreadable["copies of runtimes cannot be read, runtimes are taken as they are now"] = (
                    answer.message
                )
            return None
        found = snapshot_text(answer.body)
        if found is None:
            return "Trainer's copy of its runtime has another shape"
        # Runs of one runtime have the same text.
        if found[2] not in self._copies:
            self._copies[found[2]] = read_snapshot(found[2])
        return self._copies[found[2]]

    def source(self, run: FleetRun, release: Release) -> Runtime | str:
        """What Trainer of that release builds the run from: its copy where it has one, else the runtime. Or why not."""
        if release.at_least(Release.V2_3):
            copy = self.snapshot(run)
            if copy is not None:
                return copy
        live = self.live_runtime(run.reference)
        if live is None:
            kind, _, name = run.reference
            return f'{kind} "{name}" is not there, or cannot be read'
        return live


def read_snapshot(text: str) -> Runtime | str:
    """The runtime in the text of Trainer's copy; words where it is of another shape."""
    try:
        documents = [value for _, value in parse(Piece(text.encode()))]
    except TextError as error:
        return f"Trainer's copy of its runtime is no YAML: {error.message}"
    if len(documents) != 1 or not isinstance(documents[0], dict):
        return "Trainer's copy of its runtime has another shape"
    return _parsed(documents[0]) or "Trainer's copy of its runtime has fields of another type"


def _parsed(raw: Mapping[str, Any]) -> Runtime | None:
    try:
        check_shape(str(raw.get("kind")), raw)
        return parse_runtime(raw)
    except MalformedObject:
        return None
