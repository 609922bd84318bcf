"""`ckptguard prune`: what stays whatever happens, what goes, and how it ends when something is in the way."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from argparse import Namespace
from pathlib import Path
from typing import Any

import pytest

from tests.runs.fake_cluster import NAMESPACE, FakeCluster, Object, jobset
from tests.runs.folders import dcp, deepspeed, hf, listing, megatron, write
from tests.runs.test_actions import at
from webhook.cli import prune as command
from webhook.runs.api import Answer
from webhook.runs.layouts import find_saved
from webhook.runs.listing import REMOVING
from webhook.runs.prune import Part, Pruned, carry_out, choose, plan
from webhook.runs.run import CannotDo
from webhook.runs.sweep import look_command, parse_look, parse_outcome, remove_command


def cluster(tmp_path: Path, *steps: int, suspended: bool = True) -> FakeCluster:
    root = tmp_path / "run"
    root.mkdir()
    for number, step in enumerate(steps):
        at(hf(root, step), 900.0 + 10 * number)
    fake = FakeCluster(tmp_path)
    if suspended:
        fake.trainjobs["run"]["spec"]["suspend"] = True
        fake.pods = {}
    return fake


def chosen(root: Path, keep: int = 1, **names: str) -> dict[str, Part]:
    seen = listing(root)
    return {part.path: part for part in choose(find_saved(seen), seen, names, "/mnt/ckpt/run", keep)}


def going(root: Path, keep: int = 1, **names: str) -> list[str]:
    return [path for path, part in chosen(root, keep, **names).items() if part.remove]


def prune(fake: FakeCluster, keep: int = 1) -> dict[str, Pruned]:
    session = fake.session([])
    return {one.part.path: one for one in carry_out(session, plan(session, keep))}


def there(root: Path) -> list[str]:
    return sorted(path.name for path in root.iterdir())


# -- what goes and what stays ------------------------------------------------------------------------------------


def test_the_newest_complete_ones_stay(tmp_path: Path) -> None:
    for number, step in enumerate((100, 200, 300, 400, 500)):
        at(hf(tmp_path, step), 1000.0 + number)
    hf(tmp_path, 600, lacks="optimizer.pt")
    parts = chosen(tmp_path, keep=2)
    assert {path: part.remove for path, part in parts.items()} == {
        "checkpoint-100": True,
        "checkpoint-200": True,
        "checkpoint-300": True,
        "checkpoint-400": False,
        "checkpoint-500": False,
        "checkpoint-600": False,
    }
    assert parts["checkpoint-300"].reason == "older than the 2 newest complete ones"
    assert parts["checkpoint-400"].reason == "one of the 2 newest complete ones"
    assert parts["checkpoint-500"].reason == "the newest complete one"


def test_what_is_not_known_to_be_complete_stays(tmp_path: Path) -> None:
    for step in (10, 20, 30):
        write(tmp_path / f"step_{step}.pt")
        write(tmp_path / f"model_step_{step}" / "weights.bin")
    assert going(tmp_path) == []
    assert {part.reason for part in chosen(tmp_path).values() if not part.remove} >= {
        "whether it is complete is not known"
    }


def test_an_incomplete_one_may_be_an_export(tmp_path: Path) -> None:
    hf(tmp_path, 100, lacks="optimizer.pt")  # save_only_model, or an export by hand
    hf(tmp_path, 150, lacks="trainer_state.json")
    hf(tmp_path, 200)
    assert going(tmp_path) == []


def test_what_a_writer_left_half_written_goes_where_it_is_older(tmp_path: Path) -> None:
    for step in (100, 300):
        at(hf(tmp_path, step).rename(tmp_path / f"tmp-checkpoint-{step}"), 900.0)
    at(hf(tmp_path, 200), 1000.0)
    assert going(tmp_path) == ["tmp-checkpoint-100"]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("latest", "checkpoint-100"),
        ("latest", "checkpoint-100\n"),
        ("latest.txt", "/old/place/checkpoint-100"),
        ("last_checkpoint", '{"path": "checkpoint-100"}'),
        ("best", "/mnt/ckpt/run/checkpoint-100/"),
        ("latest_checkpointed_iteration.txt", "100"),
        ("checkpoint", 'model_checkpoint_path: "checkpoint-100"'),
    ],
)
def test_what_a_file_names_stays(tmp_path: Path, name: str, text: str) -> None:
    for step in (100, 200, 300):
        hf(tmp_path, step)
    write(tmp_path / name, text.encode())
    _, names = looked(tmp_path)
    assert going(tmp_path, **names) == ["checkpoint-200"]


def test_the_best_one_by_the_trainers_state_stays(tmp_path: Path) -> None:
    """`load_best_model_at_end` reads it when the run comes to its end."""
    for step in (100, 200, 300):
        hf(tmp_path, step)
    state = {"best_model_checkpoint": "/mnt/ckpt/run/checkpoint-100", "log_history": [{"step": 1}] * 500}
    write(tmp_path / "checkpoint-300" / "trainer_state.json", json.dumps(state).encode())
    _, names = looked(tmp_path)
    assert going(tmp_path, **names) == ["checkpoint-200"]


@pytest.mark.parametrize(
    "target",
    [
        "checkpoint-100",
        "./checkpoint-100",
        "/mnt/ckpt/run/checkpoint-100",
        "../run/checkpoint-100",
        "checkpoint-100/model.safetensors",
        "/somewhere/else/checkpoint-100",
    ],
)
def test_what_a_link_names_stays(tmp_path: Path, target: str) -> None:
    for step in (100, 200, 300):
        hf(tmp_path, step)
    (tmp_path / "best").symlink_to(target)
    assert going(tmp_path) == ["checkpoint-200"]
    assert chosen(tmp_path)["checkpoint-100"].reason == "named by link best"


def test_what_is_set_aside_stays(tmp_path: Path) -> None:
    for step in (100, 200):
        hf(tmp_path, step)
    shutil.copytree(tmp_path / "checkpoint-100", tmp_path / ".set-aside" / "t" / "moved" / "checkpoint-300")
    parts = chosen(tmp_path)
    assert [path for path, part in parts.items() if part.remove] == ["checkpoint-100"]
    assert parts[".set-aside"].reason.startswith("set aside")


def test_copies_under_a_name_of_somebodys_own_stay(tmp_path: Path) -> None:
    for step in (100, 200):
        at(dcp(tmp_path, step), 1000.0 + step)
        at(dcp(tmp_path, step).rename(tmp_path / f"good_step_{step}"), 900.0)
        at(dcp(tmp_path, step), 1000.0 + step)
    assert going(tmp_path) == ["step_100"]


def test_a_run_that_began_again_keeps_its_newest_by_time_too(tmp_path: Path) -> None:
    for number, step in enumerate((1000, 2000, 3000, 100, 200)):
        at(hf(tmp_path, step), 1000.0 + number)
    assert going(tmp_path, keep=2) == ["checkpoint-1000"]
    assert going(tmp_path, keep=1) == ["checkpoint-100", "checkpoint-1000", "checkpoint-2000"]


def test_a_step_of_several_ranks_is_one(tmp_path: Path) -> None:
    for step in (100, 200, 300):
        for rank in (0, 1):
            if (step, rank) != (300, 1):
                hf(tmp_path / f"rank_{rank}", step)
    parts = chosen(tmp_path)
    assert [path for path, part in parts.items() if part.remove] == ["rank_*/checkpoint-100"]
    assert parts["rank_*/checkpoint-200"].reason == "the newest complete one"
    assert parts["rank_0/checkpoint-300"].complete is False
    assert parts["rank_*/checkpoint-100"].size == 2 * parts["rank_0/checkpoint-300"].size


def test_shards_of_deepspeed_and_megatron_are_one_step(tmp_path: Path) -> None:
    for step in (10, 20, 30):
        at(deepspeed(tmp_path / "d", step), 1000.0 + step)
        at(megatron(tmp_path / "m", step), 1000.0 + step)
    assert sorted(going(tmp_path / "d")) == ["global_step10", "global_step20"]
    assert sorted(going(tmp_path / "m")) == ["iter_0000010", "iter_0000020"]


def test_a_lost_pointer_leaves_all_of_deepspeeds(tmp_path: Path) -> None:
    for step in (10, 20, 30):
        deepspeed(tmp_path, step, latest=False)
    assert going(tmp_path) == []


@pytest.mark.parametrize(
    "name", ["step_1\n00", "step_1\t00", "step_1?00", "step_1\\00", "step_\x1b[2J100", "step_\u202e100"]
)
def test_names_that_are_not_shown_as_they_are_stay(tmp_path: Path, name: str) -> None:
    dcp(tmp_path, 100).rename(tmp_path / name)
    at(dcp(tmp_path, 900), 9000.0)
    assert going(tmp_path) == []


def test_what_lies_in_another_folder_stays(tmp_path: Path) -> None:
    """The directory is a claim's root, say, and other runs have theirs below it."""
    for step in (100, 200):
        at(hf(tmp_path, step), 900.0 + step)
        at(hf(tmp_path / "other", step), 5000.0 + step)
    assert going(tmp_path) == ["checkpoint-100"]
    shutil.rmtree(tmp_path / "checkpoint-100")
    shutil.rmtree(tmp_path / "checkpoint-200")
    at(hf(tmp_path / "older", 100), 900.0)
    at(hf(tmp_path / "older", 200), 901.0)
    assert going(tmp_path) == ["other/checkpoint-100"]


