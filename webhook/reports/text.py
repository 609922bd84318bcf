"""A review for people: one block a finding, a summary, and the patches as diffs between them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from webhook.message import counts, fix_lines, printable
from webhook.model.finding import Judged, Severity
from webhook.model.names import INJECTED
from webhook.reports.review import Fault, Review, Reviewed

_BOLD, _DIM, _RED, _GREEN, _YELLOW, _CYAN = "1", "2", "31", "32", "33", "36"
_VERDICT = {"deny": ("denied", _RED), "warn": ("allowed, with warnings", _YELLOW), "allow": ("allowed", _GREEN)}
_SEVERITY = {Severity.DENY: ("denied", _RED), Severity.WARN: ("warning", _YELLOW), Severity.AUDIT: ("noted", _DIM)}
_UNSEEN = "unknown-runtime"
"""The finding that says that there were no pods to judge."""

_LOCATED = 100
"""Objects with findings whose lines are looked up, since each costs a second parse: nobody clicks through more."""


def render(review: Review, colour: bool = False) -> Iterator[str]:
    """The lines of the report. ``colour`` uses the terminal's sixteen colours.

    Every object with its findings comes first, then what admission would fill in, so that no diff stands between two
    verdicts. What several TrainJobs have from one runtime is explained once.
    """
    located = 0
    told: set[tuple[str, ...]] = set()
    for index, result in enumerate(review.results):
        located += bool(result.findings)
        if index and (result.findings or review.results[index - 1].findings):
            yield ""
        yield from _result(result, colour, located <= _LOCATED, told)
    patched = [result for result in review.results if result.patch]
    if patched:
        yield ""
        yield _paint(f"filled in on admission, and recorded in annotation {INJECTED}:", _BOLD, colour)
    for result in patched:
        yield ""
        yield from _patch(result, colour)
    if review.results:
        yield ""
        yield summary(review, colour)


def summary(review: Review, colour: bool = False) -> str:
    """``4 reviewed: 1 denied, 2 allowed, 1 not judged (4 warnings); 1 error, see above``."""
    verdicts = [result.verdict for result in review.results]
    warnings = sum(finding.severity is Severity.WARN for result in review.results for finding in result.findings)
    denied, unseen = verdicts.count("deny"), sum(map(_unseen, review.results))
    allowed = len(verdicts) - denied - unseen
    parts = ((denied, "denied"), (allowed, "allowed"), (unseen, "not judged"))
    text = f"{len(verdicts)} reviewed: {', '.join(f'{number} {word}' for number, word in parts if number)}"
    if warnings:
        text += f" ({counts((warnings, 'warning'))})"
    if review.faults:
        text += f"; {counts((len(review.faults), 'error'))}, see above"
    worst = "deny" if denied else "warn" if warnings or review.faults or unseen else "allow"
    return _paint(text, f"{_BOLD};{_VERDICT[worst][1]}", colour)


def fault_line(fault: Fault, colour: bool = False) -> str:
    """``job.yaml:3: spec.trainer: is a string, not a map``, for standard error."""
    return f"{_paint('error:', f'{_BOLD};{_RED}', colour)} {printable(str(fault))}"


def notice_line(notice: str, colour: bool = False) -> str:
    """What was passed over, for standard error."""
    return _paint(f"note: {printable(notice)}", _DIM, colour)


def _unseen(result: Reviewed) -> bool:
    """Whether it is allowed for want of a runtime, which is not to be taken for a good verdict."""
    return result.verdict == "allow" and any(finding.rule == _UNSEEN for finding in result.findings)


def _result(result: Reviewed, colour: bool, locate: bool, told: set[tuple[str, ...]]) -> Iterator[str]:
    word, shade = ("allowed, not judged", _YELLOW) if _unseen(result) else _VERDICT[result.verdict]
    update = " (update)" if result.operation == "UPDATE" else ""
    title = _paint(printable(result.title), _BOLD, colour)
    verdict = _paint(word, f"{_BOLD};{shade}", colour)
    yield f"{title}{update}  {_paint(printable(str(result.at)), _DIM, colour)}: {verdict}"
    for finding in result.findings:
        yield ""
        yield from _finding(result, finding, colour, locate, told)


def _finding(
    result: Reviewed, finding: Judged, colour: bool, locate: bool, told: set[tuple[str, ...]]
) -> Iterator[str]:
    at = finding.at
    word, shade = _SEVERITY[finding.severity]
    found = result.locate(at) if locate else None
    written = f", {printable(str(found))}" if found is not None else ""
    short = at.short.rstrip() or at.field
    where = short if at.object == result.label and short else f"{at.object} {short}".rstrip()
    rule = _paint(f"[{finding.rule}]", shade, colour)
    yield (
        f"  {_paint(printable(where), _BOLD, colour)}: {printable(finding.problem)} {rule} "
        f"{_paint(f'({word}{written})', _DIM, colour)}"
    )
    if at.object != result.label or finding.severity is Severity.AUDIT:
        key: tuple[str, ...] = (finding.rule, finding.why, finding.fix)
        if finding.severity is not Severity.AUDIT:
            key += (at.object, at.field)
        if key in told:
            yield "    why, fix: as above"
            return
        told.add(key)
    if at.field not in (short, f"spec.{short}"):
        yield f"    at: {_paint(printable(at.field), _DIM, colour)}"
    yield f"    why: {printable(finding.why)}"
    for line in fix_lines(finding.fix):
        yield f"  {line}"


def _patch(result: Reviewed, colour: bool) -> Iterator[str]:
    from webhook.reports.diff import unified

    after = _without_record(result.before, result.after)
    label = printable(result.label)
    for line in unified(result.before, after, f"{label} as written", f"{label} as stored"):
        shade = {"+": _GREEN, "-": _RED, "@": _CYAN}.get(line[:1])
        yield "  " + (_paint(line, shade, colour) if shade else line)


def _without_record(before: Mapping[str, Any], after: Mapping[str, Any]) -> Mapping[str, Any]:
    """The filled-in object with the record of what was added as it was before: it says the same as the diff."""
    metadata = after.get("metadata") or {}
    annotations = metadata.get("annotations") or {}
    old = before.get("metadata") or {}
    was = (old.get("annotations") or {}).get(INJECTED)
    if annotations.get(INJECTED) == was:
        return after
    left = {name: was if name == INJECTED else value for name, value in annotations.items() if name != INJECTED or was}
    kept = {name: left if name == "annotations" else value for name, value in metadata.items()}
    if not left and "annotations" not in old:
        del kept["annotations"]
    elif not left:
        kept["annotations"] = old["annotations"]
    return {**after, "metadata": kept}


def _paint(text: str, code: str, colour: bool) -> str:
    return f"\x1b[{code}m{text}\x1b[0m" if colour else text
