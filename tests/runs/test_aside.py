"""Setting aside and putting back in a directory that somebody else fills: no link is followed, nothing is led out."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.runs.folders import found, hf, listing, write
from webhook.runs.aside import Plan, aside_command, parse_outcome, plan_aside, undo_command


def run(words: list[str]) -> str | None:
    """Why it failed; None where it did not."""
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=60)
    assert "Traceback" not in done.stderr, done.stderr
    return parse_outcome(done.stdout)[0]


@pytest.fixture
def place(tmp_path: Path) -> tuple[Path, Path]:
    """The run's directory, with 200 and 300 set aside; and one of somebody else."""
    root, other = tmp_path / "run", tmp_path / "other"
    for step in (100, 200, 300):
        hf(root, step)
    write(other / "checkpoint-900" / "theirs")
    chosen = found(root).at_step(100)
    assert chosen is not None
    assert run(aside_command(str(root), plan_aside(found(root), listing(root), chosen), "T1")) is None
    return root, other


def tree(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


def test_there_and_back(place: tuple[Path, Path]) -> None:
    root, _ = place
    assert {path.name for path in root.iterdir()} == {"checkpoint-100", ".set-aside"}
    assert run(undo_command(str(root))) is None
    assert {path.name for path in root.iterdir()} == {
        "checkpoint-100",
        "checkpoint-200",
        "checkpoint-300",
        ".set-aside",
    }
    assert run(undo_command(str(root))) == "nothing is set aside"


def _link_set_aside(root: Path, other: Path) -> None:
    (root / ".set-aside").rename(other / ".set-aside")
    (root / ".set-aside").symlink_to(other / ".set-aside")


def _link_time(root: Path, other: Path) -> None:
    (root / ".set-aside" / "T1").rename(other / "T1")
    (root / ".set-aside" / "T1").symlink_to(other / "T1")


def _link_moved(root: Path, other: Path) -> None:
    (root / ".set-aside" / "T1" / "moved").rename(other / "moved")
    (root / ".set-aside" / "T1" / "moved").symlink_to(other / "moved")


def _link_written(root: Path, other: Path) -> None:
    hf(root, 200)
    (root / ".set-aside" / "T1" / "written").symlink_to(other)


def _link_journal(root: Path, other: Path) -> None:
    (root / ".set-aside" / "T1" / "journal.json").rename(other / "journal.json")
    (root / ".set-aside" / "T1" / "journal.json").symlink_to(other / "journal.json")


def _link_root(root: Path, other: Path) -> None:
    root.rename(other / "run")
    root.symlink_to(other / "run")


@pytest.mark.parametrize("plant", [_link_set_aside, _link_time, _link_moved, _link_written, _link_journal, _link_root])
def test_a_planted_link_is_not_followed(place: tuple[Path, Path], plant: Callable[[Path, Path], None]) -> None:
    root, other = place
    plant(root, other)
    before = tree(other)
    assert run(undo_command(str(root))) is not None
    assert tree(other) == before
    plan = Plan(("checkpoint-100",), (("latest", "x", False),))
    if plant in (_link_set_aside, _link_root):
        assert "links are not followed" in str(run(aside_command(str(root), plan, "T2")))
        assert tree(other) == before


@pytest.mark.parametrize(
    "path",
    ["../other/checkpoint-900", "/etc/hostname", "a/../../other/checkpoint-900", "a//b", "./a", "..", ".set-aside/T1"],
)
def test_a_forged_journal_leads_nowhere(place: tuple[Path, Path], path: str) -> None:
    root, other = place
    journal = root / ".set-aside" / "T1" / "journal.json"
    journal.write_text(json.dumps({"move": ["checkpoint-200", path]}))
    before = tree(other)
    assert "leads elsewhere" in str(run(undo_command(str(root))))
    assert tree(other) == before
    assert not (root / "checkpoint-200").exists(), "nothing is done where not all can be"


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "5", '{"move": 5}', '{"move": [5]}', '{"move": [""]}', "[" * 200_000, "\0"]
)
def test_a_damaged_journal_is_said(place: tuple[Path, Path], text: str) -> None:
    root, _ = place
    (root / ".set-aside" / "T1" / "journal.json").write_text(text)
    assert "is damaged; what was set aside lies in the folder moved beside it" in str(run(undo_command(str(root))))


def test_a_journal_that_is_a_pipe_is_not_waited_for(place: tuple[Path, Path]) -> None:
    root, _ = place
    journal = root / ".set-aside" / "T1" / "journal.json"
    journal.unlink()
    os.mkfifo(journal)
    assert "is no journal" in str(run(undo_command(str(root))))


def test_a_folder_of_the_plan_that_became_a_link(place: tuple[Path, Path]) -> None:
    """Between the look and the renaming somebody may put a link in the place of a folder."""
    root, other = place
    (root / "sub").symlink_to(other)
    before = tree(other)
    words = aside_command(str(root), Plan(("sub/checkpoint-900",), (("sub/latest", "x", False),)), "T3")
    assert "links are not followed" in str(run(words))
    assert tree(other) == before


def test_names_do_not_forge_the_outcome(place: tuple[Path, Path]) -> None:
    root, _ = place
    name = "checkpoint-7\nDONE\nMOVED a b"
    (root / name).mkdir()
    words = aside_command(str(root), Plan((name, "missing"), ()), "T4")
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=60)
    assert parse_outcome(done.stdout) == (
        "missing is gone",
        [("checkpoint-7?DONE?MOVED", "a b .set-aside/T4/moved/" + name.replace("\n", "?"))],
    )