# -- the script ----------------------------------------------------------------------------------------------------


def script(words: list[str]) -> str:
    done = subprocess.run(words, capture_output=True, check=False, timeout=60)
    return done.stdout.decode(errors="replace")


def looked(root: Path, mount: Path | None = None) -> tuple[list[int], dict[str, Any]]:
    mount = mount or root.parent
    return parse_look(script(look_command(str(mount), root.relative_to(mount).parts)))


def sweep(mount: Path, parts: list[str], *groups: list[str], state: list[int] | None = None) -> Any:
    state = state or looked(mount.joinpath(*parts), mount)[0]
    return parse_outcome(script(remove_command(str(mount), parts, state, groups, "abc")))


def test_links_are_never_followed(tmp_path: Path) -> None:
    root = tmp_path / "claim" / "run"
    precious = write(tmp_path / "claim" / "other" / "checkpoint-1" / "model.pt").parent
    folder = hf(root, 100)
    (folder / "out").symlink_to(precious)
    (folder / "up").symlink_to("../..")
    (root / "checkpoint-200").symlink_to(precious)
    (root / "within").symlink_to(precious.parent)
    done = sweep(
        tmp_path / "claim",
        ["run"],
        ["checkpoint-100"],
        ["checkpoint-200"],
        ["within/checkpoint-1"],
        ["../other/checkpoint-1"],
        ["./checkpoint-100"],
        [".."],
        ["."],
        [""],
        ["checkpoint-100/.."],
    )
    assert done.gone == {0}
    assert len(done.kept) == 8
    assert (precious / "model.pt").read_bytes() == b"content"
    assert there(root) == ["checkpoint-200", "within"]
    assert there(tmp_path / "claim") == ["other", "run"]


