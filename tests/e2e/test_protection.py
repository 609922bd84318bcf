"""DELETE of what an unfinished run needs, in a namespace that asks for protection, on the real API server."""

from __future__ import annotations

import json

import pytest

from tests.e2e.controlplane.cluster import TRAINJOBS, Object
from tests.e2e.controlplane.guard import Guard
from tests.e2e.controlplane.processes import wait_until
from tests.e2e.objects import CLAIM, Project, changed, trainjob
from webhook.model.names import ALLOW_DELETE, PROTECT

pytestmark = pytest.mark.ends

PVC = ("persistentvolumeclaim", CLAIM)
RUNTIME = ("trainingruntimes.trainer.kubeflow.org", "plain")
SNAPSHOT = ("configmap", "run-runtime-snapshot")


@pytest.fixture
def project(guard: Guard, namespace: str) -> Project:
    project = Project(guard.cluster, namespace).set_up()
    guard.cluster.kubectl("label", "namespace", namespace, f"{PROTECT}=true")
    return project


def suspended(project: Project, name: str = "run") -> Object:
    return changed(trainjob(project.namespace, name), suspend=True)


def delete(project: Project, what: tuple[str, str], *flags: str) -> str:
    """What the API server refuses a DELETE with; empty where it goes through."""
    command = ("delete", *what, "-n", project.namespace, "--wait=false", *flags)
    run = project.cluster.kubectl(*command, check=False)
    return run.stderr if run.returncode else ""


def refused(project: Project, what: tuple[str, str], *flags: str) -> bool:
    said = delete(project, what, *flags)
    if said:
        assert "needed-by-run" in said, said
        assert "delete the TrainJob first" in said
    return bool(said)


def needed(project: Project) -> list[tuple[str, str]]:
    return [PVC, RUNTIME, SNAPSHOT] if project.cluster.release.minor >= "2.3" else [PVC]


def begin(project: Project) -> None:
    """A suspended run, known to the guard and reconciled by Trainer."""
    project.send("create", objects=[suspended(project)])
    if SNAPSHOT in needed(project):
        project.cluster.wait_for("configmaps", SNAPSHOT[1], project.namespace)
    for what in needed(project):
        wait_until(f"{what} to be protected", lambda what=what: refused(project, what, "--dry-run=server"), 30)


def test_what_a_suspended_run_needs_is_kept_and_released(project: Project) -> None:
    begin(project)
    for what in needed(project):
        for flags in ((), ("--dry-run=server",), ("--cascade=foreground",), ("--cascade=orphan",)):
            assert refused(project, what, *flags)
    said = delete(project, ("persistentvolumeclaims", "--all"))
    assert "needed-by-run" in said
    assert project.cluster.kubectl("get", *PVC, "-n", project.namespace, check=False).returncode == 0

    project.cluster.kubectl("delete", TRAINJOBS, "run", "-n", project.namespace)
    for what in needed(project)[:2]:
        assert delete(project, what) == ""


def test_an_annotation_lets_one_go(project: Project) -> None:
    begin(project)
    project.cluster.kubectl("annotate", *PVC, "-n", project.namespace, f"{ALLOW_DELETE}=true")
    assert delete(project, PVC) == ""


def test_job_and_claim_go_together(project: Project) -> None:
    begin(project)
    job = json.dumps(suspended(project))
    claim = json.dumps({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": CLAIM}})
    run = project.cluster.kubectl("delete", "-n", project.namespace, "-f", "-", input=f"{job}\n---\n{claim}")
    assert run.returncode == 0


def test_without_the_label_nothing_is_kept(project: Project) -> None:
    begin(project)
    project.cluster.kubectl("label", "namespace", project.namespace, f"{PROTECT}-")
    wait_until("the label to be gone", lambda: not refused(project, PVC, "--dry-run=server"), 30)


def test_while_the_guard_is_down_everything_goes(guard: Guard, project: Project) -> None:
    begin(project)
    with guard.down():
        assert delete(project, PVC) == ""


def claim_goes(project: Project) -> bool:
    """Whether the claim is gone, or on its way."""
    found = project.cluster.kubectl("get", *PVC, "-n", project.namespace, "-o", "json", check=False)
    return found.returncode != 0 or "deletionTimestamp" in found.stdout


def test_a_namespace_goes_with_its_run(project: Project) -> None:
    begin(project)
    project.cluster.kubectl("delete", "namespace", project.namespace, "--wait=false")
    wait_until("the claim to go with its namespace", lambda: claim_goes(project), 60)


@pytest.mark.parametrize("cascade", ["background", "foreground"])
def test_the_garbage_collector_goes_on(project: Project, cascade: str) -> None:
    """Whoever deletes the owner decided about what it owns."""
    begin(project)
    space = ("-n", project.namespace)
    project.cluster.kubectl("create", "configmap", "owner", *space)
    owner = project.cluster.get("configmaps", "owner", project.namespace)
    assert owner is not None
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["metadata"]["uid"]}
    reference["blockOwnerDeletion"] = True
    patch = json.dumps({"metadata": {"ownerReferences": [reference]}})
    project.cluster.kubectl("patch", *PVC, *space, "--type=merge", "-p", patch)
    assert refused(project, PVC)
    project.cluster.kubectl("delete", "configmap", "owner", *space, f"--cascade={cascade}", "--wait=false")
    wait_until("the claim to go with its owner", lambda: claim_goes(project), 60)
