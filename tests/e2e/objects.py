"""What the end-to-end tests submit, as a user of each Trainer release writes it, and where to find what came of it."""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping, Sequence
from subprocess import CompletedProcess
from typing import Any

from tests.e2e.controlplane.cluster import JOBSETS, TRAINJOBS, Cluster, KubectlError, Object
from tests.e2e.controlplane.processes import wait_until
from webhook.model.names import INJECTED, MANAGER

API_VERSION = "trainer.kubeflow.org/v1alpha1"
RUNTIMES = "trainingruntimes.trainer.kubeflow.org"
CLAIM = "train-ckpt"
"""The claim that the built-in policy looks for in a namespace."""
CLASS = "e2e-shared"
QUEUE_LABEL = "kueue.x-k8s.io/queue-name"
RUN_NAME = {"fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.labels['jobset.sigs.k8s.io/jobset-name']"}}


def storage_class(name: str = CLASS, provisioner: str = "nfs.csi.k8s.io") -> Object:
    """A class; that of the tests serves claims that all nodes can mount."""
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": name},
        "provisioner": provisioner,
    }


def claim(namespace: str, name: str = CLAIM, *, mode: str = "ReadWriteMany", class_name: str = CLASS) -> Object:
    """A claim; nobody provisions it here, so it stays Pending."""
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "accessModes": [mode],
            "storageClassName": class_name,
            "resources": {"requests": {"storage": "100Gi"}},
        },
    }


def runtime(namespace: str, name: str = "plain", *, nodes: int = 2, **pod: Any) -> Object:
    """A runtime of PyTorch whose author wrote nothing about restarts. ``pod`` is added to its PodSpec."""
    container = {"name": "node", "image": "python:3.12-slim", "command": ["python", "train.py"]}
    container |= pod.pop("container", {})
    job = {
        "name": "node",
        "template": {
            "metadata": {"labels": {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}},
            "spec": {"template": {"spec": {"containers": [container], **pod}}},
        },
    }
    return {
        "apiVersion": API_VERSION,
        "kind": "TrainingRuntime",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "labels": {"trainer.kubeflow.org/framework": "torch"},
        },
        "spec": {
            "mlPolicy": {"numNodes": nodes, "torch": {}},
            "template": {"spec": {"replicatedJobs": [job]}},
        },
    }


def mounting_runtime(namespace: str, name: str = "mounting", claim_name: str = CLAIM) -> Object:
    """A runtime that mounts the claim and does not say where checkpoints go."""
    return runtime(
        namespace,
        name,
        volumes=[{"name": "data", "persistentVolumeClaim": {"claimName": claim_name}}],
        container={"volumeMounts": [{"name": "data", "mountPath": "/data"}]},
    )


def trainjob(namespace: str, name: str = "run", *, runtime_name: str = "plain", **env: str) -> Object:
    """A TrainJob whose author set EPOCHS and ``env``."""
    variables = [{"name": key, "value": value} for key, value in {"EPOCHS": "3", **env}.items()]
    return {
        "apiVersion": API_VERSION,
        "kind": "TrainJob",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "runtimeRef": {"kind": "TrainingRuntime", "name": runtime_name},
            "trainer": {"env": variables},
        },
    }


def changed(obj: Object, **spec: Any) -> Object:
    """A copy with other values in its ``spec``."""
    obj = copy.deepcopy(obj)
    obj["spec"] |= spec
    return obj


def override(minor: str, pod: Mapping[str, Any], manager: str = "example.com/owner", job: str = "node") -> Object:
    """The part of a TrainJob's ``spec`` that changes the pods of a job, in the shape of a release."""
    targets = [{"name": job}]
    if minor == "2.0":
        return {"podSpecOverrides": [{"targetJobs": targets, **pod}]}
    if minor == "2.1":
        return {"podTemplateOverrides": [{"targetJobs": targets, "spec": dict(pod)}]}
    jobs = [{"name": job, "template": {"spec": {"template": {"spec": dict(pod)}}}}]
    return {
        "runtimePatches": [
            {"manager": manager, "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": jobs}}}}
        ]
    }


