"""Programs and machines that make trouble: each is said in words, and nothing is left of it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.rehearsal.corpus import PLAIN
from tests.rehearsal.test_rehearse import SHORT, nothing_left, ours, program, rehearse
from tests.rehearsal.test_rehearse import scratch as scratch
from webhook.rehearsal.inside import hook
from webhook.rehearsal.local import Rehearsal
from webhook.rehearsal.model import Settings
from webhook.rehearsal.processes import Processes, marked
from webhook.rehearsal.stage import Scratch, Stage
from webhook.rehearsal.trouble import known_trouble

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the machine that is tried is Linux")
TEXTS = {case.name: case.text() for case in PLAIN}

DEAF = """
import json, os, pathlib, signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
out = pathlib.Path(os.environ["CKPT_DIR"])
found = sorted(out.glob("step_*.json"), key=lambda path: int(path.stem[5:]))
step = json.loads(found[-1].read_text())["step"] if found else 0
while True:
    step += 1
    time.sleep(0.05)
    if step % 4 == 0:
        (out / "new").write_text(json.dumps({"step": step}))
        (out / "new").rename(out / f"step_{step}.json")
"""


def test_one_that_does_not_hear_sigterm_is_killed_and_that_is_said(
    scratch: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = program(tmp_path, DEAF)
    code, answer, _ = rehearse(capsys, "--grace", "1s", "-o", "json", "--", sys.executable, path)
    assert (code, answer["verdict"]) == (0, "resumed"), answer
    assert any("did not end within 1 s after SIGTERM" in note for note in answer["notes"])
    nothing_left(scratch)


def test_children_that_leave_the_group_are_ended(
    scratch: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    leaves = "if os.fork() == 0:\n    os.setsid()\n    time.sleep(600)\n"
    path = program(tmp_path, DEAF.replace("signal.signal(", f"{leaves}signal.signal("))
    code, answer, _ = rehearse(capsys, "--grace", "1s", "-o", "json", "--", sys.executable, path)
    assert code == 0, answer
    nothing_left(scratch)


def test_one_that_saves_elsewhere_is_told_where(
    scratch: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = program(tmp_path, TEXTS["another-directory"])
    code, answer, _ = rehearse(capsys, "-o", "json", "--", sys.executable, path)
    assert code == 1
    assert [one["rule"] for one in answer["findings"]] == ["directory-not-used"]
    assert str(tmp_path / "out") in answer["findings"][0]["problem"]
    nothing_left(scratch)


def test_two_at_once(scratch: Path, tmp_path: Path) -> None:
    path = program(tmp_path, TEXTS["plain"])
    command = [sys.executable, "-m", "webhook", "rehearse", *SHORT, "--", sys.executable, path]
    told: list[subprocess.CompletedProcess[str]] = []

    def one() -> None:
        environment = {**os.environ, "TMPDIR": str(scratch), "PYTHONPATH": str(Path(__file__).parents[2])}
        told.append(subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120))

    threads = [threading.Thread(target=one) for _ in "ab"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [done.returncode for done in told] == [0, 0], [done.stdout for done in told]
    nothing_left(scratch)


@pytest.fixture
def full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A file system of 3 MiB."""
    if os.geteuid() != 0:
        pytest.skip("a small file system is mounted by root alone")
    folder = tmp_path / "small"
    folder.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", str(folder)], check=False)
    if mounted.returncode != 0:
        pytest.skip("no tmpfs can be mounted here")
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr("tempfile.tempdir", None)
    monkeypatch.chdir(tmp_path)
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def test_a_disk_that_is_really_full(full_disk: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = DEAF.replace('{"step": step}', '{"step": step, "w": "x" * 700_000}')
    code, answer, _ = rehearse(
        capsys, "--saves", "9", "--grace", "1s", "-o", "json", "--", sys.executable, program(tmp_path, text)
    )
    assert (code, answer["verdict"]) == (2, "not-rehearsable")
    assert "is full" in " ".join(answer["why"])
    nothing_left(full_disk)


@pytest.mark.parametrize("moment", ["start 1", "start 2", "start 3", "probe"])
def test_ctrl_c_in_each_start(moment: str, scratch: Path, tmp_path: Path) -> None:
    path = program(tmp_path, TEXTS["plain"])
    command = [sys.executable, "-m", "webhook", "rehearse", *SHORT, "--", sys.executable, path]
    with subprocess.Popen(
        command,
        env={**os.environ, "TMPDIR": str(scratch), "PYTHONPATH": str(Path(__file__).parents[2])},
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    ) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if f"[{moment}" in line:
                process.send_signal(signal.SIGINT)
                break
        rest = process.stderr.read()
    assert process.returncode == 130, rest
    assert "interrupted: its processes were ended and its directory was removed" in rest
    assert list(ours(scratch)) == []
    nothing_left(scratch)


def test_what_is_waited_for_is_told_where_nothing_is_printed(
    scratch: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = [sys.executable, "-c", "import os, time; open(os.environ['CKPT_DIR'] + '/a.pt', 'w'); time.sleep(9)"]
    code, answer, err = rehearse(capsys, "--timeout", "1s", "-o", "json", "--", *command)
    assert code == 2
    assert "waiting for checkpoint 1" in err
    assert "no checkpoint 1 within 1 s" in answer["why"][0]
    nothing_left(scratch)


@pytest.mark.parametrize(
    "line",
    [
        "RuntimeError: Found no NVIDIA driver on your system.",
        "AssertionError: Torch not compiled with CUDA enabled",
        "RuntimeError: Unable to initialize backend 'cuda'",
        "ValueError: this recipe requires a GPU",
    ],
)
def test_a_program_that_needs_a_gpu(line: str) -> None:
    assert known_trouble(["starting", line])[0].startswith("it needs a GPU")
    assert known_trouble(["step 3 on cuda:0", "KeyError: 'x'"]) == ()


# --- what steadiness stands on


@pytest.mark.parametrize("own_session", [False, True])
def test_told_to_stop_it_stands_when_pause_comes_back(tmp_path: Path, own_session: bool) -> None:
    """Also where a thread is amid a write: nothing is written once it has come back."""
    path = tmp_path / "out"
    opened = f"import os\nfd = os.open({str(path)!r}, os.O_WRONLY | os.O_CREAT)\n"
    text = f"{opened}while True:\n    os.write(fd, b'x' * 4096)\n"
    if own_session:  # as torchrun starts its workers
        text = f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {text!r}], start_new_session=True)"
    mark = {"CKPTGUARD_REHEARSAL": str(tmp_path / "mark")}
    processes = Processes([sys.executable, "-c", text], [{**os.environ, **mark}], tmp_path)
    try:
        while not path.exists() or path.stat().st_size == 0:
            time.sleep(0.01)
        for _ in range(20):
            processes.pause()
            size = path.stat().st_size
            time.sleep(0.01)
            assert path.stat().st_size == size
            processes.resume()
            while path.stat().st_size == size:  # it runs again
                time.sleep(0.001)
            if size > 1 << 26:
                break
    finally:
        processes.kill()
    assert marked(str(tmp_path / "mark")) == []


