"""Runs whose node is lost: the power is cut, or the cable. Both on the lab's nodes, which alone can be treated so.

A lost node keeps its pod in Terminating. With `backoffLimit: 0` the Job is then about to fail (`FailureTarget`), and
does not fail before that pod is gone: JobSet makes no new one until somebody says that the node is down for good, by
the taint `node.kubernetes.io/out-of-service`, by removing the Node, or by deleting the pod by force.
"""

import time
from collections.abc import Iterator

import pytest

from tests.e2e_nodes.machine import Lab, Nodes, Object, wait_until
from tests.e2e_nodes.runs import (
    NAMESPACE,
    assert_right_data,
    ckptguard,
    drop_namespace,
    finish,
    log_of,
    make_namespace,
    resumed_at,
    running,
    runtime,
    shell,
    states,
    submit,
    trainjob,
    wait_for_step,
)


@pytest.fixture(scope="module", autouse=True)
def place(nodes: Nodes, guarded: Nodes, trainer: str) -> Iterator[None]:
    """A namespace, a claim that both nodes reach, a runtime."""
    if not isinstance(nodes, Lab):
        pytest.skip("only the lab's nodes can lose their power")
    drop_namespace(nodes)
    make_namespace(nodes)
    nodes.apply([runtime(max_restarts=10)])
    yield
    drop_namespace(nodes)


def node_of(pod: Object) -> str:
    return str(pod["spec"]["nodeName"])


def is_ready(nodes: Nodes, name: str) -> bool:
    found = nodes.get("node", name) or {}
    conditions = (found.get("status") or {}).get("conditions") or ()
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)


def is_terminating(nodes: Nodes, pod: Object) -> bool:
    found = nodes.get("pod", pod["metadata"]["name"], NAMESPACE)
    return found is not None and "deletionTimestamp" in found["metadata"]


def assert_told(said: str, pod: str, node: str) -> None:
    """The pod, its node, since when, and the ways out; nothing of how a pod is asked."""
    assert f"pod {pod} is on node {node}, which is NotReady since 20" in said
    for way in (f"kubectl delete node {node}", f"taint node {node} node.kubernetes.io/out-of-service=", "--force"):
        assert way in said
    assert "ebsocket" not in said
    assert "Handshake" not in said


def on_another(nodes: Nodes, name: str, node: str) -> list[Object]:
    """Pods of the run that run on another node."""
    return [pod for pod in running(nodes, name) if node_of(pod) != node]


def resumed_on_another(nodes: Nodes, name: str, node: str) -> int:
    """The step at which the run goes on on another node, as soon as it does."""
    wait_until(lambda: bool(on_another(nodes, name, node)), 300, "the run goes on on the other node", 2)
    new = on_another(nodes, name, node)[0]
    wait_until(lambda: "[checkpoint]" in log_of(nodes, new), 90, "it has said where it starts")
    step = resumed_at(log_of(nodes, new))
    assert step is not None, log_of(nodes, new)
    return step


@pytest.mark.each_change
@pytest.mark.every_trainer
def test_the_power_of_the_node_is_cut(nodes: Nodes) -> None:
    assert isinstance(nodes, Lab)
    submit(nodes, trainjob("dark", SECONDS_PER_STEP="0.3"))
    wait_for_step(nodes, "dark", 20)
    (pod,) = running(nodes, "dark")
    lost = node_of(pod)
    nodes.power_cut(lost)
    try:
        wait_until(lambda: is_terminating(nodes, pod), 180, "the pod is evicted", 2)
        name = pod["metadata"]["name"]
        wait_until(lambda: not is_ready(nodes, lost), 60, "the node is NotReady")
        for command in ("drill", "resume"):
            told = ckptguard(nodes, command, "dark")
            assert told.code == 2, told.out
            assert_told(told.err, name, lost)
        told = ckptguard(nodes, "checkpoints", "dark")
        assert told.code == 0, told.err
        assert "read by helper pod" in told.out
        assert_told(told.err, name, lost)
        # A stop says what is in the way rather than wait for ever; the run goes on afterwards as if it had not been.
        told = ckptguard(nodes, "stop", "dark", "--timeout", "15s")
        assert_told(told.err, name, lost)
        assert told.code == 2, told.out
        assert "still there after 15 s" in told.err
        assert lost in told.err
        assert "go on with: ckptguard resume dark" in told.err
        nodes.run("taint", "node", lost, "node.kubernetes.io/out-of-service=nodeshutdown:NoExecute")
        wait_until(
            lambda: not nodes.objects("pods", NAMESPACE, "jobset.sigs.k8s.io/jobset-name=dark"), 120, "it is gone"
        )
        told = ckptguard(nodes, "resume", "dark", "--output", "json")
        assert told.code == 0, told.err
        assert told.json["step"] >= 20
        resumed = resumed_on_another(nodes, "dark", lost)
        # Nothing was flushed: it goes on from what was saved on its way.
        assert resumed % 10 == 0
        assert resumed >= 20
        told = ckptguard(nodes, "checkpoints", "dark", "--output", "json")
        assert told.code == 0, told.err
    finally:
        nodes.power_on(lost)
        wait_until(lambda: is_ready(nodes, lost), 180, f"{lost} is back")
        nodes.run("taint", "node", lost, "node.kubernetes.io/out-of-service-", check=False)
    wait_for_step(nodes, "dark", resumed + 20)
    assert_right_data(nodes, "dark")
    finish(nodes, "dark")


