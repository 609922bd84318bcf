"""The recipes of docs/recipes: our own rules find nothing in them, and those that need no GPU really come back.

The recipes of XGBoost and Orbax run in an environment of their own (``make e2e-full``), made once and kept outside the
clone. ``RECIPES_PYTHON`` names another interpreter that has them.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.recipes import environment
from webhook.cluster.documents import Document
from webhook.cluster.file_view import FileView
from webhook.cluster.files import load_files
from webhook.decision import review_object
from webhook.model.names import KINDS
from webhook.model.policy import Policy
from webhook.model.release import Release
from webhook.model.request import Request

FOLDER = Path(__file__).parents[2] / "docs" / "recipes"
BASE = FOLDER / "base.yaml"
RECIPES = sorted(path for path in FOLDER.glob("*.yaml") if path != BASE)
PATIENCE = 120.0
"""Seconds that one run of a recipe may take on a busy machine."""


def documents(path: Path) -> list[Document]:
    loaded = load_files([str(BASE), str(path)])
    assert not loaded.errors
    return loaded.documents


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_our_own_rules_find_nothing(path: Path) -> None:
    found = documents(path)
    for document in found:
        if document.kind in KINDS:
            request = Request("CREATE", document.kind, document.namespace, document.name, document.object)
            decision = review_object(request, FileView(found, Release.V2_1), Policy(), Release.V2_1)
            assert [(finding.rule, finding.problem) for finding in decision.findings] == []
            assert decision.broken == ()


def test_every_recipe_is_in_the_table() -> None:
    table = (FOLDER / "README.md").read_text()
    assert [path.name for path in RECIPES if f"({path.name})" not in table] == []


class Run:
    """A recipe's own command under bash, as its pod starts it, with another directory and fewer steps."""

    def __init__(self, recipe: str, folder: Path, python: Path = Path(sys.executable), **env: str) -> None:
        job = next(one for one in documents(FOLDER / f"{recipe}.yaml") if one.kind == "TrainJob")
        trainer = job.object["spec"]["trainer"]
        self.folder = folder
        self.process = subprocess.Popen(
            [*trainer["command"], *trainer["args"]],
            env={**os.environ, "PATH": f"{python.parent}:{os.environ['PATH']}", "CKPT_DIR": str(folder), **env},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def saved(self, pattern: str) -> list[Path]:
        return sorted(self.folder.glob(pattern))

    def stop_at(self, pattern: str, copies: int, how: signal.Signals) -> str:
        """Waits until so many checkpoints are there, sends the signal, and gives what was printed."""
        deadline = time.monotonic() + PATIENCE
        while len(self.saved(pattern)) < copies:
            assert time.monotonic() < deadline, "no checkpoint appeared"
            assert self.process.poll() is None, self.process.communicate()[1]
            time.sleep(0.01)
        self.process.send_signal(how)
        return self.process.communicate(timeout=PATIENCE)[0]

    def finish(self) -> str:
        out, faults = self.process.communicate(timeout=PATIENCE)
        assert self.process.returncode == 0, faults
        return out


def started_at(out: str) -> int:
    return int(out.split("start ")[1].split()[0])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    place = tmp_path / "run"
    place.mkdir()
    return place


@pytest.fixture(scope="session")
def python() -> Path:
    """An interpreter that has XGBoost and Orbax."""
    return environment.asked_for()


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_plain_python_comes_back_and_ends_where_it_would_have(
    folder: Path, tmp_path: Path, how: signal.Signals
) -> None:
    pause: dict[str, Any] = {"STEPS": "1500", "PAUSE": "0.0005"}
    first = Run("plain-python", folder, **pause).stop_at("step_*.pkl", 3, how)
    assert started_at(first) == 0
    saved = max(int(path.stem.removeprefix("step_")) for path in folder.glob("step_*.pkl"))
    if how is signal.SIGTERM:
        assert "done" in first
        assert f"done {saved} " in first
    second = Run("plain-python", folder, STEPS="1500", PAUSE="0").finish()
    assert started_at(second) == saved + 1 > 200
    assert len(list(folder.glob("step_*.pkl"))) == 3
    whole = tmp_path / "whole"
    whole.mkdir()
    through = Run("plain-python", whole, STEPS="1500", PAUSE="0").finish()
    assert second.splitlines()[-1] == through.splitlines()[-1]


@pytest.mark.full
def test_xgboost_comes_back(folder: Path, python: Path) -> None:
    first = Run("xgboost", folder, python, ROUNDS="100000").stop_at("rounds_*.ubj", 3, signal.SIGKILL)
    assert started_at(first) == 0
    saved = max(int(path.stem.removeprefix("rounds_")) for path in folder.glob("rounds_*.ubj"))
    second = Run("xgboost", folder, python, ROUNDS=str(saved + 50)).finish()
    assert started_at(second) == saved
    assert f"done {saved + 50}" in second
    assert len(list(folder.glob("rounds_*.ubj"))) == 3


@pytest.mark.full
def test_orbax_comes_back(folder: Path, python: Path) -> None:
    first = Run("orbax", folder, python, JAX_PLATFORMS="cpu").stop_at("[0-9]*[!a-z]", 2, signal.SIGKILL)
    assert started_at(first) == 0
    saved = max(int(path.name) for path in folder.iterdir() if path.name.isdigit())
    second = Run("orbax", folder, python, STEPS=str(saved + 10), JAX_PLATFORMS="cpu").finish()
    assert started_at(second) == saved + 1
    assert f"done {saved + 9}" in second
