"""Stop, resume, drill and delete, with everything that may be in their way."""

from __future__ import annotations

import os
from argparse import Namespace
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.runs.fake_cluster import FakeCluster, jobset, trainjob
from tests.runs.folders import deepspeed, hf, write
from webhook.cli.delete import say_deleted
from webhook.cluster.access import Unreachable
from webhook.runs.api import Answer
from webhook.runs.delete import delete
from webhook.runs.drill import drill
from webhook.runs.restart import LAST_DRILL
from webhook.runs.resume import resume
from webhook.runs.run import CannotDo
from webhook.runs.session import Session
from webhook.runs.stop import stop


def at(path: Path, time: float) -> Path:
    """The folder and its files as old as that."""
    for one in (*path.rglob("*"), path):
        os.utime(one, (time, time))
    return path


def cluster(tmp_path: Path, *steps: int, log: Any = None) -> FakeCluster:
    root = tmp_path / "run"
    root.mkdir()
    for number, step in enumerate(steps):
        at(hf(root, step), 900.0 + 10 * number)
    return FakeCluster(tmp_path, log or (lambda number: f"resuming from /mnt/ckpt/run/checkpoint-{max(steps)}"))


def suspended(tmp_path: Path, *steps: int, log: Any = None) -> FakeCluster:
    fake = cluster(tmp_path, *steps, log=log)
    fake.trainjobs["run"]["spec"]["suspend"] = True
    fake.pods = {}
    return fake


def test_stop(tmp_path: Path) -> None:
    fake = cluster(tmp_path, 100, 200)
    said: list[str] = []
    session = fake.session(said)
    done = stop(session)
    assert fake.trainjobs["run"]["spec"]["suspend"] is True
    assert fake.pods == {}
    assert done.newest is not None
    assert done.newest.step == 200
    # The script asks the pod's own clock, which is the test's; 3 s until the pod ends, and one poll at most.
    assert done.seconds <= 3.0 + 0.6
    assert "is suspended; go on with: ckptguard resume run -n team" in session.state
    assert fake.helpers == []
    again = stop(fake.session(said))
    assert again.seconds == 0.0
    assert any("suspended already" in line for line in said)


def test_stop_sees_the_flush(tmp_path: Path) -> None:
    fake = cluster(tmp_path, 100)
    fake.after(1.0, lambda: None)
    fake.on_pod_end = lambda: None
    fake.after(1.2, lambda: hf(tmp_path / "run", 107))
    done = stop(fake.session([]))
    assert done.newest is not None
    assert done.newest.step == 107


def test_stop_when_nobody_may_look(tmp_path: Path) -> None:
    fake = cluster(tmp_path, 100)
    fake.exec_refused = "Handshake status 403 Forbidden"
    done = stop(fake.session([]))
    assert done.newest is None
    assert "no right to exec" in done.note
    assert fake.helpers == []


@pytest.mark.parametrize(
    ("why", "said"),
    [
        ("hangs", "on node1, which answers: the kubelet has not ended them"),
        ("nodes may not be read", "on node1: a node that is out of reach keeps them until it is back or removed"),
        ("grace", "on node1: they have 3600 s to save and end (terminationGracePeriodSeconds)"),
    ],
)
def test_a_pod_that_does_not_end(tmp_path: Path, why: str, said: str) -> None:
    fake = cluster(tmp_path, 100)
    fake._end_pods = lambda: None  # type: ignore[method-assign]
    if why == "grace":
        next(iter(fake.pods.values()))["metadata"]["deletionGracePeriodSeconds"] = 3600
    elif why != "hangs":
        fake.refuse = lambda _, path, __: Answer(403, {"message": "no"}) if "/nodes/" in path else None
    session = fake.session([], timeout=30)
    with pytest.raises(CannotDo, match='1 pod of "run" is still there after 30 s') as late:
        stop(session)
    assert said in late.value.lines[0]
    assert len(late.value.lines) == 2
    assert "is being suspended" in session.state


def test_resume(tmp_path: Path) -> None:
    fake = suspended(tmp_path, 100, 200)
    done = resume(fake.session([]))
    assert (done.result, done.step) == ("resumed", 200)
    assert fake.trainjobs["run"]["spec"]["suspend"] is False


