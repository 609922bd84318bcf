"""What the API server's own audit log holds of our decisions, and that our log and its log speak of one request."""

from __future__ import annotations

import json

import pytest

from tests.e2e.controlplane.cluster import TRAINJOBS, Object
from tests.e2e.controlplane.controlplane import ControlPlane
from tests.e2e.controlplane.guard import Guard
from tests.e2e.controlplane.processes import wait_until
from tests.e2e.objects import CLAIM, Project, changed, override, trainjob

pytestmark = pytest.mark.ends

VALIDATE, MUTATE = "validate.checkpoint-guard.io/", "mutate.checkpoint-guard.io/"


@pytest.fixture
def project(guard: Guard, namespace: str) -> Project:
    if not isinstance(guard.cluster, ControlPlane):
        pytest.skip("the audit log of the cluster of E2E_KUBECONFIG is not at hand")
    return Project(guard.cluster, namespace).set_up()


def noted(project: Project, verb: str, name: str = "run") -> dict[str, str]:
    """Ours, of the newest audit event about a TrainJob."""
    assert isinstance(project.cluster, ControlPlane)
    event = project.cluster.wait_for_audit_event(
        verb=verb, resource="trainjobs", namespace=project.namespace, name=name, user="admin"
    )
    return {key: value for key, value in event["annotations"].items() if key.split("/")[0].endswith("guard.io")}


def lines(guard: Guard, namespace: str) -> list[Object]:
    """The lines of our audit log about a namespace."""
    found = [json.loads(line) for line in guard.log.read_text().splitlines() if line.startswith("{")]
    return [line for line in found if line.get("namespace") == namespace]


def scratch(project: Project) -> Object:
    """A TrainJob with its checkpoints on an emptyDir."""
    pod = {
        "volumes": [{"name": "scratch", "emptyDir": {}}],
        "containers": [{"name": "node", "volumeMounts": [{"name": "scratch", "mountPath": "/scratch"}]}],
    }
    return changed(trainjob(project.namespace, CKPT_DIR="/scratch"), **override(project.minor, pod))


def test_of_an_accepted_job(project: Project) -> None:
    project.send("create", objects=[trainjob(project.namespace)])

    assert noted(project, "create") == {
        MUTATE + "defaults": "checkpoint_volume,checkpoint_variables",
        MUTATE + "policy": "built-in",
        VALIDATE + "claim": CLAIM,
        VALIDATE + "directory": "/mnt/ckpt/run",
        VALIDATE + "policy": "built-in",
        VALIDATE + "verdict": "allow",
    }


def test_of_a_denied_job(project: Project) -> None:
    project.send("create", objects=[scratch(project)], check=False)

    assert noted(project, "create") == {
        VALIDATE + "directory": "/scratch",
        VALIDATE + "policy": "built-in",
        VALIDATE + "rules": "ephemeral-checkpoint",
        VALIDATE + "verdict": "deny",
    }


def test_of_what_is_put_back(project: Project) -> None:
    job = trainjob(project.namespace)
    project.send("apply", objects=[job])
    project.send("replace", objects=[job])

    found = noted(project, "update")
    assert found[MUTATE + "defaults"] == "put_back"
    assert found["validate-update.checkpoint-guard.io/verdict"] == "allow"


def test_our_log_has_a_line_for_each_request(guard: Guard, project: Project) -> None:
    project.send("create", objects=[trainjob(project.namespace)])
    project.send("create", "--dry-run=server", objects=[scratch(project)], check=False)

    def both() -> list[Object] | None:
        found = lines(guard, project.namespace)
        denied = [line for line in found if line["webhook"] == "validate" and line["verdict"] == "deny"]
        allowed = [line for line in found if line["webhook"] == "validate" and line["verdict"] == "allow"]
        jobs = [line for line in allowed if line["kind"] == "TrainJob"]
        return [*jobs, *denied] if jobs and denied else None

    accepted, refused = wait_until("the lines of our audit log", both)[:2]
    assert accepted["user"] == refused["user"] == "admin"
    assert (accepted["dryRun"], refused["dryRun"]) == (False, True)
    assert accepted["facts"] == {
        "nodes": 2,
        "directory": "/mnt/ckpt/run",
        "volume": "checkpoint-guard",
        "claim": CLAIM,
        "storage": "many-nodes",
        "program": {"state": "in-image", "path": "train.py", "line": None, "reason": None},
    }
    assert [finding["rule"] for finding in refused["findings"]] == ["ephemeral-checkpoint"]
    assert accepted["trainer"] == project.minor
    uids = [line["uid"] for line in lines(guard, project.namespace) if line["webhook"] == "validate"]
    assert len(set(uids)) == len(uids)


def test_failed_open_calls_are_noted(guard: Guard, project: Project) -> None:
    project.send("create", objects=[trainjob(project.namespace)])
    with guard.down():
        project.patch("run", spec={"suspend": True})

        assert isinstance(project.cluster, ControlPlane)
        # Trainer patches the run's status at the same time, which is no concern of any webhook.
        event = project.cluster.wait_for_audit_event(
            lambda event: "subresource" not in event["objectRef"],
            verb="patch",
            resource=TRAINJOBS.partition(".")[0],
            namespace=project.namespace,
            name="run",
        )
    noted = [value for key, value in event["annotations"].items() if key.startswith("failed-open")]
    assert sorted(noted) == ["mutate.checkpoint-guard.io", "validate-update.checkpoint-guard.io"]
