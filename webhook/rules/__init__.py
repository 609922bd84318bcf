"""The rules, in the order of the report: an explicit list, so that a rule is in the catalogue or it is nowhere."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from typing import Final

from webhook.model.finding import Finding, Severity
from webhook.model.rule import Rule
from webhook.model.subject import Subject
from webhook.programs import program_findings
from webhook.programs.rules import PROGRAM_RULES, module_of, program_rule

_ABOUT_PODS: Final = (
    "ephemeral-checkpoint",
    "node-local-checkpoint",
    "read-only-checkpoint",
    "missing-claim",
    "unusable-claim",
    "claim-not-shared",
    "unbindable-claim",
    "zone-split",
    "claim-deleted-with-job",
    "claim-too-small",
    "unwritable-claim",
    "cached-writes",
    "bucket-annotation-missing",
    "bucket-mount",
    "each-node-writes",
    "shared-directory",
    "per-attempt-directory",
    "unexpanded-directory",
    "unresolved-directory",
    "undeclared-checkpoint",
    "unknown-runtime",
    "volume-source-clash",
    "unbuildable-pod",
    "missing-trainer-label",
    "env-in-override",
    "unknown-override-target",
    "unserved-override",
    "unknown-field",
    "no-restart-budget",
    "unbounded-restarts",
    "pods-retry-alone",
    "restart-ruled-out",
    "restart-count-reset",
    "wedging-update",
    "lost-by-kueue",
    "short-grace",
    "claims-on-worker-cluster",
    "not-rehearsed",
)
_LAST: Final = "judged-in-part"
"""It tells what the others were not shown."""


def _about_pods(rule_id: str) -> Rule:
    """The rule in the file that is named for it. Raises ImportError where there is none."""
    found: Rule = import_module(f"webhook.rules.{rule_id.replace('-', '_')}").RULE
    return found


def _about_programs(rule_id: str, severity: Severity) -> Rule:
    """A rule about programs, as one about pods. Its file is imported when it is asked: most jobs have no program."""

    def check(subject: Subject) -> Iterator[Finding]:
        rule = program_rule(rule_id)
        return program_findings(subject.programs(), rule_id, rule.look, rule.why)

    check.__module__ = module_of(rule_id)
    return Rule(rule_id, severity, "", check, severity, reads_program=True)


RULES: Final[tuple[Rule, ...]] = (
    *map(_about_pods, _ABOUT_PODS),
    *(_about_programs(*entry) for entry in PROGRAM_RULES.items()),
    _about_pods(_LAST),
)
