"""What the API server lets through while nobody answers our registration."""

import copy
import json
from collections.abc import Callable, Iterator

import pytest

from tests.e2e.controlplane.certificates import Authority
from tests.e2e.controlplane.cluster import TRAINJOBS, Cluster, Object
from tests.e2e.controlplane.guard import register_webhook, unregister_webhook
from tests.e2e.controlplane.processes import free_ports
from webhook.model.names import INJECTED, MANAGER

pytestmark = pytest.mark.ends

VOLUME = {"name": "guarded", "persistentVolumeClaim": {"claimName": "checkpoints"}}


@pytest.fixture
def dead_end(unguarded: Cluster) -> Iterator[Callable[[], None]]:
    """Call it to register, on the cluster of the release, an address on which nobody listens."""
    yield lambda: register_webhook(unguarded, f"https://127.0.0.1:{free_ports(1)[0]}", Authority().ca_pem)
    unregister_webhook(unguarded)


def runtime(namespace: str) -> Object:
    """A runtime with one pod that trains."""
    container = {"name": "node", "image": "python:3.12-slim"}
    job = {
        "name": "node",
        "template": {
            "metadata": {"labels": {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}},
            "spec": {"template": {"spec": {"containers": [container]}}},
        },
    }
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainingRuntime",
        "metadata": {
            "name": "plain",
            "namespace": namespace,
            "labels": {"trainer.kubeflow.org/framework": "torch"},
        },
        "spec": {"mlPolicy": {"numNodes": 1}, "template": {"spec": {"replicatedJobs": [job]}}},
    }


def trainjob(namespace: str) -> Object:
    """A suspended TrainJob as a user writes it."""
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": {"name": "run", "namespace": namespace},
        "spec": {
            "suspend": True,
            "runtimeRef": {"kind": "TrainingRuntime", "name": "plain"},
            "trainer": {"env": [{"name": "EPOCHS", "value": "3"}]},
        },
    }


def record(**added: list[Object]) -> str:
    """The annotation that says what was added."""
    return json.dumps(added, separators=(",", ":"), sort_keys=True)


def with_variables(job: Object) -> Object:
    """The TrainJob with variables of ours."""
    job = copy.deepcopy(job)
    variable = {"name": "CKPT_DIR", "value": "/mnt/ckpt"}
    job["metadata"]["annotations"] = {INJECTED: record(env=[variable])}
    job["spec"]["trainer"]["env"].append(variable)
    return job


def with_volume(job: Object, minor: str) -> Object:
    """The TrainJob with a volume of ours, in the shape of a release."""
    job = copy.deepcopy(job)
    job["metadata"]["annotations"] = {INJECTED: record(volumes=[VOLUME])}
    targets = [{"name": "node"}]
    pod = {"volumes": [VOLUME]}
    if minor == "2.0":
        job["spec"]["podSpecOverrides"] = [{"targetJobs": targets, **pod}]
    elif minor == "2.1":
        job["spec"]["podTemplateOverrides"] = [{"targetJobs": targets, "spec": pod}]
    else:
        jobs = [{"name": "node", "template": {"spec": {"template": {"spec": pod}}}}]
        patch = {"template": {"spec": {"replicatedJobs": jobs}}}
        job["spec"]["runtimePatches"] = [{"manager": MANAGER, "trainingRuntimeSpec": patch}]
    return job


def refusal(cluster: Cluster, verb: str, job: Object) -> str:
    """What kubectl says when the API server refuses the TrainJob; empty where it does not."""
    run = cluster.send(verb, objects=[job], check=False)
    return run.stderr if run.returncode else ""


def test_create_is_refused(unguarded: Cluster, namespace: str, dead_end: Callable[[], None]) -> None:
    unguarded.apply(runtime(namespace))
    dead_end()

    assert 'failed calling webhook "validate.checkpoint-guard.io"' in refusal(unguarded, "create", trainjob(namespace))


@pytest.mark.parametrize("added", ["variables", "volume"])
def test_update_that_takes_away_what_was_added_is_refused(
    unguarded: Cluster, namespace: str, dead_end: Callable[[], None], added: str
) -> None:
    as_written = trainjob(namespace)
    as_stored = with_variables(as_written) if added == "variables" else with_volume(as_written, unguarded.release.minor)
    unguarded.apply(runtime(namespace), as_stored)
    dead_end()

    plural = "volumes" if added == "volume" else added
    called = f'failed calling webhook "put-back-{plural}.checkpoint-guard.io"'
    assert called in refusal(unguarded, "replace", as_written)


@pytest.mark.parametrize("added", ["variables", "volume"])
def test_other_updates_pass(unguarded: Cluster, namespace: str, dead_end: Callable[[], None], added: str) -> None:
    job = trainjob(namespace)
    job["metadata"]["finalizers"] = ["example.com/held"]
    job = with_variables(job) if added == "variables" else with_volume(job, unguarded.release.minor)
    unguarded.apply(runtime(namespace), job)
    dead_end()

    def patch(**change: object) -> None:
        unguarded.kubectl("patch", TRAINJOBS, "run", "-n", namespace, "--type=merge", "-p", json.dumps(change))

    patch(spec={"suspend": False})
    patch(spec={"suspend": True})
    patch(metadata={"annotations": {"example.com/note": "seen"}})
    assert refusal(unguarded, "replace", job) == ""
    unguarded.kubectl("delete", TRAINJOBS, "run", "-n", namespace, "--wait=false")
    patch(metadata={"finalizers": None})
    assert unguarded.get(TRAINJOBS, "run", namespace) is None


def test_update_that_takes_away_what_the_user_wrote_passes(
    unguarded: Cluster, namespace: str, dead_end: Callable[[], None]
) -> None:
    as_written = trainjob(namespace)
    as_written["metadata"]["labels"] = {"team": "vision"}
    unguarded.apply(runtime(namespace), as_written)
    dead_end()

    del as_written["metadata"]["labels"]

    assert refusal(unguarded, "replace", as_written) == ""
