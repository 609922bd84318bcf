"""The command itself: help, version, unknown names, faults of ours."""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import types
from pathlib import Path

import pytest

import webhook
from webhook import cli
from webhook.cli import COMMANDS, main

JOB = """\
apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainJob
metadata: {name: a}
spec: {runtimeRef: {name: größe}}
"""


def test_help_lists_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(["--help"])
    assert left.value.code == 0
    out = capsys.readouterr().out
    for name, (_, summary) in COMMANDS.items():
        assert f"  {name} " in out
        assert summary in out


def test_without_a_command_help_and_two(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    assert "commands:" in capsys.readouterr().err


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(["--version"])
    assert left.value.code == 0
    assert capsys.readouterr().out == f"ckptguard {webhook.__version__}\n"


def test_unknown_command_names_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reveiw"]) == 2
    assert capsys.readouterr().err == 'error: unknown command "reveiw"; nearest: review; see ckptguard --help\n'


@pytest.mark.parametrize(
    ("typed", "meant"),
    [("vers", "version"), ("verison", "version"), ("drlil", "drill"), ("nonsense", ""), ("x", ""), ("\x1b[31m", "")],
)
def test_only_what_is_near_is_suggested(capsys: pytest.CaptureFixture[str], typed: str, meant: str) -> None:
    assert main([typed]) == 2
    err = capsys.readouterr().err
    assert ("nearest" in err) is bool(meant)
    assert f"; nearest: {meant}" in err or not meant
    assert "\x1b" not in err


def test_help_and_version_are_commands_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["version"]) == 0
    assert capsys.readouterr().out == f"ckptguard {webhook.__version__}\n"
    assert main(["help"]) == 0
    assert "commands:" in capsys.readouterr().out
    assert main(["help", "review"]) == 0
    out = capsys.readouterr().out
    assert "usage: ckptguard review" in out
    assert "{text,json,junit,sarif,line}[=FILE]" in out
    assert main(["help", "reviw"]) == 2
    assert "nearest: review" in capsys.readouterr().err


def test_ctrl_c_is_130(tmp_path: Path) -> None:
    """Interrupted while it reads a pipe that it was given."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    # Whoever runs the tests in the background ignores SIGINT, and so would this.
    script = (
        "import signal, sys; from webhook.cli import main\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        f"sys.exit(main(['review', {str(pipe)!r}]))"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=Path(__file__).parents[2]
    ) as process:
        writer = os.open(pipe, os.O_WRONLY)  # waits until the other side opens it
        process.send_signal(signal.SIGINT)
        try:
            out, err = process.communicate(timeout=30)
        finally:
            process.kill()
            os.close(writer)
    assert (process.returncode, out, err) == (130, b"", b"")


def test_wrong_flag_is_two(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(["review", "x.yaml", "--nonsense"])
    assert left.value.code == 2
    assert "--nonsense" in capsys.readouterr().err


def test_fault_of_ours_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    module = types.ModuleType("broken_command")

    def run(_: argparse.Namespace) -> int:
        raise KeyError("no\nsuch key")

    vars(module).update(configure=lambda parser: None, run=run)
    sys.modules["broken_command"] = module
    try:
        code = main(["broken"], {"broken": ("broken_command", "breaks")})
    finally:
        del sys.modules["broken_command"]
    err = capsys.readouterr().err
    assert code == 2
    assert err.startswith("error: a fault of ckptguard itself, not of your files (KeyError: ")
    assert err.count("\n") == 1
    assert cli.GROUP == "checkpoint_guard.commands"


def test_review_imports_nothing_that_serving_needs() -> None:
    heavy = "fastapi pydantic kubernetes cryptography uvicorn asyncio dataclasses difflib logging subprocess"
    script = (
        "import sys, webhook.cli.review, webhook.reports.text, webhook.reports.json\n"
        f"print([name for name in {heavy.split()!r} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr) == ("[]\n", "")


def test_a_review_to_its_end_imports_nothing_dear_either(tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(
        "apiVersion: trainer.kubeflow.org/v1alpha1\nkind: TrainJob\nmetadata: {name: a, namespace: b}\n"
        "spec:\n  runtimeRef: {name: torch-distributed}\n"
        "  trainer: {command: [python, -c], args: ['import torch']}\n"
    )
    script = (
        "import sys; from webhook.cli import main\n"
        f"main(['review', {str(path)!r}])\n"
        "print([name for name in ('json', 'hashlib', '_hashlib') if name in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert "TrainJob" in done.stdout
    assert done.stderr == "[]\n"


def test_a_missing_library_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    module = types.ModuleType("lacking_command")

    def run(_: argparse.Namespace) -> int:
        raise ModuleNotFoundError("No module named 'yaml.inner'", name="yaml.inner")

    vars(module).update(configure=lambda parser: None, run=run)
    sys.modules["lacking_command"] = module
    try:
        assert main(["lacking"], {"lacking": ("lacking_command", "")}) == 2
    finally:
        del sys.modules["lacking_command"]
    assert "has no library yaml: pip install ." in capsys.readouterr().err


@pytest.mark.parametrize(
    ("closed", "code"),
    [
        (">&-", 0),
        ("2>&-", 0),
        ("<&-", 0),
        (">&- 2>&- <&-", 0),
        ("nofile 2>&-", 2),
        ("nofile 2>/dev/full", 2),
        ("- <&-", 2),
        (">/dev/full", 2),
    ],
)
def test_closed_and_full_streams_change_no_exit_code(tmp_path: Path, closed: str, code: int) -> None:
    (tmp_path / "job.yaml").write_text(JOB)
    file = "" if closed.startswith(("nofile", "- ")) else "job.yaml"
    command = f"{sys.executable} -m webhook review {file} {closed}"
    env = {**os.environ, "PYTHONPATH": str(Path(webhook.__file__).parents[1])}
    done = subprocess.run(command, shell=True, capture_output=True, text=True, timeout=60, cwd=tmp_path, env=env)
    assert done.returncode == code
    assert "fault" not in done.stderr


def test_documents_for_programs_are_utf_8_in_any_locale(tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text(JOB, encoding="utf-8")
    env = {**os.environ, "PYTHONPATH": str(Path(webhook.__file__).parents[1]), "PYTHONIOENCODING": "ascii"}
    command = [sys.executable, "-m", "webhook", "review", "job.yaml", "--output", "json"]
    done = subprocess.run(command, capture_output=True, timeout=60, cwd=tmp_path, env=env, check=True)
    (result,) = json.loads(done.stdout)["results"]
    assert "größe" in result["findings"][0]["problem"]
