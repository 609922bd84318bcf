"""Runs on nodes: a namespace with a claim that both nodes reach, runtimes, TrainJobs, and what they left in their
directory."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from typing import Any

from tests.e2e_nodes.machine import Nodes, Object, wait_until
from tests.e2e_nodes.trainer_program import PROGRAM, expected

NAMESPACE = "e2e-runs"
CLAIM = "train-ckpt"
IMAGE = os.environ.get("E2E_PYTHON_IMAGE") or "python:3.12-slim"
FIELD = "metadata.labels['jobset.sigs.k8s.io/jobset-name']"
UNREACHABLE = [
    {"key": f"node.kubernetes.io/{why}", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 3}
    for why in ("unreachable", "not-ready")
]


@dataclass
class Told:
    """What a command said and did."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


def ckptguard(nodes: Nodes, *arguments: str, namespace: str = NAMESPACE, kubeconfig: str | None = None) -> Told:
    """A command of this clone on the cluster."""
    environment = nodes.environment | ({"KUBECONFIG": kubeconfig} if kubeconfig else {})
    done = subprocess.run(
        [sys.executable, "-m", "webhook", *arguments, "-n", namespace],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    return Told(done.returncode, done.stdout, done.stderr)


def make_namespace(nodes: Nodes, namespace: str = NAMESPACE, **labels: str) -> None:
    """The namespace and its claim, which both nodes reach."""
    nodes.apply([{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace, "labels": labels}}])
    nodes.apply(claim(CLAIM, "ReadWriteMany", namespace))


def claim(name: str, mode: str, namespace: str = NAMESPACE) -> list[Object]:
    """A claim: on a class of `E2E_RWX_CLASS`, else with a volume on the storage that stands for a network's."""
    given = os.environ.get("E2E_RWX_CLASS")
    spec: Object = {
        "accessModes": [mode],
        "storageClassName": given or "net",
        "resources": {"requests": {"storage": "1Gi"}},
    }
    metadata = {"name": name, "namespace": namespace}
    made: Object = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": spec}
    if given:
        return [made]
    at = namespace if name == CLAIM else f"{namespace}-{name}"
    volume = {
        "capacity": {"storage": "1Gi"},
        "accessModes": [mode],
        "storageClassName": "net",
        "hostPath": {"path": f"/mnt/storage/{at}", "type": "DirectoryOrCreate"},
        "claimRef": {"namespace": namespace, "name": name},
    }
    return [{"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": at}, "spec": volume}, made]


def drop_namespace(nodes: Nodes, namespace: str = NAMESPACE) -> None:
    """The namespace with all that is in it; what lay in the claim too, so that the next one starts empty."""
    nodes.run("delete", "trainjobs", "--all", "-n", namespace, "--wait=true", "--timeout=90s", check=False)
    if nodes.get("namespace", namespace) is not None and not os.environ.get("E2E_RWX_CLASS"):
        shell(nodes, "rm -rf /c/* /c/.set-aside", namespace)
    nodes.run("delete", "namespace", namespace, "--ignore-not-found", "--timeout=120s", check=False)
    nodes.run("delete", "pv", namespace, "--ignore-not-found", "--wait=false", check=False)


def shell(nodes: Nodes, script: str, namespace: str = NAMESPACE) -> str:
    """What a script prints in a pod of its own that has the claim at `/c`."""
    nodes.run("delete", "pod", "look", "-n", namespace, "--ignore-not-found", "--force", "--grace-period=0")
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "look", "namespace": namespace},
        "spec": {
            "restartPolicy": "Never",
            "volumes": [{"name": "c", "persistentVolumeClaim": {"claimName": CLAIM}}],
            "containers": [
                {
                    "name": "look",
                    "image": IMAGE,
                    "imagePullPolicy": "IfNotPresent",
                    "command": ["sh", "-c", script],
                    "volumeMounts": [{"name": "c", "mountPath": "/c"}],
                }
            ],
        },
    }
    nodes.apply([pod])
    wait_until(lambda: phase(nodes, "look", namespace) in ("Succeeded", "Failed"), 180, "the pod that looks has ended")
    text = nodes.run("logs", "look", "-n", namespace).stdout
    nodes.run("delete", "pod", "look", "-n", namespace, "--force", "--grace-period=0")
    return text


def phase(nodes: Nodes, pod: str, namespace: str = NAMESPACE) -> str:
    found = nodes.get("pod", pod, namespace)
    return str(((found or {}).get("status") or {}).get("phase") or "")


