"""What a user does to a run, with what we added to it: nothing is refused, nothing is lost, the pods have all of it.

Every test runs on each Trainer release, most of them for each way in which something is added.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from tests.e2e.controlplane.cluster import JOBSETS, TRAINJOBS, Object
from tests.e2e.controlplane.guard import Guard, unregister_webhook
from tests.e2e.controlplane.processes import wait_until
from tests.e2e.objects import (
    CLAIM,
    RUNTIMES,
    Project,
    changed,
    check_restarts,
    check_variables,
    check_volume,
    claim,
    filled,
    mounting_runtime,
    override,
    runtime,
    settled,
    storage_class,
    trainjob,
    without_suspend,
)
from webhook.model.names import INJECTED

TOLERATION = {"key": "gpu", "operator": "Exists"}


@dataclass(frozen=True)
class Way:
    """A TrainJob as its user writes it, and what its pods must have that he did not write."""

    write: Callable[[Project, str], Object]
    check: Callable[[Object], None]


def _nothing(project: Project, name: str) -> Object:
    return trainjob(project.namespace, name)


def _directory(project: Project, name: str) -> Object:
    return trainjob(project.namespace, name, CKPT_DIR="/results/checkpoints")


def _mounted(project: Project, name: str) -> Object:
    return trainjob(project.namespace, name, runtime_name="mounting")


def _overridden(project: Project, name: str) -> Object:
    return changed(trainjob(project.namespace, name), **override(project.minor, {"tolerations": [TOLERATION]}))


def _check_both(pod: Object) -> None:
    check_volume(pod)
    check_variables(pod)


def _check_overridden(pod: Object) -> None:
    _check_both(pod)
    assert TOLERATION in pod["spec"]["tolerations"]


WAYS = {
    "no-directory": Way(_nothing, _check_both),
    "directory": Way(_directory, lambda pod: check_volume(pod, "/results/checkpoints", "results/checkpoints")),
    "mounted-claim": Way(_mounted, lambda pod: check_variables(pod, "/data")),
    "own-override": Way(_overridden, _check_overridden),
}


@pytest.fixture
def project(guard: Guard, namespace: str) -> Project:
    return Project(guard.cluster, namespace).set_up()


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest) -> Way:
    return WAYS[request.param]


def check_pods(project: Project, way: Way, name: str = "run") -> list[Object]:
    """The pods of the run, with all that was added."""
    pods = project.pods(name)
    for pod in pods:
        way.check(pod)
    check_restarts(project, name)
    return pods


def uids(pods: list[Object]) -> set[str]:
    return {pod["metadata"]["uid"] for pod in pods}


def test_first_apply(project: Project, way: Way) -> None:
    project.send("apply", objects=[way.write(project, "run")])

    assert INJECTED in project.stored("run")["metadata"]["annotations"]
    check_pods(project, way)


def test_second_apply_of_the_same_file(project: Project, way: Way) -> None:
    job = way.write(project, "run")
    project.send("apply", objects=[job])
    before, pods = settled(project.stored("run")), check_pods(project, way)

    project.send("apply", objects=[job])
    project.send("apply", objects=[job])

    assert settled(project.stored("run")) == before
    assert uids(check_pods(project, way)) == uids(pods)
    assert project.send("diff", objects=[job]).stdout == ""


def test_apply_with_suspend(project: Project, way: Way) -> None:
    job = way.write(project, "run")
    project.send("apply", objects=[job])
    before = without_suspend(project.stored("run"))
    project.pods("run")

    project.send("apply", objects=[changed(job, suspend=True)])
    project.wait_suspended("run")
    assert without_suspend(project.stored("run")) == before

    project.send("apply", objects=[changed(job, suspend=False)])
    check_pods(project, way)
    assert without_suspend(project.stored("run")) == before


def test_replace(project: Project, way: Way) -> None:
    job = way.write(project, "run")
    project.send("create", objects=[job])
    before, pods = settled(project.stored("run")), check_pods(project, way)

    project.send("replace", objects=[job])
    assert settled(project.stored("run")) == before
    assert uids(check_pods(project, way)) == uids(pods)

    project.send("replace", objects=[changed(job, suspend=True)])
    project.wait_suspended("run")
    project.send("replace", objects=[job])
    check_pods(project, way)


def test_server_side_apply_twice(project: Project, way: Way) -> None:
    job = way.write(project, "run")
    project.send("apply", "--server-side", objects=[job])
    before, pods = settled(project.stored("run")), check_pods(project, way)

    project.send("apply", "--server-side", objects=[job])
    assert settled(project.stored("run")) == before
    assert uids(check_pods(project, way)) == uids(pods)

    project.send("apply", "--server-side", objects=[changed(job, suspend=True)])
    project.wait_suspended("run")


def test_create_with_generated_names(project: Project, way: Way) -> None:
    job = way.write(project, "")
    job["metadata"] = {"generateName": "run-", "namespace": project.namespace}

    names = {project.send("create", "-o", "name", objects=[job]).stdout.strip().rpartition("/")[2] for _ in range(2)}

    assert len(names) == 2
    for name in names:
        # The directory is told apart by the pod's label, since there is no name when the variables are added.
        for pod in check_pods(project, way, name):
            assert pod["metadata"]["labels"]["jobset.sigs.k8s.io/jobset-name"] == name


def test_merge_patch_of_suspend(project: Project, way: Way) -> None:
    project.send("create", objects=[way.write(project, "run")])
    before = without_suspend(project.stored("run"))
    project.pods("run")

    project.patch("run", spec={"suspend": True})
    project.wait_suspended("run")
    project.patch("run", spec={"suspend": False})

    check_pods(project, way)
    assert without_suspend(project.stored("run")) == before


def test_metadata_edit_while_running(project: Project, way: Way) -> None:
    job = way.write(project, "run")
    project.send("apply", objects=[job])
    before, pods = settled(project.stored("run")), check_pods(project, way)

    project.cluster.kubectl("annotate", TRAINJOBS, "run", "-n", project.namespace, "example.com/note=seen")
    job["metadata"]["labels"] = {"team": "vision"}
    project.send("apply", objects=[job])

    after = project.stored("run")
    assert after["metadata"]["annotations"]["example.com/note"] == "seen"
    assert after["metadata"]["labels"] == {"team": "vision"}
    assert settled(after) == before
    assert uids(project.pods("run")) == uids(pods)


@pytest.mark.parametrize("way", ["own-override"], indirect=True)
def test_finalizer_removed_from_a_deleting_job(project: Project, way: Way) -> None:
    job = way.write(project, "run")
    job["metadata"]["finalizers"] = ["example.com/held"]
    project.send("create", objects=[job])
    project.pods("run")
    project.cluster.kubectl("delete", TRAINJOBS, "run", "-n", project.namespace, "--wait=false")
    # What the run referred to may be gone by then.
    project.cluster.kubectl("delete", "pvc", CLAIM, "-n", project.namespace, "--wait=false")

    project.patch("run", metadata={"finalizers": None})

    wait_until("no TrainJob run", lambda: project.cluster.get(TRAINJOBS, "run", project.namespace) is None)


def test_claim_runtime_and_trainjob_in_one_file(guard: Guard, namespace: str, way: Way) -> None:
    project = Project(guard.cluster, namespace)
    files = [storage_class(), claim(namespace), runtime(namespace), mounting_runtime(namespace)]
    files.append(way.write(project, "run"))

    project.send("apply", objects=files)
    check_pods(project, way)
    before = settled(project.stored("run"))

    project.send("apply", objects=files)
    assert settled(project.stored("run")) == before


@pytest.mark.parametrize("way", ["no-directory", "own-override"], indirect=True)
def test_run_from_before_our_time_is_left_alone(guard: Guard, project: Project, way: Way) -> None:
    job = way.write(project, "run")
    unregister_webhook(guard.cluster)
    try:
        project.send("apply", objects=[job])
    finally:
        guard.register()
    before = settled(project.stored("run"))
    pods = project.pods("run")

    project.send("apply", objects=[job])
    assert settled(project.stored("run")) == before
    assert uids(project.pods("run")) == uids(pods)

    project.send("apply", objects=[changed(job, suspend=True)])
    project.wait_suspended("run")
    project.resumes("run")
    assert without_suspend(project.stored("run")) == {k: v for k, v in before["spec"].items() if k != "suspend"}


def test_runtime_applied_again_keeps_what_was_added(project: Project) -> None:
    file = runtime(project.namespace)
    project.send("apply", objects=[trainjob(project.namespace)])
    project.pods("run")
    project.patch("run", spec={"suspend": True})
    project.wait_suspended("run")
    before = project.cluster.get(RUNTIMES, "plain", project.namespace)
    assert before is not None

    project.send("apply", objects=[file])

    after = project.cluster.get(RUNTIMES, "plain", project.namespace)
    assert after is not None
    assert filled(after["spec"]) == filled(before["spec"])
    assert after["metadata"]["annotations"][INJECTED] == before["metadata"]["annotations"][INJECTED]
    assert after["spec"]["template"]["spec"]["failurePolicy"]["maxRestarts"] == 3
    # A change of its pods would keep a suspended run from ever resuming (Trainer 2.0 to 2.2).
    for pod in project.resumes("run"):
        _check_both(pod)
    check_restarts(project, "run")


def test_runtime_from_before_our_time_lets_suspended_runs_resume(guard: Guard, namespace: str) -> None:
    project = Project(guard.cluster, namespace)
    file = runtime(namespace)
    unregister_webhook(guard.cluster)
    try:
        project.send("apply", objects=[file, trainjob(namespace)])
    finally:
        guard.register()
    project.pods("run")
    project.patch("run", spec={"suspend": True})
    project.wait_suspended("run")

    labelled = copy.deepcopy(file)
    labelled["metadata"]["labels"]["team"] = "vision"
    project.send("apply", objects=[labelled])

    project.resumes("run")
    jobset = project.cluster.wait_for(JOBSETS, "run", namespace)
    assert jobset["spec"]["suspend"] is False
