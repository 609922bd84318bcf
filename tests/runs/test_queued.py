"""A run that Kueue keeps back or has preempted: every command says the same of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.runs.fake_cluster import FakeCluster
from tests.runs.test_actions import suspended
from webhook.runs.api import Answer
from webhook.runs.drill import drill
from webhook.runs.resume import resume
from webhook.runs.run import CannotDo
from webhook.runs.stop import stop

SAYS = 'run "run" waits in queue "q" (preempted 2026-12-01T03:00:00Z): Preempted to accommodate a workload (UID: 1)'


@pytest.fixture
def preempted(tmp_path: Path) -> tuple[FakeCluster, dict[str, Any]]:
    """Kueue has set ``spec.suspend``; the Workload is active and waits for room."""
    fake = suspended(tmp_path, 100)
    fake.trainjobs["run"]["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": "q"}
    conditions = [
        {"type": "QuotaReserved", "status": "False", "message": "couldn't assign flavors"},
        {
            "type": "Preempted",
            "status": "True",
            "lastTransitionTime": "2026-12-01T03:00:00Z",
            "message": "Preempted to accommodate a workload (UID: 1)",
        },
    ]
    workload: dict[str, Any] = {
        "metadata": {"name": "trainjob-run-1", "ownerReferences": [{"uid": "uid-run"}]},
        "spec": {"active": True},
        "status": {"conditions": conditions},
    }

    def kueue(method: str, path: str, body: Any) -> Answer | None:
        if "kueue.x-k8s.io/v1beta2" not in path:
            return None
        if method == "PATCH":
            workload["spec"].update(body["spec"])
        return Answer(200, {"items": [workload]} if path.endswith("/workloads") else workload)

    fake.refuse = kueue
    return fake, workload


def test_resume_and_drill_say_the_same(preempted: tuple[FakeCluster, dict[str, Any]]) -> None:
    fake, _ = preempted
    with pytest.raises(CannotDo) as why:
        resume(fake.session([]))
    assert why.value.lines[0] == SAYS
    assert "  kubectl describe workload trainjob-run-1 -n team    # what it waits for" in why.value.lines
    said: list[str] = []
    assert drill(fake.session(said)).code == 2
    assert said[0] == f"[find] a drill takes a run that is under way: {SAYS}"
    assert said[1:] == list(why.value.lines[1:])
    assert fake.time == 1000.0, "nobody waits for what Kueue decides"


def test_nothing_is_set_aside_under_a_run_that_may_start_at_any_moment(
    preempted: tuple[FakeCluster, dict[str, Any]],
) -> None:
    fake, _ = preempted
    for options in ({"from_step": 100}, {"undo": True}):
        with pytest.raises(CannotDo, match="waits in queue"):
            resume(fake.session([]), **options)
    assert fake.helpers == []


def test_a_stop_takes_it_out_of_the_queue(preempted: tuple[FakeCluster, dict[str, Any]]) -> None:
    """Said to be suspended already, it would be started again by Kueue."""
    fake, workload = preempted
    stop(fake.session([]))
    assert workload["spec"]["active"] is False
    said: list[str] = []
    stop(fake.session(said))
    assert any("suspended already" in line for line in said)
    with pytest.raises(CannotDo, match="no new pod"):  # this Kueue admits nobody
        resume(fake.session([], timeout=5.0))
    assert workload["spec"]["active"] is True


def test_reasons_in_order(preempted: tuple[FakeCluster, dict[str, Any]]) -> None:
    fake, workload = preempted
    workload["status"]["conditions"].pop()
    with pytest.raises(CannotDo, match='waits in queue "q": couldn\'t assign flavors'):
        resume(fake.session([]))
    workload["status"] = {}
    with pytest.raises(CannotDo, match='run "run" waits in queue "q"\n'):
        resume(fake.session([]))
