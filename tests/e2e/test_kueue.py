"""With the real Kueue: runs are admitted, preempted and admitted again, and keep their volume and variables."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator

import pytest

from tests.e2e.controlplane.cluster import JOBSETS, TRAINJOBS, Object
from tests.e2e.controlplane.guard import Guard, unregister_webhook
from tests.e2e.controlplane.processes import wait_until
from tests.e2e.objects import (
    QUEUE_LABEL,
    Project,
    changed,
    check_restarts,
    check_variables,
    check_volume,
    override,
    runtime,
    trainjob,
    without_suspend,
)
from webhook.model.names import INJECTED, MANAGER, MODE

KUEUE = "kueue.x-k8s.io/v1beta2"
KUEUE_MANAGER = "kueue.x-k8s.io/manager"
PRIORITY_LABEL = "kueue.x-k8s.io/priority-class"


class Queues(Project):
    """A namespace with room for one run of two pods; ``urgent`` is held until somebody lets it go."""

    def set_up(self) -> Queues:
        super().set_up()
        requests = {"resources": {"requests": {"cpu": "1"}}}
        self.cluster.apply(
            *(
                {"apiVersion": KUEUE, "kind": "WorkloadPriorityClass", "metadata": {"name": name}, "value": value}
                for name, value in (("low", 10), ("high", 1000))
            ),
            {"apiVersion": KUEUE, "kind": "ResourceFlavor", "metadata": {"name": self.namespace}},
            {
                "apiVersion": KUEUE,
                "kind": "ClusterQueue",
                "metadata": {"name": self.namespace},
                "spec": {
                    "namespaceSelector": {},
                    "preemption": {"withinClusterQueue": "LowerPriority"},
                    "resourceGroups": [
                        {
                            "coveredResources": ["cpu"],
                            "flavors": [{"name": self.namespace, "resources": [{"name": "cpu", "nominalQuota": 2}]}],
                        }
                    ],
                },
            },
            *(
                {
                    "apiVersion": KUEUE,
                    "kind": "LocalQueue",
                    "metadata": {"name": name, "namespace": self.namespace},
                    "spec": {"clusterQueue": self.namespace, "stopPolicy": policy},
                }
                for name, policy in (("queue", "None"), ("urgent", "Hold"))
            ),
            runtime(self.namespace, "queued", container=requests),
        )
        return self

    def job(self, name: str, queue: str = "queue", priority: str = "low") -> Object:
        """A TrainJob in a queue."""
        job = trainjob(self.namespace, name, runtime_name="queued")
        job["metadata"]["labels"] = {QUEUE_LABEL: queue, PRIORITY_LABEL: priority}
        return job

    def preempt(self, name: str) -> None:
        """Lets the urgent queue go and waits until the run had to make room."""
        self._stop_policy("None")
        self.wait_suspended(name)

    def make_room(self, urgent: str) -> None:
        """Takes the urgent run away."""
        self.cluster.kubectl("delete", "trainjob", urgent, "-n", self.namespace, "--wait=false")

    def _stop_policy(self, policy: str) -> None:
        patch = json.dumps({"spec": {"stopPolicy": policy}})
        self.cluster.kubectl("patch", "localqueue", "urgent", "-n", self.namespace, "--type=merge", "-p", patch)


@pytest.fixture
def queues(kueue_guard: Guard) -> Iterator[Queues]:
    namespace = kueue_guard.cluster.new_namespace()
    queues = Queues(kueue_guard.cluster, namespace).set_up()
    yield queues
    queues.cluster.delete_namespace(namespace)
    queues.cluster.kubectl("delete", "clusterqueue", namespace, "--wait=false")


def check_pods(queues: Queues, name: str) -> list[Object]:
    pods = queues.pods(name)
    for pod in pods:
        check_volume(pod)
        check_variables(pod)
    check_restarts(queues, name)
    return pods


def managers(job: Object) -> list[str]:
    return [patch["manager"] for patch in job["spec"]["runtimePatches"]]


def comparable(job: Object) -> Object:
    """The spec without what Kueue changes at every admission, and the time at which Trainer saw a patch."""
    job = changed(job, runtimePatches=[dict(patch) for patch in job["spec"]["runtimePatches"]])
    for patch in job["spec"]["runtimePatches"]:
        patch.pop("time", None)
        if patch["manager"] == KUEUE_MANAGER:
            patch.pop("trainingRuntimeSpec", None)
    return without_suspend(job)


@pytest.mark.parametrize("state", ["up", "down", "uninstalled"])
def test_preempted_run_comes_back_with_its_volume(kueue_guard: Guard, queues: Queues, state: str) -> None:
    queues.send("apply", objects=[queues.job("urgent", "urgent", "high")])
    queues.send("apply", objects=[queues.job("run")])
    check_pods(queues, "run")
    before = queues.stored("run")
    assert set(managers(before)) == {MANAGER, KUEUE_MANAGER}

    with contextlib.ExitStack() as stack:
        if state == "down":
            stack.enter_context(kueue_guard.down())
        elif state == "uninstalled":
            unregister_webhook(kueue_guard.cluster)
            stack.callback(kueue_guard.register)
        queues.preempt("run")
        check_pods(queues, "urgent")
        assert comparable(queues.stored("run")) == comparable(before)
        queues.make_room("urgent")
        check_pods(queues, "run")
        assert comparable(queues.stored("run")) == comparable(before)


@pytest.mark.parametrize("command", ["apply", "replace"])
def test_file_without_kueues_entry(queues: Queues, command: str) -> None:
    queues.send("apply", objects=[queues.job("urgent", "urgent", "high")])
    file = queues.job("run")
    queues.send("apply", objects=[file])
    pods = check_pods(queues, "run")
    before = queues.stored("run")

    # While it runs.
    queues.send(command, objects=[file])
    assert queues.stored("run")["spec"] == before["spec"]
    assert {pod["metadata"]["uid"] for pod in check_pods(queues, "run")} == {pod["metadata"]["uid"] for pod in pods}

    # While it waits for room.
    queues.preempt("run")
    queues.send(command, objects=[changed(file, suspend=True)])
    assert comparable(queues.stored("run")) == comparable(before)
    assert managers(queues.stored("run")) == managers(before)

    queues.make_room("urgent")
    check_pods(queues, "run")


def test_what_was_lost_comes_back_with_kueues_own_update(kueue_guard: Guard, queues: Queues) -> None:
    queues.send("apply", objects=[queues.job("urgent", "urgent", "high")])
    queues.send("apply", objects=[queues.job("run")])
    check_pods(queues, "run")
    queues.preempt("run")
    before = queues.stored("run")
    unregister_webhook(kueue_guard.cluster)
    try:
        # Who sends the whole object with his own and Kueue's entry alone takes ours away.
        stripped = changed(
            before, runtimePatches=[patch for patch in before["spec"]["runtimePatches"] if patch["manager"] != MANAGER]
        )
        for field in ("resourceVersion", "uid", "managedFields", "creationTimestamp", "generation"):
            stripped["metadata"].pop(field, None)
        queues.send("replace", objects=[stripped])
        assert MANAGER not in managers(queues.stored("run"))
    finally:
        kueue_guard.register()

    queues.make_room("urgent")  # so that Kueue admits the run again

    check_pods(queues, "run")
    assert set(managers(queues.stored("run"))) == {MANAGER, KUEUE_MANAGER}


def test_run_without_a_queue(queues: Queues) -> None:
    job = trainjob(queues.namespace, runtime_name="queued")

    queues.send("apply", objects=[job])
    check_pods(queues, "run")
    before = queues.stored("run")
    queues.send("apply", objects=[job])

    assert queues.stored("run")["spec"] == before["spec"]
    assert INJECTED in before["metadata"]["annotations"]


def test_user_patch_beside_ours_and_kueues(queues: Queues) -> None:
    job = changed(queues.job("run"), **override("2.3", {"tolerations": [{"key": "gpu", "operator": "Exists"}]}))
    queues.send("apply", objects=[queues.job("urgent", "urgent", "high")])
    queues.send("apply", objects=[job])
    check_pods(queues, "run")
    queues.send("apply", objects=[job])

    queues.preempt("run")
    queues.make_room("urgent")

    for pod in check_pods(queues, "run"):
        assert {"key": "gpu", "operator": "Exists"} in pod["spec"]["tolerations"]


def test_what_kueue_would_drop_is_refused(queues: Queues) -> None:
    if queues.minor != "2.3":
        pytest.skip("the field is served from Trainer 2.3")
    job = changed(queues.job("run"), **override("2.3", {"terminationGracePeriodSeconds": 120}))

    ns = queues.namespace

    refused = queues.send("create", objects=[job], check=False)

    assert refused.returncode != 0
    assert "[lost-by-kueue]" in refused.stderr
    queues.cluster.kubectl("label", "namespace", ns, f"{MODE}=warn", "--overwrite")
    assert "[lost-by-kueue]" in queues.send("create", objects=[job]).stderr
    # What the denial is about: Kueue rewrites the object, JobSet refuses other pods, and the run stays suspended.
    wait_until(
        "an event that says that JobSet refuses the pods",
        lambda: any('"vjobset.kb.io" denied' in event["message"] for event in queues.cluster.all_of("events", ns)),
    )
    # Kueue may write more than once: the pods first, and that the run may start after that.
    queues.cluster.wait_for(TRAINJOBS, "run", ns, until=lambda found: found["spec"]["suspend"] is False)
    jobset = queues.cluster.wait_for(JOBSETS, "run", ns)
    assert jobset["spec"]["suspend"] is True


def test_what_kueue_would_empty_is_warned_about(queues: Queues) -> None:
    job = queues.job("run")
    job["spec"]["trainer"]["env"].append({"name": "MODE", "value": ""})

    run = queues.send("create", objects=[job])

    assert "[lost-by-kueue]" in run.stderr
    # What the warning is about: Kueue admits the run, and the API server refuses to let Kueue start it.
    wait_until("Kueue's admission", lambda: _admitted(queues, "run"))
    time.sleep(3)
    assert queues.stored("run")["spec"]["suspend"] is True


def _admitted(queues: Queues, name: str) -> bool:
    return any(
        condition["type"] == "Admitted" and condition["status"] == "True"
        for workload in queues.cluster.all_of("workloads.kueue.x-k8s.io", queues.namespace)
        if workload["metadata"]["ownerReferences"][0]["name"] == name
        for condition in workload.get("status", {}).get("conditions", ())
    )
