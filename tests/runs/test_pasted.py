"""Commands that are said, to be pasted: each means the run, the cluster and the directory that it was said of."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from tests.runs.fake_cluster import FakeCluster
from tests.runs.folders import archive, hf
from tests.runs.test_actions import cluster, suspended
from webhook.cli.checkpoints import _list
from webhook.cli.run_flags import add_flags, same_flags
from webhook.cli.stop import _stop
from webhook.runs.drill import drill


def parsed(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    add_flags(parser)
    return parser.parse_args(["run", *words])


@pytest.mark.parametrize(
    ("words", "own", "flags"),
    [
        ((), "default", ""),
        ((), "team", " -n team"),
        (("-n", "other"), "team", " -n other"),
        # The context's own namespace is another: without the flag the command would find another run of that name.
        (("-n", "default"), "team", " -n default"),
        (("--context", "prod admin"), "default", " --context 'prod admin'"),
        (
            ("--kubeconfig", "k.yaml", "--directory", "/out", "--helper-image", "i:1", "--policy", "p.yaml"),
            "default",
            " --kubeconfig k.yaml --directory /out --helper-image i:1 --policy p.yaml",
        ),
        (("--timeout", "9s", "--output", "json"), "default", ""),
    ],
)
def test_the_same_flags(words: tuple[str, ...], own: str, flags: str) -> None:
    arguments = parsed(*words)
    assert same_flags(arguments, arguments.namespace or own) == flags


@pytest.mark.parametrize(
    "words", [("--directory", ""), ("--directory", "out"), ("--helper-image", ""), ("--helper-image", "a b")]
)
def test_what_is_neither_a_path_nor_an_image(words: tuple[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parsed(*words)
    assert f'"{words[1]}" is no' in capsys.readouterr().err


def listed(fake: FakeCluster, capsys: pytest.CaptureFixture[str]) -> str:
    session = fake.session([])
    session.program, session.flags = "kubectl ckptguard", " -n team --context prod"
    assert _list(session, "text") == 0
    return capsys.readouterr().out.splitlines()[-1]


def test_where_a_restart_takes_an_incomplete_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fake = cluster(tmp_path, 100)
    hf(tmp_path / "run", 200, lacks="trainer_state.json")
    assert listed(fake, capsys) == (
        "a restart takes an incomplete one (lacks trainer_state.json); step 100 (checkpoint-100) is complete: "
        "kubectl ckptguard resume run -n team --context prod --from-step 100"
    )


def test_where_none_is_complete(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fake = cluster(tmp_path)
    hf(tmp_path / "run", 200, lacks="trainer_state.json")
    assert listed(fake, capsys).endswith("(lacks trainer_state.json), and there is none that is complete")


def test_a_program_with_one_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """No number tells its step; it has a checkpoint all the same."""
    fake = cluster(tmp_path, log=lambda _: "resuming from /mnt/ckpt/run/checkpoint.pt")
    archive(tmp_path / "run" / "checkpoint.pt")
    done = drill(fake.session([]))
    assert done.code == 0
    assert done.newest is not None
    assert done.newest.path == "checkpoint.pt"
    assert _stop(fake.session([]), "text") == 0
    assert 'newest complete: "checkpoint.pt"; at risk: ' in capsys.readouterr().out


def test_a_run_with_no_step_that_json_can_hold(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fake = suspended(tmp_path, 5)
    hf(tmp_path / "run", 10**30)
    assert _list(fake.session([]), "json") == 0
    assert '"step": 5' in capsys.readouterr().out
