"""What the real Trainer and JobSet make of runtimes and TrainJobs of many forms, with what was filled in."""

from __future__ import annotations

import copy

import pytest

from tests.e2e.controlplane.cluster import JOBSETS, Object
from tests.e2e.controlplane.controlplane import ControlPlane
from tests.e2e.controlplane.guard import Guard
from tests.e2e.objects import (
    RUNTIMES,
    Project,
    changed,
    check_restarts,
    check_variables,
    check_volume,
    claim,
    filled,
    named,
    runtime,
    storage_class,
    trainjob,
)
from webhook.model.names import ANCESTOR_LABEL, CLAIM, DEFAULT_CLAIM, PATH


@pytest.fixture
def project(guard: Guard, namespace: str) -> Project:
    return Project(guard.cluster, namespace).set_up()


def test_claim_of_the_trainjobs_annotation(project: Project) -> None:
    project.cluster.apply(claim(project.namespace, "mine"))
    job = trainjob(project.namespace)
    job["metadata"]["annotations"] = {CLAIM: "mine", PATH: "/results"}

    project.send("apply", objects=[job])

    for pod in project.pods("run"):
        check_volume(pod, "/results", name="mine")
        check_variables(pod, "/results")


def test_claim_of_the_namespaces_annotation(guard: Guard, namespace: str) -> None:
    guard.cluster.kubectl("annotate", "namespace", namespace, f"{DEFAULT_CLAIM}=ours")
    project = Project(guard.cluster, namespace)
    guard.cluster.apply(storage_class(), claim(namespace, "ours"), runtime(namespace))

    project.send("apply", objects=[trainjob(namespace)])

    for pod in project.pods("run"):
        check_volume(pod, name="ours")


def test_number_of_nodes_is_the_trainjobs(project: Project) -> None:
    job = trainjob(project.namespace)
    job["spec"]["trainer"]["numNodes"] = 3

    project.send("apply", objects=[job])

    for pod in project.pods("run", count=3):
        check_volume(pod)
        check_variables(pod)


def test_framework_variables_stay(project: Project) -> None:
    project.send("apply", objects=[trainjob(project.namespace)])

    for pod in project.pods("run"):
        env = pod["spec"]["containers"][0]["env"]
        assert {"PET_NNODES", "PET_MASTER_ADDR", "EPOCHS"} <= {variable["name"] for variable in env}


def test_trainjob_without_a_trainer(project: Project) -> None:
    job = trainjob(project.namespace)
    del job["spec"]["trainer"]

    project.send("apply", objects=[job])

    for pod in project.pods("run"):
        check_volume(pod)
        # Variables of ours would bring the framework's with them (Trainer makes none without ``spec.trainer``).
        names = {variable["name"] for variable in pod["spec"]["containers"][0].get("env", [])}
        assert names <= {"JOB_COMPLETION_INDEX"}
    project.send("apply", objects=[job])
    project.send("replace", objects=[job])


def test_runtime_without_a_framework(project: Project) -> None:
    file = runtime(project.namespace, "bare")
    file["spec"]["mlPolicy"] = {"numNodes": 2}
    project.cluster.apply(file)
    job = trainjob(project.namespace, runtime_name="bare")
    del job["spec"]["trainer"]

    project.send("apply", objects=[job])

    for pod in project.pods("run"):
        check_volume(pod)
        check_variables(pod)
    project.send("apply", objects=[job])
    before = project.stored("run")
    project.send("replace", objects=[job])
    assert project.stored("run")["spec"] == before["spec"]


def test_unlabelled_runtime_gets_the_label(project: Project) -> None:
    file = runtime(project.namespace, "unlabelled")
    del file["spec"]["template"]["spec"]["replicatedJobs"][0]["template"]["metadata"]
    project.cluster.apply(file)

    project.send("apply", objects=[trainjob(project.namespace, runtime_name="unlabelled")])

    stored = project.cluster.get(RUNTIMES, "unlabelled", project.namespace)
    assert stored is not None
    job = stored["spec"]["template"]["spec"]["replicatedJobs"][0]
    assert job["template"]["metadata"]["labels"] == {ANCESTOR_LABEL: "trainer"}
    for pod in project.pods("run"):
        check_variables(pod)
        assert {"name": "EPOCHS", "value": "3"} in pod["spec"]["containers"][0]["env"]
    project.cluster.apply(file)
    again = project.cluster.get(RUNTIMES, "unlabelled", project.namespace)
    assert again is not None
    assert filled(again["spec"]) == filled(stored["spec"])


def test_other_containers_keep_their_order(project: Project) -> None:
    file = runtime(project.namespace, "sidecars")
    pod = file["spec"]["template"]["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    pod["containers"].insert(0, {"name": "before", "image": "busybox"})
    pod["containers"].append({"name": "after", "image": "busybox"})
    pod["initContainers"] = [{"name": "first", "image": "busybox"}]
    project.cluster.apply(file)

    project.send("apply", objects=[trainjob(project.namespace, runtime_name="sidecars")])

    for made in project.pods("run"):
        check_volume(made)
        check_variables(made)
        assert [container["name"] for container in made["spec"]["containers"]] == ["before", "node", "after"]
        for container in made["spec"]["containers"][::2] + made["spec"]["initContainers"]:
            assert "checkpoint-guard" not in [mount["name"] for mount in container.get("volumeMounts", [])]


def test_launcher_and_workers_of_mpi(project: Project) -> None:
    file = runtime(project.namespace, "mpi")
    file["metadata"]["labels"] = {"trainer.kubeflow.org/framework": "deepspeed"}
    worker = file["spec"]["template"]["spec"]["replicatedJobs"][0]
    launcher = copy.deepcopy(worker)
    launcher["name"] = "launcher"
    del worker["template"]["metadata"]
    file["spec"]["template"]["spec"]["replicatedJobs"] = [launcher, worker]
    file["spec"]["mlPolicy"] = {
        "numNodes": 1,
        "mpi": {"numProcPerNode": 1, "mpiImplementation": "OpenMPI", "sshAuthMountPath": "/root/.ssh"},
    }
    project.cluster.apply(file)
    job = changed(trainjob(project.namespace, runtime_name="mpi", CKPT_DIR="/results"))
    job["spec"]["trainer"]["numNodes"] = 2

    project.send("apply", objects=[job])

    jobset = project.cluster.wait_for(JOBSETS, "run", project.namespace)
    for name in ("launcher", "node"):
        pod = named(jobset["spec"]["replicatedJobs"], name)["template"]["spec"]["template"]
        check_volume(pod, "/results", "results")
    for pod in project.pods("run", count=3):
        check_volume(pod, "/results", "results")
    check_restarts(project, "run")


def test_shipped_runtime(guard: Guard, control_plane: ControlPlane, project: Project) -> None:
    control_plane.install_shipped_runtimes()
    job: Object = trainjob(project.namespace)
    job["spec"]["runtimeRef"] = {"name": "torch-distributed"}
    job["spec"]["trainer"]["numNodes"] = 2

    project.send("apply", objects=[job])
    before = project.stored("run")

    for pod in project.pods("run"):
        check_volume(pod)
        check_variables(pod)
    check_restarts(project, "run")
    project.send("apply", objects=[job])
    assert project.stored("run")["spec"] == before["spec"]
