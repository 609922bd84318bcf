"""A review for CI servers: JUnit XML, one test case an object, one suite a file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from webhook.message import block, counts
from webhook.model.finding import Severity
from webhook.reports.review import Fault, Review, Reviewed


def render(review: Review) -> str:
    """An XML document. A denial is a failure, what could not be reviewed an error; warnings stand in ``system-out``."""
    suites: dict[str, tuple[list[Reviewed], list[Fault]]] = {}
    for result in review.results:
        suites.setdefault(result.at.file, ([], []))[0].append(result)
    for fault in review.faults:
        suites.setdefault(fault.file or "ckptguard", ([], []))[1].append(fault)
    lines = ['<?xml version="1.0" encoding="UTF-8"?>']
    lines.append(f'<testsuites name="ckptguard review" {_totals(review.results, review.faults)}>')
    for file, (results, faults) in suites.items():
        lines.append(f'  <testsuite name="{_quoted(file)}" {_totals(results, faults)}>')
        for result in results:
            lines.extend(_case(result))
        for fault in faults:
            lines.extend(_error(fault, file))
        lines.append("  </testsuite>")
    lines.append("</testsuites>")
    return "\n".join(lines) + "\n"


def _totals(results: Iterable[Reviewed], faults: Iterable[Fault]) -> str:
    verdicts = [result.verdict for result in results]
    errors = len(list(faults))
    return (
        f'tests="{len(verdicts) + errors}" failures="{verdicts.count("deny")}" errors="{errors}" skipped="0" time="0"'
    )


def _case(result: Reviewed) -> Iterator[str]:
    line = "" if result.at.line is None else f' line="{result.at.line}"'
    name, file = _quoted(result.title), _quoted(result.at.file)
    head = f'    <testcase classname="{_quoted(result.kind)}" name="{name}" file="{file}"{line} time="0"'
    denials = [finding for finding in result.findings if finding.severity is Severity.DENY]
    others = [finding for finding in result.findings if finding.severity is not Severity.DENY]
    if not result.findings:
        yield head + "/>"
        return
    yield head + ">"
    if denials:
        rules = ", ".join(dict.fromkeys(finding.rule for finding in denials))
        text = "\n".join(line for finding in denials for line in block(finding, result.label))
        message = f"{counts((len(denials), 'denial'))}: {rules}"
        head = f'message="{_quoted(message)}" type="{_quoted(denials[0].rule)}"'
        yield f"      <failure {head}>{_escaped(text)}</failure>"
    if others:
        text = "\n".join(line for finding in others for line in block(finding, result.label))
        yield f"      <system-out>{_escaped(text)}</system-out>"
    yield "    </testcase>"


def _error(fault: Fault, file: str) -> Iterator[str]:
    place = ":".join(str(part) for part in (file, fault.line) if part)
    yield f'    <testcase classname="file" name="{_quoted(place)}" file="{_quoted(file)}" time="0">'
    yield f'      <error message="{_quoted(fault.message)}" type="unreviewable">{_escaped(str(fault))}</error>'
    yield "    </testcase>"


def _quoted(text: str) -> str:
    return _escaped(text).replace('"', "&quot;").replace("\n", "&#10;").replace("\t", "&#9;")


def _escaped(text: str) -> str:
    """XML 1.0 cannot hold most control characters at all, escaped or not: they are written as ``\\x1b``."""
    text = "".join(letter if _allowed(ord(letter)) else f"\\x{ord(letter):02x}" for letter in text)
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _allowed(code: int) -> bool:
    if code < 0x20:
        return code in (0x9, 0xA)
    return code < 0x7F or 0xA0 <= code < 0xD800 or 0xE000 <= code < 0xFFFE or code > 0xFFFF
