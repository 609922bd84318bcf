"""The rules about programs, in the order of the report. Each file is imported when its rule is first asked."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import Final

from webhook.model.finding import Severity
from webhook.model.rule import ProgramRule

PROGRAM_RULES: Final = {
    "text-order-resume": Severity.WARN,
    "resume-without-checkpoint": Severity.WARN,
    "resume-not-asked-for": Severity.WARN,
    "unused-resume-argument": Severity.WARN,
    "fixed-resume-path": Severity.WARN,
    "never-resumed": Severity.WARN,
    "never-saved": Severity.WARN,
    "optimizer-not-restored": Severity.WARN,
    "scheduler-not-restored": Severity.WARN,
    "step-not-restored": Severity.WARN,
    "exit-status-lost": Severity.WARN,
    "weights-only-checkpoint": Severity.WARN,
    "overwritten-output": Severity.WARN,
    "overwritten-checkpoint": Severity.WARN,
    "single-checkpoint-kept": Severity.WARN,
    "unlimited-checkpoints": Severity.WARN,
    "timestamped-directory": Severity.WARN,
    "directory-not-used": Severity.WARN,
    "unguarded-rank-write": Severity.WARN,
    "ranks-resume-apart": Severity.WARN,
    "sigterm-not-forwarded": Severity.WARN,
    "no-flush-on-sigterm": Severity.AUDIT,
    "fast-only-checkpoint": Severity.WARN,
    "gathered-shards": Severity.AUDIT,
    "fixed-world-size": Severity.AUDIT,
    "save-interval": Severity.AUDIT,
    "torn-newest": Severity.AUDIT,
    "rng-not-restored": Severity.AUDIT,
    "data-repeated": Severity.AUDIT,
    "program-not-read": Severity.AUDIT,
}
"""id -> severity, which is also the most that a finding on a runtime alone may weigh"""


def module_of(rule: str) -> str:
    """The name of the module that a rule's file is."""
    return f"webhook.programs.rules.{rule.replace('-', '_')}"


@cache
def program_rule(rule: str) -> ProgramRule:
    """The rule of that id. Raises ImportError where there is none."""
    found: ProgramRule = import_module(module_of(rule)).RULE
    return found
