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
