"""What goes wrong while a command works on a run: claims that others hold, an API server that is lost, Ctrl-C, a big
directory; and the command line as a person at a terminal has it."""

import json
import os
import pty
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e_nodes.machine import Lab, Nodes, Object, log, wait_until
from tests.e2e_nodes.runs import (
    NAMESPACE,
    assert_right_data,
    ckptguard,
    claim,
    drop_namespace,
    finish,
    make_namespace,
    running,
    runtime,
    shell,
    submit,
    trainjob,
    wait_for_step,
)

SOLE = "e2e-runs-sole"
"""Where the guard only warns: it would not let a run in that is held to one node."""
HELPERS = "checkpoint-guard.io/helper-of"


@pytest.fixture(scope="module", autouse=True)
def place(nodes: Nodes, guarded: Nodes, trainer: str) -> Iterator[None]:
    """The guard, a namespace, a claim, a runtime."""
    drop_namespace(nodes)
    make_namespace(nodes)
    nodes.apply([runtime(max_restarts=10)])
    yield
    drop_namespace(nodes)


@pytest.fixture
def sole(nodes: Nodes) -> Iterator[str]:
    """A namespace for claims of one node or one pod."""
    drop_namespace(nodes, SOLE)
    make_namespace(nodes, SOLE, **{"checkpoint-guard.io/mode": "warn"})
    yield SOLE
    drop_namespace(nodes, SOLE)
    nodes.run("delete", "pv", f"{SOLE}-solo", f"{SOLE}-lone", "--ignore-not-found", "--wait=false")


