"""The objects that ``install-check`` asks the API server about: one of each kind that comes back, one that does not."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from webhook.model.names import ANCESTOR_LABEL, API_VERSION, PROBE, TRAINER_STEP
from webhook.model.release import Release

Raw = dict[str, Any]

NAME: Final = PROBE
DIRECTORY: Final = "/checkpoint-guard-install-check"
RULE: Final = "ephemeral-checkpoint"
"""What is wrong with the bad ones."""
_VOLUME: Final = {"name": NAME, "emptyDir": {}}
_MOUNT: Final = {"name": NAME, "mountPath": DIRECTORY}


def runtime(namespace: str, bad: bool) -> Raw:
    """A TrainingRuntime. The bad one keeps its checkpoints in an emptyDir; the good one leaves the storage open."""
    container: Raw = {
        "name": "node",
        "image": "checkpoint-guard.io/never-pulled",
        "env": [{"name": "CKPT_DIR", "value": f"{DIRECTORY}/run"}],
    }
    pod: Raw = {"containers": [container]}
    if bad:
        container["volumeMounts"] = [_MOUNT]
        pod["volumes"] = [_VOLUME]
    job = {
        "name": "node",
        "template": {
            "metadata": {"labels": {ANCESTOR_LABEL: TRAINER_STEP}},
            "spec": {"template": {"spec": pod}},
        },
    }
    return {
        "apiVersion": API_VERSION,
        "kind": "TrainingRuntime",
        "metadata": {
            "name": NAME,
            "namespace": namespace,
            "labels": {"trainer.kubeflow.org/framework": "plain"},
        },
        "spec": {"mlPolicy": {"numNodes": 1}, "template": {"spec": {"replicatedJobs": [job]}}},
    }


def trainjob(namespace: str, runtime_name: str, job: str, release: Release, bad: bool) -> Raw:
    """A suspended TrainJob on a ClusterTrainingRuntime whose ``job`` trains; the bad one declares an emptyDir."""
    spec: Raw = {"suspend": True, "runtimeRef": {"kind": "ClusterTrainingRuntime", "name": runtime_name}}
    if bad:
        spec["trainer"] = {"env": [{"name": "CKPT_DIR", "value": f"{DIRECTORY}/run"}]}
        pod = {"volumes": [_VOLUME], "containers": [{"name": "node", "volumeMounts": [_MOUNT]}]}
        spec[release.override_field] = [_override(release, job, pod)]
    return {
        "apiVersion": API_VERSION,
        "kind": "TrainJob",
        "metadata": {"name": NAME, "namespace": namespace},
        "spec": spec,
    }


def training_job(runtime: Mapping[str, Any]) -> str | None:
    """The job of a runtime that takes ``spec.trainer``: the only one labelled so, with a container ``node``."""
    jobs = ((runtime.get("spec") or {}).get("template") or {}).get("spec") or {}
    found = []
    for job in jobs.get("replicatedJobs") or ():
        template = job.get("template") or {}
        labels = (template.get("metadata") or {}).get("labels") or {}
        pod = ((template.get("spec") or {}).get("template") or {}).get("spec") or {}
        named = any(container.get("name") == "node" for container in pod.get("containers") or ())
        if labels.get(ANCESTOR_LABEL) == TRAINER_STEP and named:
            found.append(str(job.get("name")))
    return found[0] if len(found) == 1 else None


def _override(release: Release, job: str, pod: Raw) -> Raw:
    if release is Release.V2_0:
        return {"targetJobs": [{"name": job}], **pod}
    if release is Release.V2_1:
        return {"targetJobs": [{"name": job}], "spec": pod}
    inner = {"name": job, "template": {"spec": {"template": {"spec": pod}}}}
    return {
        "manager": "checkpoint-guard.io/install-check",
        "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": [inner]}}},
    }
