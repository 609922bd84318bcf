"""A review for code scanning: SARIF 2.1.0 (OASIS Standard, 2020)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import webhook
from webhook.message import place
from webhook.model.finding import Severity
from webhook.model.printable import printable, printable_text
from webhook.reports.catalogue import Entry, entries
from webhook.reports.json import encode
from webhook.reports.review import Fault, Page, Place, Review, Told

SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
_LEVEL = {Severity.DENY: "error", Severity.WARN: "warning", Severity.AUDIT: "note"}


def render(review: Review) -> str:
    """One SARIF log with one run. What could not be reviewed becomes a notification of an unsuccessful invocation."""
    pages = review.pages()
    found = [told for page in pages for told in page.told]
    ignored = [(result, finding, reason) for result in review.results for finding, reason in result.ignored]
    known = _known([*(told.finding.rule for told in found), *(finding.rule for _, finding, _ in ignored)])
    index = {entry.id: at for at, entry in enumerate(known)}
    return encode(
        {
            "$schema": SCHEMA,
            "version": "2.1.0",
            "runs": [
                {
                    "tool": {
                        "driver": {
                            "name": "Checkpoint Guard",
                            "version": webhook.__version__,
                            "semanticVersion": webhook.__version__,
                            "rules": [_rule(entry) for entry in known],
                        }
                    },
                    "columnKind": "unicodeCodePoints",
                    "invocations": [
                        {
                            "executionSuccessful": not review.faults,
                            "toolExecutionNotifications": [
                                *(_notification(fault) for fault in review.faults),
                                *(note for page in pages for note in _notes(page)),
                            ],
                        }
                    ],
                    "results": [
                        *(_result(told, index[told.finding.rule]) for told in found),
                        *(
                            _result(Told(result, finding, [], []), index[finding.rule])
                            | {"suppressions": [{"kind": "inSource", "justification": printable(reason)}]}
                            for result, finding, reason in ignored
                        ),
                    ],
                }
            ],
        }
    )


def _known(used: Iterable[str]) -> list[Entry]:
    """Every rule of the catalogue, and whatever else a finding is named after (an administrator's own rule)."""
    known = list(entries())
    ids = {entry.id for entry in known}
    extra = dict.fromkeys(rule for rule in used if rule not in ids)
    return known + [Entry(id=rule, severity=Severity.WARN, title=rule, why=rule) for rule in extra]


def _rule(entry: Entry) -> dict[str, Any]:
    help_text = [text for text in (f"why: {entry.why}", entry.fix and f"fix: {entry.fix}") if text]
    return {
        "id": entry.id,
        "shortDescription": {"text": f"{entry.title}."},
        "fullDescription": {"text": f"{entry.title}: {entry.why}."},
        "help": {"text": "\n".join(help_text)},
        "defaultConfiguration": {"level": _LEVEL[entry.severity]},
    }


def _result(told: Told, rule: int) -> dict[str, Any]:
    result, finding = told.result, told.finding
    also = f"\nof {printable(told.shown_by())} too" if told.others else ""
    at = result.locate(finding.at) or result.at
    where = place(finding, result.label)
    return {
        "ruleId": finding.rule,
        "ruleIndex": rule,
        "level": _LEVEL[told.severity()],
        "message": {
            "text": f"{printable(result.title)}: {where}: {printable(finding.problem)}\n"
            f"why: {printable(finding.why)}\nfix: {printable_text(finding.fix)}{also}"
        },
        "locations": [
            {
                "physicalLocation": _physical(at),
                "logicalLocations": [{"fullyQualifiedName": f"{printable(result.label)} {where}", "kind": "member"}],
            }
        ],
        "partialFingerprints": {
            # Without line numbers, so that an alert survives an edit above it.
            "finding/v1": printable("/".join((result.namespace, result.label, finding.rule, where, finding.subject)))
        },
    }


def _notification(fault: Fault) -> dict[str, Any]:
    notification: dict[str, Any] = {
        "level": "error",
        "message": {"text": printable(": ".join(part for part in (fault.field, fault.message) if part))},
    }
    if fault.file is not None:
        notification["locations"] = [{"physicalLocation": _physical(Place(fault.file, fault.line))}]
    return notification


def _notes(page: Page) -> Iterator[dict[str, Any]]:
    """That an object was not judged, or by which runtime that nobody gave: no alert, but not to be taken for a pass."""
    result = page.result
    told = []
    if unjudged := result.why_unjudged():
        told.append(f"{'exempt' if result.verdict == 'exempt' else 'not judged'}: {unjudged}")
    if result.assumed:
        told.append(f"assumed: {result.assumed}")
    if page.assumed:
        told.append(page.assumed_line())
    if result.facts.program is not None:
        told.append(f"program: {result.facts.program.words()}")
    for text in told:
        yield {
            "level": "note",
            "message": {"text": printable(f"{result.title}: {text}")},
            "locations": [{"physicalLocation": _physical(result.at)}],
        }


def _physical(at: Place) -> dict[str, Any]:
    physical: dict[str, Any] = {"artifactLocation": {"uri": _uri(at.file)}}
    if at.line is not None:
        physical["region"] = {"startLine": at.line}
    return physical


def _uri(file: str) -> str:
    """A URI reference: relative paths stay relative (to the checkout), absolute ones become ``file:``."""
    from urllib.parse import quote

    if file == "-":
        return "stdin"
    path = quote(file.replace("\\", "/"), safe="/@!$&'()*+,;=~")
    if path.startswith("/"):
        return f"file://{path}"
    return path.removeprefix("./")