@pytest.mark.every_trainer
def test_a_run_is_rescued_from_a_node_that_is_off(nodes: Nodes) -> None:
    assert isinstance(nodes, Lab)
    submit(nodes, trainjob("away", SECONDS_PER_STEP="0.3"))
    wait_for_step(nodes, "away", 20)
    (pod,) = running(nodes, "away")
    name, lost = pod["metadata"]["name"], node_of(pod)
    rescue = ("rescue", "away", "--node-is-off")
    told = ckptguard(nodes, *rescue, "--yes")
    assert told.code == 2
    assert 'no pod of "away" is Terminating' in told.err
    nodes.power_cut(lost)
    try:
        wait_until(lambda: is_terminating(nodes, pod), 180, "the pod is evicted", 2)
        wait_until(lambda: not is_ready(nodes, lost), 60, "the node is NotReady")
        told = ckptguard(nodes, *rescue, "--dry-run")
        assert told.code == 0, told.err
        assert f"pod {name} is Terminating on node {lost}, which is NotReady since 20" in told.out
        told = ckptguard(nodes, *rescue)
        assert told.code == 2
        assert "say --yes" in told.err
        assert is_terminating(nodes, pod)
        told = ckptguard(nodes, *rescue, "--yes", "-o", "json")
        assert told.code == 0, told.err
        assert [(one["action"], one["done"]) for one in told.json["results"]] == [("deleted by force", True)]
        resumed = resumed_on_another(nodes, "away", lost)
        # Nothing was flushed: it goes on from what was saved on its way.
        assert resumed % 10 == 0
        assert resumed >= 20
    finally:
        nodes.power_on(lost)
        wait_until(lambda: is_ready(nodes, lost), 180, f"{lost} is back")
    told = ckptguard(nodes, *rescue, "--yes")
    assert told.code == 2
    assert 'no pod of "away" is Terminating' in told.err
    wait_for_step(nodes, "away", resumed + 20)
    assert_right_data(nodes, "away")
    finish(nodes, "away")


@pytest.mark.every_trainer
def test_the_cable_of_the_node_is_out(nodes: Nodes) -> None:
    """The old pod goes on and writes, while a new one does the same on the other node: two writers for a while.

    Each saves under the step's name by a rename, and the program is deterministic, so neither can spoil a state.
    """
    assert isinstance(nodes, Lab)
    submit(nodes, trainjob("split", SECONDS_PER_STEP="0.5"))
    wait_for_step(nodes, "split", 10)
    (pod,) = running(nodes, "split")
    lost = node_of(pod)
    nodes.network_cut(lost)
    try:
        wait_until(lambda: is_terminating(nodes, pod), 180, "the pod is evicted", 2)
        name = pod["metadata"]["name"]
        # Whoever does this says that the pod is gone, and it is not.
        nodes.run("delete", "pod", name, "-n", NAMESPACE, "--force", "--grace-period=0", check=False)
        resumed_on_another(nodes, "split", lost)
        time.sleep(15)
        writers = {state["by"] for state in states(nodes, "split").values()}
        assert len(writers) == 2, writers
    finally:
        nodes.network_join(lost)
        wait_until(lambda: is_ready(nodes, lost), 180, f"{lost} is back")
    told = ckptguard(nodes, "stop", "split")
    assert told.code == 0, told.err
    assert_right_data(nodes, "split")
    told = ckptguard(nodes, "resume", "split")
    assert told.code == 0, told.err
    assert shell(nodes, "ls /c/split/*.tmp 2>/dev/null").strip() == ""
    finish(nodes, "split")
