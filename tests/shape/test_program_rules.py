"""The rules about programs are imported late, deny nothing by default, and tell what they found in few words."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from tests.rules.cases import FOLDER
from webhook.model.finding import Severity
from webhook.model.rule import Rule
from webhook.programs.frameworks import FRAMEWORKS
from webhook.programs.rules import program_rule
from webhook.rules import RULES

ABOUT_PROGRAMS = [rule for rule in RULES if rule.reads_program]


@pytest.mark.parametrize("rule", ABOUT_PROGRAMS, ids=lambda rule: rule.id)
def test_what_stands_for_a_rule_is_that_rule(rule: Rule) -> None:
    """The files of these rules are imported when they are asked; until then the tuple tells what has to be known."""
    own = program_rule(rule.id)
    assert (own.id, own.severity, own.on_runtime) == (rule.id, rule.severity, rule.on_runtime)


def test_nothing_that_reads_programs_is_imported_before_there_is_one() -> None:
    code = "import sys, webhook.decision, webhook.cli.review; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    loaded = set(done.stdout.split())
    assert "webhook.rules.claim_not_shared" in loaded
    assert not loaded & {
        "webhook.programs.program",
        "webhook.programs.python",
        "webhook.programs.frameworks",
        "tree_sitter",
    }
    assert not loaded & {f"webhook.rules.{rule.id.replace('-', '_')}" for rule in ABOUT_PROGRAMS}


def test_none_denies_by_default() -> None:
    assert all(rule.severity is not Severity.DENY for rule in ABOUT_PROGRAMS)
    assert all(rule.on_runtime is not Severity.DENY for rule in ABOUT_PROGRAMS)


@pytest.mark.parametrize("rule", ABOUT_PROGRAMS, ids=lambda rule: rule.id)
def test_a_message_points_at_a_line_and_quotes_little(rule: object) -> None:
    for golden in (FOLDER / rule.id).glob("*.txt"):  # type: ignore[attr-defined]
        for line in golden.read_text().splitlines():
            if line.startswith(("spec.", "TrainingRuntime/")) and line.removesuffix(" (warning)").endswith("]"):
                problem = line.partition(": ")[2]
                assert len(problem) <= 160, golden
                assert all(len(quoted) <= 80 for quoted in re.findall(r'"([^"]*)"', problem)), golden


def test_frameworks_are_told_once_and_say_where_it_was_read() -> None:
    assert len({framework.id for framework in FRAMEWORKS}) == len(FRAMEWORKS) >= 14
    for framework in FRAMEWORKS:
        module = __import__(framework.uses.__module__, fromlist=["__doc__"])
        assert re.search(r"\bRead in\b", module.__doc__ or ""), framework.id
        assert any(letter.isdigit() for letter in framework.release), framework.id
