"""All runs of a namespace or of a cluster, each with its state and what it waits for.

It costs the same few lists however many runs there are: TrainJobs, JobSets and unfinished pods in pages of 500, and
claims, Workloads, events and runtimes only where a run's state depends on them. What may not be listed is said, and
the rest goes on. Steps are another matter: each takes an exec, see ``saved_steps``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, Final

from msgspec import Struct

from webhook.cluster.access import Refused
from webhook.model.names import JOBSET_NAME_LABEL, MULTIKUEUE
from webhook.model.pod import EMPTY, Raw
from webhook.model.policy import Policy
from webhook.model.release import NEWEST, Release
from webhook.runs.api import Api, each
from webhook.runs.install_check import read_release
from webhook.runs.run import (
    JOBSETS,
    TRAINJOBS,
    CannotDo,
    Directory,
    Run,
    directory_of,
    effective_pods,
    has_ended,
    is_running,
    known_checkpoint,
    pods_of_job,
    runtime_of,
)
from webhook.runs.suspension import KUEUE
from webhook.runs.words import pods, still

PAGE: Final = 500
"""As kubectl lists."""
RUNNING, SUSPENDED, QUEUED = "Running", "Suspended", "Queued"
WAITS_FOR_NODE, WAITS_FOR_CLAIM = "WaitsForNode", "WaitsForClaim"
_UNENDED: Final = "status.phase!=Succeeded,status.phase!=Failed"
_STARTING: Final = 30.0
"""Seconds that a pod may take to start before its events are asked for."""
# kube-scheduler's words (pkg/scheduler/framework/plugins/{volumebinding,volumezone,volumerestrictions}).
_CLAIM_ALONE: Final = re.compile(
    r"unbound immediate PersistentVolumeClaim|persistentvolumeclaim \"[^\"]*\" (not found|is being deleted|bound to)|"
    r"ReadWriteOncePod|Lost PersistentVolume",
    re.IGNORECASE,
)
_CLAIM_AMONG: Final = re.compile(
    r"volume node affinity conflict|available persistent volumes to bind|no available volume zone|"
    r"bound to non-existent persistentvolume|unavailable due to PersistentVolume",
    re.IGNORECASE,
)
_NODES_FULL: Final = re.compile(r"Insufficient |Too many pods|were unschedulable|were not ready|free ports")
_MOUNT_FAILED: Final = ("FailedAttachVolume", "FailedMount")
_NO_IMAGE: Final = ("ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull")


class Item(Struct, frozen=True):
    """One run. ``step`` and ``saved`` (seconds since 1970) are None where they were not read.

    ``budget`` is ``maxRestarts`` (0 where there is none), ``restarts`` how many of them are spent; None: not known.
    ``reason`` is why an ended run ended.
    """

    run: Run
    state: str
    nodes: int | None = None
    directory: Directory | None = None
    restarts: int | None = None
    budget: int | None = None
    waits_for: str | None = None
    reason: str | None = None
    step: int | None = None
    saved: float | None = None

    def as_json(self) -> dict[str, Any]:
        """For ``--output json``."""
        return {
            "namespace": self.run.namespace,
            "name": self.run.name,
            "state": self.state,
            "nodes": self.nodes,
            "directory": None if self.directory is None else self.directory.path,
            "step": self.step,
            "saved": None if self.saved is None else rfc3339(self.saved),
            "restarts": self.restarts,
            "budget": self.budget,
            "waitsFor": self.waits_for,
        }


class Overview(Struct, frozen=True):
    """The runs in order of namespace and name, and what could not be read."""

    items: tuple[Item, ...]
    notes: tuple[str, ...] = ()


def rfc3339(seconds: float) -> str:
    """UTC, whole seconds."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def seconds_of(text: object) -> float | None:
    """The seconds since 1970 of a time as the API writes it; None where it is none."""
    try:
        return datetime.fromisoformat(str(text)).timestamp() if text else None
    except ValueError:
        return None


