"""Runtimes that lack what admission would fill in today, and adding it where no unfinished run can be wedged.

A runtime lacks it when it was made before the guard, while the guard was down, or under another policy. Trainer 2.0 to
2.2 writes a runtime's pod template into the JobSets of unfinished runs, and JobSet refuses that for ever: there only
``failurePolicy`` is added while a run is unfinished. Trainer 2.3 works from a copy for each run; where a run has none
yet, its runtime is left. The trainer label changes what Kueue sees of the containers, and Kueue then stops every run
with a queue (seen with 0.17.0 and 0.19.2): it is not added while such a run is unfinished.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, Literal

import msgspec
from msgspec import Struct

from webhook.cluster.access import Refused
from webhook.cluster.file_view import FileView
from webhook.cluster.kinds import CONFIG_MAP, KINDS, SNAPSHOT_SUFFIX, TRAINJOB
from webhook.cluster.objects import parse_namespace, parse_run
from webhook.decision import default_object
from webhook.model.cluster import Gap, Namespace, Run, finished
from webhook.model.draft import Draft, pointer
from webhook.model.injected import AddedToJob, AddedToRuntime, read_added_to_runtime, record
from webhook.model.names import INJECTED, RUNTIME_KINDS
from webhook.model.policy import Policy
from webhook.model.release import Release
from webhook.model.request import Request
from webhook.runs.api import JSON_PATCH, Answer, Api, each

Raw = Mapping[str, Any]
Outcome = Literal["lacks", "added", "added in part", "left", "failed"]

_FAILURE_POLICY: Final = ("spec", "template", "spec", "failurePolicy")
_RECORD: Final = pointer(("metadata", "annotations", INJECTED))
_WRITER: Final = "ckptguard-runtimes"
_NAMED: Final = 10
_LABELS: Final = re.compile(r"/spec/template/spec/replicatedJobs/\d+/template/metadata(/|$)")
"""What a default writes there is the trainer label."""
_STOPPED_BY_KUEUE: Final = (
    "with the trainer label Trainer changes the containers, and Kueue stops every unfinished run with a queue"
)


class Lacking(Struct, frozen=True):
    """A runtime that lacks something. ``patch`` adds all of it, ``now`` what can be added now (empty: nothing).

    ``held_by`` are the unfinished runs because of which that is not all, ``why`` says so in words.
    """

    kind: str
    namespace: str
    name: str
    version: str
    patch: tuple[Raw, ...]
    now: tuple[Raw, ...]
    held_by: tuple[Run, ...] = ()
    why: str = ""

    @property
    def label(self) -> str:
        """``<Kind>/<name>``, with its namespace."""
        return f"{self.kind}/{self.name}" + (f" in {self.namespace}" if self.namespace else "")


class Healed(Struct, frozen=True):
    """What became of one runtime. ``words`` says why it was left or failed."""

    runtime: Lacking
    outcome: Outcome
    words: str = ""


class Cluster:
    """What the decision needs of the cluster, read when it is asked for: unfinished runs and namespaces."""

    def __init__(self, api: Api, release: Release) -> None:
        self.api = api
        self.release = release
        self._runs: dict[tuple[str, str, str], list[Run]] | None = None
        self._namespaces: dict[str, Namespace | Gap] = {}
        self._covered: dict[tuple[str, str], str | None] = {}

    def forget_runs(self) -> None:
        """Read the runs again when they are asked for."""
        self._runs = None
        self._covered = {}

    def runs_of(self, kind: str, namespace: str, name: str) -> Sequence[Run]:
        """Unfinished TrainJobs of a runtime. Raises Refused and Unreachable."""
        if self._runs is None:
            self._runs = {}
            for raw in each(self.api, KINDS[TRAINJOB].collection, page=100):
                if not finished(raw):
                    run = parse_run(raw)
                    space = "" if run.runtime_kind == "ClusterTrainingRuntime" else run.namespace
                    self._runs.setdefault((run.runtime_kind, space, run.runtime_name), []).append(run)
        return self._runs.get((kind, namespace, name), ())

    def namespace(self, name: str) -> Namespace | Gap:
        """A Namespace, or that it is not known."""
        if name not in self._namespaces:
            answer = self.api.request("GET", f"/api/v1/namespaces/{name}")
            self._namespaces[name] = parse_namespace(answer.body) if answer.ok else Gap.UNKNOWN
        return self._namespaces[name]

    def uncovered(self, run: Run) -> str | None:
        """Why a change of its runtime can reach the run; None where Trainer has its own copy for it."""
        if not self.release.at_least(Release.V2_3):
            return f"Trainer {self.release.value} writes the change to the JobSets of unfinished runs"
        key = (run.namespace, run.name)
        if key not in self._covered:
            answer = self.api.request("GET", KINDS[CONFIG_MAP].path(run.namespace, run.name + SNAPSHOT_SUFFIX))
            self._covered[key] = None if answer.ok else _no_copy(answer)
        return self._covered[key]


class _View(FileView):
    """Nothing is known but namespaces: the defaults of a runtime need no more."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__((), cluster.release)
        self._cluster = cluster

    def namespace(self, name: str) -> Namespace | Gap:
        return self._cluster.namespace(name)


