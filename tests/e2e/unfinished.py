"""Unfinished runs for what changes under them: pairs of a runtime and a TrainJob, each in one of three states.

There are no nodes, so ``Kubelet`` says of each pod that it runs, and of what a run waits for first that it is done.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.e2e.controlplane.cluster import JOBSETS, Cluster, Object
from tests.e2e.controlplane.processes import wait_until
from tests.e2e.controlplane.releases import Release
from tests.e2e.objects import override
from webhook.cluster.access import Unreachable
from webhook.runs.api import Answer, KubernetesApi
from webhook.runs.rescue import difference
from webhook.runs.run import find_run

BEFORE, AFTER, RUNNING = "before", "after", "running"
"""Suspended before its first start, suspended after it, running."""
STATES = (BEFORE, AFTER, RUNNING)
LATE = 300
"""Seconds that the controllers may take for the last of many runs, on a machine that is busy."""
REFUSED = "TrainJobResourcesCreationFailed"
SHIPPED = Path(__file__).parents[2] / "webhook/cluster/shipped_runtimes"
"""As each release ships them."""
_BY_JOBSET = ("denied the request", "Invalid value", "rejected our request", "unknown (patch jobsets")
"""The last is all that Trainer 2.2 says of it."""
_MERGE = "application/merge-patch+json"
_AT_ONCE = 4
"""Commands that run side by side."""


@dataclass(frozen=True)
class Pair:
    """A runtime and what a TrainJob says beside it, in one state."""

    runtime: str
    variant: str
    state: str

    @property
    def name(self) -> str:
        """Of the TrainJob; short, since Jobs and pods are named after it."""
        short = self.runtime.replace("-distributed", "").replace(".", "-").replace("torchtune-", "tune-")[:16]
        return f"{short}-{self.variant}-{self.state}"

    @property
    def own(self) -> bool:
        """Whether a project wrote the runtime."""
        return self.runtime.startswith("own-")


def is_held(release: Release, pair: Pair) -> bool:
    """JobSet never lets it be suspended or resumed: volumeClaimPolicies without retentionPolicy, as it is shipped."""
    return release.minor >= "2.2" and pair.runtime.startswith("torchtune")


OWN = ("plain", "torch", "slots", "mpi", "mpi-as-node", "many", "steps", "labels", "edited", "claims")
_WITH_GPUS = ("torch-distributed", "own-torch", "own-many", "own-steps", "own-labels", "own-plain")
_WITH_PROCESSES = (
    "torch-distributed",
    "deepspeed-distributed",
    "mlx-distributed",
    "mpi-distributed",
    "own-torch",
    "own-mpi",
)


def everything(release: Release) -> tuple[Pair, ...]:
    """All runtimes that the release ships, and a project's own, with at least 60 TrainJobs, each in all states."""
    shipped = sorted(path.stem for path in (SHIPPED / release.minor).glob("*.yaml"))
    # 2.2 has no field for the processes of torch, and takes volumeClaimPolicies.
    own = [f"own-{name}" for name in OWN if name != ("slots" if release.minor >= "2.2" else "claims")]
    pairs = [
        *(
            (name, variant)
            for name in shipped
            for variant in ("ab" if is_held(release, Pair(name, "", "")) else "abco")
        ),
        *((name, variant) for name in own for variant in "abo"),
        *((name, "p") for name in _WITH_PROCESSES if name in (*shipped, *own)),
        *((name, "g") for name in _WITH_GPUS),
    ]
    # What never follows cannot be suspended after its start either.
    found = (Pair(name, variant, state) for name, variant in pairs for state in STATES)
    return tuple(pair for pair in found if pair.state != AFTER or not is_held(release, pair))


# --- the objects


def _node(**more: Any) -> Object:
    return {"name": "node", "image": "registry.example/train:1", "command": ["train"], **more}


def _job(name: str, pod: Object, *, step: str = "trainer", **more: Any) -> Object:
    labels = {"trainer.kubeflow.org/trainjob-ancestor-step": step} if step else {}
    metadata = {"labels": {**labels, **more.pop("labels", {})}, **more.pop("metadata", {})}
    return {"name": name, "template": {"metadata": metadata, "spec": {"template": {"spec": pod}}}, **more}


