"""A run as the cluster has it: the TrainJob, what Trainer made of it, its pods, and where its checkpoints lie."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from msgspec import Struct

from webhook.effective import UNJUDGED, build_trainer_pods, locate_checkpoints
from webhook.model.cluster import Runtime
from webhook.model.names import API_VERSION, JOBSET_NAME_LABEL, QUEUE_LABEL
from webhook.model.nearest import near
from webhook.model.pod import EMPTY, Checkpoint, DirectoryStatus, EffectiveJob, Raw, StorageKind
from webhook.model.policy import Policy
from webhook.model.release import NEWEST, Release
from webhook.runs.api import Answer, Api, each
from webhook.runs.install_check import read_release
from webhook.runs.words import pods, still
from webhook.storage import path_on_claim
from webhook.storage.kinds import inline_kind
from webhook.storage.sources import source_of

TRAINJOBS: Final = f"/apis/{API_VERSION}"
JOBSETS: Final = "/apis/jobset.x-k8s.io/v1alpha2"
MERGE: Final = "application/merge-patch+json"
JOB_LABEL: Final = "jobset.sigs.k8s.io/replicatedjob-name"
INDEX_LABEL: Final = "batch.kubernetes.io/job-completion-index"


class CannotDo(Exception):  # noqa: N818 - a state
    """The command cannot do what it was asked; ``lines`` say why, and what would help. Exit code 2.

    A line is one line wherever it is shown: line breaks in what the cluster said are shown as such.
    """

    def __init__(self, *lines: str) -> None:
        super().__init__("\n".join(lines))
        self.lines = lines


class Directory(Struct, frozen=True):
    """Where a run keeps its checkpoints.

    ``path`` is that of the container, ``on_claim`` that from the claim's root (None where only the pod knows it).
    ``job`` and ``container`` are the first that train, ``pod`` is their PodSpec as built. ``claim`` is None where no
    claim lies under the directory; ``volume`` is the volume's source in words then.
    """

    path: str
    job: str
    container: str
    pod: Raw
    mount: Raw | None = None
    claim: str | None = None
    on_claim: str | None = None
    volume: str = ""
    read_only: bool = False
    source: Raw | None = None
    """The volume's source where it is no claim and pods on any node can mount it, such as ``nfs``."""
    lasting: bool = False
    """Whether what lies there outlives the pods, though no claim lies under it."""

    @property
    def where(self) -> str:
        """What it lies on, in words."""
        return f'claim "{self.claim}"' if self.claim is not None else self.volume


class Run(Struct, frozen=True):
    """One TrainJob with its JobSet (None: there is none yet) and its pods, at one moment."""

    trainjob: Raw
    jobset: Raw | None
    pods: tuple[Raw, ...]

    @property
    def name(self) -> str:
        return str(self.trainjob["metadata"]["name"])

    @property
    def namespace(self) -> str:
        return str(self.trainjob["metadata"]["namespace"])

    @property
    def uid(self) -> str:
        return str(self.trainjob["metadata"].get("uid") or "")

    @property
    def suspended(self) -> bool:
        return bool((self.trainjob.get("spec") or EMPTY).get("suspend"))

    @property
    def queue(self) -> str | None:
        """The Kueue queue that decides when it runs."""
        labels = self.trainjob["metadata"].get("labels") or EMPTY
        return labels.get(QUEUE_LABEL)

    def condition(self, kind: str) -> Raw | None:
        """A condition that is True."""
        for one in (self.trainjob.get("status") or EMPTY).get("conditions") or ():
            if one.get("type") == kind and one.get("status") == "True":
                return one  # type: ignore[no-any-return]
        return None

    @property
    def over(self) -> str | None:
        """``Complete`` or ``Failed`` where it has ended."""
        for kind in ("Complete", "Failed"):
            if self.condition(kind) is not None:
                return kind
        return None

    @property
    def restarts(self) -> int:
        """How often JobSet has made the pods anew."""
        return int(((self.jobset or EMPTY).get("status") or EMPTY).get("restarts") or 0)

    def state(self) -> str:
        """In words, for a message about what a command leaves behind."""
        if self.over is not None:
            return f"has ended: {self.over}"
        count = len(self.pods)
        if self.suspended:
            return f"is suspended, {pods(count)} {still(count)} ending" if count else "is suspended"
        running = sum(is_running(pod) for pod in self.pods)
        return f"is not suspended, {running} of {pods(count)} run" if count else "waits for its pods"


def find_run(api: Api, namespace: str, name: str) -> Run:
    """The run of that name. Raises CannotDo (there is none) and Unreachable."""
    path = f"{TRAINJOBS}/namespaces/{namespace}/trainjobs"
    answer = api.request("GET", f"{path}/{name}")
    if not answer.ok:
        raise CannotDo(_no_run(api, path, namespace, name, answer))
    return Run(answer.body, _jobset(api, namespace, name), pods_of(api, namespace, name))


