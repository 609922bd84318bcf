"""A run that Kueue preempts goes on from what it flushed; the commands leave the decision to Kueue."""

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
    submit,
    trainjob,
    wait_for_step,
)

GROUP = "kueue.x-k8s.io/v1beta2"


@pytest.fixture(scope="module", autouse=True)
def place(nodes: Nodes, guarded: Nodes, trainer: str) -> Iterator[None]:
    """Kueue with a queue that has room for one run, and two priorities."""
    ours = nodes.get("crd", "clusterqueues.kueue.x-k8s.io") is None or isinstance(nodes, Lab)
    if ours:
        if not isinstance(nodes, Lab):
            pytest.skip("the cluster has no Kueue")
        nodes.kueue("up")
    drop_namespace(nodes)
    make_namespace(nodes)
    nodes.apply([runtime(max_restarts=10), *queue()])
    yield
    drop_namespace(nodes)
    nodes.run("delete", "clusterqueue", "e2e-runs", "--ignore-not-found", "--wait=false", check=False)
    if ours and isinstance(nodes, Lab):
        nodes.kueue("down")


def queue() -> list[Object]:
    """Room for 60m of CPU; a run asks for 50m. What a pod asks for has to be covered, so memory too."""
    quotas = [{"name": "cpu", "nominalQuota": "60m"}, {"name": "memory", "nominalQuota": "8Gi"}]
    flavors = [{"name": "e2e-runs", "resources": quotas}]
    cluster_queue = {
        "namespaceSelector": {},
        "preemption": {"withinClusterQueue": "LowerPriority"},
        "resourceGroups": [{"coveredResources": ["cpu", "memory"], "flavors": flavors}],
    }
    found: list[Object] = [
        {"apiVersion": GROUP, "kind": "ResourceFlavor", "metadata": {"name": "e2e-runs"}},
        {"apiVersion": GROUP, "kind": "ClusterQueue", "metadata": {"name": "e2e-runs"}, "spec": cluster_queue},
        {
            "apiVersion": GROUP,
            "kind": "LocalQueue",
            "metadata": {"name": "q", "namespace": NAMESPACE},
            "spec": {"clusterQueue": "e2e-runs"},
        },
    ]
    for name, value in (("low", 1), ("high", 100)):
        found.append({"apiVersion": GROUP, "kind": "WorkloadPriorityClass", "metadata": {"name": name}, "value": value})
    return found


def queued(name: str, priority: str) -> Object:
    labels = {"kueue.x-k8s.io/queue-name": "q", "kueue.x-k8s.io/priority-class": priority}
    return trainjob(name, labels=labels)


def test_a_preempted_run_goes_on_when_there_is_room(nodes: Nodes) -> None:
    submit(nodes, queued("low", "low"))
    wait_for_step(nodes, "low", 10)
    first = running(nodes, "low")[0]["metadata"]["uid"]
    submit(nodes, queued("high", "high"))
    assert running(nodes, "low") == [], "it was preempted"
    finish(nodes, "high")
    wait_until(lambda: bool(running(nodes, "low")), 180, "it is let in again", 2)
    (pod,) = running(nodes, "low")
    assert pod["metadata"]["uid"] != first
    wait_until(lambda: "[checkpoint]" in log_of(nodes, pod), 60, "it has said where it starts")
    resumed = resumed_at(log_of(nodes, pod))
    assert resumed is not None
    assert assert_right_data(nodes, "low") >= resumed >= 10


def test_stop_drill_and_resume_in_a_queue(nodes: Nodes) -> None:
    """Kueue would start a run again whose `suspend` alone was set: its Workload is set inactive."""
    told = ckptguard(nodes, "stop", "low")
    assert told.code == 0, told.err
    assert running(nodes, "low") == []
    told = ckptguard(nodes, "resume", "low", "--output", "json")
    assert told.code == 0, told.err
    assert told.json["step"] >= 10
    told = ckptguard(nodes, "drill", "low")
    assert told.code == 0, told.err
    assert_right_data(nodes, "low")