def find_lacking(cluster: Cluster, policy: Policy, namespace: str | None = None) -> Iterator[Lacking]:
    """Runtimes that lack what admission would fill in. Raises Refused and Unreachable.

    ``namespace`` leaves out all others, and ClusterTrainingRuntimes.
    """
    view = _View(cluster)
    for kind in RUNTIME_KINDS:
        if namespace is not None and kind == "ClusterTrainingRuntime":
            continue
        where = KINDS[kind]
        path = f"{where.base}/namespaces/{namespace}/{where.resource}" if namespace is not None else where.collection
        for raw in each(cluster.api, path, page=100):
            metadata = raw.get("metadata") or {}
            if not metadata.get("deletionTimestamp"):
                found = lacking({"kind": kind, **raw}, cluster, policy, view)
                if found is not None:
                    yield found


def lacking(raw: Raw, cluster: Cluster, policy: Policy, view: FileView | None = None) -> Lacking | None:
    """What one runtime lacks; None where it lacks nothing."""
    metadata = raw.get("metadata") or {}
    kind, name = str(raw.get("kind")), str(metadata.get("name"))
    namespace = "" if kind == "ClusterTrainingRuntime" else str(metadata.get("namespace") or "default")
    request = Request("CREATE", kind, namespace, name, raw)
    done = default_object(request, view or _View(cluster), policy, cluster.release)
    if not done.patch:
        return None
    before = read_added_to_runtime(raw)
    patch = _with_record(done.patch, before, read_added_to_runtime(done.object))
    held, why = [], ""
    for run in cluster.runs_of(kind, namespace, name):
        reason = cluster.uncovered(run)
        if reason is not None:
            held.append(run)
            why = why or reason
    version = str(metadata.get("resourceVersion"))
    now = patch if not held else _failure_policy_alone(raw, done.object, before)
    if not held and any(_LABELS.match(str(op["path"])) for op in patch):
        queued = [run for run in cluster.runs_of(kind, namespace, name) if run.queued]
        if queued:
            held, why, now = queued, _STOPPED_BY_KUEUE, _without_label(done.patch, before, done.object)
    return Lacking(
        kind=kind, namespace=namespace, name=name, version=version, patch=patch, now=now, held_by=tuple(held), why=why
    )


def heal(cluster: Cluster, policy: Policy, namespace: str | None = None) -> Iterator[Healed]:
    """Add what is lacking: each runtime by dry-run first, then for good. Raises Refused and Unreachable."""
    for first in list(find_lacking(cluster, policy, namespace)):
        cluster.forget_runs()  # somebody may have started one since
        answer = cluster.api.request("GET", _path(first))
        if answer.code == 404:
            continue
        if not answer.ok:
            yield Healed(first, "failed", answer.message)
            continue
        runtime = lacking({"kind": first.kind, **answer.body}, cluster, policy)
        if runtime is None:
            continue
        if not runtime.now:
            yield Healed(runtime, "left", held_words(runtime))
            continue
        body = [{"op": "test", "path": "/metadata/resourceVersion", "value": runtime.version}, *runtime.now]
        for params in ({"dryRun": "All"}, {}):
            answer = cluster.api.request("PATCH", _path(runtime), {"fieldManager": _WRITER, **params}, body, JSON_PATCH)
            if not answer.ok:
                break
        if not answer.ok:
            yield Healed(runtime, "failed", _first_line(answer))
        elif runtime.now is runtime.patch:
            yield Healed(runtime, "added")
        else:
            yield Healed(runtime, "added in part", held_words(runtime))


def held_words(runtime: Lacking) -> str:
    """Why not everything can be added, with the runs by name."""
    names = [f"{run.namespace}/{run.name}" for run in runtime.held_by]
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return f"{runtime.why}; unfinished: {', '.join(names[:_NAMED])}{more}"


def added_words(patch: Sequence[Raw]) -> list[str]:
    """What a patch adds, for people: ``spec.template.spec.failurePolicy: {"maxRestarts":3}``."""
    said = []
    for op in patch:
        path = str(op["path"])
        if INJECTED.replace("/", "~1") in path or path == "/metadata/annotations":
            continue
        value = msgspec.json.encode(op.get("value")).decode()
        field = re.sub(r"/(\d+)(?=/|$)", r"[\1]", path).strip("/").replace("/", ".")
        said.append(f"{field.replace('~1', '/').replace('~0', '~')}: {value}")
    return said


