"""A review for programs, as JSON. Fields are added and never renamed."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from webhook.message import place
from webhook.model.excuse import Excuse, fingerprint
from webhook.model.finding import Judged
from webhook.model.printable import json_printable
from webhook.model.script import ProgramFact
from webhook.reports.review import Fault, Review, Reviewed

SCHEMA: Final = 1
"""``schema`` of every JSON document: it changes when a field changes its meaning or goes."""


def render(review: Review) -> str:
    """One JSON document, indented by two, with a newline at its end."""
    return encode(
        {
            "schema": SCHEMA,
            "results": [_result(result) for result in review.results],
            "errors": [error(fault) for fault in review.faults],
        }
    )


def encode(document: Any) -> str:
    """Any JSON value as text; a lone surrogate is written as the standard library does."""
    try:
        return json_printable(msgspec.json.format(msgspec.json.encode(document), indent=2).decode()) + "\n"
    except (TypeError, ValueError):  # a lone surrogate
        import json

        return json_printable(json.dumps(document, indent=2, default=str)) + "\n"


def error(fault: Fault) -> dict[str, Any]:
    """One entry of ``errors``; null where a part is not known."""
    return {"file": fault.file, "line": fault.line, "field": fault.field, "message": fault.message}


def _result(result: Reviewed) -> dict[str, Any]:
    facts = result.facts
    ignored = [{**_finding(finding, result), "reason": reason} for finding, reason in result.ignored]
    more = {"ignored": ignored} if ignored else {}
    return more | {
        "kind": result.kind,
        "namespace": result.namespace,
        "name": result.name,
        "operation": result.operation,
        "file": result.at.file,
        "line": result.at.line,
        "verdict": result.verdict,
        "judged": result.judged,
        "findings": [_finding(finding, result) for finding in result.findings],
        "patch": [dict(edit) for edit in result.patch],
        "facts": {
            "nodes": facts.nodes,
            "directory": facts.directory,
            "volume": facts.volume,
            "claim": facts.claim,
            "storage": facts.storage,
            "program": program(facts.program),
        },
    }


def program(fact: ProgramFact | None) -> dict[str, Any] | None:
    """How much of the program was read; null where there is none."""
    if fact is None:
        return None
    return {"state": fact.state, "path": fact.path, "line": fact.line, "reason": fact.reason}


def _finding(finding: Judged, result: Reviewed) -> dict[str, Any]:
    at = place(finding, result.label)
    told: dict[str, Any] = {
        "rule": finding.rule,
        "severity": finding.severity.value,
        "at": at,
        "problem": finding.problem,
        "why": finding.why,
        "fix": finding.fix,
        "fingerprint": fingerprint(finding.rule, result.kind, result.namespace, result.name, at),
    }
    if finding.weight is not None and (excuse := finding.weight.excuse) is not None:
        told["exception"] = excuse_told(excuse)
    return told


def excuse_told(excuse: Excuse) -> dict[str, str]:
    """The exception that excuses a finding, in every output."""
    return {"reason": excuse.reason, "owner": excuse.owner, "until": excuse.until, "from": excuse.source}