def test_a_link_on_the_way_is_refused(tmp_path: Path) -> None:
    hf(tmp_path / "other", 100)
    (tmp_path / "run").symlink_to("other")
    text = script(look_command(str(tmp_path), ["run"]))
    assert "no link is followed" in str(parse_outcome(text).failed)


def test_nothing_goes_once_something_has_changed(tmp_path: Path) -> None:
    root = tmp_path / "run"
    hf(root, 100)
    state, _ = looked(root)
    write(root / "checkpoint-200" / "model.pt")
    done = sweep(tmp_path, ["run"], ["checkpoint-100"], state=state)
    assert "is not as it was" in done.failed
    assert there(root) == ["checkpoint-100", "checkpoint-200"]


def test_what_cannot_be_removed_stays_whole(tmp_path: Path) -> None:
    if os.geteuid() == 0:
        pytest.skip("root may remove everything")
    root = tmp_path / "run"
    folder = hf(root, 100)
    write(folder / "inner" / "file")
    (folder / "inner").chmod(0o500)
    done = sweep(tmp_path, ["run"], ["checkpoint-100"])
    assert done.kept == {0: "that user may not remove what is in it"}
    assert there(root) == ["checkpoint-100"]


def test_a_group_goes_as_one_or_not_at_all(tmp_path: Path) -> None:
    for rank in (0, 1):
        hf(tmp_path / "run" / f"rank_{rank}", 100)
    group = ["rank_0/checkpoint-100", "rank_1/checkpoint-100"]
    assert sweep(tmp_path, ["run"], [*group, "rank_2/checkpoint-100"]).gone == set()
    assert all((tmp_path / "run" / path).is_dir() for path in group)
    assert sweep(tmp_path, ["run"], group).gone == {0}


