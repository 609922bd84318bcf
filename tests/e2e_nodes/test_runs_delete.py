"""`ckptguard delete` on the real controllers: whatever state a run is in, nothing of it is left.

In the foreground Trainer makes a new JobSet each second, and the run trains on: 9 of 10 tries on real nodes.
"""

import time
from collections.abc import Iterator

import pytest

from tests.e2e_nodes.machine import Nodes, wait_until
from tests.e2e_nodes.runs import (
    NAMESPACE,
    ckptguard,
    drop_namespace,
    make_namespace,
    running,
    runtime,
    submit,
    trainjob,
    wait_for_step,
)

WITHIN = 15.0
"""Seconds from the end of the pods until nothing is left; the small trainer ends within one."""


@pytest.fixture(scope="module", autouse=True)
def place(nodes: Nodes, guarded: Nodes, trainer: str) -> Iterator[None]:
    drop_namespace(nodes)
    make_namespace(nodes)
    nodes.apply([runtime(), runtime("failing", max_restarts=0)])
    yield
    drop_namespace(nodes)


def left(nodes: Nodes, name: str) -> list[str]:
    """What there still is of a run."""
    found = [kind for kind in ("trainjob", "jobset") if nodes.get(kind, name, NAMESPACE) is not None]
    pods = nodes.objects("pods", NAMESPACE, f"jobset.sigs.k8s.io/jobset-name={name}")
    return [*found, *(pod["metadata"]["name"] for pod in pods)]


def has_failed(nodes: Nodes, name: str) -> bool:
    found = nodes.get("trainjob", name, NAMESPACE) or {}
    conditions = (found.get("status") or {}).get("conditions") or ()
    return any(one["type"] == "Failed" and one["status"] == "True" for one in conditions)


def bring(nodes: Nodes, name: str, state: str) -> None:
    """A run in that state."""
    if state == "failed":
        nodes.apply([trainjob(name, "failing", CRASH_IF_FRESH_AT="3", SECONDS_PER_STEP="0.05")])
        wait_until(lambda: has_failed(nodes, name), 180, f"{name} has failed", 1)
    elif state == "queued":
        job = trainjob(name)
        job["spec"]["suspend"] = True
        nodes.apply([job])
        wait_until(lambda: nodes.get("jobset", name, NAMESPACE) is not None, 60, f"{name} has a JobSet")
    else:
        submit(nodes, trainjob(name))
        # Before the program has a handler, the first process of a pod does not even hear SIGTERM.
        wait_for_step(nodes, name, 10)
        if state == "stopped":
            assert ckptguard(nodes, "stop", name).code == 0


@pytest.mark.every_trainer
@pytest.mark.parametrize("state", ["running", "stopped", "failed", "queued"])
def test_nothing_is_left(nodes: Nodes, state: str) -> None:
    for number in range(2):
        name = f"gone-{state}-{number}"
        bring(nodes, name, state)
        told = ckptguard(nodes, "delete", name, "--output", "json", "--timeout", "60s")
        assert told.code == 0, told.err
        assert left(nodes, name) == []
        assert told.json["seconds"] <= WITHIN
        time.sleep(3)  # Trainer made a new one each second
        assert left(nodes, name) == []


@pytest.mark.every_trainer
def test_a_deletion_in_the_foreground_is_ended(nodes: Nodes, trainer: str) -> None:
    for number in range(5):  # now and then it comes to its end by itself
        name = f"front-{number}"
        submit(nodes, trainjob(name))
        wait_for_step(nodes, name, 10)
        nodes.run("delete", "trainjob", name, "-n", NAMESPACE, "--cascade=foreground", "--wait=false")
        time.sleep(3)
        if "trainjob" in left(nodes, name):
            break
    else:
        assert trainer.startswith("2.1"), "Trainer no longer makes a new JobSet: delete could say so"
        wait_until(
            lambda: not any(left(nodes, f"front-{at}") for at in range(5)), 60, "in 2.1 it comes to its end by itself"
        )
        return
    told = ckptguard(nodes, "delete", name, "--timeout", "60s")
    assert told.code == 0, told.err
    assert left(nodes, name) == []


@pytest.mark.every_trainer
def test_what_is_said_of_a_failed_run_works_as_it_is_pasted(nodes: Nodes) -> None:
    """`drill` and `resume` of a failed run say how the same name goes on; the advice is carried out line by line."""
    bring(nodes, "again", "failed")
    for command in ("drill", "resume"):
        told = ckptguard(nodes, command, "again")
        assert told.code == 2
        assert "ckptguard delete again" in told.err
    kept = nodes.run("get", "trainjob", "again", "-n", NAMESPACE, "-o", "yaml").stdout
    assert ckptguard(nodes, "delete", "again").code == 0
    # What Trainer lets nobody change in a runtime is changed by making it anew, now that no run uses it.
    nodes.run("delete", "trainingruntime", "failing", "-n", NAMESPACE, "--timeout=60s")
    nodes.apply([runtime("failing", max_restarts=5)])
    nodes.run("create", "-f", "-", text=kept)
    wait_until(lambda: bool(running(nodes, "again")) or has_failed(nodes, "again"), 120, "the new one runs")
