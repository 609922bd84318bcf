"""A review for people: one block a finding, a summary, and the patches as diffs between them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from webhook.message import counts, fix_lines
from webhook.model.finding import Severity
from webhook.model.names import INJECTED, KINDS
from webhook.model.printable import printable
from webhook.reports.review import Fault, Page, Review, Reviewed, Told

_BOLD, _DIM, _RED, _GREEN, _YELLOW, _CYAN = "1", "2", "31", "32", "33", "36"
_VERDICT = {
    "deny": ("denied", _RED),
    "warn": ("allowed, with warnings", _YELLOW),
    "allow": ("allowed", _GREEN),
    "exempt": ("exempt", _YELLOW),
}
_SEVERITY = {Severity.DENY: ("denied", _RED), Severity.WARN: ("warning", _YELLOW), Severity.AUDIT: ("noted", _DIM)}
_LOCATED = 100
"""Objects with findings whose lines are looked up, since each costs a second parse: nobody clicks through more."""


def render(review: Review, colour: bool = False) -> Iterator[str]:
    """The lines of the report. ``colour`` uses the terminal's sixteen colours.

    Every object with its findings comes first, then what admission would fill in, so that no diff stands between two
    verdicts. What several TrainJobs have from one runtime is explained once.
    """
    located = 0
    told: set[tuple[str, ...]] = set()
    pages = review.pages()
    shown = [page for page in pages if _worth_a_line(page)] if review.scanned else pages
    for index, page in enumerate(shown):
        located += bool(page.told)
        if index and (page.result.findings or shown[index - 1].result.findings):
            yield ""
        yield from _page(page, colour, located <= _LOCATED, told)
    patched = [result for result in review.results if result.patch]
    if patched:
        yield ""
        yield _paint(f"filled in on admission, and recorded in annotation {INJECTED}:", _BOLD, colour)
    for result in patched:
        yield ""
        yield from _patch(result, colour)
    if review.results:
        if shown:
            yield ""
        if any(result.kind in KINDS for result in review.results):
            yield _how_judged(review)
        yield summary(review, colour, pages)


def _how_judged(review: Review) -> str:
    """Whether the verdicts presume an installed guard: it is the same file and another answer."""
    if review.scanned:
        return "judged as the objects stand, in namespaces of mode warn or audit too as enforce would have them"
    if not review.guarded:
        return "judged without the guard: the objects as they are (--without-guard)"
    filled = sum(1 for result in review.results if result.patch)
    if not filled:
        return "judged as with the guard installed, which fills in nothing here"
    shown = "the objects" if filled > 1 else "the object"
    return f"judged as with the guard installed, which fills in {shown} above; without it: --without-guard"


def summary(review: Review, colour: bool = False, pages: list[Page] | None = None) -> str:
    """``4 reviewed: 1 denied, 2 allowed, 1 not judged (4 warnings), 1 skipped; 1 error, see above``."""
    verdicts = [result.verdict for result in review.results]
    pages = review.pages() if pages is None else pages
    warnings = sum(told.severity() is Severity.WARN for page in pages for told in page.told)
    warnings += sum(finding.severity is Severity.WARN for page in pages for finding in page.assumed)
    denied, exempt, unseen = verdicts.count("deny"), verdicts.count("exempt"), sum(map(_unseen, review.results))
    allowed = len(verdicts) - denied - unseen - exempt
    parts = ((denied, "denied"), (allowed, "allowed"), (unseen, "not judged"), (exempt, "exempt"))
    done = "scanned" if review.scanned else "reviewed"
    text = f"{len(verdicts)} {done}: {', '.join(f'{number} {word}' for number, word in parts if number)}"
    if warnings:
        text += f" ({counts((warnings, 'warning'))})"
    if review.skipped:
        text += f", {review.skipped} skipped"
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


def _worth_a_line(page: Page) -> bool:
    """Whether a scan shows it: not what is allowed, was judged, and has no more than notes."""
    return (
        page.result.verdict not in ("allow", "exempt")
        or _unseen(page.result)
        or any(told.severity() is not Severity.AUDIT for told in page.told)
    )


def _unseen(result: Reviewed) -> bool:
    """Whether it is allowed because nothing was judged, which is not to be taken for a good verdict."""
    return result.verdict == "allow" and not result.judged


def _page(page: Page, colour: bool, locate: bool, seen: set[tuple[str, ...]]) -> Iterator[str]:
    result = page.result
    word, shade = ("allowed, not judged", _YELLOW) if _unseen(result) else _VERDICT[result.verdict]
    if result.unjudged:
        word += f" ({result.unjudged})"
    update = " (update)" if result.operation == "UPDATE" else ""
    title = _paint(printable(result.title), _BOLD, colour)
    verdict = _paint(word, f"{_BOLD};{shade}", colour)
    yield f"{title}{update}  {_paint(printable(str(result.at)), _DIM, colour)}: {verdict}"
    if result.assumed:
        yield f"  assumed: {printable(result.assumed)}"
    if page.assumed:
        yield f"  {printable(page.assumed_line())}"
    if result.facts.program is not None:
        yield f"  program: {printable(result.facts.program.words())}"
    for other, findings in page.elsewhere:
        rules = ", ".join(dict.fromkeys(f"{one.rule} ({_SEVERITY[one.severity][0]})" for one in findings))
        yield f"  as told at {printable(other.title)}: {rules}"
    for ignored, reason in result.ignored:
        at = f"{printable(ignored.at.short)}: " if ignored.at.short else ""
        yield _paint(f"  ignored: {at}{ignored.rule}: {printable(reason)}", _DIM, colour)
    for told in page.told:
        yield ""
        yield from _finding(told, colour, locate, seen)


def _finding(fault: Told, colour: bool, locate: bool, told: set[tuple[str, ...]]) -> Iterator[str]:
    result, finding, at = fault.result, fault.finding, fault.finding.at
    word, shade = _SEVERITY[fault.severity()]
    found = result.locate(at) if locate else None
    written = f", {printable(str(found))}" if found is not None else ""
    short = at.short.rstrip() or at.field
    where = short if at.object == result.label and short else f"{at.object} {short}".rstrip()
    rule = _paint(f"[{finding.rule}]", shade, colour)
    yield (
        f"  {_paint(printable(where), _BOLD, colour)}: {printable(finding.problem)} {rule} "
        f"{_paint(f'({word}{written})', _DIM, colour)}"
    )
    if fault.others:
        yield f"    of {printable(fault.shown_by())} too"
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
    if finding.weight is not None and (excuse := finding.weight.excuse) is not None:
        said = f"{excuse.reason} ({excuse.owner}, until {excuse.until}, {excuse.source})"
        yield f"    excused: {printable(said)}"
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
