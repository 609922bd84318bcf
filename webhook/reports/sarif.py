"""A review for code scanning: SARIF 2.1.0 (OASIS Standard, 2020)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import webhook
from webhook.message import place, printable
from webhook.model.finding import Judged, Severity
from webhook.reports.catalogue import Entry, entries
from webhook.reports.json import encode
from webhook.reports.review import Fault, Place, Review, Reviewed

SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
_LEVEL = {Severity.DENY: "error", Severity.WARN: "warning", Severity.AUDIT: "note"}


def render(review: Review) -> str:
    """One SARIF log with one run. What could not be reviewed becomes a notification of an unsuccessful invocation."""
    found = [(result, finding) for result in review.results for finding in result.findings]
    known = _known(finding.rule for _, finding in found)
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
                            "toolExecutionNotifications": [_notification(fault) for fault in review.faults],
                        }
                    ],
                    "results": [_result(result, finding, index[finding.rule]) for result, finding in found],
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


def _result(result: Reviewed, finding: Judged, rule: int) -> dict[str, Any]:
    at = result.locate(finding.at) or result.at
    where = place(finding, result.label)
    return {
        "ruleId": finding.rule,
        "ruleIndex": rule,
        "level": _LEVEL[finding.severity],
        "message": {
            "text": f"{printable(result.title)}: {where}: {printable(finding.problem)}\n"
            f"why: {printable(finding.why)}\nfix: {finding.fix}"
        },
        "locations": [
            {
                "physicalLocation": _physical(at),
                "logicalLocations": [{"fullyQualifiedName": f"{printable(result.label)} {where}", "kind": "member"}],
            }
        ],
        "partialFingerprints": {
            # Without line numbers, so that an alert survives an edit above it.
            "finding/v1": "/".join((result.namespace, result.label, finding.rule, where, finding.subject))
        },
    }


def _notification(fault: Fault) -> dict[str, Any]:
    notification: dict[str, Any] = {
        "level": "error",
        "message": {"text": ": ".join(part for part in (fault.field, fault.message) if part)},
    }
    if fault.file is not None:
        notification["locations"] = [{"physicalLocation": _physical(Place(fault.file, fault.line))}]
    return notification


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