class Command:
    """A command of this clone in the background, whose lines are read as they come."""

    def __init__(self, nodes: Nodes, *arguments: str) -> None:
        self.lines: list[str] = []
        self._process = subprocess.Popen(
            [sys.executable, "-m", "webhook", *arguments, "-n", NAMESPACE],
            env=nodes.environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            # Whoever started these tests in the background had Ctrl-C ignored, which is inherited.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stderr is not None
        with self._process.stderr as errors:
            self.lines.extend(iter(errors.readline, ""))

    def wait_for(self, words: str, seconds: float = 90) -> None:
        """Until a line has these words."""
        wait_until(lambda: any(words in line for line in self.lines), seconds, f'"{words}": {self.lines}', 0.02)

    def interrupt(self) -> None:
        """Ctrl-C."""
        self._process.send_signal(signal.SIGINT)

    def end(self, seconds: float = 120) -> int:
        """Its exit code."""
        code = self._process.wait(seconds)
        self._reader.join(10)
        return code


def test_a_claim_of_one_node_is_read_there_or_its_holder_is_named(nodes: Nodes, sole: str) -> None:
    nodes.apply([*claim("solo", "ReadWriteOnce", sole), runtime("solo", claim_name="solo", namespace=sole)])
    submit(nodes, trainjob("other", "solo", namespace=sole))
    wait_for_step(nodes, "other", 10, namespace=sole)
    assert ckptguard(nodes, "stop", "other", namespace=sole).code == 0
    submit(nodes, trainjob("holder", "solo", namespace=sole))
    (pod,) = running(nodes, "holder", sole)
    node = pod["spec"]["nodeName"]
    seen: set[str] = set()
    with _watching(nodes, seen):
        told = ckptguard(nodes, "checkpoints", "other", "--output", "json", namespace=sole)
    assert told.code == 0, told.err
    assert told.json["readBy"] == "helper pod"
    assert seen <= {node}
    nodes.run("cordon", node)
    try:
        told = ckptguard(nodes, "checkpoints", "other", "--timeout", "6s", namespace=sole)
    finally:
        nodes.run("uncordon", node)
    assert told.code == 2
    assert "the helper pod does not start within 6 s" in told.err
    assert f'claim "solo" is mounted by {pod["metadata"]["name"]} on node {node}' in told.err
    assert nodes.objects("pods", sole, HELPERS) == []


def test_a_claim_of_one_pod_names_the_pod_that_has_it(nodes: Nodes, sole: str) -> None:
    nodes.apply([*claim("lone", "ReadWriteOncePod", sole), runtime("lone", claim_name="lone", namespace=sole)])
    submit(nodes, trainjob("first", "lone", namespace=sole))
    (pod,) = running(nodes, "first", sole)
    nodes.apply([trainjob("second", "lone", namespace=sole)])
    wait_until(lambda: bool(nodes.get("jobset", "second", sole)), 60, "Trainer has taken it up")
    told = ckptguard(nodes, "checkpoints", "second", namespace=sole)
    assert told.code == 2
    assert 'claim "lone" is ReadWriteOncePod' in told.err
    assert f'pod "{pod["metadata"]["name"]}" on node "{pod["spec"]["nodeName"]}" has it' in told.err


def test_a_stop_ends_with_the_last_pod(nodes: Nodes) -> None:
    submit(nodes, trainjob("short"))
    wait_for_step(nodes, "short", 10)
    path = f"/api/v1/namespaces/{NAMESPACE}/pods?labelSelector=jobset.sigs.k8s.io%2Fjobset-name%3Dshort&watch=true"
    # Its own words: the moment of the event, seen without asking again and again.
    watch = subprocess.Popen(
        [*nodes.kubectl, "get", "--raw", path], env=nodes.environment, stdout=subprocess.PIPE, text=True
    )
    gone: list[float] = []

    def read() -> None:
        assert watch.stdout is not None
        with watch.stdout as lines:
            gone.extend(time.monotonic() for line in lines if json.loads(line)["type"] == "DELETED")

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    told = ckptguard(nodes, "stop", "short")
    ended = time.monotonic()
    assert told.code == 0, told.err
    wait_until(lambda: bool(gone), 10, "the watch has told of the pod's end", 0.05)
    watch.terminate()
    watch.wait(10)
    reader.join(10)
    log(f"stop returned {ended - gone[-1]:.1f} s after the last pod's end")
    assert ended - gone[-1] < 2
    finish(nodes, "short")


def test_ten_thousand_files_take_one_exec(nodes: Nodes) -> None:
    submit(nodes, trainjob("many", SAVE_EVERY="1000000"))
    # A thousand checkpoints of ten files, as the Hugging Face Trainer names them; two are large, and are not read.
    script = """
import os
for step in range(1000):
    folder = f"/c/many/checkpoint-{step}"
    os.makedirs(folder)
    for name in ["trainer_state.json", "optimizer.pt", "scheduler.pt", "model.safetensors", *"abcdef"]:
        with open(f"{folder}/{name}", "w") as file:
            file.write("{}")
for step in (998, 999):
    os.truncate(f"/c/many/checkpoint-{step}/optimizer.pt", 8 << 30)
"""
    shell(nodes, f"exec python - <<'PY'\n{script}PY\n")
    before = _execs(nodes)
    began = time.monotonic()
    told = ckptguard(nodes, "checkpoints", "many", "--output", "json")
    took = time.monotonic() - began
    assert told.code == 0, told.err
    assert told.json["files"] >= 10_000
    assert len(told.json["checkpoints"]) == 1000
    assert _execs(nodes) - before == 1
    log(f"10,000 files were listed in {took:.1f} s, with one exec")
    assert took < 3
    shell(nodes, "rm -rf /c/many")
    finish(nodes, "many")


def test_the_api_server_is_lost_in_the_middle_of_a_drill(nodes: Nodes) -> None:
    if not isinstance(nodes, Lab):
        pytest.skip("only the lab's API server can be ended")
    submit(nodes, trainjob("patient"))
    wait_for_step(nodes, "patient", 10)
    drill = Command(nodes, "drill", "patient")
    drill.wait_for("... waiting for 1 pod to end")
    nodes.lose_api_server()
    try:
        drill.wait_for("the API server cannot be reached")
        drill.wait_for("trying again for 60 s")
        time.sleep(3)
    finally:
        nodes.bring_api_server()
    assert drill.end() == 0, drill.lines
    assert "resumed from step" in drill.lines[-1] or "resumed from step" in "".join(drill.lines[-3:])
    assert_right_data(nodes, "patient")
    finish(nodes, "patient")


MOMENTS = {
    "at once": "",
    "before it is suspended": "[checkpoint]",
    "while its pods end": "... waiting for 1 pod to end",
    "when they are gone": "[interrupt]",
    "before the new pod": "... waiting for the new pod",
    "while its log is read": "new pod ",
}


def test_a_drill_that_is_interrupted_can_be_gone_on_from(nodes: Nodes) -> None:
    submit(nodes, trainjob("cut"))
    wait_for_step(nodes, "cut", 10)
    interrupted = 0
    for moment, words in MOMENTS.items():
        drill = Command(nodes, "drill", "cut")
        if words:
            drill.wait_for(words)
        else:
            time.sleep(1.0)
        drill.interrupt()
        code = drill.end()
        said = "".join(drill.lines)
        if code == 0:  # it was faster than the signal
            continue
        assert code == 130, f"{moment}: {code} {said}"
        interrupted += 1
        assert "Traceback" not in said, f"{moment}: {said}"
        if not words and not said:  # on a busy machine that is before it has looked at the run: there is nothing to say
            continue
        left = said.rpartition("interrupted: ")[2]
        assert left.startswith('run "cut" '), f"{moment}: {said}"
        if "ckptguard resume cut" in left:
            told = ckptguard(nodes, "resume", "cut")
            assert told.code == 0 or "nothing to resume" in told.err, f"{moment}: {told.err}"
        wait_until(lambda: bool(running(nodes, "cut")), 90, f"it runs again, {moment}")
        assert not _suspended(nodes, "cut"), moment
    assert interrupted >= len(MOMENTS) - 2
    assert_right_data(nodes, "cut")


def test_a_resume_that_is_interrupted_can_be_gone_on_from(nodes: Nodes) -> None:
    """After the run before it; at whatever moment, nothing of the directory is lost."""
    if not running(nodes, "cut"):
        submit(nodes, trainjob("cut"))
    wait_for_step(nodes, "cut", 40)
    assert ckptguard(nodes, "stop", "cut").code == 0
    kept = _files(nodes, "cut")
    target = max(step for step in kept if step % 10 == 0 and step < max(kept))
    for pause in (0.0, 0.05, 0.1, 0.2, 0.4, 0.8, 1.2):
        command = Command(nodes, "resume", "cut", "--from-step", str(target))
        command.wait_for("reading the checkpoint directory")
        time.sleep(pause)
        command.interrupt()
        assert command.end() in (0, 130), command.lines
        assert "Traceback" not in "".join(command.lines)
        if not _suspended(nodes, "cut"):
            assert ckptguard(nodes, "stop", "cut").code == 0
        # Done or not, the same again or the way back have to work; the helper pods are gone.
        wait_until(lambda: nodes.objects("pods", NAMESPACE, HELPERS) == [], 30, "no helper is left")
        if not kept <= _files(nodes, "cut"):
            told = ckptguard(nodes, "resume", "cut", "--undo")
            assert told.code == 0, told.err
            assert ckptguard(nodes, "stop", "cut").code == 0
            assert kept <= _files(nodes, "cut"), pause
    told = ckptguard(nodes, "resume", "cut", "--from-step", str(target), "--output", "json")
    assert told.code == 0, told.err
    assert told.json["step"] == target
    finish(nodes, "cut")


def test_as_a_plugin_of_kubectl(nodes: Nodes) -> None:
    programs = Path(sys.executable).parent
    if not (programs / "kubectl-ckptguard").exists():
        pytest.skip("kubectl-ckptguard is not installed beside this Python")
    submit(nodes, trainjob("plug"))
    wait_for_step(nodes, "plug", 10)
    environment = nodes.environment
    environment["PATH"] = f"{programs}:{environment['PATH']}"

    def plugin(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*nodes.kubectl, "ckptguard", *arguments, "-n", NAMESPACE],
            env=environment, capture_output=True, text=True, check=False, timeout=300,
        )  # fmt: skip

    told = plugin("stop", "plug")
    assert told.returncode == 0, told.stderr
    assert f"go on with: kubectl ckptguard resume plug -n {NAMESPACE}" in told.stdout + told.stderr
    told = plugin("resume", "plug")
    assert told.returncode == 0, told.stderr
    assert "plug resumed from step" in told.stdout
    assert plugin("stop", "plugg").returncode == 2
    finish(nodes, "plug")