def retries_words(done: Sequence[Healed]) -> list[str]:
    """What ``backoffLimit: 0`` takes and gives, where that is among what is added: it is a choice of the policy."""
    for healed in done:
        shown = healed.runtime.now if healed.outcome == "added in part" else healed.runtime.patch
        if any(str(op["path"]).endswith("/backoffLimit") and op.get("value") == 0 for op in shown):
            return [
                "backoffLimit 0: the first failed pod restarts all pods of a run (maxRestarts), so that no rank waits",
                "  for another that retries alone. The other side: a run whose node is lost gets no new pod before",
                "  that node is back, its Node is deleted, or it is tainted node.kubernetes.io/out-of-service. Where",
                "  dead nodes are not replaced by themselves, let runs of one node retry: in the policy",
                "  defaults.backoffLimit: multi-node (or keep); docs/operations.md, When a part is down, says more.",
            ]
    return []


def _path(runtime: Lacking) -> str:
    return KINDS[runtime.kind].path(runtime.namespace, runtime.name)


def _no_copy(answer: Answer) -> str:
    if answer.code == 404:
        return "Trainer has no copy of the runtime for the run yet"
    return f"it cannot be told whether Trainer has a copy of the runtime for the run: {answer.message}"


def _first_line(answer: Answer) -> str:
    if answer.code == 422 and "test" in answer.message:
        return "somebody changed it meanwhile: run the command again"
    return answer.message.splitlines()[0][:300]


def _failure_policy_alone(raw: Raw, wanted: Raw, before: AddedToRuntime | None) -> tuple[Raw, ...]:
    """The part that JobSet takes into a JobSet that exists: a failurePolicy where there is none."""
    spec = ((raw.get("spec") or {}).get("template") or {}).get("spec") or {}
    policy = (((wanted.get("spec") or {}).get("template") or {}).get("spec") or {}).get("failurePolicy")
    if policy is None or policy == spec.get("failurePolicy"):
        return ()
    draft = Draft(raw)
    draft.set(_FAILURE_POLICY, policy)
    record(draft, AddedToRuntime(before.jobs if before else {}, policy.get("maxRestarts")))
    return tuple(draft.patch)


def _without_label(filled: Sequence[Raw], before: AddedToRuntime | None, wanted: Raw) -> tuple[Raw, ...]:
    """The patch without the trainer label, its record too; empty where it holds nothing else."""
    kept = [op for op in filled if not _LABELS.match(str(op["path"]))]
    added = read_added_to_runtime(wanted)
    if added is None or not any(op["path"] != _RECORD and op["path"] != "/metadata/annotations" for op in kept):
        return ()
    jobs = {name: msgspec.structs.replace(job, label=None) for name, job in added.jobs.items()}
    without = AddedToRuntime({name: job for name, job in jobs.items() if job != AddedToJob()}, added.max_restarts)
    text = msgspec.json.encode(without, order="deterministic").decode()
    recorded: list[Raw] = []
    for op in kept:
        if op["path"] == _RECORD:
            op = {**op, "value": text}
        elif op["path"] == "/metadata/annotations":
            op = {**op, "value": {**op["value"], INJECTED: text}}
        recorded.append(op)
    return _with_record(recorded, before, without) if before is not None else tuple(recorded)


def _with_record(patch: Sequence[Raw], before: AddedToRuntime | None, added: AddedToRuntime | None) -> tuple[Raw, ...]:
    """The patch with a record that keeps what an earlier one had."""
    if before is None or added is None:
        return tuple(patch)
    jobs = dict(before.jobs)
    for name, job in added.jobs.items():
        old = jobs.get(name, AddedToJob())
        jobs[name] = AddedToJob(
            job.backoff_limit if job.backoff_limit is not None else old.backoff_limit,
            job.label if job.label is not None else old.label,
            job.termination_grace_period_seconds
            if job.termination_grace_period_seconds is not None
            else old.termination_grace_period_seconds,
        )
    budget = added.max_restarts if added.max_restarts is not None else before.max_restarts
    text = msgspec.json.encode(AddedToRuntime(jobs, budget), order="deterministic").decode()
    return tuple({**op, "value": text} if op["path"] == _RECORD else op for op in patch)


def read_failed(refused: Refused) -> str:
    """Why the runtimes or runs could not be listed, in words."""
    if refused.status == 404:
        return "the kinds of Kubeflow Trainer v2 are not served here"
    return str(refused)