def _mpi(**more: Any) -> Object:
    return {"mpiImplementation": "OpenMPI", "numProcPerNode": 1, "sshAuthMountPath": "/home/mpi/.ssh", **more}


_MOUNTED: Object = {"volumeMounts": [{"name": "ckpt", "mountPath": "/ckpt"}]}
_CLAIMED: Object = {"volumes": [{"name": "ckpt", "persistentVolumeClaim": {"claimName": "kept"}}]}


def own_runtime(name: str, namespace: str) -> Object:
    """A runtime of a project, by the part of its name behind `own-`."""
    policy: dict[str, Any] = {"numNodes": 1}
    template: Object = {}
    pod: Object = {"containers": [_node()]}
    jobs = [_job("node", pod)]
    kind = name.removeprefix("own-")
    if kind in ("torch", "slots", "many", "steps", "labels", "claims"):
        policy["torch"] = {"numProcPerNode": 2} if kind == "slots" else {}
    if kind in ("torch", "slots"):
        pod |= {"containers": [_node(**_MOUNTED)], **_CLAIMED}
    elif kind in ("mpi", "mpi-as-node", "edited"):
        policy["mpi"] = _mpi(runLauncherAsNode=kind == "mpi-as-node")
        jobs = [_job("launcher", pod), _job("node", pod, step="")]
    if kind == "edited":
        # As a project edits what is shipped: two processes, variables, a probe, a claim.
        policy |= {"numNodes": 2, "mpi": _mpi(numProcPerNode=2, runLauncherAsNode=True)}
        probe = {"tcpSocket": {"port": 2222}, "initialDelaySeconds": 5}
        variables = [{"name": "NCCL_DEBUG", "value": "INFO"}]
        jobs[0] = _job("launcher", {"containers": [_node(**_MOUNTED, env=variables)], **_CLAIMED})
        jobs[1] = _job("node", {"containers": [_node(readinessProbe=probe)]}, step="")
        template = {"network": {"publishNotReadyAddresses": True}}
        template["successPolicy"] = {"operator": "All", "targetReplicatedJobs": ["launcher"]}
    elif kind == "many":
        log = {"name": "log", "image": "registry.example/log:1", "restartPolicy": "Always"}
        fetch = {"name": "fetch", "image": "registry.example/fetch:1", "env": [{"name": "FROM", "value": "s3://data"}]}
        push = {"name": "push", "image": "registry.example/push:1", **_MOUNTED}
        ports = [{"containerPort": 9000, "name": "metrics"}]
        pod |= {"initContainers": [log, fetch], "containers": [_node(ports=ports), push], **_CLAIMED}
        jobs = [_job("node", pod), _job("watch", {"containers": [_node()]}, step="")]
    elif kind == "steps":
        first = {"containers": [{"name": "dataset-initializer", "image": "registry.example/data:1"}]}
        jobs = [
            _job("dataset-initializer", first, step="dataset-initializer"),
            _job("node", pod, dependsOn=[{"name": "dataset-initializer", "status": "Complete"}]),
        ]
    elif kind == "labels":
        pod["containers"] = [_node(resources={"requests": {"cpu": "1"}, "limits": {"memory": "2Gi"}})]
        pod |= {
            "tolerations": [{"key": "gpu", "operator": "Exists"}],
            "nodeSelector": {"zone": "a"},
            "terminationGracePeriodSeconds": 120,
            "securityContext": {"runAsUser": 1000},
            "priorityClassName": "",
        }
        metadata = {"annotations": {"example.com/team": "earth"}}
        jobs = [_job("node", pod, labels={"team": "earth"}, metadata=metadata)]
        jobs[0]["template"]["spec"] |= {"backoffLimit": 2}
        jobs[0]["template"]["spec"]["template"]["metadata"] = {"labels": {"team": "earth"}}
    elif kind == "claims":
        claim_template = {"metadata": {"name": "scratch"}, "spec": claim(namespace)["spec"]}
        kept = {"whenDeleted": "Retain"}
        template = {"volumeClaimPolicies": [{"templates": [claim_template], "retentionPolicy": kept}]}
        pod["containers"] = [_node(volumeMounts=[{"name": "scratch", "mountPath": "/scratch"}])]
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainingRuntime",
        "metadata": {"name": name, "namespace": namespace, "labels": {"trainer.kubeflow.org/framework": "own"}},
        "spec": {"mlPolicy": policy, "template": {"spec": {**template, "replicatedJobs": jobs}}},
    }