def test_what_an_ended_prune_left_goes(tmp_path: Path) -> None:
    root = tmp_path / "run"
    for step in (100, 200):
        hf(root, step)
    (root / "checkpoint-100").rename(root / f"{REMOVING}abca")
    parts = chosen(root, 3)
    assert [path for path, part in parts.items() if part.remove] == [f"{REMOVING}abca"]
    assert sweep(tmp_path, ["run"], [f"{REMOVING}abca"]).gone == {0}
    assert there(root) == ["checkpoint-200"]


def test_names_given_meanwhile_tell_no_step(tmp_path: Path) -> None:
    """Who looks for numbers in names must not find one in what is being removed."""
    root = tmp_path / "run"
    write(root / "step_100" / ".metadata")
    write(root / "step_100" / "x.distcp")
    words = remove_command(str(tmp_path), ["run"], looked(root)[0], [["step_100"]], "abc")
    words[4] = words[4].replace("def erase(fd, name):", "def erase(fd, name):\n    print('AS', name)")
    text = script(words)
    first = next(line for line in text.splitlines() if line.startswith("AS "))
    assert first == f"AS {REMOVING}abca"
    assert not any(letter.isdigit() for letter in first)


# -- the command ---------------------------------------------------------------------------------------------------


def test_prune(tmp_path: Path) -> None:
    fake = cluster(tmp_path, 100, 200, 300)
    done = prune(fake)
    assert {path: one.removed for path, one in done.items()} == {
        "checkpoint-100": True,
        "checkpoint-200": True,
        "checkpoint-300": False,
    }
    assert there(tmp_path / "run") == ["checkpoint-300"]
    assert done["checkpoint-100"].as_json() == {
        "path": "checkpoint-100",
        "step": 100,
        "complete": True,
        "bytes": done["checkpoint-100"].part.size,
        "removed": True,
        "reason": "older than the newest complete one",
    }
    # Looked with the claim read-only, removed with the run's own image and user.
    first, second = (pod["spec"] for pod in fake.helpers)
    assert first["volumes"][0]["persistentVolumeClaim"]["readOnly"] is True
    assert second["volumes"][0]["persistentVolumeClaim"]["readOnly"] is False
    assert second["activeDeadlineSeconds"] > 3600
    assert fake.pods == {}


def test_it_refuses_while_a_pod_writes(tmp_path: Path) -> None:
    fake = cluster(tmp_path, 100, 200, suspended=False)
    with pytest.raises(CannotDo, match="its program writes the directory; first ckptguard stop run"):
        plan(fake.session([]), 1)
    fake.trainjobs["run"]["spec"]["suspend"] = True
    with pytest.raises(CannotDo, match=r'1 pod of "run" may still write'):
        plan(fake.session([]), 1)
    assert fake.helpers == []


def other_pod(volume: Object | None = None, mount: Object | None = None, **labels: str) -> Object:
    spec = {
        "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "mine", **(volume or {})}}],
        "containers": [{"name": "c", "volumeMounts": [{"name": "v", "mountPath": "/x", **(mount or {})}]}],
    }
    return {
        "metadata": {"name": "other", "namespace": NAMESPACE, "labels": labels},
        "spec": spec,
        "status": {"phase": "Running"},
    }


