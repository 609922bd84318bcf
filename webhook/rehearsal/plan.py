"""What a rehearsal in the cluster creates: a TrainJob and a runtime of its own, in a directory of its own. Pure.

Every mount of the checkpoints' claim that the directory lies in, or that lies in it, gets the subPath
``.rehearsal/NAME/...``; every other mount of that claim is read-only. So nothing that the run itself has saved can be
written over.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from typing import Any, Final

from msgspec import Struct

from webhook.effective import build_trainer_pods, locate_checkpoints
from webhook.model.cluster import Runtime
from webhook.model.names import API_VERSION, PREFIX, REHEARSAL_OF
from webhook.model.path import components
from webhook.model.pod import EMPTY, DirectoryStatus, EffectiveSet
from webhook.model.policy import Policy
from webhook.model.release import Release
from webhook.rehearsal.model import CannotRehearse
from webhook.runs.run import Directory, directory_of, known_checkpoint

Raw = dict[str, Any]
FOLDER: Final = ".rehearsal"
_LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"
_LONGEST: Final = 30
"""Characters of the run's name in that of the rehearsal: JobSet makes longer names of it, which have to fit."""


class Plan(Struct, frozen=True):
    """``folder`` is what is removed afterwards, ``folders`` what is made before, both from the claim's root.

    ``image`` is that of the container that trains, ``pods`` how many there will be, ``grace`` the seconds from SIGTERM
    to SIGKILL.
    """

    name: str
    namespace: str
    trainjob: Raw
    runtime: Raw
    directory: Directory
    claim: str
    folder: str
    folders: tuple[str, ...]
    image: str
    pods: int
    queue: str | None
    grace: float


class Wanted(Struct, frozen=True):
    """What the flags change: ``resources`` None leaves them as they are."""

    nodes: int | None = None
    resources: Mapping[str, str] | None = None
    claim: str | None = None


def plan(
    trainjob: Mapping[str, Any], runtime: Runtime, token: str, release: Release, policy: Policy, wanted: Wanted
) -> Plan:
    """The objects to create. ``token`` makes their name unique. Raises CannotRehearse, which names field and fix."""
    job, made = _copies(trainjob, runtime, token, wanted)
    name, namespace = str(job["metadata"]["name"]), str(job["metadata"]["namespace"])
    if (job["spec"].get("managedBy") or "").startswith("kueue.x-k8s.io/multikueue"):
        raise CannotRehearse("spec.managedBy: another cluster runs it (MultiKueue): rehearse it there")
    built = _built(job, made, release)
    checkpoint = known_checkpoint(built, policy)
    if checkpoint is None:
        status = [one.status for one in locate_checkpoints(built, policy.directory.variables)]
        variables = " or ".join(policy.directory.variables)
        if DirectoryStatus.UNRESOLVED in status:
            raise CannotRehearse(
                f"only its pods know the checkpoint directory: give {variables} a value in the TrainJob or its runtime"
            )
        raise CannotRehearse(f"it declares no checkpoint directory: set {variables} in spec.trainer.env")
    found = directory_of(checkpoint, policy)
    given = any((one.get("persistentVolumeClaim") or EMPTY).get("claimName") for one in _volumes(made, job))
    if found.claim is None or not given:
        raise CannotRehearse(
            f'directory "{found.path}" lies on {found.volume or "a claim that is made for each run"}: a rehearsal in '
            "the cluster takes a claim, of which it uses a folder of its own",
            "rehearse the program itself: ckptguard rehearse -- COMMAND",
        )
    old = found.claim
    claim = wanted.claim or old
    folder = f"{FOLDER}/{name}"
    names = _names(old, made, job)
    if wanted.claim is not None:
        for volume in _volumes(made, job):
            if (source := volume.get("persistentVolumeClaim")) and source.get("claimName") == old:
                source["claimName"] = claim
                source.pop("readOnly", None)
    folders = [folder]
    for mount in _mounts(made, job):
        if mount.get("name") in names:
            folders += _turn(mount, found.path, folder)
    built = _built(job, made, release)
    checkpoint = known_checkpoint(built, policy)
    assert checkpoint is not None  # noqa: S101 - variables are as they were
    now = directory_of(checkpoint, policy)
    below = components(now.on_claim or "")
    if below[:2] != components(folder):
        raise CannotRehearse(f'directory "{found.path}" could not be moved into "{folder}" of claim "{claim}"')
    pod = now.pod
    image = next(
        (str(one.get("image") or "") for one in pod.get("containers") or () if one.get("name") == now.container), ""
    )
    grace = pod.get("terminationGracePeriodSeconds")
    queue = (job["metadata"].get("labels") or EMPTY).get("kueue.x-k8s.io/queue-name")
    return Plan(
        name=name,
        namespace=namespace,
        trainjob=job,
        runtime=made,
        directory=now,
        claim=claim,
        folder=folder,
        folders=tuple(dict.fromkeys(folders)),
        image=image,
        pods=built.training_pods if isinstance(built.training_pods, int) else 1,
        queue=queue,
        grace=30.0 if grace is None else float(grace),
    )