@pytest.mark.parametrize(
    ("log", "result", "why"),
    [
        ("no prior checkpoint, starting fresh", "afresh", "its log says so"),
        ("resuming from /mnt/ckpt/run/checkpoint-100", "failed", "200 was there and complete"),
    ],
)
def test_a_resume_that_is_none(tmp_path: Path, log: str, result: str, why: str) -> None:
    """The second took the newest in text order, say."""
    fake = suspended(tmp_path, 100, 200, log=lambda _: log)
    done = resume(fake.session([]))
    assert (done.result, done.why, done.good) == (result, why, False)


@pytest.mark.parametrize(("first", "result"), [(250, "resumed"), (50, "afresh")])
def test_a_silent_log_is_told_by_the_next_checkpoint(tmp_path: Path, first: int, result: str) -> None:
    fake = suspended(tmp_path, 100, 200, log=lambda _: "epoch 1 loss 0.3")
    fake.after(12.0, lambda: at(hf(tmp_path / "run", first), fake.time))
    done = resume(fake.session([]))
    assert done.result == result
    assert "its log is silent" in done.why


def test_a_checkpoint_that_was_faster_than_the_look_is_not_taken_for_an_older_one(tmp_path: Path) -> None:
    """The new pod has saved step 300 before anybody saw that it runs."""
    fake = suspended(tmp_path, 100, 200, log=lambda _: "resuming from /mnt/ckpt/run/checkpoint-200")
    fake.on_pod_start = lambda: (at(hf(tmp_path / "run", 300), fake.time + 0.1), None)[1]
    done = resume(fake.session([]))
    assert (done.result, done.step, done.before) == ("resumed", 200, 200)


@pytest.mark.parametrize("status", [{}, {"startTime": None}, {"startTime": "soon"}])
def test_a_pod_that_does_not_say_when_it_started(tmp_path: Path, status: dict[str, Any]) -> None:
    fake = suspended(tmp_path, 100, 200)

    def forget() -> None:
        for pod in fake.pods.values():
            pod["status"].pop("startTime")
            pod["status"].update(status)

    fake.on_pod_start = forget
    assert resume(fake.session([])).step == 200


def test_a_silent_log_and_nothing_else(tmp_path: Path) -> None:
    fake = suspended(tmp_path, 100, log=lambda _: "")
    session = fake.session([], timeout=30)
    with pytest.raises(CannotDo, match="is not known after 30 s"):
        resume(session)
    assert "goes on by itself" in session.state


def test_the_new_pod_fails(tmp_path: Path) -> None:
    fake = suspended(tmp_path, 100, log=lambda _: "ImportError: torch")

    def fail() -> None:
        for pod in fake.pods.values():
            pod["status"]["containerStatuses"] = [{"name": "node", "state": {"terminated": {"exitCode": 1}}}]

    fake.after(2.2, fail)
    done = resume(fake.session([]))
    assert (done.result, done.why) == ("failed", "the new pod ended with exit code 1: ImportError: torch")


def test_pods_that_never_come(tmp_path: Path) -> None:
    fake = suspended(tmp_path, 100)
    fake._suspend = lambda value: None  # type: ignore[method-assign]
    with pytest.raises(
        CannotDo, match=r"no new pod of .* after 60 s: JobSet has made no pod yet; the run is not suspend"
    ):
        resume(fake.session([]))