class Lists:
    """Lists of one namespace (None: of all), each read at most once. ``notes`` says which could not be."""

    def __init__(self, api: Api, namespace: str | None) -> None:
        self._api = api
        self._within = f"/namespaces/{namespace}" if namespace is not None else ""
        self._known: dict[str, list[Raw] | None] = {}
        self._by_key: dict[str, dict[tuple[str, str], Raw]] = {}
        self.notes: list[str] = []

    def trainjobs(self) -> list[Raw]:
        """Raises CannotDo: without them there is nothing to say."""
        path = f"{TRAINJOBS}{self._within}/trainjobs"
        try:
            return list(each(self._api, path, page=PAGE))
        except Refused as refused:
            if refused.status in (401, 403):
                where = "-A takes the right to list them in all namespaces; -n NAMESPACE in one: "
                raise CannotDo(f"not allowed: {'' if self._within else where}{refused.message}") from None
            if refused.status == 404:
                raise CannotDo("this cluster serves no TrainJobs: is Kubeflow Trainer v2 installed?") from None
            raise CannotDo(f"TrainJobs cannot be listed: {refused.message}") from None

    def of(self, kind: str, group: str, without: str, **params: str) -> list[Raw] | None:
        """All objects of a kind; None where they may not be listed, which is said with what is unknown ``without``."""
        key = f"{kind} {sorted(params.items())}"
        if key not in self._known:
            self._known[key] = self._list(kind, f"{group}{self._within}/{kind}", without, params)
        return self._known[key]

    def _list(self, kind: str, path: str, without: str, params: Mapping[str, str]) -> list[Raw] | None:
        try:
            return list(each(self._api, path, params, PAGE))
        except Refused as refused:
            if refused.status == 404 and kind == "workloads":
                return None  # Kueue is not there, or another version of it
            self.notes.append(f"{kind} cannot be listed, so {without}: {refused.message}")
            return None

    def workload(self, uid: str) -> tuple[bool, Raw | None]:
        """Whether Kueue's Workloads can be read, and that of the TrainJob with this uid."""
        for version in ("v1beta2", "v1beta1"):
            found = self.of("workloads", f"{KUEUE}/{version}", "why a queue holds a run is not known")
            if found is not None:
                if version not in self._by_key:
                    self._by_key[version] = {
                        (str(owner.get("uid")), ""): one
                        for one in found
                        for owner in one["metadata"].get("ownerReferences") or ()
                    }
                return True, self._by_key[version].get((uid, ""))
        return False, None

    def claim(self, namespace: str, name: str) -> tuple[bool, Raw | None]:
        """Whether claims can be read, and the one of that name."""
        found = self.of("persistentvolumeclaims", "/api/v1", "the state of claims is not known")
        if found is None:
            return False, None
        known = self._by_key.setdefault("claims", {})
        if not known:
            known.update((_key(one), one) for one in found)
        return True, known.get((namespace, name))

    def runtime(self, namespace: str, kind: str, name: str) -> Raw | None:
        """A runtime, for a run of which there is no JobSet yet."""
        without = "the directory of a run without JobSet is not known"
        if kind == "ClusterTrainingRuntime":
            namespace, path = "", f"{TRAINJOBS}/clustertrainingruntimes"
            if kind not in self._known:
                self._known[kind] = self._list("clustertrainingruntimes", path, without, {})
            found = self._known[kind]
        else:
            found = self.of("trainingruntimes", TRAINJOBS, without)
        known = self._by_key.setdefault(kind, {})
        if not known:
            known.update((_key(one), one) for one in found or ())
        return known.get((namespace, name))


def read(api: Api, namespace: str | None, policy: Policy, now: float) -> Overview:
    """All runs of a namespace, or of the cluster. Raises CannotDo (no TrainJobs may be listed) and Unreachable."""
    lists = Lists(api, namespace)
    trainjobs = lists.trainjobs()
    if not trainjobs:
        return Overview(())
    release = read_release(api) or NEWEST
    jobsets = {
        _key(one): one
        for one in lists.of("jobsets", JOBSETS, "restarts, nodes and directories are told by the runtimes") or ()
    }
    own: dict[tuple[str, str], list[Raw]] = {}
    listed = lists.of(
        "pods", "/api/v1", "what a run waits for is not known", labelSelector=JOBSET_NAME_LABEL, fieldSelector=_UNENDED
    )
    for pod in listed or ():
        if has_ended(pod):
            continue
        metadata = pod["metadata"]
        name = (metadata.get("labels") or EMPTY).get(JOBSET_NAME_LABEL)
        own.setdefault((str(metadata.get("namespace") or ""), str(name)), []).append(pod)
    items = []
    for trainjob in sorted(trainjobs, key=_key):
        key = _key(trainjob)
        run = Run(trainjob, jobsets.get(key), tuple(own.get(key, ())))
        items.append(_item(run, lists, policy, release, now, listed is not None))
    return Overview(tuple(items), tuple(lists.notes))


