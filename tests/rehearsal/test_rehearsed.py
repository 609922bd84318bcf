"""``rehearse --write``: the verdict in the file, and the rule that reads it."""

from __future__ import annotations

import datetime
import json
import sys
from pathlib import Path

import pytest

from webhook.cli import main
from webhook.cli.rehearsed import CannotNote, find_target, note

CASES = Path(__file__).parents[1] / "rules" / "not-rehearsed"
POLICY = "apiVersion: checkpoint-guard.io/v1\nkind: Policy\nrules: {not-rehearsed: warn}\n"


@pytest.fixture
def job(tmp_path: Path) -> Path:
    path = tmp_path / "job.yaml"
    path.write_text((CASES / "warn-never.yaml").read_text() + "  # the last word\n")
    return path


def said(job: Path, capsys: pytest.CaptureFixture[str], more: str = "") -> list[str]:
    policy = job.with_name("policy.yaml")
    policy.write_text(POLICY + more)
    main(["review", str(job), "--policy", str(policy), "-o", "json"])
    results = json.loads(capsys.readouterr().out)["results"]
    return [one["problem"] for result in results for one in result["findings"] if one["rule"] == "not-rehearsed"]


def test_what_is_noted_settles_the_rule(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert said(job, capsys) == ["no rehearsal of this run is noted"]
    note(find_target(str(job)), "resumed", datetime.date(2026, 12, 1))
    text = job.read_text()
    assert text.startswith("# ckptguard: --named\n")
    assert text.endswith("  # the last word\n")
    assert text.count(";verdict=resumed;at=2026-12-01") == 1
    assert said(job, capsys) == []
    job.write_text(text.replace('"64"', '"128"'))
    assert said(job, capsys) == [
        "what was rehearsed on 2026-12-01 had another image, command, argument, variable or runtime"
    ]


def test_small_runs_and_rehearsals_themselves_need_none(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert said(job, capsys, "limits: {unrehearsedNodes: 2}\n") == []
    assert len(said(job, capsys, "limits: {unrehearsedNodes: 1}\n")) == 1
    text = job.read_text()
    mark = "  annotations: {checkpoint-guard.io/rehearsal-of: shapes}\n"
    job.write_text(text.replace("  name: shapes-large\n", f"  name: shapes-large\n{mark}", 1))
    assert text != job.read_text()
    assert said(job, capsys) == []


def test_the_directory_and_what_trainer_adds_are_no_change(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    note(find_target(str(job)), "resumed", datetime.date(2026, 12, 1))
    job.write_text(job.read_text().replace("/mnt/ckpt/shapes", "/mnt/ckpt/other").replace("numNodes: 2", "numNodes: 8"))
    assert said(job, capsys) == []


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda text: text.partition("---\n")[2], "its runtime is not in it"),
        (lambda text: text.partition("---\n")[0], "0 TrainJobs"),
        (lambda text: text + "---\n" + text.partition("---\n")[2].replace("shapes-large", "other"), "2 TrainJobs"),
        (lambda text: "a: [", "job.yaml"),
    ],
)
def test_where_it_cannot_be_noted_nothing_is_run(
    change: object, why: str, job: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert callable(change)
    job.write_text(change(job.read_text()))
    assert main(["rehearse", "--write", str(job), "--", sys.executable, "-c", "open('ran', 'w')"]) == 2
    assert why in capsys.readouterr().err


def test_a_file_that_changed_meanwhile_is_left_alone(job: Path) -> None:
    target = find_target(str(job))
    job.write_text(job.read_text() + "# more\n")
    with pytest.raises(CannotNote, match="has changed"):
        note(target, "resumed", datetime.date(2026, 12, 1))


@pytest.mark.parametrize("command", [["--", sys.executable, "-c", "open('ran', 'w')"], ["job.yaml"]])
def test_without_the_library_that_writes_nothing_is_run(
    command: list[str], job: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "ruamel.yaml", None)
    monkeypatch.setattr("webhook.cli.rehearse_cluster.run_on", lambda *_: pytest.fail("it began"))
    monkeypatch.chdir(job.parent)
    assert main(["rehearse", "--write", str(job), *[job.name if one == "job.yaml" else one for one in command]]) == 2
    assert "pip install 'checkpoint-guard[fix]'" in capsys.readouterr().err
    assert not Path("ran").exists()