JOB: dict[str, Any] = {"batch.kubernetes.io/job-name": "j"}


@pytest.mark.parametrize(
    ("pod", "refused"),
    [
        (other_pod(**JOB), True),
        (other_pod(mount={"subPath": "run"}, **JOB), True),
        (other_pod(mount={"subPath": "run/checkpoint-100"}, **JOB), True),
        (other_pod(mount={"subPathExpr": "$(X)"}, **JOB), True),
        (other_pod(mount={"subPath": "elsewhere"}, **JOB), False),
        (other_pod(mount={"readOnly": True}, **JOB), False),
        (other_pod(volume={"readOnly": True}, **JOB), False),
    ],
)
def test_the_pods_of_another_workload(tmp_path: Path, pod: Object, refused: bool) -> None:
    fake = cluster(tmp_path, 100, 200)
    fake.pods["other"] = pod
    said: list[str] = []
    if refused:
        with pytest.raises(CannotDo, match=r'pod "other" has the directory mounted too'):
            plan(fake.session(said), 1)
    else:
        assert plan(fake.session(said), 1).to_remove()
        assert said == []


def test_a_pod_of_a_persons_own_is_warned_about(tmp_path: Path) -> None:
    fake = cluster(tmp_path, 100, 200)
    fake.pods["other"] = other_pod()
    said: list[str] = []
    assert plan(fake.session(said), 1).to_remove()
    assert said == ['warning: pod "other" has the directory mounted too; nothing is removed if anything changes there']


def test_a_run_that_is_started_between_plan_and_removal(tmp_path: Path) -> None:
    fake = cluster(tmp_path, 100, 200)
    session = fake.session([])
    made = plan(session, 1)
    fake.trainjobs["run"]["spec"]["suspend"] = False
    with pytest.raises(CannotDo, match="its program writes the directory"):
        carry_out(session, made)
    assert there(tmp_path / "run") == ["checkpoint-100", "checkpoint-200"]


def slow(fake: FakeCluster, during: Any) -> list[str]:
    """The removal takes a while: its pod runs, `during` happens, and it says what it has removed."""
    asked: list[str] = []
    ended: list[str] = []

    def refuse(method: str, path: str, body: Any) -> Answer | None:
        name = path.rpartition("/pods/")[2].removesuffix("/log")
        pod = fake.pods.get(name)
        if pod is None or not pod.get("slow"):
            if method == "POST" and "remove" in body["spec"]["containers"][0]["command"]:
                fake.refuse = lambda *_: None
                answer = fake.request(method, path, None, body)
                fake.refuse = refuse
                fake.pods[body["metadata"]["name"]] |= {"slow": True, "status": {"phase": "Running"}}
                return answer
            return None
        if method == "DELETE" and not ended:
            ended.append(name)
            return Answer(200)
        if path.endswith("/log"):
            return Answer(200, {"message": "TAKEN 0\nGONE 0\n" + ("TAKEN 1\nSTOPPED\n" if ended else "")})
        if method == "GET":
            asked.append(name)
            if len(asked) == 2:
                during()
        return None

    fake.refuse = refuse
    real = fake.text

    def text(path: str, params: Any = None) -> tuple[int, str]:
        answer = refuse("GET", path, None) if path.endswith("/log") else None
        return (200, answer.message) if answer is not None else real(path, params)

    fake.text = text  # type: ignore[method-assign]
    return ended


def test_a_run_that_is_started_meanwhile_ends_the_removal(tmp_path: Path) -> None:
    fake = cluster(tmp_path, 100, 200, 300)
    session = fake.session([])
    made = plan(session, 1)
    ended = slow(fake, fake.start_pod)
    with pytest.raises(CannotDo, match="was started by somebody meanwhile"):
        carry_out(session, made)
    assert ended
    assert session.state.startswith("removed: checkpoint-100, checkpoint-200; of the last a part may be left")


