"""Words for a verdict: Kubernetes warning lines, the denial text, the place of a finding.

Pure. Whatever came from a user's object is made harmless on the way out (control characters, lone surrogates), because
the API server drops a warning that holds a control character and a terminal obeys one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from webhook.model.finding import Judged, Severity
from webhook.model.printable import printable, printable_lines
from webhook.model.verdict import Decision

LINE = 120
"""Characters of one warning line: what the API server's guideline asks for (from 256 on it may cut)."""
BUDGET = 4096
"""Characters of all warnings of one answer together: beyond, the API server drops them."""
_LEAST = 45
"""Neither place nor problem is cut below this many characters: both have to stay recognisable."""


def place(finding: Judged, own: str) -> str:
    """``at`` in every output: the bare field path within the object ``own`` (``<Kind>/<name>``), else with its object.

    ``spec.trainer.env[0]`` or ``ClusterTrainingRuntime/torch spec.template.spec.failurePolicy``.
    """
    at = finding.at
    if at.object == own and at.field:
        return printable(at.field)
    return printable(f"{at.object} {at.field}".rstrip())


def warning_line(finding: Judged) -> str:
    """``<short place>: <problem> [<id>]``, at most ``LINE`` characters.

    The id always survives, since it is what one looks up; the problem is cut before the place.
    """
    where = printable(finding.at.short.rstrip() or finding.at.field or finding.at.object)
    problem = printable(finding.problem)
    tail = f" [{finding.rule}]"
    room = LINE - len(tail)
    line = f"{where}: {problem}"
    if len(line) > room:
        where = _cut(where, max(_LEAST, room - len(": ") - min(len(problem), _LEAST)))
        line = _cut(f"{where}: {problem}", room)
    return line + tail


def warning_lines(findings: Iterable[Judged]) -> tuple[str, ...]:
    """One line for every finding that is not merely audited, each once, within ``BUDGET`` in all.

    Where not all fit, the last line says how many are missing.
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
    return (*told, f"and {left} more findings: ckptguard review shows all of them")


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


def _cut(text: str, room: int) -> str:
    return text if len(text) <= room else text[: room - 1].rstrip() + "…"
