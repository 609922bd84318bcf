"""Small clusters to scan: a runtime, claims and runs in namespaces, as paths of a fake API server."""

from __future__ import annotations

import copy
from typing import Any

import yaml

from tests.cli.files import CLAIM, JOB, RUNTIME
from tests.runs.fake import FakeApi

Object = dict[str, Any]

TRAINER = "/apis/trainer.kubeflow.org/v1alpha1"
EXCEPTIONS = "/apis/exceptions.checkpoint-guard.io/v1alpha1"
SCHEMA = "/openapi/v3/apis/trainer.kubeflow.org/v1alpha1"
PATCHES: Object = {"type": "array", "items": {"properties": {"terminationGracePeriodSeconds": {}}}}
SERVED: Object = {
    "components": {
        "schemas": {"io.x.v1alpha1.TrainJob": {"properties": {"spec": {"properties": {"runtimePatches": PATCHES}}}}}
    }
}
"""The published schema of Trainer 2.3."""

_PATHS = {
    "Namespace": "/api/v1/namespaces/{name}",
    "PersistentVolume": "/api/v1/persistentvolumes/{name}",
    "PersistentVolumeClaim": "/api/v1/namespaces/{namespace}/persistentvolumeclaims/{name}",
    "StorageClass": "/apis/storage.k8s.io/v1/storageclasses/{name}",
    "TrainingRuntime": TRAINER + "/namespaces/{namespace}/trainingruntimes/{name}",
    "ClusterTrainingRuntime": TRAINER + "/clustertrainingruntimes/{name}",
    "CheckpointException": EXCEPTIONS + "/namespaces/{namespace}/checkpointexceptions/{name}",
    "TrainJob": TRAINER + "/namespaces/{namespace}/trainjobs/{name}",
}


def path_of(obj: Object) -> str:
    """Where an API server has the object."""
    metadata = obj["metadata"]
    return _PATHS[obj["kind"]].format(namespace=metadata.get("namespace"), name=metadata["name"])


def objects(namespace: str = "team", bad: bool = False, job: str = "digits", **labels: str) -> list[Object]:
    """A namespace with a class, a claim, a runtime and a run; ``bad``: the directory is gone with the pod."""
    claim, storage = (dict(one) for one in yaml.safe_load_all(CLAIM))
    runtime = yaml.safe_load(RUNTIME)
    if bad:
        pod = runtime["spec"]["template"]["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
        pod["volumes"] = [{"name": "ckpt", "emptyDir": {}}]
    made = [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace, "labels": labels}},
        storage,
        claim,
        runtime,
        yaml.safe_load(JOB),
    ]
    made[-1]["metadata"]["name"] = job
    for one in made[2:]:
        one["metadata"]["namespace"] = namespace
    return made


def run_of(namespace: str, name: str, directory: str = "") -> Object:
    """One more run of the same runtime, which declares ``directory``."""
    made: Object = yaml.safe_load(JOB)
    made["metadata"] = {"name": name, "namespace": namespace}
    made["spec"]["trainer"]["env"] = [{"name": "CKPT_DIR", "value": directory or f"/mnt/ckpt/{name}"}]
    return made


def api_of(*parts: list[Object]) -> FakeApi:
    """An API server that holds them and serves Trainer 2.3."""
    api = FakeApi({path_of(one): copy.deepcopy(one) for part in parts for one in part})
    api.objects[SCHEMA] = SERVED
    return api
