"""The programs of ``tests/rehearsal`` and our own recipes, rehearsed.

Each planted fault is named and no clean program is accused; every recipe and starter comes back. With torch, and what
stands on it, they are full.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.rehearsal.corpus import CASES, PLAIN, Case
from tests.rehearsal.recipes import FOLDER, RECIPES, Recipe
from tests.rehearsal.venvs import interpreter
from webhook.cli import main

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the machine that is tried is Linux")


def full(needs: str) -> list[pytest.MarkDecorator]:
    return [pytest.mark.full] if needs == "full" else []


def rehearse(tmp_path: Path, needs: str, flags: tuple[str, ...], command: list[str], **env: str) -> dict[str, Any]:
    """The answer in JSON."""
    # torch takes its time to be imported, and to come to its end, on a machine with much else to do.
    waits = ("--grace", "30s", "--timeout", "120s") if needs else ("--grace", "10s", "--timeout", "60s")
    done = subprocess.run(
        [sys.executable, "-m", "webhook", "rehearse", *waits, *flags, "-o", "json", "--", *command],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, **env, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[2]), str(tmp_path)])},
        timeout=800,
    )
    answer: dict[str, Any] = json.loads(done.stdout or "{}")
    assert answer, done.stderr
    return answer


@pytest.mark.parametrize("case", [pytest.param(case, id=case.name, marks=full(case.needs)) for case in CASES])
def test_program(case: Case, tmp_path: Path) -> None:
    python = interpreter(case.needs)
    file = tmp_path / "train.py"
    file.write_text(case.text())
    command = [python, str(file)]
    if case.shell:
        command = ["bash", "-c", case.shell.replace("PROGRAM", str(file)).replace("python3", python)]
    answer = rehearse(tmp_path, case.needs, case.flags, command)
    said = {one["rule"] for one in answer["findings"]}
    assert (case.rule in said) if case.rule else not said, answer
    assert said <= {case.rule, *case.also}, answer
    assert answer["verdict"] == ("resumed" if case.rule in (None, "no-flush-on-sigterm") else "not-resumed"), answer


def test_the_corpus_has_each_kind_and_clean_ones() -> None:
    clean = [case for case in CASES if case.rule is None]
    assert len(CASES) >= 40
    assert len({case.rule for case in CASES if case.rule}) >= 13
    assert len(clean) >= 15


def test_what_running_names_reading_does_not(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of at least ten kinds there is a program of which ``review`` says nothing and ``rehearse`` the fault.

    The second half is ``test_program``; here the text stands in a TrainJob, where it can be read.
    """
    silent = set()
    for case in PLAIN:
        if case.rule is None:
            continue
        job = yaml.safe_load((FOLDER / "plain-python.yaml").read_text())
        job["spec"]["trainer"]["args"] = [f"exec python - <<'PY'\n{case.text()}\nPY\n"]
        path = tmp_path / f"{case.name}.yaml"
        path.write_text(yaml.safe_dump(job))
        main(["review", "--trainer", "2.1", "-o", "json", str(FOLDER / "base.yaml"), str(path)])
        answer = json.loads(capsys.readouterr().out)
        if not any(one["findings"] for one in answer["results"]):
            silent.add(case.rule)
    assert len(silent) >= 10, silent
    assert "text-order-resume" not in silent  # the text is read


@pytest.mark.parametrize("recipe", [pytest.param(one, id=one.name, marks=full(one.needs)) for one in RECIPES])
def test_our_own_recipes_come_back(recipe: Recipe, tmp_path: Path) -> None:
    python = interpreter(recipe.needs)
    environment = recipe.environment(tmp_path, python)
    answer = rehearse(tmp_path, recipe.needs, recipe.flags, recipe.command(tmp_path), **environment)
    assert (answer["verdict"], answer["findings"]) == ("resumed", []), answer
