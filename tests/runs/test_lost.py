"""A node that does not answer: what the commands say of its pods, and that none waits for them in silence."""

from __future__ import annotations

import json
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.runs.fake_cluster import FakeCluster, stamp
from tests.runs.test_actions import cluster, suspended
from webhook.cli import checkpoints
from webhook.runs.api import Answer
from webhook.runs.drill import drill
from webhook.runs.lost import lost_pods, waited_for
from webhook.runs.resume import resume
from webhook.runs.run import CannotDo
from webhook.runs.session import Session
from webhook.runs.stop import stop

SINCE = stamp(940)
WHERE = f"pod run-node-0-0-0 is on node node1, which is NotReady since {SINCE}"
WAYS = (
    "kubectl delete node node1",
    "kubectl taint node node1 node.kubernetes.io/out-of-service=nodeshutdown:NoExecute",
    "kubectl taint node node1 node.kubernetes.io/out-of-service-",
    "kubectl delete pod run-node-0-0-0 -n team --force --grace-period=0",
)


def lost(tmp_path: Path, evicted: bool = True) -> FakeCluster:
    fake = cluster(tmp_path, 100, 200)
    fake.lose_node(evicted=evicted)
    return fake


def assert_told(lines: list[str]) -> None:
    """Pod, node, since when, and every way out; and nothing of how an exec is made."""
    text = "\n".join(lines)
    assert WHERE in text
    for way in WAYS:
        assert way in text
    assert "ebsocket" not in text
    assert "Handshake" not in text


@pytest.mark.parametrize("evicted", [True, False])
@pytest.mark.parametrize("command", [drill, resume])
def test_a_run_that_waits_for_its_node_is_told_at_once(
    tmp_path: Path, command: Callable[[Session], Any], evicted: bool
) -> None:
    fake = lost(tmp_path, evicted)
    said: list[str] = []
    session = fake.session(said)
    if command is drill:
        assert drill(session).code == 2
    else:
        with pytest.raises(CannotDo, match="there is nothing to resume, it waits for a node") as why:
            resume(session)
        said.extend(why.value.lines)
    assert_told(said)
    assert fake.time == 1000.0
    assert ("it is evicted when its toleration ends" in "\n".join(said)) is not evicted
    assert "was not changed" in session.state


def test_a_stop_says_at_once_what_it_waits_for(tmp_path: Path) -> None:
    fake = lost(tmp_path)
    said: list[str] = []
    session = fake.session(said, timeout=30)
    with pytest.raises(
        CannotDo, match='1 pod of "run" is still there after 30 s, on node1: pod run-node-0-0-0'
    ) as late:
        stop(session)
    assert any(line.startswith(WHERE) for line in said)
    assert_told(list(late.value.lines))
    assert fake.trainjobs["run"]["spec"]["suspend"] is True


def test_a_stop_ends_when_the_node_is_back(tmp_path: Path) -> None:
    fake = lost(tmp_path)

    def back() -> None:
        fake.silent.clear()
        fake.pods.clear()

    fake.after(20.0, back)
    assert stop(fake.session([])).seconds >= 20.0


def test_a_resume_waits_for_the_old_pod_and_says_so(tmp_path: Path) -> None:
    fake = suspended(tmp_path, 100)
    fake.made = 0
    fake.start_pod()
    fake.lose_node()
    said: list[str] = []
    with pytest.raises(CannotDo) as late:
        resume(fake.session(said, timeout=30))
    assert any(line.startswith(f"{WHERE}, 60 s ago; it stays until") for line in said), said
    assert_told(list(late.value.lines))


def test_checkpoints_are_read_elsewhere_and_the_wait_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fake = lost(tmp_path)
    assert checkpoints._list(fake.session([]), "text") == 0
    said = capsys.readouterr()
    assert "read by helper pod" in said.out
    assert "checkpoint-200" in said.out
    assert_told(said.err.splitlines())
    assert ("EXEC", "run-node-0-0-0") not in fake.calls
    assert checkpoints._list(fake.session([]), "json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["waitsFor"] == [{"pod": "run-node-0-0-0", "node": "node1", "since": SINCE}]


def test_a_claim_of_one_node_that_is_lost_is_not_waited_for(tmp_path: Path) -> None:
    fake = lost(tmp_path)
    fake.claims["mine"]["status"]["accessModes"] = ["ReadWriteOnce"]
    with pytest.raises(CannotDo, match="is still attached to that of a pod that nobody hears from") as why:
        checkpoints._list(fake.session([]), "text")
    assert_told(list(why.value.lines))
    assert fake.helpers == []


def test_before_anybody_knows_that_the_node_is_lost(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """For 40 s it is Ready, and the API server does not reach it."""
    fake = cluster(tmp_path, 100)
    fake.silent.add("node1")
    assert checkpoints._list(fake.session([]), "text") == 0
    assert "pod run-node-0-0-0 cannot be asked: error dialing backend" in capsys.readouterr().err


def test_a_pod_that_took_its_place_ends_the_wait(tmp_path: Path) -> None:
    """With retries the Job makes a new pod elsewhere while the old one is still there."""
    fake = lost(tmp_path)
    fake.start_pod()
    fake.pods["run-node-0-0-1"]["spec"]["nodeName"] = "node2"
    session = fake.session([])
    run = session.find()
    assert [one.pod for one in lost_pods(session.kube, run.pods)] == ["run-node-0-0-0"]
    assert session.lost(run) == ()
    assert waited_for(run.pods, lost_pods(session.kube, run.pods)) == ()


def test_a_node_that_was_deleted(tmp_path: Path) -> None:
    fake = lost(tmp_path)
    del fake.nodes["node1"]
    said: list[str] = []
    assert drill(fake.session(said)).code == 2
    text = "\n".join(said)
    assert "pod run-node-0-0-0 was on node node1, which does not exist any more" in text
    assert "removes pods of a deleted node within a minute" in text


def test_whoever_may_not_read_nodes_is_told_by_the_pod(tmp_path: Path) -> None:
    fake = lost(tmp_path)
    fake.refuse = lambda _, path, __: Answer(403, {"message": "no"}) if "/nodes/" in path else None
    fake.time += 30.0
    session = fake.session([])
    assert session.lost(session.find()) == ()
    fake.time += 60.0
    (one,) = session.lost(session.find())
    assert (one.how, one.node) == ("overdue", "node1")
    assert "should have ended by" in one.where


def test_a_node_is_asked_about_once_a_while(tmp_path: Path) -> None:
    fake = lost(tmp_path)
    session = fake.session([], timeout=10)
    with pytest.raises(CannotDo):
        stop(session)
    assert sum("/nodes/" in path for _, path in fake.calls) <= 4


def test_delete_of_a_run_on_a_lost_node_is_no_deletion_of_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from webhook.cli.delete import say_deleted

    fake = lost(tmp_path)
    said: list[str] = []
    with pytest.raises(CannotDo) as late:
        say_deleted(fake.session(said, timeout=20), Namespace(with_data=False, output="text"))
    assert_told(list(late.value.lines))
    assert fake.trainjobs == {}
    assert any(line.startswith(WHERE) for line in said)