def trainjob(pair: Pair, namespace: str, minor: str) -> Object:
    """By variant: nodes and a variable (`a`), an image, a command and resources (`b`), nothing (`c`), a claim by
    override and labels (`o`), processes and arguments (`p`), GPUs and a variable out of a Secret (`g`)."""
    trainer: Object = {"numNodes": 2, "env": [{"name": "EPOCHS", "value": "3"}]}
    more: Object = {}
    if pair.variant == "b":
        resources = {"requests": {"cpu": "500m"}, "limits": {"memory": "1Gi"}}
        trainer = {"image": "registry.example/mine:2", "command": ["mine"], "resourcesPerNode": resources}
    elif pair.variant == "c":
        trainer = {}
    elif pair.variant == "p":
        trainer = {"numNodes": 3, "numProcPerNode": 2, "command": ["mine"], "args": ["--lr", "0.1"]}
    elif pair.variant == "g":
        key = {"secretKeyRef": {"name": "token", "key": "token", "optional": True}}
        resources = {"limits": {"nvidia.com/gpu": "4"}}
        trainer = {"numNodes": 2, "env": [{"name": "TOKEN", "valueFrom": key}], "resourcesPerNode": resources}
    elif pair.variant == "o":
        trainer = {"numNodes": 2}
        more = own_volume(minor)
        if minor in ("2.0", "2.1"):
            more |= {"labels": {"team": "sea"}, "annotations": {"example.com/mail": "sea@example.com"}}
    reference = {"kind": "TrainingRuntime" if pair.own else "ClusterTrainingRuntime", "name": pair.runtime}
    spec = {"runtimeRef": reference, "suspend": pair.state == BEFORE, **more}
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": {"name": pair.name, "namespace": namespace},
        "spec": {**spec, "trainer": trainer} if trainer else spec,
    }


def own_volume(minor: str) -> Object:
    """What mounts the claim by override, in the field of a release."""
    container = {"name": "node", "volumeMounts": [{"name": "mine", "mountPath": "/mine"}]}
    volume = {"name": "mine", "persistentVolumeClaim": {"claimName": "mine"}}
    tolerations = [{"key": "spot", "operator": "Exists"}]
    return override(minor, {"volumes": [volume], "containers": [container], "tolerations": tolerations})


def claim(namespace: str, name: str = "kept") -> Object:
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Gi"}}},
    }


# --- the cluster


class Kubelet:
    """Says of each pod of a namespace that it runs, and of the pods of an initializer that they have ended well."""

    def __init__(self, plane: Cluster, namespace: str) -> None:
        self._api = KubernetesApi(plane.kubeconfig)
        self._path = f"/api/v1/namespaces/{namespace}/pods"
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Kubelet:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._over.wait(0.5):
            try:
                pods = self._api.request("GET", self._path, {"fieldSelector": "status.phase=Pending"})
                for pod in pods.body.get("items") or ():
                    self._say(pod["metadata"])
            except Unreachable:
                continue

    def _say(self, metadata: Object) -> None:
        first = "initializer" in metadata["labels"].get("jobset.sigs.k8s.io/replicatedjob-name", "")
        status: Object = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
        if first:
            status = {"phase": "Succeeded"}
        path = f"{self._path}/{metadata['name']}/status"
        self._api.request("PATCH", path, None, {"status": status}, _MERGE)