def again(api: Api, run: Run) -> Run:
    """The same run now. Raises CannotDo where it is gone, or another one has its name."""
    now = find_run(api, run.namespace, run.name)
    if now.uid != run.uid:
        raise CannotDo(f'TrainJob "{run.name}" was deleted and created again meanwhile')
    return now


def _no_run(api: Api, path: str, namespace: str, name: str, answer: Answer) -> str:
    if answer.code in (401, 403):
        return f"not allowed: {answer.message}"
    if answer.code != 404:
        return f'TrainJob "{name}" cannot be read: {answer.message}'
    if not answer.body.get("details"):
        return "this cluster serves no TrainJobs: is Kubeflow Trainer v2 installed?"
    try:
        names = [one["metadata"]["name"] for one in each(api, path)]
    except Exception:
        names = []
    meant = near(name, names)
    there = f"; nearest: {meant}" if meant else "; ckptguard runs lists those there are" if names else "; there is none"
    return f'there is no TrainJob "{name}" in namespace "{namespace}"{there}'


def _jobset(api: Api, namespace: str, name: str) -> Raw | None:
    answer = api.request("GET", f"{JOBSETS}/namespaces/{namespace}/jobsets/{name}")
    return answer.body if answer.ok else None


def pods_of(api: Api, namespace: str, name: str) -> tuple[Raw, ...]:
    """The run's pods that have not ended, in order of job and index. Raises CannotDo where they may not be listed."""
    return tuple(pod for pod in every_pod_of(api, namespace, name) if not has_ended(pod))


def every_pod_of(api: Api, namespace: str, name: str) -> list[Raw]:
    """The run's pods, those that have ended too, in the same order. Raises CannotDo."""
    answer = api.request(
        "GET", f"/api/v1/namespaces/{namespace}/pods", {"labelSelector": f"{JOBSET_NAME_LABEL}={name}"}
    )
    if not answer.ok:
        raise CannotDo(f"the run's pods cannot be listed: {answer.message}")
    return sorted(answer.body.get("items") or (), key=_place)


def _place(pod: Raw) -> tuple[str, int, str]:
    labels = pod["metadata"].get("labels") or EMPTY
    index = str(labels.get(INDEX_LABEL) or 0)
    return str(labels.get(JOB_LABEL) or ""), int(index) if index.isdigit() else 0, str(pod["metadata"]["name"])


def has_ended(pod: Raw) -> bool:
    return (pod.get("status") or EMPTY).get("phase") in ("Succeeded", "Failed")


def is_running(pod: Raw, container: str | None = None) -> bool:
    """Whether its containers (or that one) run, also while it is being ended."""
    for status in (pod.get("status") or EMPTY).get("containerStatuses") or ():
        if container in (None, status.get("name")) and (status.get("state") or EMPTY).get("running") is not None:
            return True
    return False


def pods_of_job(pods: Sequence[Raw], job: str) -> list[Raw]:
    """Those of one replicatedJob."""
    return [pod for pod in pods if (pod["metadata"].get("labels") or EMPTY).get(JOB_LABEL) == job]


def find_directory(api: Api, run: Run, policy: Policy) -> Directory:
    """Where the run keeps its checkpoints, told by what Trainer made of it. Raises CannotDo where nothing says it."""
    built = _effective(api, run)
    best = known_checkpoint(built, policy)
    if best is None:
        why = [checkpoint.status for checkpoint in locate_checkpoints(built, policy.directory.variables)]
        if DirectoryStatus.UNRESOLVED in why:
            raise CannotDo(
                f'only the pods of "{run.name}" know the checkpoint directory (from a ConfigMap or the image): '
                "say --directory"
            )
        variables = " or ".join(policy.directory.variables)
        raise CannotDo(f'run "{run.name}" declares no checkpoint directory ({variables}): say --directory')
    return directory_of(best, policy)


def known_checkpoint(built: Any, policy: Policy) -> Checkpoint | None:
    """The first checkpoint directory of the pods whose path is known to the end; None where there is none."""
    for checkpoint in locate_checkpoints(built, policy.directory.variables):
        if checkpoint.directory is not None and "$(" not in checkpoint.directory:
            return checkpoint
    return None


def directory_at(api: Api, run: Run, path: str, policy: Policy) -> Directory:
    """A directory by its path in the container that trains, as somebody names it. Raises CannotDo."""
    from webhook.effective.checkpoint import mount_under

    for job in _built(api, run):
        for container in job.training_containers():
            mount = mount_under(container, path)
            volume = None if mount is None else job.volume(str(mount.get("name") or ""))
            named = Checkpoint(
                job=job,
                container=container,
                status=DirectoryStatus.DECLARED,
                storage=UNJUDGED,
                directory=path,
                written=path,
                mount=mount,
                volume=volume,
            )
            return directory_of(named, policy)
    raise CannotDo(f'which container of "{run.name}" trains is not known')


