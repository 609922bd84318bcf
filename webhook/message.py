"""Words for a verdict: Kubernetes warning lines, the denial text, the place of a finding.

Pure. Whatever came from a user's object is made harmless on the way out (control characters, lone surrogates), because
the API server drops a warning that holds a control character and a terminal obeys one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from webhook.model.finding import Judged, Severity, place_of
from webhook.model.printable import printable, printable_lines
from webhook.model.verdict import Decision

FACT = 120
"""Within so many characters of a warning line stand the fact and the id: what the API server's guideline asks for."""
LINE = 256
"""Characters of one warning line: beyond, the API server may cut it."""
BUDGET = 3500
"""Characters of all warnings of one answer together: beyond 4,096, those of others included, it drops them."""
_QUOTED = re.compile(r'"[^"]*"')
_LONGEST = 4096
"""More of a fact is not looked at."""
_CLAUSE = re.compile(r'(?:"[^"]*"|[^":]|:(?! ))*')
"""A fact up to its first colon, behind which stands the reason."""
_KEPT, _LEAST = 24, 12
"""A quoted value of a fact that is too long keeps so many characters, from both ends; the latter where its words, up to
the first colon, would not fit otherwise."""


def place(finding: Judged, own: str) -> str:
    """``at`` in every output: the bare field path within the object ``own`` (``<Kind>/<name>``), else with its object.

    ``spec.trainer.env[0]`` or ``ClusterTrainingRuntime/torch spec.template.spec.failurePolicy``.
    """
    return place_of(finding.at, own)


def warning_line(finding: Judged) -> str:
    """``<fact> [<id>] (<short place>)``: fact and id within ``FACT`` characters, the whole within ``LINE``.

    What decides is said first, since kubectl and log viewers cut at the end. The id always survives, since it is what
    one looks up. A fact that is too long first loses the middle of the values that it quotes, then its end.
    """
    tail = f" [{finding.rule}]"
    line = _fit(printable(finding.problem[:_LONGEST]), FACT - len(tail)) + tail
    where = printable(finding.at.short.rstrip() or finding.at.field or finding.at.object)
    return f"{line} ({_cut(where, LINE - len(line) - 3)})" if where else line


def warning_lines(findings: Iterable[Judged]) -> tuple[str, ...]:
    """One line for every finding that is not merely audited, each once, within ``BUDGET`` in all.

    Where not all fit, the last line says how many are missing and which command tells all.
    """
    shown = [finding for finding in findings if finding.severity is not Severity.AUDIT]
    lines: dict[str, int] = {}
    used = 0
    for index, finding in enumerate(shown):
        if (line := warning_line(finding)) in lines:
            continue
        lines[line] = index
        used += len(line)
        if used > BUDGET:
            break
    told = list(lines)
    if used <= BUDGET:
        return tuple(told)
    while used + LINE > BUDGET:
        used -= len(told.pop())
    left = len(shown) - lines[told[-1]] - 1 if told else len(shown)
    return (*told, f"and {left} more findings: ckptguard review FILE --live shows all, with their fixes")


def denial_text(decision: Decision, own: str, limit: int | None = None) -> str:
    """What the user reads when the object is refused: every finding, the denials first; at most ``limit`` characters.

    kubectl prints it as it is behind a prefix of its own, so the first line is a sentence that ends that long line and
    each finding starts at the left edge. Audited findings are for the audit log alone.
    """
    shown = [finding for finding in decision.findings if finding.severity is not Severity.AUDIT]
    denials = sum(finding.severity is Severity.DENY for finding in shown)
    lines = [headline(own, denials, len(shown) - denials)]
    room = -1 if limit is None else limit - len(lines[0])
    for finding in shown:
        told = block(finding, own)
        lines.extend(told)
        if limit is not None and (room := room - sum(map(len, told)) - len(told)) < 0:
            break
    text = "\n".join(lines)
    return text if limit is None or len(text) <= limit else text[: limit - 1] + "…"


def headline(own: str, denials: int, warnings: int) -> str:
    """``TrainJob/a would not resume from where it stopped: 2 reasons, 1 warning``."""
    counted = counts((denials, "reason"), (warnings, "warning"))
    return f"{printable(own)} would not resume from where it stopped: {counted}"


def block(finding: Judged, own: str) -> list[str]:
    """The lines of one finding: place and fact, ``why:``, ``fix:``; a fix of several lines is indented below."""
    mark = " (warning)" if finding.severity is Severity.WARN else ""
    lines = [f"{place(finding, own)}: {printable(finding.problem)} [{finding.rule}]{mark}"]
    lines.append(f"  why: {printable(finding.why)}")
    lines.extend(fix_lines(finding.fix))
    return lines


def fix_lines(fix: str) -> list[str]:
    """``fix:`` and the text to paste; YAML of several lines keeps its shape below."""
    lines = printable_lines(fix)
    if len(lines) == 1:
        return [f"  fix: {lines[0]}"]
    return ["  fix:", *(f"    {line}".rstrip() for line in lines)]


def counts(*parts: tuple[int, str]) -> str:
    """``(2, "warning"), (1, "denial")`` -> ``2 warnings, 1 denial``; what is 0 is left out."""
    return ", ".join(f"{number} {word}{'' if number == 1 else 's'}" for number, word in parts if number)


def summary(findings: Sequence[Judged]) -> str:
    """``2 denials, 1 warning``."""
    denials = sum(finding.severity is Severity.DENY for finding in findings)
    warnings = sum(finding.severity is Severity.WARN for finding in findings)
    return counts((denials, "denial"), (warnings, "warning"))


def _fit(fact: str, room: int) -> str:
    """The fact in ``room`` characters: its longest quoted values are shortened before its words are."""
    if len(fact) <= room:
        return fact
    shorter = _with_values_of(_KEPT, fact, room)
    if len(shorter) <= room:
        return shorter
    if len(fact) - len(_CLAUSE.sub("", fact, count=1)) < room:
        return _cut(fact, room)
    return _cut(_with_values_of(_LEAST, fact, room), room)


def _with_values_of(least: int, fact: str, room: int) -> str:
    """The fact with the longest of the values that it quotes shortened, each to ``least`` characters at the most."""
    for value in dict.fromkeys(sorted(_QUOTED.findall(fact), key=len, reverse=True)):
        if len(fact) <= room or len(value) <= least:
            break
        short = max(least, len(value) - (len(fact) - room))
        head = (short - 1) // 2
        fact = fact.replace(value, f"{value[:head]}…{value[head + 1 - short :]}")
    return fact


def _cut(text: str, room: int) -> str:
    return text if len(text) <= room else text[: room - 1].rstrip() + "…"
