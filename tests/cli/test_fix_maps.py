"""``ckptguard fix`` where the program lies in a ConfigMap: written there, or the reason why not."""

from __future__ import annotations

import json
from base64 import b64encode
from pathlib import Path
from textwrap import indent
from time import monotonic

import pytest
import yaml

from tests.cli.mounted import WHOLE, job, mounted
from tests.cli.test_fix import fixed, put
from webhook.cli import main

SAVED = '"optimizer": opt.state_dict()}, "/mnt/ckpt/run/last.pt")'
PROGRAM = WHOLE.replace(
    SAVED,
    '"optimizer": opt.state_dict(), "step": step}, "/mnt/ckpt/run/new.pt")\n'
    '        os.replace("/mnt/ckpt/run/new.pt", "/mnt/ckpt/run/last.pt")',
).replace("import torch\n", "import os\n\nimport torch  # the library\n", 1)
HEAD = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: code, namespace: team}   # ours\n"
DATA = (
    HEAD
    + "data:\n  # what trains\n  train.py: |  # python\n"
    + indent(PROGRAM, "      ")
    + "  # behind\n  b: 'x'  # y\n"
)
JOB = job(["python", "/scripts/train.py"], **mounted())


def resumed(text: str) -> bool:
    return 'opt.load_state_dict(state["optimizer"])' in text and "range(first, 100000)" in text


@pytest.mark.parametrize("ends", ["\n", "\r\n"])
def test_the_program_is_mended_in_its_map(tmp_path: Path, capsys: pytest.CaptureFixture[str], ends: str) -> None:
    own, path = put(tmp_path, "job.yaml", JOB), put(tmp_path, "map.yaml", DATA.replace("\n", ends))
    code, items = fixed(capsys, str(own), str(path), "--write")
    assert (code, "--unsafe" in items[0]["reason"]) == (1, True)
    assert items[0]["at"] == "ConfigMap/code data[train.py] line 11"
    code, items = fixed(capsys, str(own), str(path), "--write", "--unsafe")
    assert (code, [(item["file"], item["rule"], item["applied"]) for item in items]) == (
        0,
        [(str(path), "never-resumed", True)],
    )
    after = path.read_bytes().decode()
    assert resumed(after)
    assert after.count(ends) == after.count("\n")
    before = DATA.split("\n")
    kept = [line for line in before if line in after.replace(ends, "\n").split("\n")]
    assert [line for line in before if line not in kept] == ["      for step in range(100000):"]
    assert own.read_text() == JOB
    assert fixed(capsys, str(own), str(path), "--write", "--unsafe") == (0, [])


@pytest.mark.parametrize("style", ["|-", "|+", ">", '"', "json"])
def test_other_styles_stay_what_they_are(tmp_path: Path, capsys: pytest.CaptureFixture[str], style: str) -> None:
    own = put(tmp_path, "job.yaml", JOB)
    text = HEAD + f"data:\n  train.py: {style}\n" + indent(PROGRAM, "    ")
    if style == ">":
        lines = [f"    {line}\n" + "\n" * (not line.startswith(" ")) if line else "\n" for line in PROGRAM.split("\n")]
        text = HEAD + "data:\n  train.py: >\n" + "".join(lines)
    elif style == '"':
        text = HEAD + f"data:\n  train.py: {json.dumps(PROGRAM)}\n"
    elif style == "json":
        metadata = {"name": "code", "namespace": "team"}
        text = json.dumps(
            {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"train.py": PROGRAM}}
        )
    path = put(tmp_path, "map.yaml", text)
    code, items = fixed(capsys, str(own), str(path), "--write", "--unsafe")
    assert (code, items[0]["applied"]) == (0, True), items
    after = path.read_text()
    assert resumed(yaml.safe_load(after)["data"]["train.py"])
    assert style == "json" or f"train.py: {style}" in after


def test_nothing_that_brings_a_new_finding(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = put(tmp_path, "all.yaml", JOB + "---\n" + HEAD + "data:\n  train.py: |\n" + indent(WHOLE, "    "))
    before = path.read_text()
    code, items = fixed(capsys, str(path), "--write", "--unsafe")
    assert (code, items[0]["reason"]) == (1, "it would bring a new finding: step-not-restored")
    assert path.read_text() == before


def test_a_map_that_is_not_among_the_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    own, path = put(tmp_path, "job.yaml", JOB), put(tmp_path, "map.yaml", DATA)
    code, items = fixed(capsys, str(own), "--state", str(path), "--write", "--unsafe")
    assert code == 1
    assert items[0]["reason"] == (f"it is in ConfigMap/code, which stands in {path}:1 (--state) and is not among FILE")
    assert path.read_text() == DATA


def test_what_is_binary_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = HEAD + f"binaryData:\n  train.py: {b64encode(PROGRAM.encode()).decode()}\n"
    path = put(tmp_path, "all.yaml", JOB + "---\n" + text)
    assert main(["fix", str(path), "--unsafe"]) == 0
    out = capsys.readouterr().out
    assert 'program not found: /scripts/train.py (key "train.py" of ConfigMap "code" is binary)' in out
    assert main(["fix", str(put(tmp_path, "all.yaml", JOB + "---\n" + DATA)), "--unsafe"]) == 0
    assert "not looked at" not in capsys.readouterr().out


def test_a_key_at_two_paths_is_written_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    parts = mounted()
    parts["mounts"] = [*parts["mounts"], {"name": "code", "mountPath": "/other"}]
    both = job(["bash", "-c", "python /scripts/train.py && exec python /other/train.py"], **parts)
    path = put(tmp_path, "all.yaml", both + "---\n" + DATA)
    _, items = fixed(capsys, str(path), "--write", "--unsafe")
    assert [item["applied"] for item in items if item["rule"] == "never-resumed"] == [True]
    assert path.read_text().count("range(first, 100000)") == 1


def test_an_anchor_is_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = DATA.replace("train.py: |", "train.py: &own |").replace("b: 'x'", "b: *own")
    path = put(tmp_path, "all.yaml", JOB + "---\n" + text)
    code, items = fixed(capsys, str(path), "--write", "--unsafe")
    assert (code, items[0]["reason"]) == (1, "an anchor is shared with another part")
    assert text in path.read_text()


def test_a_full_map_is_written_in_time(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    big = "  big: |\n" + indent("a line that recurs, as lines do\n" * 31000, "      ")
    path = put(tmp_path, "all.yaml", JOB + "---\n" + DATA + big)
    begin = monotonic()
    assert fixed(capsys, str(path), "--write", "--unsafe")[0] == 0
    assert monotonic() - begin < 60
    assert resumed(path.read_text())
