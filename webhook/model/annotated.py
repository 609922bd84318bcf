"""Exceptions of annotation ``checkpoint-guard.io/allow``: one ``rule: reason; until DATE`` a line."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from webhook.model.excuse import Excuse
from webhook.model.moment import DAY, day_of, parse_moment
from webhook.model.names import ALLOW
from webhook.model.nearest import near
from webhook.model.policy import SelfService

LINES: Final = 64
"""More of an annotation is not read."""
_TEXT: Final = 256
"""Characters of a reason that are kept."""
_FORM: Final = "<rule>: <reason>; until 2027-03-31"


class Void(Struct, frozen=True):
    """A line that excuses nothing: which (from 1), why, and what to write."""

    line: int
    why: str
    fix: str


def read_annotation(text: str, service: SelfService, owner: str, now: float) -> tuple[list[Excuse], list[Void]]:
    """The exceptions that an annotation makes, and the lines that make none. ``now`` 0: no day is too far ahead."""
    excuses: list[Excuse] = []
    void: list[Void] = []
    lines = [(number, line.strip()) for number, line in enumerate(text.splitlines(), 1)]
    written = [(number, line) for number, line in lines if line]
    for number, line in written[:LINES]:
        made = _line(number, line, service, owner, now)
        if isinstance(made, Void):
            void.append(made)
        else:
            excuses.append(made)
    if len(written) > LINES:
        number = written[LINES][0]
        void.append(Void(number, f"only {LINES} lines are read", f"{ALLOW}: # at most {LINES} lines"))
    return excuses, void


def _line(number: int, line: str, service: SelfService, owner: str, now: float) -> Excuse | Void:
    rule, colon, rest = line.partition(":")
    reason, semicolon, ending = rest.rpartition(";")
    rule, reason, ending = rule.strip(), reason.strip(), ending.strip()
    word, _, date = ending.partition(" ")
    end = parse_moment(date.strip())
    if not colon or not semicolon or word != "until" or not rule:
        return Void(number, f"it is not of the form {_FORM}", _FORM)
    if end is None:
        return Void(number, f'"{date.strip()[:40]}" is no day', f"{rule[:64]}: {reason[:_TEXT]}; until 2027-03-31")
    if not reason:
        return Void(number, "it has no reason", f"{rule[:64]}: <why>; {ending[:40]}")
    if rule not in service.rules:
        return _not_offered(number, rule, service, reason, ending)
    if now and end > now + service.max_days * DAY:
        last = day_of((now + service.max_days * DAY) // DAY * DAY)
        return Void(
            number,
            f"it ends more than {service.max_days} days ahead, which is the most",
            f"{rule}: {reason[:_TEXT]}; until {last}",
        )
    return Excuse((rule,), reason[:_TEXT], owner, date.strip(), end, ALLOW)


def _not_offered(number: int, rule: str, service: SelfService, reason: str, ending: str) -> Void:
    close = near(rule, service.rules)
    if close:
        return Void(
            number,
            f'"{rule[:64]}" is no rule that an annotation may excuse',
            f"{close}: {reason[:_TEXT]}; {ending[:40]}",
        )
    offered = ", ".join(service.rules[:8]) or "none"
    return Void(
        number,
        f'"{rule[:64]}" is no rule that an annotation may excuse here (selfService: {offered})',
        "# mend the object, or ask whoever runs the platform for an exception in the policy",
    )
