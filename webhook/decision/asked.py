"""Which rules have to be asked: most find nothing to look at in a subject, or had nothing to say of the same pods."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Final

from webhook.model.finding import Finding
from webhook.model.rule import Rule
from webhook.model.sign import signs_of
from webhook.model.subject import Subject
from webhook.rules import RULES
from webhook.storage import claim_signs

Check = tuple[int, Rule, Callable[[Subject], Iterator[Finding]]]
"""Place in the report, rule, its check."""

_NONE: Final[frozenset[str]] = frozenset()

# Unpacked once: over some fifty rules a decision, attribute look-ups are what costs.
_CHECKS: Final = tuple((order, rule, rule.check) for order, rule in enumerate(RULES))
_RUNTIME_CHECKS: Final = tuple(entry for entry in _CHECKS if entry[1].on_runtime is not None)
_ABOUT_PROGRAMS: Final = frozenset(rule.id for rule in RULES if rule.reads_program)
_ON_RUNTIME_PROGRAMS: Final = frozenset(entry[1].id for entry in _RUNTIME_CHECKS if entry[1].reads_program)


def rules_to_ask(subject: Subject) -> tuple[tuple[Check, ...], frozenset[str]]:
    """The rules that may find something in this subject, in order of the report.

    With the ids of those among them whose silence can be kept (``Rule.reads_pods_only``). Raises what reading the
    programs raises; ``every_rule`` serves then.
    """
    signs = signs_of(subject) | claim_signs(subject)
    # The rules that look at the pods alone and had nothing to say of these before.
    silent: frozenset[str] = subject.kept.get("silent", _NONE)
    return _choose(subject.is_trainjob, signs, _about_programs(subject), silent)


def every_rule(subject: Subject) -> tuple[tuple[Check, ...], frozenset[str]]:
    """All rules but those that only speak where a program could be read."""
    return _choose(subject.is_trainjob, ~0, _NONE, _NONE)


def _about_programs(subject: Subject) -> frozenset[str]:
    """Which rules about programs have to be asked: all, unless each has read them before; then those that spoke.

    Most jobs start a program of their image, of which nothing can be read, or the one of their runtime.
    """
    spoke: frozenset[str] = frozenset()
    for program in subject.programs():
        remarks = program.remarks
        mine = remarks.spoke.get(subject.is_trainjob)
        if mine is None:
            every = _ABOUT_PROGRAMS if subject.is_trainjob else _ON_RUNTIME_PROGRAMS
            if not remarks.keys() >= every:
                return every
            mine = remarks.spoke[subject.is_trainjob] = frozenset(rule for rule in every if remarks[rule])
        spoke = spoke | mine if spoke else mine
    return spoke


@lru_cache(maxsize=512)
def _choose(
    trainjob: bool, signs: int, about_programs: frozenset[str], silent: frozenset[str]
) -> tuple[tuple[Check, ...], frozenset[str]]:
    """The rules to ask, in order: those whose sign is there, of those that read programs the ones named, no silent.

    With the ids of those among them whose silence can be kept (``Rule.reads_pods_only``).
    """
    asked = tuple(
        entry
        for entry in (_CHECKS if trainjob else _RUNTIME_CHECKS)
        if (not entry[1].when or entry[1].when & signs)
        and (not entry[1].reads_program or entry[1].id in about_programs)
        and entry[1].id not in silent
    )
    return asked, frozenset(rule.id for _, rule, _ in asked if rule.reads_pods_only)