def test_on_a_terminal_there_is_one_live_line(nodes: Nodes) -> None:
    submit(nodes, trainjob("live"))
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "webhook", "drill", "live", "-n", NAMESPACE],
        env=nodes.environment | {"TERM": "xterm-256color", "COLUMNS": "120"},
        stdin=theirs, stdout=theirs, stderr=theirs,
    )  # fmt: skip
    os.close(theirs)
    shown = b""
    try:
        while chunk := os.read(ours, 4096):
            shown += chunk
    except OSError:  # the other side is closed
        pass
    os.close(ours)
    assert process.wait(60) == 0, shown
    text = shown.decode()
    assert "\x1b[?25l" in text, "the cursor is hidden while the line lives"
    assert text.rindex("\x1b[?25h") > text.rindex("\x1b[?25l"), "and is back at the end"
    assert "\x1b[2K" in text, "the line is written over"
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text)
    assert "... " not in plain
    assert re.search(r"waiting for 1 pod to end \(\d+ s\)", plain)
    assert "drill passed: live resumed from step" in plain
    finish(nodes, "live")


def test_the_guard_was_asked_about_every_run(nodes: Nodes) -> None:
    """None of these runs came in beside it."""
    said = ""
    for pod in nodes.pods("webhook"):
        said += nodes.run("logs", pod["metadata"]["name"], "-n", "checkpoint-guard").stdout
    for name in ("short", "many", "cut", "live"):
        assert f'"{name}"' in said, f"no line of the audit log is about {name}"


class _watching:  # noqa: N801 - a with statement
    """Collects the nodes that helper pods run on while the block lasts."""

    def __init__(self, nodes: Nodes, seen: set[str]) -> None:
        self._nodes, self._seen = nodes, seen
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join(10)

    def _look(self) -> None:
        while not self._over.wait(0.1):
            for pod in self._nodes.objects("pods", SOLE, HELPERS):
                if node := pod["spec"].get("nodeName"):
                    self._seen.add(node)


def _execs(nodes: Nodes) -> int:
    """How often somebody ran a command in a pod, by the API server's count."""
    lines = nodes.run("get", "--raw", "/metrics").stdout.splitlines()
    found = [line for line in lines if line.startswith("apiserver_request_total{") and 'subresource="exec"' in line]
    return sum(int(float(line.rpartition(" ")[2])) for line in found)


def _files(nodes: Nodes, directory: str) -> set[int]:
    names = shell(nodes, f"ls /c/{directory}").split()
    return {int(name[5:-5]) for name in names if name.startswith("step_") and name.endswith(".json")}


def _suspended(nodes: Nodes, name: str) -> bool:
    found: Object = nodes.get("trainjob", name, NAMESPACE) or {}
    return bool((found.get("spec") or {}).get("suspend"))
