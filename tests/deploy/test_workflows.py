"""The workflows of GitHub run what runs here: each step is a target of the Makefile."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
import yaml

from tests.deploy.tools import find

HOUSE = Path(__file__).parents[2]
WORKFLOWS = sorted((HOUSE / ".github" / "workflows").glob("*.yml"))
TARGETS = set(re.findall(r"^([a-z][a-z0-9-]*):", (HOUSE / "Makefile").read_text(), re.MULTILINE))


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_every_step_is_a_make_target(path: Path) -> None:
    workflow = yaml.safe_load(path.read_text())
    assert workflow["permissions"] == {"contents": "read"}
    steps = [step for job in workflow["jobs"].values() for step in job["steps"]]
    commands = [step["run"] for step in steps if "run" in step]
    assert commands
    for command in commands:
        words = command.split()
        assert words[0] == "make", command
        assert words[1] in TARGETS, command
    for job in workflow["jobs"].values():
        assert job["timeout-minutes"] <= 90


def test_actionlint_has_nothing_to_say() -> None:
    run = subprocess.run([find("actionlint"), *WORKFLOWS], capture_output=True, text=True, cwd=HOUSE)
    assert run.returncode == 0, run.stdout + run.stderr


def test_the_action_and_what_calls_it(tmp_path: Path) -> None:
    """actionlint reads an action where a workflow of the same repository uses it: inputs that it lacks are faults."""
    action = yaml.safe_load((HOUSE / "action.yml").read_text())
    (tmp_path / ".git").mkdir()
    (tmp_path / "action.yml").write_text((HOUSE / "action.yml").read_text())
    flows = tmp_path / ".github" / "workflows"
    flows.mkdir(parents=True)
    given = "".join(f'          {name}: "1"\n' for name in action["inputs"])
    (flows / "review.yml").write_text(
        "on: push\npermissions: {contents: read}\njobs:\n  review:\n    runs-on: ubuntu-24.04\n    steps:\n"
        f"      - uses: ./\n        id: guard\n        with:\n{given}"
        "      - run: cat ${{ steps.guard.outputs.sarif }}\n"
    )
    run = subprocess.run([find("actionlint")], capture_output=True, text=True, cwd=tmp_path)
    assert run.returncode == 0, run.stdout + run.stderr


@pytest.mark.parametrize("inputs", [{}, {"PROGRAMS": "true", "COMMAND": "python 'a b.py'", "NODES": "2"}])
def test_what_the_action_runs(inputs: dict[str, str], tmp_path: Path) -> None:
    """The script of its last step, with a command in place of ours that tells its arguments."""
    script = yaml.safe_load((HOUSE / "action.yml").read_text())["runs"]["steps"][-1]["run"]
    told = tmp_path / "told"
    told.write_text('#!/bin/bash\nprintf "%s\\n" "$@"\n')
    told.chmod(0o755)
    env = {"CKPTGUARD": str(told), "FILES": "a.py\nmanifests\n", "FAIL_ON": "warn", "SARIF": "x.sarif"}
    env |= {"PROGRAMS": "false", "COMMAND": "", "NODES": "", "DIRECTORY": ""} | inputs
    run = subprocess.run(["bash", "-eo", "pipefail", "-c", script], env=env, capture_output=True, text=True, check=True)
    flags = ["--programs", "--command", "python 'a b.py'", "--nodes", "2"] if inputs else []
    shown = ["review", "--fail-on", "warn", "-o", "text", "-o", "sarif=x.sarif", *flags, "--", "a.py", "manifests"]
    assert run.stdout.splitlines() == shown


def test_the_hooks_of_pre_commit_are_commands_of_ours() -> None:
    for hook in yaml.safe_load((HOUSE / ".pre-commit-hooks.yaml").read_text()):
        assert {"id", "name", "description", "entry", "language", "files"} <= set(hook)
        assert hook["entry"].split()[:2] == ["ckptguard", "review"]
        assert re.compile(hook["files"]).search("a.py" if "programs" in hook["id"] else "a.yaml")
