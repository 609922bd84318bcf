"""`ckptguard runs` and `prune` on real nodes: what is removed, what never is, and how it ends when it is cut off."""

import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from tests.e2e_nodes.machine import Nodes, wait_until
from tests.e2e_nodes.runs import (
    NAMESPACE,
    ckptguard,
    drop_namespace,
    finish,
    make_namespace,
    runtime,
    shell,
    submit,
    trainjob,
    wait_for_step,
)

IDLE = ["sh", "-c", "exec sleep 3600"]
HELPERS = "checkpoint-guard.io/helper-of"


@pytest.fixture(scope="module", autouse=True)
def place(guarded: Nodes, trainer: str) -> Iterator[None]:
    """The guard, a namespace, a claim, a runtime."""
    drop_namespace(guarded)
    make_namespace(guarded)
    guarded.apply([runtime("brief", grace=2)])
    yield
    drop_namespace(guarded)


def write_steps(nodes: Nodes, run: str, *steps: int, files: int = 2) -> None:
    """Checkpoints as torch.distributed.checkpoint leaves them; the older ones first."""
    script = f"set -e; mkdir -p /c/{run}; cd /c/{run}; "
    for step in steps:
        script += f"mkdir -p step_{step}; i=0; while [ $i -lt {files} ]; do echo x > step_{step}/__${{i}}_0.distcp; "
        script += f"i=$((i+1)); done; echo x > step_{step}/.metadata; sleep 0.1; "
    shell(nodes, script)


def there(nodes: Nodes, run: str) -> list[str]:
    return sorted(shell(nodes, f"ls -A /c/{run}").split())


def stopped(nodes: Nodes, name: str) -> None:
    submit(nodes, trainjob(name, "brief", IDLE))
    told = ckptguard(nodes, "stop", name)
    assert told.code == 0, told.err


def no_helper(nodes: Nodes) -> None:
    wait_until(lambda: nodes.objects("pods", NAMESPACE, HELPERS) == [], 30, "no helper pod is left")


def test_runs_tells_the_step_of_a_run_that_trains(nodes: Nodes) -> None:
    submit(nodes, trainjob("trains", "brief"))
    wait_for_step(nodes, "trains", 10)
    told = ckptguard(nodes, "runs", "-o", "json")
    assert told.code == 0, told.err
    (one,) = [run for run in told.json["results"] if run["name"] == "trains"]
    assert (one["state"], one["nodes"], one["waitsFor"]) == ("Running", 1, None)
    assert one["directory"] == "/mnt/ckpt/trains"
    assert one["step"] >= 10
    assert one["saved"].endswith("Z")
    assert ckptguard(nodes, "stop", "trains").code == 0
    (one,) = [run for run in ckptguard(nodes, "runs", "-o", "json").json["results"] if run["name"] == "trains"]
    assert (one["state"], one["step"]) == ("Suspended", None)
    finish(nodes, "trains")


def test_prune_removes_what_is_old_and_nothing_else(nodes: Nodes) -> None:
    submit(nodes, trainjob("pruned", "brief", IDLE))
    told = ckptguard(nodes, "prune", "pruned", "--yes")
    assert told.code == 2
    assert "first ckptguard stop pruned" in told.err
    assert ckptguard(nodes, "stop", "pruned").code == 0
    write_steps(nodes, "pruned", 10, 20, 30, 40, 50)
    shell(
        nodes,
        "mkdir -p /c/other/step_1; echo precious > /c/other/step_1/.metadata; cd /c/pruned;"
        "ln -s step_20 best; ln -s ../other/step_1 step_10/out; ln -s ../other step_60; echo step_30 > latest;"
        "mkdir step_70; echo x > step_70/__0_0.distcp; echo x > model_step_5.pt;"
        "mkdir -p .set-aside/t; echo x > .set-aside/t/x",
    )
    before = there(nodes, "pruned")
    dry = ckptguard(nodes, "prune", "pruned", "--keep", "2", "--dry-run", "-o", "json")
    assert dry.code == 0, dry.err
    assert not any(one["removed"] for one in dry.json["results"])
    assert there(nodes, "pruned") == before
    told = ckptguard(nodes, "prune", "pruned", "--keep", "2", "--yes", "-o", "json")
    assert told.code == 0, told.err
    assert [one["path"] for one in told.json["results"] if one["removed"]] == ["step_10"]
    assert there(nodes, "pruned") == [name for name in before if name != "step_10"]
    assert shell(nodes, "cat /c/other/step_1/.metadata").strip() == "precious"
    assert ckptguard(nodes, "prune", "pruned", "--keep", "2", "--yes").code == 1
    no_helper(nodes)
    finish(nodes, "pruned")


