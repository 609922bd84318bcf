"""What is said of an object that cannot be read, and of a part of ours that failed on one."""

from __future__ import annotations

from typing import Final

from webhook.model.finding import Judged, Origin, Severity, broken_rule
from webhook.model.request import MalformedObject, Request
from webhook.model.shape import check_shape

_OLD: Final = "oldObject"


def malformed(request: Request) -> Judged | None:
    within = ""
    try:
        check_shape(request.kind, request.object)
        if request.operation == "UPDATE":
            within = _OLD
            if request.old is None:
                raise MalformedObject("", "is null in an UPDATE")
            check_shape(request.kind, request.old)
    except MalformedObject as fault:
        field = f"{within}.{fault.field}".strip(".")
        return Judged(
            "malformed-object",
            Severity.WARN,
            Origin(f"{request.kind}/{request.name}", field, field),
            fault.problem,
            "the object cannot be read, so nothing was checked and nothing was filled in",
            f"write {fault.field or request.kind} as the CRD has it: "
            f"kubectl explain {_explain(request.kind, fault.field)}",
        )
    return None


def _explain(kind: str, field: str) -> str:
    plain = "".join(part.split("[")[0] + "." for part in field.split(".") if part)
    return f"{kind.lower()}.{plain}".rstrip(".")


def broken_part(request: Request, what: str, error: Exception) -> Judged:
    """A fault of ours. The exception's text may hold what the user wrote, so only its type is told."""
    return broken_rule(
        f"{request.kind}/{request.name}",
        what,
        f'"{what}" failed on this object with {type(error).__name__} and was left out',
        "one check of the guard did not run, so a fault that it looks for may have passed",
        what,
    )