def directory_of(checkpoint: Checkpoint, policy: Policy) -> Directory:
    """What a command needs of a checkpoint directory."""
    volume = checkpoint.volume or EMPTY
    source = volume.get("persistentVolumeClaim")
    mount = checkpoint.mount
    claim = None if source is None else str(source.get("claimName") or "")
    kind = source_of(volume) if checkpoint.volume is not None else ""
    worth = StorageKind.NONE if source is not None or not kind else inline_kind(volume, kind, policy)
    if checkpoint.volume is None and mount is not None:
        made = next((one for one in checkpoint.job.claim_volumes if one.get("name") == mount.get("name")), None)
        if made is not None:
            claim = str((made.get("persistentVolumeClaim") or EMPTY).get("claimName") or "") or None
    directory = checkpoint.directory or ""
    return Directory(
        path=directory,
        job=checkpoint.job.name,
        container=checkpoint.container_name,
        pod=checkpoint.job.pod,
        mount=mount,
        claim=claim,
        on_claim=path_on_claim(checkpoint),
        volume=f"volume {volume.get('name')} ({kind})" if kind else "no volume",
        read_only=bool(mount and mount.get("readOnly")) or bool(source and source.get("readOnly")),
        source={kind: volume.get(kind)} if worth in (StorageKind.MANY_NODES, StorageKind.OBJECT_STORE) else None,
        lasting=worth not in (StorageKind.NONE, StorageKind.EPHEMERAL),
    )


def _checkpoints(api: Api, run: Run, policy: Policy) -> tuple[Checkpoint, ...]:
    return locate_checkpoints(_effective(api, run), policy.directory.variables)


def _built(api: Api, run: Run) -> Iterator[EffectiveJob]:
    return (job for job in _effective(api, run).jobs if job.trains)


def _effective(api: Api, run: Run) -> Any:
    """The pods as built: from the JobSet, which is what runs, else worked out from the runtime."""
    release = read_release(api) or NEWEST
    if run.jobset is not None:
        return effective_pods(run, None, release)
    kind, name = runtime_of(run.trainjob)
    answer = read_runtime(api, kind, run.namespace, name)
    if not answer.ok:
        raise CannotDo(f'its {kind} "{name}" cannot be read: {answer.message}')
    return effective_pods(run, answer.body, release)


def runtime_of(trainjob: Mapping[str, Any]) -> tuple[str, str]:
    """Kind and name of the runtime that a TrainJob names."""
    reference = (trainjob.get("spec") or EMPTY).get("runtimeRef") or EMPTY
    return str(reference.get("kind") or "ClusterTrainingRuntime"), str(reference.get("name") or "")


def read_runtime(api: Api, kind: str, namespace: str, name: str) -> Answer:
    """What the API server answers of a runtime; ``namespace`` is that of its TrainJob."""
    scope = "" if kind == "ClusterTrainingRuntime" else f"/namespaces/{namespace}"
    return api.request("GET", f"{TRAINJOBS}{scope}/{kind.lower()}s/{name}")


def effective_pods(run: Run, runtime: Raw | None, release: Release) -> Any:
    """The pods of a run by its JobSet where it has one, else by its runtime."""
    if run.jobset is not None:
        spec = run.jobset.get("spec") or {}
        made = Runtime("TrainingRuntime", run.namespace, run.name, {"spec": {"template": {"spec": spec}}}, {})
        # What the TrainJob says is in there already; its name alone is needed.
        named: Mapping[str, Any] = {"metadata": run.trainjob["metadata"], "spec": {}}
        return build_trainer_pods(named, made, release)
    kind, name = runtime_of(run.trainjob)
    own = Runtime(kind, run.namespace, name, runtime or {}, {})
    return build_trainer_pods(run.trainjob, own, release)


def _place_of(directory: Directory) -> tuple[str | None, Raw | None, str | None]:
    return directory.claim, directory.source, directory.on_claim


def others_on(api: Api, run: Run, directory: Directory, policy: Policy) -> list[str]:
    """Names of other unfinished runs of the namespace that keep their checkpoints in the same directory."""
    if (directory.claim is None and directory.source is None) or directory.on_claim is None:
        return []
    found: list[str] = []
    jobsets = {one["metadata"]["name"]: one for one in each(api, f"{JOBSETS}/namespaces/{run.namespace}/jobsets")}
    for trainjob in each(api, f"{TRAINJOBS}/namespaces/{run.namespace}/trainjobs"):
        name = str(trainjob["metadata"]["name"])
        other = Run(trainjob, jobsets.get(name), ())
        if name == run.name or other.over is not None or other.jobset is None:
            continue
        for checkpoint in _checkpoints(api, other, policy):
            theirs = directory_of(checkpoint, policy) if checkpoint.directory is not None else None
            if theirs is not None and _place_of(theirs) == _place_of(directory):
                found.append(name)
                break
    return found