def test_a_directory_that_is_a_link_is_not_pruned(nodes: Nodes) -> None:
    stopped(nodes, "linked")
    write_steps(nodes, "elsewhere", 10, 20)
    shell(nodes, "rm -rf /c/linked; ln -s elsewhere /c/linked")
    told = ckptguard(nodes, "prune", "linked", "--keep", "1", "--yes")
    assert told.code == 2
    assert "no link is followed" in told.err
    assert there(nodes, "elsewhere") == ["step_10", "step_20"]
    finish(nodes, "linked")


def pruning(nodes: Nodes, name: str) -> "subprocess.Popen[str]":
    """A prune that is at work: the first checkpoint is gone, or going."""
    process = subprocess.Popen(
        [sys.executable, "-m", "webhook", "prune", name, "--keep", "1", "--yes", "-n", NAMESPACE],
        env=nodes.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # which a shell's background jobs ignore
    )
    assert process.stderr is not None
    until = time.monotonic() + 120
    while "removed 0 of" not in (line := process.stderr.readline()) and "removed 1 of" not in line:
        assert time.monotonic() < until, line
        assert process.poll() is None, line
    return process


def test_ctrl_c_in_the_middle_says_what_was_removed(nodes: Nodes) -> None:
    stopped(nodes, "cut")
    write_steps(nodes, "cut", 10, 20, 30, 40, files=4000)
    process = pruning(nodes, "cut")
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "interrupted: " in err
    no_helper(nodes)
    left = there(nodes, "cut")
    assert "step_40" in left
    gone = [f"step_{step}" for step in (10, 20, 30) if f"step_{step}" not in left]
    assert all(name in err for name in gone[:-1])
    told = ckptguard(nodes, "prune", "cut", "--keep", "1", "--yes")
    assert told.code in (0, 1), told.err
    assert there(nodes, "cut") == ["step_40"]
    finish(nodes, "cut")


def test_a_run_that_is_started_meanwhile_ends_it(nodes: Nodes) -> None:
    stopped(nodes, "eager")
    write_steps(nodes, "eager", 10, 20, 30, 40, files=4000)
    process = pruning(nodes, "eager")
    nodes.run("patch", "trainjob", "eager", "-n", NAMESPACE, "--type=merge", "-p", '{"spec":{"suspend":false}}')
    _, err = process.communicate(timeout=120)
    if process.returncode != 0:  # else it had come to its end before anything started
        assert process.returncode == 2
        assert "started by somebody meanwhile" in err
    assert "step_40" in there(nodes, "eager")
    no_helper(nodes)
    finish(nodes, "eager")


def test_two_prunes_at_once(nodes: Nodes) -> None:
    stopped(nodes, "twice")
    write_steps(nodes, "twice", 10, 20, 30, 40, files=500)
    both = [
        subprocess.Popen(
            [sys.executable, "-m", "webhook", "prune", "twice", "--keep", "1", "--yes", "-n", NAMESPACE],
            env=nodes.environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(2)
    ]
    said = [process.communicate(timeout=180)[1] for process in both]
    assert 0 in [process.returncode for process in both], said
    assert there(nodes, "twice") == ["step_40"]
    no_helper(nodes)
    finish(nodes, "twice")
