"""The tables of what was said of public programs: whole, and counted rightly on the page that sums them up."""

from __future__ import annotations

import csv
import re
from collections import Counter
from pathlib import Path

import pytest

from webhook.programs.rules import PROGRAM_RULES

PAGE = Path(__file__).parents[2] / "docs" / "precision.md"
LOOKS = ("first", "second", "third", "fourth", "fifth")


def _rows(look: str) -> list[dict[str, str]]:
    with Path(__file__).with_name(f"{look}.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def _said(row: dict[str, str]) -> list[str]:
    return [rule.strip() for rule in row["said"].split(",") if rule.strip()]


@pytest.mark.parametrize("look", LOOKS)
def test_rows_name_rules_and_say_whether_they_were_right(look: str) -> None:
    rows = _rows(look)
    assert rows
    for row in rows:
        assert row.keys() == {"source", "file", "said", "judgement"}, row
        assert set(_said(row)) <= PROGRAM_RULES.keys(), row
        assert bool(row["said"]) == bool(row["judgement"]), row


def test_the_page_counts_what_the_tables_have() -> None:
    page = PAGE.read_text()
    counted = Counter(rule for look in LOOKS for row in _rows(look) for rule in _said(row))
    assert dict(re.findall(r"^\| ([a-z-]+) \| (\d+) \|$", page, re.MULTILINE)) == {
        rule: str(number) for rule, number in counted.items()
    }
    for look in LOOKS:
        remarked = sum(1 for row in _rows(look) if row["said"])
        assert re.search(rf"^\| {look} \| {len(_rows(look))}\b[^|]*\| {remarked} \|", page, re.MULTILINE), look


def test_what_is_found_of_labelled_programs_is_among_their_labels() -> None:
    rows = _rows("held_out")
    for row in rows:
        assert row.keys() == {
            *("address", "commit", "path", "sha256", "half", "labels", "found_first", "found_after")
        }, row
        labels = set(row["labels"].split())
        assert labels <= PROGRAM_RULES.keys()
        assert set(row["found_first"].split()) <= set(row["found_after"].split()) <= labels, row
        assert (len(row["commit"]), len(row["sha256"])) == (40, 64)
    page = PAGE.read_text()
    for half in ("first", "second"):
        mine = [row for row in rows if row["half"] == half]
        counts = [sum(len(row[column].split()) for row in mine) for column in ("labels", "found_first", "found_after")]
        told = re.search(rf"^\| {half}[^|]*\| (\d+) \| (\d+) \| (\d+) \([^|]*\| (\d+) ", page, re.MULTILINE)
        assert told is not None
        assert [int(one) for one in told.groups()] == [len(mine), *counts]


def test_programs_that_were_launched_are_labelled_and_counted() -> None:
    rows = _rows("launched")
    page = PAGE.read_text()
    by_rule: Counter[str] = Counter()
    found: Counter[str] = Counter()
    for row in rows:
        assert row.keys() == {
            *("address", "commit", "path", "sha256", "half", "launch", "labels", "doubtful"),
            *("found_first", "found_after", "wrong_first", "wrong_after"),
        }, row
        labels = row["labels"].split()
        assert {one for label in labels for one in label.split("|")} <= PROGRAM_RULES.keys()
        assert set(row["found_first"].split()) | set(row["found_after"].split()) <= set(labels), row
        for column in ("doubtful", "wrong_first", "wrong_after"):
            assert set(row[column].split()) <= PROGRAM_RULES.keys(), row
        assert (len(row["commit"]), len(row["sha256"])) == (40, 64)
        by_rule.update(label.partition("|")[0] for label in labels)
        found.update(label.partition("|")[0] for label in row["found_after"].split())
    for half in ("tuned", "untouched", "fresh", "unseen"):
        mine = [row for row in rows if row["half"] == half]
        counts = [sum(len(row[column].split()) for row in mine) for column in ("labels", "found_first", "found_after")]
        wrong = [sum(1 for row in mine if row[column]) for column in ("wrong_first", "wrong_after")]
        told = re.search(
            rf"^\| {half} \| (\d+) \| (\d+) \| (\d+) \([^|]*\| (\d+) \([^|]*\| (\d+) \| (\d+) \|$", page, re.MULTILINE
        )
        assert told is not None, half
        assert [int(one) for one in told.groups()] == [len(mine), *counts, *wrong]
    assert dict(re.findall(r"^\| ([a-z-]+) \| (\d+ of \d+) \|$", page, re.MULTILINE)) == {
        rule: f"{found[rule]} of {number}" for rule, number in by_rule.items()
    }