def test_ctrl_c_says_what_was_removed(tmp_path: Path) -> None:
    fake = cluster(tmp_path, 100, 200, 300)
    session = fake.session([])
    made = plan(session, 1)

    def interrupt() -> None:
        raise KeyboardInterrupt

    slow(fake, interrupt)
    with pytest.raises(KeyboardInterrupt):
        carry_out(session, made)
    assert session.state.startswith("removed: checkpoint-100, checkpoint-200; of the last")
    assert fake.pods == {}


def test_two_prunes_at_once(tmp_path: Path) -> None:
    fake = cluster(tmp_path, 100, 200, 300)
    one, two = fake.session([]), fake.session([])
    first, second = plan(one, 1), plan(two, 1)
    assert sum(done.removed for done in carry_out(one, first)) == 2
    with pytest.raises(CannotDo, match="another prune is at work"):
        carry_out(two, second)
    assert there(tmp_path / "run") == ["checkpoint-300"]


def test_a_directory_of_two_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = cluster(tmp_path, 100, 200)
    session = fake.session([])
    monkeypatch.setattr(session, "warn_shared", lambda *_: ["other"])
    with pytest.raises(CannotDo, match="is not this run's alone"):
        plan(session, 1)


@pytest.mark.parametrize(
    ("theirs", "refused"), [("/mnt/ckpt", True), ("/mnt/ckpt/run/b", True), ("/mnt/ckpt/b", False)]
)
def test_a_run_above_or_below(tmp_path: Path, theirs: str, refused: bool) -> None:
    fake = cluster(tmp_path, 100, 200)
    other = jobset("other")
    container = other["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]["containers"][0]
    container["env"] = [{"name": "CKPT_DIR", "value": theirs}]
    fake.jobsets["other"] = other
    if refused:
        with pytest.raises(CannotDo, match='run "other" keeps its checkpoints above or below'):
            plan(fake.session([]), 1)
        assert fake.helpers == []
    else:
        assert plan(fake.session([]), 1).to_remove()


def arguments(**given: Any) -> Namespace:
    return Namespace(**{"keep": 1, "dry_run": False, "yes": True, "output": "text", **given})


def test_the_plan_is_shown_first(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fake = cluster(tmp_path, 100, 200)
    assert command._prune(fake.session([]), arguments()) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == 'run: "/mnt/ckpt/run" on claim "mine"'
    assert lines[2].split()[:2] == ["remove", "100"]
    assert lines[3].split()[:2] == ["keep", "200"]
    assert lines[-1].startswith("removed 1 of 1, ")


def test_a_dry_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fake = cluster(tmp_path, 100, 200)
    assert command._prune(fake.session([]), arguments(dry_run=True, yes=False, output="json")) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["schema"] == 1
    assert [one["removed"] for one in document["results"]] == [False, False]
    assert document["results"][0]["reason"] == "would be removed: older than the newest complete one"
    assert there(tmp_path / "run") == ["checkpoint-100", "checkpoint-200"]
    assert command._prune(fake.session([]), arguments(dry_run=True, keep=2)) == 1


def test_without_a_terminal_yes_is_demanded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = cluster(tmp_path, 100, 200)
    monkeypatch.setattr("sys.stdin.isatty", lambda: False)
    with pytest.raises(CannotDo, match="say --yes"):
        command._prune(fake.session([]), arguments(yes=False))
    assert there(tmp_path / "run") == ["checkpoint-100", "checkpoint-200"]


@pytest.mark.parametrize("said", ["", "n\n", "no\n", "yep\n"])
def test_whoever_does_not_say_yes_keeps_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str) -> None:
    fake = cluster(tmp_path, 100, 200)
    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    monkeypatch.setattr("sys.stdin.readline", lambda: said)
    assert command._prune(fake.session([]), arguments(yes=False)) == 1
    assert there(tmp_path / "run") == ["checkpoint-100", "checkpoint-200"]


def test_nothing_to_remove(tmp_path: Path) -> None:
    fake = cluster(tmp_path, 100)
    assert command._prune(fake.session([]), arguments()) == 1
    assert len(fake.helpers) == 1
