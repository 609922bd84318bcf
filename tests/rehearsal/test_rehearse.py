"""``ckptguard rehearse -- COMMAND`` on real programs, and on what is no program to rehearse."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import psutil
import pytest

from tests.rehearsal.corpus import PLAIN, Case
from webhook.cli import main
from webhook.rehearsal.processes import MARK

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the machine that is tried is Linux")
CASES = {case.name: case for case in PLAIN}
SHORT = ("--timeout", "20s", "--grace", "3s")


@pytest.fixture
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "scratch"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr("tempfile.tempdir", None)
    monkeypatch.chdir(tmp_path)
    return folder


def program(tmp_path: Path, text: str) -> str:
    path = tmp_path / "train.py"
    path.write_text(text)
    return str(path)


def rehearse(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, dict[str, Any], str]:
    code = main(["rehearse", *SHORT, *arguments])
    out, err = capsys.readouterr()
    return code, json.loads(out) if out.startswith("{") else {}, err


def nothing_left(scratch: Path) -> None:
    assert list(scratch.iterdir()) == []
    for process in psutil.process_iter():
        try:
            assert not process.environ().get(MARK, "").startswith(str(scratch)), process
        except psutil.Error:
            continue


def test_a_program_that_goes_on(scratch: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = program(tmp_path, CASES["plain"].text())
    code, answer, _ = rehearse(
        capsys, "-o", "json", "-o", "junit=out.xml", "-o", "text=out.txt", "--", sys.executable, path
    )
    assert (code, answer["verdict"], answer["findings"], answer["schema"]) == (0, "resumed", [], 1)
    first, second, third = answer["starts"]
    assert (first["signal"], first["savedOnSigterm"], second["signal"]) == ("SIGTERM", True, "SIGKILL")
    assert second["from"] == first["to"]
    assert second["read"] == [f"step_{first['to']}.json"]
    assert third["to"] > third["from"] >= second["from"]
    suite = ElementTree.fromstring(Path("out.xml").read_text()).find("testsuite")
    assert suite is not None
    assert (suite.get("failures"), suite.get("errors")) == ("0", "0")
    assert "saved on SIGTERM" in Path("out.txt").read_text()
    nothing_left(scratch)


@pytest.mark.parametrize(
    "case", [CASES["no-load"], CASES["overwritten"], CASES["overwritten-and-synced"]], ids=lambda case: case.name
)
def test_a_fault_is_named(case: Case, scratch: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = program(tmp_path, case.text())
    code, answer, _ = rehearse(capsys, *case.flags, "-o", "json", "--", sys.executable, path)
    assert (code, [one["rule"] for one in answer["findings"]]) == (1, [case.rule])
    nothing_left(scratch)


@pytest.mark.parametrize(
    ("command", "why"),
    [
        (["no-such-command-of-anybody"], "cannot be started: No such file or directory"),
        ([sys.executable, "-c", "pass"], "saved nothing"),
        ([sys.executable, "-c", "raise SystemExit('bad flag')"], "exit code 1 before it saved"),
        (["bash", "-c", "no-such-command-of-anybody"], "could not be run (exit code 127)"),
        ([sys.executable, "-c", "raise RuntimeError('No CUDA GPUs are available')"], "needs a GPU"),
        ([sys.executable, "-c", "raise OSError(28, 'No space left on device')"], "the disk is full"),
        (
            [sys.executable, "-c", "import os; open(os.environ['CKPT_DIR'] + '/step_9.json', 'w').write('{}')"],
            "saved only when it ended",
        ),
    ],
)
def test_what_cannot_be_rehearsed(
    command: list[str], why: str, scratch: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, answer, _ = rehearse(capsys, "-o", "json", "--", *command)
    assert (code, answer["verdict"]) == (2, "not-rehearsable")
    assert why in " ".join(answer["why"])
    nothing_left(scratch)


def test_one_that_never_saves_ends_with_the_timeout(scratch: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = [sys.executable, "-c", "import time; time.sleep(60)"]
    code = main(["rehearse", "--timeout", "1s", "--", *command])
    out, err = capsys.readouterr()
    assert code == 2
    assert "no checkpoint 1 within 1 s: nothing was printed yet" in out
    assert "waiting for checkpoint 1" in err
    nothing_left(scratch)


@pytest.mark.parametrize(
    "flags",
    [["--saves", "0"], ["--processes", "x"], ["--timeout", "3x"], ["--directory", "/no/such"], ["-o", "sarif"]],
)
def test_flags_that_cannot_be(flags: list[str], scratch: Path, capsys: pytest.CaptureFixture[str]) -> None:
    try:
        code = main(["rehearse", *flags, "--", "true"])
    except SystemExit as error:
        code = int(error.code or 0)
    assert code == 2
    out, err = capsys.readouterr()
    assert flags[1] in out + err


def test_no_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rehearse"]) == 2
    assert "no COMMAND" in capsys.readouterr().err


LEAVES = """
import os, subprocess, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        time.sleep(600)
    time.sleep(600)
time.sleep(600)
"""


def test_interrupted_it_leaves_nothing_behind(scratch: Path, tmp_path: Path) -> None:
    path = program(tmp_path, LEAVES)
    command = [sys.executable, "-m", "webhook", "rehearse", "--", sys.executable, path]
    with subprocess.Popen(
        command,
        env={**os.environ, "TMPDIR": str(scratch)},
        stderr=subprocess.PIPE,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),  # ignored in a shell's background
    ) as process:
        until = time.monotonic() + 30
        while time.monotonic() < until and sum(1 for _ in ours(scratch)) < 3:
            time.sleep(0.05)
        assert sum(1 for _ in ours(scratch)) == 3
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=30)
    assert process.returncode == 130
    assert b"interrupted: its processes were ended and its directory was removed" in err
    nothing_left(scratch)


def ours(scratch: Path) -> Any:
    for process in psutil.process_iter():
        try:
            if process.environ().get(MARK, "").startswith(str(scratch)) and process.status() != psutil.STATUS_ZOMBIE:
                yield process
        except psutil.Error:
            continue


def test_it_begins_with_a_copy_of_a_directory(
    scratch: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = tmp_path / "given"
    given.mkdir()
    (given / "step_400.json").write_text(
        json.dumps({"w": [1, 1], "velocity": [0, 0], "step": 100, "position": 0, "rng": [3, [1] * 624 + [624], None]})
    )
    path = program(tmp_path, CASES["plain"].text())
    main(["rehearse", *SHORT, "--directory", str(given), "-o", "json", "--", sys.executable, path])
    answer = json.loads(capsys.readouterr().out)
    assert answer["starts"][0]["read"] == ["step_400.json"]
    assert [file.name for file in given.iterdir()] == ["step_400.json"]