def _key(raw: Raw) -> tuple[str, str]:
    return str(raw["metadata"].get("namespace") or ""), str(raw["metadata"]["name"])


def _item(run: Run, lists: Lists, policy: Policy, release: Release, now: float, pods_known: bool) -> Item:
    source = run.jobset
    runtime: Raw | None = None
    if source is None:
        runtime = lists.runtime(run.namespace, *runtime_of(run.trainjob))
    template = ((runtime or EMPTY).get("spec") or EMPTY).get("template") or EMPTY
    spec = (source or template).get("spec") or EMPTY
    nodes: int | None = None
    directory: Directory | None = None
    budget: int | None = None
    if source is not None or runtime is not None:
        budget = int((spec.get("failurePolicy") or EMPTY).get("maxRestarts") or 0)
        try:
            built = effective_pods(run, runtime, release)
            nodes = sum(job.pods for job in built.jobs if job.trains)
            found = known_checkpoint(built, policy)
            directory = None if found is None else directory_of(found, policy)
        except (ValueError, TypeError, KeyError, AttributeError):
            lists.notes.append(f'the pods of "{run.namespace}/{run.name}" cannot be worked out')
    state, waits_for = _state(run, lists, now, pods_known)
    return Item(
        run=run,
        state=state,
        nodes=nodes,
        directory=directory,
        restarts=None if source is None else run.restarts,
        budget=budget,
        waits_for=waits_for,
        reason=_ending(run),
    )


def _ending(run: Run) -> str | None:
    condition = run.condition(run.over) if run.over is not None else None
    return None if condition is None else str(condition.get("message") or condition.get("reason") or "") or None


def _state(run: Run, lists: Lists, now: float, pods_known: bool) -> tuple[str, str | None]:
    """The state, and what stands in the way of more."""
    if run.over is not None:
        return run.over, None
    if run.suspended:
        return _suspended(run, lists)
    if (run.trainjob.get("spec") or EMPTY).get("managedBy") == MULTIKUEUE:
        return RUNNING, "another cluster, where MultiKueue runs it"
    if not run.pods:
        if not pods_known:
            return RUNNING, None
        if run.jobset is None:
            return RUNNING, "its JobSet: Trainer has made none yet"
        return RUNNING, "its pods: JobSet has made none yet"
    for pod in run.pods:
        if (waits := _away(pod, now)) is not None:
            return WAITS_FOR_NODE, waits
    waiting = [pod for pod in run.pods if not _placed(pod)]
    found = [_unplaced(pod, run, lists) for pod in waiting]
    # A claim that is missing is the cause, whatever the nodes say of the other pods.
    for state in (WAITS_FOR_CLAIM, QUEUED, WAITS_FOR_NODE):
        for one in found:
            if one[0] == state:
                return one
    for pod in run.pods:
        if (said := _starting(pod, lists, now)) is not None:
            return said
    return RUNNING, None


def _suspended(run: Run, lists: Lists) -> tuple[str, str | None]:
    if run.pods:
        return SUSPENDED, f"{pods(len(run.pods))} that {still(len(run.pods))} ending"
    if run.queue is None:
        return SUSPENDED, None
    there, workload = lists.workload(run.uid)
    queue = f'queue "{run.queue}"'
    if workload is None:
        return QUEUED, f"{queue}: Kueue has no Workload for it" if there else queue
    if (workload.get("spec") or EMPTY).get("active") is False:
        return SUSPENDED, None
    for kind in ("QuotaReserved", "Admitted"):
        for one in (workload.get("status") or EMPTY).get("conditions") or ():
            if one.get("type") == kind and one.get("status") == "False" and one.get("message"):
                return QUEUED, f"{queue}: {one['message']}"
    return QUEUED, queue


def _condition(pod: Raw, kind: str) -> Raw:
    for one in (pod.get("status") or EMPTY).get("conditions") or ():
        if one.get("type") == kind:
            return one  # type: ignore[no-any-return]
    return EMPTY


def _away(pod: Raw, now: float) -> str | None:
    """A pod that should be gone and is not: its kubelet does not answer, and nothing takes its place meanwhile."""
    metadata = pod["metadata"]
    # The deletionTimestamp is the time at which the grace period is over.
    due = seconds_of(metadata.get("deletionTimestamp"))
    node = (pod.get("spec") or EMPTY).get("nodeName")
    if due is None or now - due < _STARTING or not node:
        return None
    return f'node "{node}", which does not let go of pod "{metadata["name"]}"'