class Project:
    """A namespace with a claim and runtimes, and a user who types kubectl commands in it."""

    def __init__(self, cluster: Cluster, namespace: str) -> None:
        self.cluster = cluster
        self.namespace = namespace
        self.minor = cluster.release.minor

    def set_up(self) -> Project:
        """Makes the claim and the runtimes that most tests use."""
        self.cluster.apply(
            storage_class(), claim(self.namespace), runtime(self.namespace), mounting_runtime(self.namespace)
        )
        return self

    def send(self, *command: str, objects: Sequence[Object], check: bool = True) -> CompletedProcess[str]:
        """``kubectl <command> -f -`` with the objects."""
        for _ in range(5):
            run = self.cluster.send(*command, "-n", self.namespace, objects=objects, check=False)
            if "please apply your changes to the latest version" not in run.stderr:
                break  # else a controller wrote between kubectl's read and its write, and the user does as he is told
        if check and run.returncode:
            raise KubectlError(f"kubectl {' '.join(command)}: {run.stderr.strip() or run.stdout.strip()}")
        return run

    def patch(self, name: str, check: bool = True, **change: Any) -> CompletedProcess[str]:
        """A merge patch of a TrainJob."""
        command = ("patch", TRAINJOBS, name, "-n", self.namespace, "--type=merge", "-p", json.dumps(change))
        return self.cluster.kubectl(*command, check=check)

    def stored(self, name: str) -> Object:
        """The TrainJob as the API server has it."""
        found = self.cluster.get(TRAINJOBS, name, self.namespace)
        assert found is not None, f"TrainJob {name} is not there"
        return found

    def pods(self, name: str, count: int = 2) -> list[Object]:
        """The pods of a run, as soon as there are ``count`` that are not on their way out."""

        def probe() -> list[Object] | None:
            pods = [pod for pod in self._all_pods(name) if "deletionTimestamp" not in pod["metadata"]]
            return pods if len(pods) == count else None

        return wait_until(f"{count} pods of TrainJob {name}", probe)

    def wait_suspended(self, name: str) -> None:
        """Waits until JobSet has suspended the run and no pod of it is left."""

        def probe() -> bool:
            jobset = self.cluster.get(JOBSETS, name, self.namespace)
            return jobset is not None and jobset["spec"].get("suspend") is True and not self._all_pods(name)

        wait_until(f"suspended JobSet {name} without pods", probe)

    def _all_pods(self, name: str) -> list[Object]:
        return self.cluster.all_of("pods", self.namespace, f"jobset.sigs.k8s.io/jobset-name={name}")

    def resumes(self, name: str, count: int = 2) -> list[Object]:
        """Resumes a suspended run by merge patch; its pods."""
        self.patch(name, spec={"suspend": False})
        return self.pods(name, count)


def settled(obj: Object) -> Object:
    """What an UPDATE that changes nothing leaves alone: the spec and our record."""
    return {
        "spec": obj["spec"],
        "injected": obj["metadata"].get("annotations", {}).get(INJECTED),
        "generation": obj["metadata"]["generation"],
    }


def filled(obj: Any) -> Any:
    """Without null and empty maps: Trainer's controller up to 2.1 writes them, and a file takes them away again."""
    if isinstance(obj, dict):
        values = {key: filled(value) for key, value in obj.items()}
        return {key: value for key, value in values.items() if value not in (None, {})}
    return [filled(item) for item in obj] if isinstance(obj, list) else obj


def without_suspend(obj: Object) -> Object:
    """The spec apart from ``suspend``, which is what a user changes in a run."""
    return {key: value for key, value in obj["spec"].items() if key != "suspend"}


def named(items: Sequence[Object] | None, name: str) -> Object:
    """The item of a list that Kubernetes keys by name."""
    found = [item for item in items or () if item["name"] == name]
    assert len(found) == 1, f"{len(found)} items named {name} in {items}"
    return found[0]


def check_volume(pod: Object, mount_path: str = "/mnt/ckpt", sub_path: str | None = None, name: str = CLAIM) -> None:
    """The pod mounts the claim in its training container, at this path."""
    volume = named(pod["spec"]["volumes"], "checkpoint-guard")
    assert volume["persistentVolumeClaim"] == {"claimName": name}
    mount = named(named(pod["spec"]["containers"], "node")["volumeMounts"], "checkpoint-guard")
    assert (mount["mountPath"], mount.get("subPath")) == (mount_path, sub_path)


def check_variables(pod: Object, mount_path: str = "/mnt/ckpt") -> None:
    """The pod names a directory of its run below this path; what it refers to stands before it."""
    env = named(pod["spec"]["containers"], "node")["env"]
    assert named(env, "TRAINJOB_NAME")["valueFrom"] == RUN_NAME
    assert named(env, "CKPT_DIR")["value"] == f"{mount_path}/$(TRAINJOB_NAME)"
    names = [variable["name"] for variable in env]
    assert names.index("TRAINJOB_NAME") < names.index("CKPT_DIR")


def check_restarts(project: Project, name: str) -> None:
    """The JobSet restarts all pods, up to three times, and each pod has time to write its last checkpoint."""
    jobset = project.cluster.wait_for(JOBSETS, name, project.namespace)
    assert jobset["spec"]["failurePolicy"]["maxRestarts"] == 3
    for job in jobset["spec"]["replicatedJobs"]:
        assert job["template"]["spec"]["backoffLimit"] == 0
        assert job["template"]["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] == 60
    jobs = project.cluster.all_of("jobs", project.namespace, f"jobset.sigs.k8s.io/jobset-name={name}")
    assert jobs
    for job in jobs:
        assert job["spec"]["backoffLimit"] == 0


def own_entry(job: Object) -> Object | None:
    """Our entry of ``runtimePatches``."""
    return next((entry for entry in job["spec"].get("runtimePatches", []) if entry["manager"] == MANAGER), None)
