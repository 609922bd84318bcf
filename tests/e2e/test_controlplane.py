"""The control plane works: each Trainer release makes, from a runtime and a TrainJob, a JobSet and its pods."""

import json

from tests.e2e.controlplane.cluster import JOBSETS, TRAINJOBS, Cluster, Object
from tests.e2e.controlplane.controlplane import ControlPlane
from tests.e2e.controlplane.guard import Guard


def runtime(name: str, namespace: str) -> Object:
    """A runtime with one job that trains, in two pods."""
    container = {"name": "node", "image": "python:3.12-slim", "command": ["python", "train.py"]}
    job = {
        "name": "node",
        "template": {
            "metadata": {"labels": {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}},
            "spec": {"backoffLimit": 0, "template": {"spec": {"containers": [container]}}},
        },
    }
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainingRuntime",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "labels": {"trainer.kubeflow.org/framework": "torch"},
        },
        "spec": {
            "mlPolicy": {"numNodes": 2},
            "template": {"spec": {"failurePolicy": {"maxRestarts": 3}, "replicatedJobs": [job]}},
        },
    }


def trainjob(name: str, namespace: str, runtime: str) -> Object:
    """A TrainJob that sets one variable."""
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "runtimeRef": {"kind": "TrainingRuntime", "name": runtime},
            "trainer": {"env": [{"name": "EPOCHS", "value": "3"}]},
        },
    }


def test_trainjob_becomes_jobset_and_pods(cluster: Cluster, namespace: str) -> None:
    cluster.apply(runtime("plain", namespace), trainjob("first", namespace, "plain"))

    jobset = cluster.wait_for(JOBSETS, "first", namespace)
    pods = cluster.wait_for_pods("first", namespace, count=2)

    assert jobset["spec"]["failurePolicy"]["maxRestarts"] == 3
    for pod in pods:
        container = pod["spec"]["containers"][0]
        assert container["image"] == "python:3.12-slim"
        assert {"name": "EPOCHS", "value": "3"} in container["env"]
        # The service account's token is mounted as on any cluster.
        assert any("projected" in volume for volume in pod["spec"]["volumes"])


def test_pods_run_and_the_trainjob_completes(control_plane: ControlPlane, namespace: str) -> None:
    control_plane.apply(runtime("plain", namespace), trainjob("done", namespace, "plain"))

    for pod in control_plane.wait_for_pods("done", namespace, count=2):
        control_plane.set_pod_phase(pod["metadata"]["name"], namespace, "Running")
        control_plane.set_pod_phase(pod["metadata"]["name"], namespace, "Succeeded")

    def completed(found: Object) -> bool:
        conditions = found.get("status", {}).get("conditions", [])
        return any(condition["type"] == "Complete" and condition["status"] == "True" for condition in conditions)

    control_plane.wait_for(TRAINJOBS, "done", namespace, until=completed)


def test_trainer_refuses_what_it_cannot_build(cluster: Cluster, namespace: str) -> None:
    refused = cluster.kubectl(
        "create", "-f", "-", input=json.dumps(trainjob("orphan", namespace, "no-such-runtime")), check=False
    )

    assert refused.returncode != 0
    assert "validator.trainjob.trainer.kubeflow.org" in refused.stderr


def test_apiserver_restarts_on_its_data(control_plane: ControlPlane, namespace: str) -> None:
    control_plane.apply(runtime("kept", namespace))

    control_plane.restart_apiserver()

    assert control_plane.get("trainingruntimes.trainer.kubeflow.org", "kept", namespace) is not None
    control_plane.apply(trainjob("after", namespace, "kept"))
    control_plane.wait_for_pods("after", namespace, count=2)
    created = control_plane.wait_for_audit_event(verb="create", resource="trainjobs", name="after")
    assert created["user"]["username"] == "admin"


def test_guard_is_asked(guard: Guard, namespace: str) -> None:
    guard.cluster.apply(runtime("plain", namespace), trainjob("judged", namespace, "plain"))

    guard.cluster.wait_for_pods("judged", namespace, count=2)
    assert '"name":"judged"' in guard.log.read_text()
    if isinstance(guard.cluster, ControlPlane):  # of a given cluster the audit log is not at hand
        event = guard.cluster.wait_for_audit_event(verb="create", resource="trainjobs", name="judged")
        assert event["annotations"]["validate.checkpoint-guard.io/verdict"] == "allow"


def test_kueue_admits_a_trainjob(kueue_cluster: Cluster) -> None:
    namespace = kueue_cluster.new_namespace()
    kueue_cluster.apply(*queue(namespace), runtime("plain", namespace))
    job = trainjob("queued", namespace, "plain")
    job["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": "queue"}

    kueue_cluster.apply(job)

    kueue_cluster.wait_for_pods("queued", namespace, count=2)
    stored = kueue_cluster.get(TRAINJOBS, "queued", namespace)
    assert stored is not None
    assert [patch["manager"] for patch in stored["spec"]["runtimePatches"]] == ["kueue.x-k8s.io/manager"]
    kueue_cluster.delete_namespace(namespace)


def queue(namespace: str) -> list[Object]:
    """A queue of one namespace, with room for ten processors."""
    version = "kueue.x-k8s.io/v1beta2"
    quota = {"name": namespace, "resources": [{"name": "cpu", "nominalQuota": 10}]}
    return [
        {"apiVersion": version, "kind": "ResourceFlavor", "metadata": {"name": namespace}},
        {
            "apiVersion": version,
            "kind": "ClusterQueue",
            "metadata": {"name": namespace},
            "spec": {
                "namespaceSelector": {},
                "resourceGroups": [{"coveredResources": ["cpu"], "flavors": [quota]}],
            },
        },
        {
            "apiVersion": version,
            "kind": "LocalQueue",
            "metadata": {"name": "queue", "namespace": namespace},
            "spec": {"clusterQueue": namespace},
        },
    ]