def _placed(pod: Raw) -> bool:
    return bool((pod.get("spec") or EMPTY).get("nodeName"))


def _unplaced(pod: Raw, run: Run, lists: Lists) -> tuple[str, str]:
    """Why a pod has no node yet."""
    scheduled = _condition(pod, "PodScheduled")
    # What preemption could not do either says the same once more.
    message = " ".join(str(scheduled.get("message") or "").split()).partition(" preemption: ")[0]
    if scheduled.get("reason") == "SchedulingGated" or (pod.get("spec") or EMPTY).get("schedulingGates"):
        gates = ", ".join(str(gate.get("name")) for gate in (pod.get("spec") or EMPTY).get("schedulingGates") or ())
        return QUEUED, f"scheduling gate {gates}" if gates else "a scheduling gate"
    for name in claims_of(pod):
        if (fault := _claim_fault(run.namespace, name, lists, message)) is not None:
            return WAITS_FOR_CLAIM, fault
    if _CLAIM_ALONE.search(message) or (_CLAIM_AMONG.search(message) and not _NODES_FULL.search(message)):
        names = ", ".join(f'claim "{name}"' for name in claims_of(pod))
        return WAITS_FOR_CLAIM, f"{names}: {message}" if names else message
    return WAITS_FOR_NODE, message or "the scheduler, which has not said anything yet"


def claims_of(pod: Raw) -> Iterator[str]:
    """The claims that a pod mounts."""
    for volume in (pod.get("spec") or EMPTY).get("volumes") or ():
        source = volume.get("persistentVolumeClaim") or EMPTY
        if source.get("claimName"):
            yield str(source["claimName"])


def _claim_fault(namespace: str, name: str, lists: Lists, message: str) -> str | None:
    """What keeps a claim from being mounted; None where nothing does, or nobody knows."""
    there, claim = lists.claim(namespace, name)
    if not there:
        return None
    if claim is None:
        return f'claim "{name}", which does not exist'
    if claim["metadata"].get("deletionTimestamp"):
        return f'claim "{name}", which is being deleted'
    phase = (claim.get("status") or EMPTY).get("phase")
    if phase == "Lost":
        return f'claim "{name}", which has lost its volume'
    # A class that waits for the first consumer leaves a claim Pending until a node is found.
    if phase == "Pending" and (not message or "unbound immediate" in message):
        spec = claim.get("spec") or EMPTY
        return f'claim "{name}", which is Pending (class "{spec.get("storageClassName") or ""}")'
    return None


def _starting(pod: Raw, lists: Lists, now: float) -> tuple[str, str] | None:
    """A pod that has a node and does not start."""
    if is_running(pod) or not _placed(pod):
        return None
    name = str(pod["metadata"]["name"])
    for one in (pod.get("status") or EMPTY).get("containerStatuses") or ():
        waiting = (one.get("state") or EMPTY).get("waiting") or EMPTY
        if waiting.get("reason") in _NO_IMAGE:
            return RUNNING, f'image "{one.get("image")}": {waiting["reason"]}'
        if waiting.get("reason") == "CrashLoopBackOff":
            return RUNNING, f'container "{one.get("name")}", which has failed: CrashLoopBackOff'
    since = seconds_of(_condition(pod, "PodScheduled").get("lastTransitionTime"))
    if since is None or now - since < _STARTING:
        return RUNNING, f'pod "{name}", which is starting'
    for reason in _MOUNT_FAILED:
        events = lists.of(
            "events", "/api/v1", "why a pod does not start is not known", fieldSelector=f"reason={reason}"
        )
        for event in reversed(events or ()):
            about = event.get("involvedObject") or EMPTY
            if about.get("uid") == pod["metadata"].get("uid") and about.get("uid"):
                message = " ".join(str(event.get("message") or reason).split())
                claims = ", ".join(f'claim "{one}"' for one in claims_of(pod))
                return WAITS_FOR_CLAIM, f"{claims}: {message}" if claims else message
    return RUNNING, f'pod "{name}", which is starting'


def readable(items: Iterable[Item]) -> list[Item]:
    """Those whose step a pod of theirs can tell."""
    return [
        item
        for item in items
        if item.directory is not None
        and any(is_running(pod, item.directory.container) for pod in pods_of_job(item.run.pods, item.directory.job))
    ]