def _copies(trainjob: Mapping[str, Any], runtime: Runtime, token: str, wanted: Wanted) -> tuple[Raw, Raw]:
    metadata = trainjob.get("metadata") or EMPTY
    of = str(metadata.get("name") or metadata.get("generateName") or "run").rstrip("-.")
    name = f"{of[:_LONGEST].rstrip('-.')}-rehearsal-{token}"
    namespace = str(metadata["namespace"])
    notes = {REHEARSAL_OF: of}
    job: Raw = {
        "apiVersion": API_VERSION,
        "kind": "TrainJob",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "labels": dict(metadata.get("labels") or {}),
            "annotations": {**_kept(metadata), **notes},
        },
        "spec": copy.deepcopy(dict(trainjob.get("spec") or {})),
    }
    job["spec"].pop("suspend", None)
    job["spec"]["runtimeRef"] = {"apiGroup": API_VERSION.partition("/")[0], "kind": "TrainingRuntime", "name": name}
    trainer = job["spec"].setdefault("trainer", {})
    if wanted.nodes is not None:
        trainer["numNodes"] = wanted.nodes
    if wanted.resources is not None:
        trainer["resourcesPerNode"] = {"requests": dict(wanted.resources), "limits": dict(wanted.resources)}
    if not trainer:
        del job["spec"]["trainer"]
    theirs = runtime.raw.get("metadata") or EMPTY
    made: Raw = {
        "apiVersion": API_VERSION,
        "kind": "TrainingRuntime",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "labels": dict(theirs.get("labels") or {}),
            "annotations": {**_kept(theirs), **notes},
        },
        "spec": copy.deepcopy(dict(runtime.raw.get("spec") or {})),
    }
    return job, made


def _kept(metadata: Mapping[str, Any]) -> Raw:
    """Annotations that say what is wanted; what was noted about the run itself is not the rehearsal's."""
    ours = (PREFIX + "rehearsed", PREFIX + "last-drill", PREFIX + "report-hash", PREFIX + "injected")
    return {
        key: one for key, one in (metadata.get("annotations") or {}).items() if key != _LAST_APPLIED and key not in ours
    }


def _built(job: Raw, runtime: Raw, release: Release) -> EffectiveSet:
    metadata = runtime["metadata"]
    return build_trainer_pods(
        job, Runtime("TrainingRuntime", metadata["namespace"], metadata["name"], runtime, {}), release
    )


def _named(raw: object, key: str, depth: int = 0) -> Iterator[Raw]:
    """Every entry of every list of that name. Objects are as deep as their kinds are; a stranger's depth is cut."""
    if depth > 24:
        return
    if isinstance(raw, dict):
        for name, one in raw.items():
            if name == key and isinstance(one, list):
                yield from (entry for entry in one if isinstance(entry, dict))
            else:
                yield from _named(one, key, depth + 1)
    elif isinstance(raw, list):
        for one in raw:
            yield from _named(one, key, depth + 1)


def claims_of(runtime: Mapping[str, Any], job: Mapping[str, Any]) -> set[str]:
    """The claims that a runtime and a TrainJob mount."""
    volumes = [*_named(runtime.get("spec"), "volumes"), *_named(job.get("spec"), "volumes")]
    return {str((one.get("persistentVolumeClaim") or EMPTY).get("claimName")) for one in volumes}


def _volumes(runtime: Raw, job: Raw) -> list[Raw]:
    return [*_named(runtime["spec"], "volumes"), *_named(job["spec"], "volumes")]


def _mounts(runtime: Raw, job: Raw) -> list[Raw]:
    return [*_named(runtime["spec"], "volumeMounts"), *_named(job["spec"], "volumeMounts")]


def _names(claim: str, runtime: Raw, job: Raw) -> set[str]:
    """Names of the volumes that are that claim. Raises CannotRehearse where another volume has one of them, too."""
    ours: set[str] = set()
    others: set[str] = set()
    for volume in _volumes(runtime, job):
        is_ours = (volume.get("persistentVolumeClaim") or EMPTY).get("claimName") == claim
        (ours if is_ours else others).add(str(volume.get("name") or ""))
    if twice := sorted(ours & others):
        raise CannotRehearse(
            f'volume "{twice[0]}" is claim "{claim}" in one place and something else in another: give them two names'
        )
    return ours


def _turn(mount: Raw, directory: str, folder: str) -> list[str]:
    """Lead a mount into the folder, or make it read-only; the folders that it needs there."""
    top, whole = components(str(mount.get("mountPath") or "/")), components(directory)
    shorter = min(len(top), len(whole))
    if top[:shorter] != whole[:shorter]:
        mount["readOnly"] = True
        return []
    if expression := mount.get("subPathExpr"):
        mount["subPathExpr"] = f"{folder}/{str(expression).strip('/')}"
        return []
    within = "/".join(components(str(mount.get("subPath") or "")))
    mount["subPath"] = f"{folder}/{within}" if within else folder
    return [mount["subPath"]]
