"""A review for people: one block a finding, the patch as a diff, a summary at the end."""

from __future__ import annotations

from collections.abc import Iterator

from webhook.message import counts, fix_lines, place, printable
from webhook.model.finding import Judged, Severity
from webhook.reports.review import Fault, Review, Reviewed

_BOLD, _DIM, _RED, _GREEN, _YELLOW, _CYAN = "1", "2", "31", "32", "33", "36"
_VERDICT = {"deny": ("denied", _RED), "warn": ("allowed, with warnings", _YELLOW), "allow": ("allowed", _GREEN)}
_SEVERITY = {Severity.DENY: ("denied", _RED), Severity.WARN: ("warning", _YELLOW)}

_LOCATED = 100
"""Objects with findings whose lines are looked up, since each costs a second parse: nobody clicks through more."""


def render(review: Review, colour: bool = False) -> Iterator[str]:
    """The lines of the report. ``colour`` uses the terminal's sixteen colours."""
    located = 0
    for index, result in enumerate(review.results):
        located += bool(result.findings)
        if index and (result.findings or result.patch or review.results[index - 1].findings):
            yield ""
        yield from _result(result, colour, located <= _LOCATED)
    if review.results:
        yield ""
        yield summary(review, colour)


def summary(review: Review, colour: bool = False) -> str:
    """``3 reviewed: 1 denied, 2 allowed (4 warnings); 1 could not be reviewed``."""
    verdicts = [result.verdict for result in review.results]
    warnings = sum(finding.severity is Severity.WARN for result in review.results for finding in result.findings)
    denied, allowed = verdicts.count("deny"), len(verdicts) - verdicts.count("deny")
    parts = [part for number, part in ((denied, f"{denied} denied"), (allowed, f"{allowed} allowed")) if number]
    text = f"{len(verdicts)} reviewed: {', '.join(parts)}"
    if warnings:
        text += f" ({counts((warnings, 'warning'))})"
    if review.faults:
        text += f"; {counts((len(review.faults), 'error'))}, see above"
    worst = "deny" if denied else "warn" if warnings or review.faults else "allow"
    return _paint(text, f"{_BOLD};{_VERDICT[worst][1]}", colour)


def fault_line(fault: Fault, colour: bool = False) -> str:
    """``job.yaml:3: spec.trainer: is a string, not a map``, for standard error."""
    return f"{_paint('error:', f'{_BOLD};{_RED}', colour)} {printable(str(fault))}"


def notice_line(notice: str, colour: bool = False) -> str:
    """What was passed over, for standard error."""
    return _paint(f"note: {printable(notice)}", _DIM, colour)


def _result(result: Reviewed, colour: bool, locate: bool) -> Iterator[str]:
    word, shade = _VERDICT[result.verdict]
    update = " (update)" if result.operation == "UPDATE" else ""
    title = _paint(printable(result.title), _BOLD, colour)
    verdict = _paint(word, f"{_BOLD};{shade}", colour)
    yield f"{title}{update}  {_paint(printable(str(result.at)), _DIM, colour)}: {verdict}"
    for finding in result.findings:
        if finding.severity is not Severity.AUDIT:
            yield ""
            yield from _finding(result, finding, colour, locate)
    audited = [finding for finding in result.findings if finding.severity is Severity.AUDIT]
    if audited:
        yield ""
    for finding in audited:
        where = place(finding, result.label)
        yield _paint(f"  noted: {where}: {printable(finding.problem)} [{finding.rule}]", _DIM, colour)
    if result.patch:
        yield ""
        yield from _patch(result, colour)


def _finding(result: Reviewed, finding: Judged, colour: bool, locate: bool) -> Iterator[str]:
    word, shade = _SEVERITY[finding.severity]
    found = result.locate(finding.at) if locate else None
    written = f", {printable(str(found))}" if found is not None else ""
    where = _paint(place(finding, result.label), _BOLD, colour)
    rule = _paint(f"[{finding.rule}]", shade, colour)
    yield f"  {where}: {printable(finding.problem)} {rule} {_paint(f'({word}{written})', _DIM, colour)}"
    yield f"    why: {printable(finding.why)}"
    for line in fix_lines(finding.fix):
        yield f"  {line}"


def _patch(result: Reviewed, colour: bool) -> Iterator[str]:
    from webhook.reports.diff import unified

    lines = unified(result.before, result.after, f"{result.label} as written", f"{result.label} as stored")
    yield f"  {_paint('filled in on admission:', _BOLD, colour)}"
    for line in lines:
        shade = {"+": _GREEN, "-": _RED, "@": _CYAN}.get(line[:1])
        yield "    " + (_paint(line, shade, colour) if shade else line)


def _paint(text: str, code: str, colour: bool) -> str:
    return f"\x1b[{code}m{text}\x1b[0m" if colour else text
