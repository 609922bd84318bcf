"""``ckptguard rules`` and the documents made from the same source."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from webhook.cli import main
from webhook.reports.catalogue import Entry, entries, insert_table, markdown_pages
from webhook.rules import RULES

ROOT = Path(__file__).parents[2]
ENTRIES = entries()


def test_every_rule_is_listed_once_in_the_order_of_reports(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rules"]) == 0
    lines = capsys.readouterr().out.splitlines()
    ids = [line.split()[0] for line in lines]
    assert ids[: len(RULES)] == [rule.id for rule in RULES]
    assert len(set(ids)) == len(ids)
    for line, entry in zip(lines, ENTRIES, strict=True):
        assert line.split()[1] == entry.severity.value
        assert line.endswith(entry.title)


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.id)
def test_every_page_is_whole(entry: Entry, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rules", entry.id]) == 0
    out = capsys.readouterr().out
    for part in ("symptom: ", "why: ", "fix: ", "bad:\n", "good:\n"):
        assert f"\n{part}" in out
    assert entry.title
    assert not entry.title.endswith(".")
    for example in (entry.bad, entry.good):
        yaml.safe_load(example)


def test_rules_for_a_program(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rules", "--output", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["schema"] == 1
    assert [row["id"] for row in document["results"]] == [entry.id for entry in ENTRIES]
    assert all(row["why"] and row["fix"] and row["title"] for row in document["results"])
    assert main(["rules", "short-grace", "-o", "json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)["results"]
    assert (row["id"], row["severity"]) == ("short-grace", "warn")


def test_what_is_near_nothing_names_none(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rules", "xyzzy"]) == 2
    assert capsys.readouterr().err == 'error: no rule "xyzzy"; ckptguard rules lists all\n'


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        ("ephemeral-checkpint", "ephemeral-checkpoint"),
        ("EPHEMERAL_CHECKPOINT", "ephemeral-checkpoint"),
        ("claim-shared", "claim-not-shared"),
        ("emptydir", "ephemeral-checkpoint"),
    ],
)
def test_unknown_rule_names_the_nearest(wrong: str, right: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rules", wrong]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f'error: no rule "{wrong}"; nearest: {right}')


def test_documents_are_current() -> None:
    hint = "run python -m webhook.reports.catalogue docs/rules.md README.md"
    assert (ROOT / "docs/rules.md").read_text() == markdown_pages(ENTRIES), hint
    readme = (ROOT / "README.md").read_text()
    assert readme == insert_table(readme, ENTRIES), hint


def test_document_without_markers_is_refused() -> None:
    with pytest.raises(ValueError, match="no markers"):
        insert_table("# nothing", ENTRIES)
