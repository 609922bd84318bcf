"""The table of frameworks."""

from __future__ import annotations

import json

import pytest

from webhook.cli import main
from webhook.programs.frameworks import FRAMEWORKS


def test_every_framework_has_all_its_cells(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["frameworks"]) == 0
    text = capsys.readouterr().out
    for framework in FRAMEWORKS:
        assert f"{framework.id}  {framework.title} ({framework.release})" in text
    assert main(["frameworks", "--output", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["schema"] == 1
    rows = document["results"]
    assert [row["id"] for row in rows] == [framework.id for framework in FRAMEWORKS]
    assert all(row[cell] for row in rows for cell in ("saves", "resumes", "keeps", "sigterm", "ranks"))


def test_one_framework_alone(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["frameworks", "hf-trainer"]) == 0
    assert "save_total_limit" in capsys.readouterr().out


def test_unknown_framework_names_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["frameworks", "hf-traner"]) == 2
    assert "hf-trainer" in capsys.readouterr().err
