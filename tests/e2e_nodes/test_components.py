"""Components with pods of their own, and CheckpointException, on real nodes: the tests build on each other."""

import json
import subprocess
from collections.abc import Iterator

import pytest

from tests.e2e.test_checkpoint_exceptions import exception
from tests.e2e.test_scan import OPEN, crd
from tests.e2e_nodes import guard
from tests.e2e_nodes.guard import NAMESPACE, rendered
from tests.e2e_nodes.machine import Nodes, Object, log, wait_until

TEAM = "reported"
COMPONENTS = ("reports", "exceptions", "run-metrics")
REPORTS = f"{OPEN.resource}.{OPEN.group}"
KIND = "checkpointexceptions.exceptions.checkpoint-guard.io"
JOBS = "checkpoint-guard-reports"


@pytest.fixture(scope="module", autouse=True)
def in_order(nodes: Nodes, trainer: str) -> Iterator[None]:
    """A clean start, and a clean end whatever happens."""
    guard.uninstall(nodes)
    wait_until(lambda: nodes.get("namespace", NAMESPACE) is None, 90, "the namespace of the guard is gone")
    nodes.apply([{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": TEAM}}])
    nodes.apply([crd(OPEN)])
    wait_until(lambda: nodes.run("get", REPORTS, "-A", check=False).returncode == 0, 30, "reports are served")
    yield
    guard.switch_off(nodes)
    nodes.run("delete", "trainjobs", "--all", "-n", TEAM, check=False)
    ours = json.dumps({"apiVersion": "v1", "kind": "List", "items": rendered(nodes.image, components=COMPONENTS)})
    nodes.run("delete", "--ignore-not-found", "-f", "-", text=ours)
    nodes.run("delete", "customresourcedefinition", REPORTS, "--ignore-not-found")
    nodes.run("delete", "namespace", TEAM, "--wait=false")


def test_they_are_installed_beside_the_guard(nodes: Nodes) -> None:
    # Kinds first, as kubectl apply -k says when it is run again.
    documents = rendered(nodes.image, components=COMPONENTS)
    nodes.apply([one for one in documents if one["kind"] in ("Namespace", "CustomResourceDefinition")])
    nodes.apply(documents)
    for name in ("checkpoint-guard-certs", "checkpoint-guard", "checkpoint-guard-run-metrics"):
        nodes.rolled_out(name)
    wait_until(lambda: "[ephemeral-checkpoint]" in _asked(nodes, guard.lost_runtime(TEAM)), 90, "it guards", 1)


def test_a_job_of_the_cronjob_writes_what_is_wrong(nodes: Nodes) -> None:
    mode = "checkpoint-guard.io/mode"
    nodes.run("label", "namespace", TEAM, f"{mode}=warn", "--overwrite")
    wait_until(lambda: _asked(nodes, guard.lost_runtime(TEAM)) == "", 30, "mode warn", 1)
    assert _create(nodes, guard.lost_runtime(TEAM)) == ""
    assert _create(nodes, guard.suspended_run(TEAM, "lost")) == ""
    assert _create(nodes, guard.suspended_run(TEAM, "other")) == ""
    nodes.run("label", "namespace", TEAM, f"{mode}-")
    _scan(nodes, "first")
    assert _failing(nodes) >= {"lost", "other"}
    before = _version(nodes)
    _scan(nodes, "again")
    assert _version(nodes) == before  # nothing changed, nothing is written


def test_an_exception_is_honoured_by_the_guard_and_by_the_report(nodes: Nodes) -> None:
    assert _create(nodes, exception(TEAM, match={"names": ["lost*"]})) == ""
    took = wait_until(
        lambda: _asked(nodes, guard.suspended_run(TEAM, "lost-too")) == "",
        30,
        "the exception counts",
        0.5,
    )
    log(f"a CheckpointException counted {took:.1f} s after it was written")
    assert "[ephemeral-checkpoint]" in _asked(nodes, guard.suspended_run(TEAM, "bad"))
    _scan(nodes, "excused")
    assert "lost" not in _failing(nodes)
    assert "other" in _failing(nodes)


def test_the_cronjob_runs_by_itself_and_removes_the_report(nodes: Nodes) -> None:
    nodes.run("delete", "trainjobs,trainingruntimes", "--all", "-n", TEAM)
    assert nodes.get(REPORTS, "checkpoint-guard", TEAM) is not None
    patch = json.dumps({"spec": {"schedule": "* * * * *"}})
    nodes.run("patch", "cronjob", JOBS, "-n", NAMESPACE, "--type=merge", "-p", patch)
    took = wait_until(lambda: nodes.get(REPORTS, "checkpoint-guard", TEAM) is None, 180, "the report is removed", 2)
    log(f"the CronJob removed an empty report {took:.0f} s after its schedule became each minute")


def test_the_metrics_of_runs_are_served(nodes: Nodes) -> None:
    (pod,) = nodes.pods("run-metrics")
    port = next(one["containerPort"] for one in pod["spec"]["containers"][0]["ports"] if one["name"] == "metrics")
    code = f"import urllib.request as u; print(u.urlopen('http://127.0.0.1:{port}/metrics').read().decode())"
    said = nodes.python(pod["metadata"]["name"], code)
    assert "ckptguard_scan_failures_total 0" in said


def _scan(nodes: Nodes, name: str) -> None:
    """A Job as the CronJob makes it, to its end."""
    job = f"scan-{name}"
    nodes.run("create", "job", job, f"--from=cronjob/{JOBS}", "-n", NAMESPACE)

    def ended() -> list[Object]:
        found = nodes.get("job", job, NAMESPACE) or {}
        return (found.get("status") or {}).get("conditions") or []

    took = wait_until(lambda: bool(ended()), 180, f"{job} ends", 1)
    said = nodes.run("logs", "-n", NAMESPACE, f"job/{job}", check=False).stdout
    assert any(one["type"] == "Complete" and one["status"] == "True" for one in ended()), said
    log(f"{job} took {took:.0f} s: {said.splitlines()[-1] if said else ''}")


def _report(nodes: Nodes) -> Object:
    return nodes.get(REPORTS, "checkpoint-guard", TEAM) or {}


def _version(nodes: Nodes) -> str:
    return str((_report(nodes).get("metadata") or {}).get("resourceVersion"))


def _failing(nodes: Nodes) -> set[str]:
    """The TrainJobs of which something fails."""
    return {
        str(resource.get("name"))
        for result in _report(nodes).get("results") or ()
        if result["result"] == "fail"
        for resource in result.get("resources") or result.get("subjects") or ()
        if resource.get("kind") == "TrainJob"
    }


def _asked(nodes: Nodes, obj: Object) -> str:
    """The same, and nothing is stored."""
    return _create(nodes, obj, "--dry-run=server")


def _create(nodes: Nodes, obj: Object, *flags: str) -> str:
    """What is said against it; empty where it is taken."""
    done: subprocess.CompletedProcess[str] = nodes.run("create", "-f", "-", *flags, text=json.dumps(obj), check=False)
    return done.stderr if done.returncode else ""