def fill(plane: Cluster, pairs: Sequence[Pair], namespace: str) -> None:
    """The runs, each in its state, in a namespace where a `Kubelet` looks after pods."""
    create(plane, pairs, namespace, [trainjob(pair, namespace, plane.release.minor) for pair in pairs])
    wait_state(plane, namespace, {pair.name: pair.state == BEFORE for pair in pairs})
    later = {pair.name: True for pair in pairs if pair.state == AFTER}
    running = {pair.name for pair in pairs if pair.state != BEFORE}
    wait_until("a pod of each that runs", lambda: running <= with_pods(plane, namespace), LATE, every=1)
    suspend(plane, namespace, later)
    wait_state(plane, namespace, later)
    wait_until("no pod of what is suspended", lambda: not later.keys() & with_pods(plane, namespace), LATE, every=1)


def runtimes_of(plane: Cluster, namespace: str, pairs: Sequence[Pair]) -> list[Object]:
    """The runtimes of the pairs, as they are shipped and as a project wrote them."""
    folder = SHIPPED / plane.release.minor
    return [
        own_runtime(name, namespace) if own else yaml.safe_load((folder / f"{name}.yaml").read_text())
        for own, name in sorted({(pair.own, pair.runtime) for pair in pairs})
    ]


def create(plane: Cluster, pairs: Sequence[Pair], namespace: str, trainjobs: Sequence[Object]) -> None:
    """The TrainJobs, with what they need: runtimes, a claim, an account."""
    account = {"name": "kubeflow-trainer-cache-initializer", "namespace": namespace}
    plane.apply(
        claim(namespace), claim(namespace, "mine"), {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": account}
    )
    plane.apply(*runtimes_of(plane, namespace, pairs), server_side=True)
    for at in range(0, len(trainjobs), 40):
        plane.apply(*trainjobs[at : at + 40])


def suspend(plane: Cluster, namespace: str, wanted: Mapping[str, bool]) -> dict[str, Answer]:
    """Says `suspend` of each run; what the API server refused."""
    return patch(plane, namespace, {name: {"suspend": value} for name, value in wanted.items()})


def patch(plane: Cluster, namespace: str, specs: Mapping[str, Object]) -> dict[str, Answer]:
    """A merge patch of the spec of each run; what the API server refused."""
    api = KubernetesApi(plane.kubeconfig)
    refused: dict[str, Answer] = {}
    for name, spec in specs.items():
        path = f"/apis/trainer.kubeflow.org/v1alpha1/namespaces/{namespace}/trainjobs/{name}"
        answer = api.request("PATCH", path, None, {"spec": spec}, _MERGE)
        if not answer.ok:
            refused[name] = answer
    return refused


def is_suspended(found: Object) -> bool:
    return bool(found["spec"].get("suspend"))


def jobsets(plane: Cluster, namespace: str) -> dict[str, Object]:
    return {found["metadata"]["name"]: found for found in plane.all_of(JOBSETS, namespace)}


def with_pods(plane: Cluster, namespace: str) -> set[str]:
    """The runs of which a pod runs."""
    pods = plane.all_of("pods", namespace)
    return {
        pod["metadata"]["labels"]["jobset.sigs.k8s.io/jobset-name"]
        for pod in pods
        if pod.get("status", {}).get("phase") == "Running" and "deletionTimestamp" not in pod["metadata"]
    }


def mounts_own_volume(plane: Cluster, namespace: str) -> set[str]:
    """The runs of which a pod mounts what the TrainJob's override says."""
    return {
        pod["metadata"]["labels"]["jobset.sigs.k8s.io/jobset-name"]
        for pod in plane.all_of("pods", namespace)
        if "mine" in {volume["name"] for volume in pod["spec"].get("volumes") or ()}
    }


def wait_state(plane: Cluster, namespace: str, wanted: Mapping[str, bool], late: float = LATE) -> None:
    """Until the JobSet of each run is suspended, or not, as wanted."""

    def probe() -> bool:
        found = jobsets(plane, namespace)
        missing = [
            name for name, value in wanted.items() if name not in found or is_suspended(found[name]) is not value
        ]
        probe.__doc__ = str(missing[:5])
        return not missing

    try:
        wait_until("the JobSets", probe, late, every=1)
    except AssertionError as error:
        raise AssertionError(f"{error}: {probe.__doc__}") from error


def refused_by_jobset(plane: Cluster, namespace: str) -> dict[str, str]:
    """Name and event of each run of which JobSet refused a change."""
    return {
        event["involvedObject"]["name"]: event["message"]
        for event in plane.all_of("events", namespace)
        if event.get("reason") == REFUSED and any(word in event["message"] for word in _BY_JOBSET)
    }


def settle(plane: Cluster, namespace: str, pairs: Sequence[Pair]) -> set[str]:
    """Resumes each suspended run and suspends each that runs; those that JobSet does not let follow."""
    wanted = {pair.name: pair.state == RUNNING for pair in pairs}
    refused = suspend(plane, namespace, wanted)
    assert not refused, {name: answer.message for name, answer in refused.items()}
    held: set[str] = set()
    left = dict(wanted)

    def probe() -> bool:
        # Events first: what follows after them is not held.
        events = refused_by_jobset(plane, namespace)
        found = jobsets(plane, namespace)
        for name in list(left):
            if name in found and is_suspended(found[name]) is left[name]:
                del left[name]
        held.clear()
        held.update(name for name in left if name in events)
        return held == left.keys()

    wait_until("what becomes of the runs", probe, LATE, every=2)
    time.sleep(5)
    probe()
    return held


class _Once:
    """A cluster that is asked each question once."""

    def __init__(self, api: KubernetesApi) -> None:
        self._api = api
        self._known: dict[str, Answer] = {}

    def request(
        self,
        method: str,
        path: str,
        params: Mapping[str, str] | None = None,
        body: object | None = None,
        content_type: str = "application/json",
    ) -> Answer:
        key = json.dumps([path, params], sort_keys=True, default=str)
        if method != "GET" or key not in self._known:
            self._known[key] = self._api.request(method, path, params, body, content_type)
        return self._known[key]


def wedged(plane: Cluster, namespace: str, names: Collection[str]) -> dict[str, tuple[str, ...] | str]:
    """The runs of which the JobSet differs from what Trainer builds now, as `rescue` works it out without an event."""
    api = _Once(KubernetesApi(plane.kubeconfig))
    found = {name: difference(api, find_run(api, namespace, name)) for name in names}
    return {name: changed for name, changed in found.items() if changed}


# --- the commands


def ckptguard(plane: Cluster, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "webhook", *words, "--kubeconfig", str(plane.kubeconfig)],
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


def preflight(plane: Cluster, namespace: str, *flags: str) -> tuple[int, dict[str, Object]]:
    """Exit code, and the result for each run."""
    done = ckptguard(plane, "preflight", *flags, "-n", namespace, "-o", "json")
    assert done.returncode in (0, 1), done.stderr
    print(ckptguard(plane, "preflight", *flags, "-n", namespace).stdout)
    return done.returncode, {item["name"]: item for item in json.loads(done.stdout)["results"]}


def rescue_all(plane: Cluster, namespace: str, names: Collection[str], *flags: str) -> dict[str, int]:
    """Exit codes of `rescue` of each, some side by side."""

    def one(name: str) -> int:
        done = ckptguard(plane, "rescue", name, "-n", namespace, "--yes", "--timeout", "60s", *flags)
        print(name, done.returncode, done.stdout, done.stderr)
        return done.returncode

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return dict(zip(names, pool.map(one, names), strict=True))


def check_rescued(plane: Cluster, namespace: str, pairs: Sequence[Pair]) -> None:
    """Each runs: those that were suspended once more are resumed first."""
    wait_state(plane, namespace, {pair.name: pair.state == RUNNING for pair in pairs})
    suspend(plane, namespace, {pair.name: False for pair in pairs if pair.state == RUNNING})
    names = {pair.name for pair in pairs}
    wait_until("a pod of each that was freed", lambda: names <= with_pods(plane, namespace), LATE, every=1)