def runtime(
    name: str = "plain",
    max_restarts: int = 5,
    grace: int = 60,
    volume: Object | None = None,
    namespace: str = NAMESPACE,
    claim_name: str = CLAIM,
) -> Object:
    """A TrainingRuntime as the guide has it. ``volume`` stands in the claim's place."""
    container = {
        "name": "node",
        "image": IMAGE,
        "imagePullPolicy": "IfNotPresent",
        "resources": {"requests": {"cpu": "50m", "memory": "64Mi"}, "limits": {"cpu": "1", "memory": "128Mi"}},
        "env": [
            {"name": "TRAINJOB_NAME", "valueFrom": {"fieldRef": {"fieldPath": FIELD}}},
            {"name": "CKPT_DIR", "value": "/mnt/ckpt/$(TRAINJOB_NAME)"},
            {"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
        ],
        "volumeMounts": [{"name": "ckpt", "mountPath": "/mnt/ckpt"}],
    }
    pod = {
        "terminationGracePeriodSeconds": grace,
        "tolerations": UNREACHABLE,
        "volumes": [{"name": "ckpt", **(volume or {"persistentVolumeClaim": {"claimName": claim_name}})}],
        "containers": [container],
    }
    labels = {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}
    job = {
        "name": "node",
        "template": {"metadata": {"labels": labels}, "spec": {"backoffLimit": 0, "template": {"spec": pod}}},
    }
    spec = {
        "mlPolicy": {"numNodes": 1},
        "template": {"spec": {"failurePolicy": {"maxRestarts": max_restarts}, "replicatedJobs": [job]}},
    }
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainingRuntime",
        "metadata": {"name": name, "namespace": namespace, "labels": {"trainer.kubeflow.org/framework": "plain"}},
        "spec": spec,
    }


def trainjob(
    name: str,
    runtime_name: str = "plain",
    command: list[str] | None = None,
    namespace: str = NAMESPACE,
    labels: dict[str, str] | None = None,
    **env: str,
) -> Object:
    """A TrainJob of the small trainer; ``env`` sets its pace and its faults."""
    trainer: Object = {"command": command or ["python", "-u", "-c", PROGRAM]}
    if env:  # an empty list is dropped by Kueue's writes, and Trainer takes that for a change of what may not change
        trainer["env"] = [{"name": key, "value": value} for key, value in env.items()]
    reference = {"apiGroup": "trainer.kubeflow.org", "kind": "TrainingRuntime", "name": runtime_name}
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": {"name": name, "namespace": namespace, "labels": labels or {}},
        "spec": {"runtimeRef": reference, "trainer": trainer},
    }


def submit(nodes: Nodes, job: Object) -> str:
    """Create it, through every webhook that there is; what kubectl said. Waits until its pod runs."""
    said = nodes.apply([job])
    name, namespace = job["metadata"]["name"], job["metadata"]["namespace"]
    wait_until(lambda: bool(running(nodes, name, namespace)), 180, f"a pod of {name} runs")
    return said


def finish(nodes: Nodes, name: str, namespace: str = NAMESPACE) -> None:
    """Delete it: two cores are not for a dozen runs at once."""
    nodes.run("delete", "trainjob", name, "-n", namespace, "--wait=false", "--ignore-not-found")


def running(nodes: Nodes, name: str, namespace: str = NAMESPACE) -> list[Object]:
    """Pods of the run whose containers run and that are not on their way out."""
    pods = nodes.objects("pods", namespace, f"jobset.sigs.k8s.io/jobset-name={name}")
    return [
        pod
        for pod in pods
        if not pod["metadata"].get("deletionTimestamp")
        and any(
            (one.get("state") or {}).get("running") for one in (pod.get("status") or {}).get("containerStatuses") or ()
        )
    ]


def log_of(nodes: Nodes, pod: Object) -> str:
    metadata = pod["metadata"]
    return nodes.run("logs", metadata["name"], "-n", metadata["namespace"], check=False).stdout


def steps(nodes: Nodes, name: str, namespace: str = NAMESPACE) -> list[int]:
    """The steps of its checkpoints, by the command under test."""
    told = ckptguard(nodes, "checkpoints", name, "--output", "json", namespace=namespace)
    assert told.code == 0, told.err
    return [one["step"] for one in told.json["checkpoints"] if one["step"] is not None]


def wait_for_step(nodes: Nodes, name: str, step: int, seconds: float = 120, namespace: str = NAMESPACE) -> None:
    """Until a checkpoint of that step, or a later one, is there."""
    wait_until(lambda: max([0, *steps(nodes, name, namespace)]) >= step, seconds, f"step {step} of {name} is saved", 1)


def states(nodes: Nodes, directory: str, namespace: str = NAMESPACE) -> dict[int, Object]:
    """What lies in a directory of the claim, by step, read without the code under test."""
    script = f"for f in /c/{directory}/step_*.json; do cat $f; echo; done"
    lines = [line for line in shell(nodes, script, namespace).splitlines() if line.startswith("{")]
    return {state["step"]: state for state in map(json.loads, lines)}


def assert_right_data(nodes: Nodes, directory: str, namespace: str = NAMESPACE) -> int:
    """Every state is that of a run which did each step once; the newest step."""
    found = states(nodes, directory, namespace)
    assert found, f"nothing was saved in {directory}"
    wrong = [step for step, state in found.items() if state["chain"] != expected(step)]
    assert wrong == []
    return max(found)


def resumed_at(log: str) -> int | None:
    """The step that a pod's log says it resumed from; None where it started fresh."""
    for line in log.splitlines():
        if "resuming from" in line:
            return int(line.rpartition("step_")[2].removesuffix(".json"))
        if "starting fresh" in line:
            return None
    raise AssertionError(f"the log says neither: {log[:300]!r}")