def test_a_save_that_begins_again_waits_at_the_gate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gate = tmp_path / "gate"
    gate.mkdir()
    monkeypatch.setattr(hook, "_GATE", str(gate))
    monkeypatch.setattr(hook, "_LONGEST_HOLD", 0.2)
    for state in ("_shapes", "_leaders"):
        monkeypatch.setattr(hook, state, {})
    held: list[str] = []

    def write(path: str) -> None:
        before = len(list(gate.iterdir()))
        hook._wait_at_gate(path)
        if len(list(gate.iterdir())) > before:
            held.append(path)

    for path in ("log.txt.log", "step_4/model.pt", "step_4/shard_1.pt", "step_4/shard_2.pt", "latest", "metrics.jsonl"):
        write(path)
    assert held == []
    for path in ("step_8/model.pt", "step_8/shard_1.pt", "step_8/shard_2.pt", "latest", "metrics.jsonl"):
        write(path)
    assert held == ["step_8/model.pt"]
    began = time.monotonic()
    write("step_12/model.pt")
    assert time.monotonic() - began > 0.1  # nobody opens, and it goes on by itself


def test_nobody_waits_where_no_save_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hook, "_GATE", str(tmp_path / "gate"))
    began = time.monotonic()
    for step in range(5):
        hook._wait_at_gate(f"quick_{step}.pt")
    assert time.monotonic() - began < hook._LONGEST_HOLD / 4
    assert not (tmp_path / "gate").exists()


def test_a_write_is_noted_where_the_gate_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(path: str) -> None:
        raise PermissionError(path)

    noted: list[str] = []
    monkeypatch.setattr(hook, "_DIRECTORY", str(tmp_path))
    monkeypatch.setattr(hook, "_wait_at_gate", fails)
    monkeypatch.setattr(hook, "_say", lambda what, **more: noted.append(f"{what} {more['path']}"))
    hook._audit("open", (str(tmp_path / "step_1.pt"), "wb", 0))
    assert noted == [f"open {tmp_path}/step_1.pt"]


WRITES = """
import os
for name, mode in (("anew", "wb"), ("added", "ab"), ("within", "r+b")):
    open(os.environ["CKPT_DIR"] + "/" + name, mode).write(b"12345678")
os.write(os.open(os.environ["CKPT_DIR"] + "/low", os.O_WRONLY | os.O_CREAT | os.O_TRUNC), b"12345678")
"""


def test_only_what_is_written_from_its_beginning_is_cut(scratch: Path) -> None:
    place = Scratch(scratch)
    (place.directory / "within").write_bytes(b"old")
    settings = Settings((sys.executable, "-c", WRITES))
    with Stage(place, settings, "start 1", lambda _: None) as stage:
        while not stage.processes.ended():
            stage.pump(0.02)
    names = ("anew", "added", "within", "low", "never")
    whole = Rehearsal(settings, lambda _: None, print)
    assert whole._halve(stage, [f"{stage.directory}/{name}" for name in names])
    sizes = {path.name: path.stat().st_size for path in place.directory.iterdir()}
    assert sizes == {"anew": 4, "added": 8, "within": 8, "low": 4}
    assert not whole._halve(stage, [f"{stage.directory}/added"])


def test_nohup_is_respected(scratch: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "webhook", "rehearse", "--timeout", "2s", "--", sys.executable, "-c", WAITS]
    with subprocess.Popen(
        command,
        env={**os.environ, "TMPDIR": str(scratch)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN),
    ) as process:
        until = time.monotonic() + 30
        while time.monotonic() < until and not list(scratch.glob("*/start 1/record/*")):
            time.sleep(0.05)
        process.send_signal(signal.SIGHUP)
        out, _ = process.communicate(timeout=60)
    assert process.returncode == 2
    assert b"no checkpoint 1 within 2 s" in out


WAITS = "import time; time.sleep(60)"