def test_from_step_and_undo(tmp_path: Path) -> None:
    fake = suspended(tmp_path, 100, 200, 300, log=lambda n: "resuming from checkpoint-" + ("200" if n == 1 else "300"))
    root = tmp_path / "run"
    at(write(root / "last.ckpt"), 920.0)
    done = resume(fake.session([]), from_step=200)
    assert (done.result, done.step) == ("resumed", 200)
    assert sorted(path.name for path in root.iterdir()) == [".set-aside", "checkpoint-100", "checkpoint-200"]
    # The run goes on, and writes a 250 and a 300 of its own.
    hf(root, 250)
    (hf(root, 300) / "new").touch()
    fake.trainjobs["run"]["spec"]["suspend"] = True
    fake.pods = {}
    said: list[str] = []
    done = resume(fake.session(said), undo=True)
    assert (done.result, done.step) == ("resumed", 300)
    assert not (root / "checkpoint-300" / "new").exists()
    assert sorted(path.name for path in root.iterdir()) == [
        *(".set-aside", "checkpoint-100", "checkpoint-200", "checkpoint-300", "last.ckpt")
    ]
    (aside,) = (root / ".set-aside").iterdir()
    assert sorted(path.name for path in (aside / "written").iterdir()) == ["checkpoint-250", "checkpoint-300"]
    assert any("set aside in turn" in line for line in said)
    fake.trainjobs["run"]["spec"]["suspend"] = True
    fake.pods = {}
    with pytest.raises(CannotDo, match="nothing is set aside"):
        resume(fake.session([]), undo=True)


def test_from_step_with_a_pointer_file(tmp_path: Path) -> None:
    fake = suspended(
        tmp_path, log=lambda n: f"loading checkpoint from /mnt/ckpt/run/global_step{100 if n == 1 else 200}"
    )
    root = tmp_path / "run"
    deepspeed(root, 100)
    deepspeed(root, 200)
    done = resume(fake.session([]), from_step=100)
    assert done.step == 100
    assert (root / "latest").read_text() == "global_step100"
    fake.trainjobs["run"]["spec"]["suspend"] = True
    fake.pods = {}
    assert resume(fake.session([]), undo=True).step == 200
    assert (root / "latest").read_text() == "global_step200"


def test_from_a_step_that_is_not_there_or_not_whole(tmp_path: Path) -> None:
    fake = suspended(tmp_path, 100, 200)
    hf(tmp_path / "run", 300, lacks="trainer_state.json")
    with pytest.raises(CannotDo, match=r"no checkpoint of step 150 .* there are 100, 200, 300"):
        resume(fake.session([]), from_step=150)
    with pytest.raises(CannotDo, match=r"step 300 \(checkpoint-300\) is incomplete: lacks trainer_state.json"):
        resume(fake.session([]), from_step=300)
    assert not (tmp_path / "run" / ".set-aside").exists()
    assert fake.trainjobs["run"]["spec"]["suspend"] is True
    # Half-written and newer: out of the way.
    assert resume(fake.session([]), from_step=200).good
    assert not (tmp_path / "run" / "checkpoint-300").exists()


def test_from_step_says_how_many_there_are(tmp_path: Path) -> None:
    """The last ten alone read as if they were all."""
    fake = suspended(tmp_path, *range(10, 1010, 10))
    with pytest.raises(CannotDo) as why:
        resume(fake.session([]), from_step=65)
    assert why.value.lines == (
        'there is no checkpoint of step 65 in "/mnt/ckpt/run": there are 100, from 10 to 1000; nearest: 50, 60, 70, 80',
        "  all of them: ckptguard checkpoints run -n team",
    )
    for wanted, near in ((1, "10, 20"), (5000, "990, 1000")):
        with pytest.raises(CannotDo, match=f"nearest: {near}\n"):
            resume(fake.session([]), from_step=wanted)


def test_from_step_of_a_run_that_is_under_way_or_over(tmp_path: Path) -> None:
    fake = cluster(tmp_path, 100)
    with pytest.raises(CannotDo, match="its program writes the directory now; first ckptguard stop run"):
        resume(fake.session([]), from_step=100)
    fake.trainjobs["run"]["status"] = {"conditions": [{"type": "Failed", "status": "True", "reason": "X"}]}
    with pytest.raises(CannotDo, match=r"has ended: Failed \(X\)"):
        resume(fake.session([]))
    with pytest.raises(CannotDo, match="nothing to stop"):
        stop(fake.session([]))


