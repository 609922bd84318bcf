"""A review for CI servers: JUnit XML, one test case an object, one suite a file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from webhook.message import block, counts
from webhook.model.finding import Severity
from webhook.model.printable import bounded, printable, printable_text
from webhook.reports.review import Fault, Page, Review, Reviewed


def render(review: Review) -> str:
    """An XML document. A denial is a failure, what could not be reviewed an error; warnings stand in ``system-out``."""
    suites: dict[str, tuple[list[Page], list[Fault]]] = {}
    for page in review.pages():
        suites.setdefault(page.result.at.file, ([], []))[0].append(page)
    for fault in review.faults:
        suites.setdefault(fault.file or "ckptguard", ([], []))[1].append(fault)
    lines = ['<?xml version="1.0" encoding="UTF-8"?>']
    command = "scan" if review.scanned else "review"
    lines.append(f'<testsuites name="ckptguard {command}" {_totals(review.results, review.faults)}>')
    for file, (pages, faults) in suites.items():
        totals = _totals([page.result for page in pages], faults)
        lines.append(f'  <testsuite name="{_quoted(printable(file))}" {totals}>')
        for page in pages:
            lines.extend(_case(page))
        for fault in faults:
            lines.extend(_error(fault, file))
        lines.append("  </testsuite>")
    lines.append("</testsuites>")
    return "\n".join(lines) + "\n"


def _totals(results: Iterable[Reviewed], faults: Iterable[Fault]) -> str:
    results = list(results)
    failures = sum(result.verdict == "deny" for result in results)
    skipped = sum(bool(result.why_unjudged()) for result in results)
    errors = len(list(faults))
    return f'tests="{len(results) + errors}" failures="{failures}" errors="{errors}" skipped="{skipped}" time="0"'


def _case(page: Page) -> Iterator[str]:
    result = page.result
    line = "" if result.at.line is None else f' line="{result.at.line}"'
    name, file = _quoted(printable(result.title)), _quoted(printable(result.at.file))
    head = f'    <testcase classname="{_quoted(result.kind)}" name="{name}" file="{file}"{line} time="0"'
    denials = [finding for finding in result.findings if finding.severity is Severity.DENY]
    here = [told.finding for told in page.told]
    lines = [f"assumed: {printable(result.assumed)}"] if result.assumed else []
    lines += [printable(page.assumed_line())] if page.assumed else []
    lines += [f"program: {printable(result.facts.program.words())}"] if result.facts.program is not None else []
    for finding in here:
        if finding.severity is not Severity.DENY:
            lines += block(finding, result.label)
    lines += _told_elsewhere(page, False)
    unjudged = result.why_unjudged()
    if not (result.findings or unjudged or lines):
        yield head + "/>"
        return
    yield head + ">"
    if unjudged:
        word = "exempt" if result.verdict == "exempt" else "not judged"
        yield f'      <skipped message="{_quoted(printable(f"{word}: {unjudged}"))}"/>'
    if denials:
        rules = ", ".join(dict.fromkeys(finding.rule for finding in denials))
        told = [line for one in here if one.severity is Severity.DENY for line in block(one, result.label)]
        text = "\n".join(map(bounded, [*told, *_told_elsewhere(page, True)]))
        message = f"{counts((len(denials), 'denial'))}: {rules}"
        head = f'message="{_quoted(message)}" type="{_quoted(denials[0].rule)}"'
        yield f"      <failure {head}>{_escaped(text)}</failure>"
    if lines:
        yield f"      <system-out>{_escaped(chr(10).join(map(bounded, lines)))}</system-out>"
    yield "    </testcase>"


def _told_elsewhere(page: Page, denied: bool) -> Iterator[str]:
    """What is told at another object: a line for each."""
    for other, findings in page.elsewhere:
        rules = ", ".join(dict.fromkeys(one.rule for one in findings if (one.severity is Severity.DENY) is denied))
        if rules:
            yield f"as told at {printable(other.title)}: {rules}"


def _error(fault: Fault, file: str) -> Iterator[str]:
    place = _quoted(printable(":".join(str(part) for part in (file, fault.line) if part)))
    yield f'    <testcase classname="file" name="{place}" file="{_quoted(printable(file))}" time="0">'
    message, text = _quoted(printable(fault.message)), _escaped(printable(str(fault)))
    yield f'      <error message="{message}" type="unreviewable">{text}</error>'
    yield "    </testcase>"


def _quoted(text: str) -> str:
    return _escaped(text).replace('"', "&quot;").replace("\n", "&#10;").replace("\t", "&#9;")


def _escaped(text: str) -> str:
    """For XML, which cannot hold most control characters at all, escaped or not: they are written as ``\\x1b``."""
    return printable_text(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