def test_two_runs_in_one_directory(tmp_path: Path) -> None:
    fake = suspended(tmp_path, 100)
    twin = fake.jobsets["run"] | {"metadata": {"name": "twin"}}
    env = [{"name": "CKPT_DIR", "value": "/mnt/ckpt/run"}]
    pod = twin["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    changed = {**pod, "containers": [{**pod["containers"][0], "env": env}]}
    fake.jobsets["twin"] = {
        **twin,
        "spec": {"replicatedJobs": [_with_pod(twin["spec"]["replicatedJobs"][0], changed)]},
    }
    fake.trainjobs["twin"] = trainjob("twin")
    said: list[str] = []
    with pytest.raises(CannotDo, match="is not this run's alone"):
        resume(fake.session(said), from_step=100)
    assert said[0].startswith('warning: "twin" keeps checkpoints in the same directory "/run" of claim "mine"')


def _with_pod(job: dict[str, Any], pod: dict[str, Any]) -> dict[str, Any]:
    template = job["template"]
    return {**job, "template": {**template, "spec": {"template": {"spec": pod}}}}


def test_a_drill(tmp_path: Path) -> None:
    fake = cluster(tmp_path, 100, 200)
    said: list[str] = []
    done = drill(fake.session(said))
    assert done.code == 0
    assert [step.outcome for step in done.steps] == ["passed"] * 5
    assert fake.made == 2, "one restart"
    recorded = fake.trainjobs["run"]["metadata"]["annotations"][LAST_DRILL]
    assert recorded == "resumed;step=200;at=1970-01-01T00:16:44Z"
    assert [call for call in fake.calls if call[0] == "POST"] == []


def test_a_drill_that_fails_and_one_that_cannot_be_done(tmp_path: Path) -> None:
    fake = cluster(tmp_path, 100, log=lambda _: "no checkpoint found, starting fresh")
    done = drill(fake.session([]))
    assert done.code == 1
    assert [step.outcome for step in done.steps] == ["passed", "passed", "passed", "passed", "failed"]
    assert fake.trainjobs["run"]["metadata"]["annotations"][LAST_DRILL].startswith("afresh;step=unknown;")


def test_a_drill_without_a_checkpoint(tmp_path: Path) -> None:
    fake = cluster(tmp_path)
    done = drill(fake.session([], timeout=20))
    assert done.code == 2
    assert [step.outcome for step in done.steps] == ["passed", "error", "-", "-", "-"]
    assert done.steps[1].words == "no complete checkpoint after 20 s: no checkpoint yet"
    assert fake.trainjobs["run"]["spec"]["suspend"] is False, "it was not interrupted for nothing"


def test_a_drill_waits_for_the_first_checkpoint(tmp_path: Path) -> None:
    fake = cluster(tmp_path, log=lambda _: "resuming from checkpoint-50")
    fake.after(10.0, lambda: hf(tmp_path / "run", 50))
    assert drill(fake.session([])).code == 0


def test_the_api_server_goes_away_and_comes_back(tmp_path: Path) -> None:
    fake = cluster(tmp_path, 100)
    fake.after(1.0, lambda: setattr(fake, "down_until", fake.time + 10))
    said: list[str] = []
    stop(fake.session(said))
    assert any("trying again" in line for line in said)
    assert fake.trainjobs["run"]["spec"]["suspend"] is True


@pytest.mark.parametrize("code", [429, 502, 503, 504])
def test_an_api_server_that_has_just_begun_is_asked_again(tmp_path: Path, code: int) -> None:
    """It answers before it knows all of its paths."""
    fake = cluster(tmp_path, 100)
    began = Answer(code, {"message": "the request has been made before all known HTTP paths have been installed"})

    def begin() -> None:
        until = fake.time + 10
        fake.refuse = lambda *_: began if fake.time < until else None

    fake.after(1.0, begin)
    said: list[str] = []
    done = drill(fake.session(said))
    assert done.code == 0
    assert sum("cannot answer now: the request has been made" in line for line in said) == 1


def test_an_api_server_that_never_gets_ready(tmp_path: Path) -> None:
    fake = cluster(tmp_path, 100)
    fake.after(1.0, lambda: setattr(fake, "refuse", lambda *_: Answer(503, {"message": "not yet"})))
    session = fake.session([])
    with pytest.raises(CannotDo, match="not yet"):
        stop(session)
    assert fake.time > 1000 + 20
    assert "is being suspended; go on with: ckptguard resume run" in session.state


def test_the_api_server_goes_away_for_good(tmp_path: Path) -> None:
    fake = cluster(tmp_path, 100)
    fake.after(1.0, lambda: setattr(fake, "down_until", 1e9))
    session = fake.session([])
    with pytest.raises(Unreachable):
        stop(session)
    assert "is being suspended; go on with: ckptguard resume run" in session.state


def test_a_run_that_is_made_anew_meanwhile(tmp_path: Path) -> None:
    fake = cluster(tmp_path, 100)
    fake.after(1.0, lambda: fake.trainjobs["run"]["metadata"].update(uid="other"))
    with pytest.raises(CannotDo, match="deleted and created again meanwhile"):
        stop(fake.session([]))


def test_no_such_run(tmp_path: Path) -> None:
    fake = cluster(tmp_path)
    session = fake.session([])
    session.name = "rum"
    with pytest.raises(CannotDo, match='there is no TrainJob "rum" in namespace "team"; nearest: run'):
        stop(session)


def test_delete(tmp_path: Path) -> None:
    fake = cluster(tmp_path, 100)
    done = delete(fake.session([]), with_data=False)
    assert "run" not in fake.trainjobs
    assert done.directory is not None
    assert (done.directory.claim, done.directory.on_claim, done.lost) == ("mine", "/run", ())


@pytest.mark.parametrize("state", ["running", "suspended", "failed", "queued", "being deleted in the foreground"])
def test_delete_waits_until_nothing_of_the_run_is_left(tmp_path: Path, state: str) -> None:
    """In the foreground Trainer makes a new JobSet each second, so it has to be in the background, and waited for."""
    fake = cluster(tmp_path, 100)
    one = fake.trainjobs["run"]
    if state != "running":
        fake.pods = {}
    if state in ("suspended", "queued"):
        one["spec"]["suspend"] = True
    if state == "queued":
        one["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": "q"}
    if state == "failed":
        one["status"] = {"conditions": [{"type": "Failed", "status": "True"}]}
        fake.start_pod()
        next(iter(fake.pods.values()))["status"]["phase"] = "Failed"
    if state == "being deleted in the foreground":
        fake.request("DELETE", "/apis/x/namespaces/team/trainjobs/run", {"propagationPolicy": "Foreground"})
    session = fake.session([])
    done = delete(session, with_data=False)
    assert (fake.trainjobs, fake.jobsets, fake.pods) == ({}, {}, {})
    assert done.seconds <= 3.7 + 0.6
    assert session.state == 'run "run" is deleted'


def test_delete_takes_no_run_that_has_the_name_meanwhile(tmp_path: Path) -> None:
    fake = cluster(tmp_path, 100)
    read = fake.request

    def swap(method: str, path: str, *rest: Any) -> Answer:
        if method == "DELETE":
            fake.trainjobs["run"]["metadata"]["uid"] = "another"
        return read(method, path, *rest)

    fake.request = swap  # type: ignore[assignment, method-assign]
    with pytest.raises(CannotDo, match="was deleted and created again meanwhile"):
        delete(fake.session([]), with_data=False)
    assert "run" in fake.trainjobs


def test_a_new_run_of_the_same_name_is_not_waited_for(tmp_path: Path) -> None:
    fake = cluster(tmp_path, 100)

    def create() -> None:
        fake.trainjobs["run"] = trainjob() | {"metadata": {"name": "run", "namespace": "team", "uid": "second"}}
        fake.jobsets["run"] = jobset() | {
            "metadata": {"name": "run", "uid": "2", "ownerReferences": [{"uid": "second"}]}
        }
        fake.start_pod()

    fake.after(5.0, create)
    collect = fake.collect
    fake.collect = lambda name: None  # type: ignore[method-assign]
    fake.after(4.0, lambda: collect("run"))
    delete(fake.session([]), with_data=False)
    assert fake.trainjobs["run"]["metadata"]["uid"] == "second"
    assert len(fake.pods) == 1


@pytest.mark.parametrize(
    ("what", "said"),
    [
        (
            "finalizer",
            'TrainJob "run" is still there after 30 s: it is held by finalizer example.com/keep, and goes when',
        ),
        (
            "collector",
            'JobSet "run" is still there after 30 s: the garbage collector of the control plane has not come',
        ),
        ("grace", "they have 3600 s to save and end (terminationGracePeriodSeconds): wait, or --timeout 3660s"),
        ("node", "kubectl taint node node1 node.kubernetes.io/out-of-service=nodeshutdown:NoExecute"),
    ],
)
def test_what_delete_advises_after_its_time(tmp_path: Path, what: str, said: str) -> None:
    fake = cluster(tmp_path, 100)
    if what == "finalizer":
        fake.trainjobs["run"]["metadata"]["finalizers"] = ["example.com/keep"]
    elif what == "collector":
        fake.collect = lambda name: None  # type: ignore[method-assign]
    elif what == "node":
        fake.lose_node()
    else:
        fake._end_pods = lambda: None  # type: ignore[method-assign]
        for pod in fake.pods.values():
            pod["metadata"]["deletionGracePeriodSeconds"] = 3600
    session = fake.session([], timeout=30)
    with pytest.raises(CannotDo) as late:
        delete(session, with_data=False)
    assert any(said in line for line in late.value.lines), late.value.lines
    assert all("\n" not in line for line in late.value.lines)
    if what in ("grace", "node"):
        assert session.state == 'TrainJob and JobSet of "run" are deleted, 1 pod is still ending'


def test_delete_where_jobsets_may_not_be_read_says_what_it_did_not_see(tmp_path: Path) -> None:
    fake = cluster(tmp_path, 100)
    fake.refuse = lambda _, path, __: Answer(403, {"message": "forbidden"}) if "/jobsets" in path else None
    assert delete(fake.session([]), with_data=True).unseen == "whether its JobSet is gone could not be seen: forbidden"


def test_delete_would_take_the_claim(tmp_path: Path) -> None:
    fake = cluster(tmp_path, 100)
    template = {"metadata": {"name": "ckpt"}}
    fake.jobsets["run"]["spec"]["volumeClaimPolicies"] = [{"templates": [template]}]
    with pytest.raises(CannotDo, match=r'claim "ckpt-run" belongs to the run .* --with-data'):
        delete(fake.session([]), with_data=False)
    assert "run" in fake.trainjobs
    assert delete(fake.session([]), with_data=True).lost == ("ckpt-run",)


def test_delete_does_not_go_on_where_it_cannot_see_what_goes_too(tmp_path: Path) -> None:
    fake = cluster(tmp_path, 100)
    fake.refuse = lambda _, path, __: Answer(403, {"message": "forbidden"}) if "/jobsets" in path else None
    with pytest.raises(CannotDo, match=r"JobSet cannot be read .*get jobsets -n team\): forbidden; with --with-data"):
        delete(fake.session([]), with_data=False)
    assert "run" in fake.trainjobs
    delete(fake.session([]), with_data=True)
    assert "run" not in fake.trainjobs


def test_delete_says_what_is_left_by_what_lies_under_the_directory(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = {
        "persistentVolumeClaim": ({"claimName": "gone"}, 'claim "gone", where it kept its checkpoints, does not exist'),
        "nfs": ({"server": "s", "path": "/"}, 'stay where they are: "/mnt/ckpt/run" of its pods, on volume v (nfs)'),
        "hostPath": ({"path": "/x"}, 'stay where they are: "/mnt/ckpt/run" of its pods, on volume v (hostPath)'),
        "emptyDir": ({}, "nothing is left of them"),
    }
    fake = cluster(tmp_path, 100)
    pod = fake.jobsets["run"]["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    kept, jobsets = dict(fake.trainjobs), dict(fake.jobsets)
    for source, (body, said) in words.items():
        fake.trainjobs.update(kept)
        fake.jobsets.update(jobsets)
        pod["volumes"] = [{"name": "v", source: body}]
        assert say_deleted(fake.session([]), Namespace(with_data=False, output="text")) == 0
        assert said in capsys.readouterr().out
    fake.trainjobs.update(kept)
    fake.jobsets.update(jobsets)
    pod["containers"][0]["env"] = []
    assert say_deleted(fake.session([]), Namespace(with_data=False, output="text")) == 0
    assert "where it kept its checkpoints is not known" in capsys.readouterr().out


@pytest.mark.parametrize("code", [403, 500, 503])
def test_delete_does_not_call_gone_what_it_cannot_see(tmp_path: Path, code: int) -> None:
    fake = cluster(tmp_path, 100)
    deleted: list[str] = []

    def refuse(method: str, path: str, body: Any) -> Answer | None:
        if method == "DELETE":
            deleted.append(path)
        return Answer(code, {"message": "no"}) if deleted and method == "GET" else None

    fake.refuse = refuse
    session = fake.session([])
    with pytest.raises(CannotDo, match='whether "run" is gone by now is not known: no'):
        delete(session, with_data=False)
    assert "is being deleted" in session.state


def test_delete_of_a_run_that_has_no_jobset_yet(tmp_path: Path) -> None:
    fake = cluster(tmp_path)
    fake.jobsets, fake.pods = {}, {}
    delete(fake.session([]), with_data=False)
    assert "run" not in fake.trainjobs


def test_it_says_that_others_may_share_the_directory_where_it_cannot_look(tmp_path: Path) -> None:
    fake = suspended(tmp_path, 100, 200, log=lambda _: "resuming from /mnt/ckpt/run/checkpoint-100")
    fake.refuse = lambda _, path, __: Answer(403, {"message": "forbidden"}) if path.endswith("/jobsets") else None
    said: list[str] = []
    assert resume(fake.session(said), from_step=100).good
    assert any("whether another run keeps its checkpoints there too is not known" in line for line in said)


def test_it_may_not_be_suspended(tmp_path: Path) -> None:
    fake = cluster(tmp_path, 100)
    fake.refuse = lambda method, path, body: Answer(403, {"message": "forbidden"}) if method == "PATCH" else None
    with pytest.raises(
        CannotDo, match=r"cannot be suspended \(kubectl auth can-i patch trainjobs -n team\): forbidden"
    ):
        stop(fake.session([]))


@pytest.mark.parametrize("act", [stop, resume, partial(delete, with_data=False)])
def test_what_is_refused_leaves_nothing_to_go_on_with(tmp_path: Path, act: Callable[[Session], object]) -> None:
    fake = suspended(tmp_path, 100) if act is resume else cluster(tmp_path, 100)
    fake.refuse = lambda method, *_: Answer(403, {"message": "forbidden"}) if method in ("PATCH", "DELETE") else None
    session = fake.session([])
    with pytest.raises(CannotDo, match="forbidden"):
        act(session)
    assert session.state == 'run "run" was not changed'


def test_a_run_in_a_queue_is_stopped_by_its_workload(tmp_path: Path) -> None:
    """Kueue would start it again at once if `suspend` alone were set."""
    fake = cluster(tmp_path, 100)
    fake.trainjobs["run"]["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": "q"}
    workload: dict[str, Any] = {
        "metadata": {"name": "trainjob-run-1", "ownerReferences": [{"uid": "uid-run"}]},
        "spec": {"active": True},
    }

    def kueue(method: str, path: str, body: Any) -> Answer | None:
        if "kueue.x-k8s.io/v1beta2" not in path:
            return None
        if method == "PATCH":
            assert path.endswith("/workloads/trainjob-run-1")
            workload["spec"].update(body["spec"])
            fake.trainjobs["run"]["spec"]["suspend"] = not workload["spec"]["active"]
            fake._suspend(not workload["spec"]["active"])
        return Answer(200, {"items": [workload]} if path.endswith("/workloads") else workload)

    fake.refuse = kueue
    stop(fake.session([]))
    assert workload["spec"]["active"] is False
    assert resume(fake.session([])).step == 100
    assert workload["spec"]["active"] is True
    assert not any(method == "PATCH" and path.endswith("/trainjobs/run") for method, path in fake.calls), (
        "what Kueue decides is left to it"
    )
