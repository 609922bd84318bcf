"""What a review came to: the one input of every report."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

from msgspec import Struct

from webhook.model.finding import Judged, Origin, Severity
from webhook.model.verdict import Facts


class Place(Struct, frozen=True):
    """A line of a file; ``line`` is counted from 1, None where it is not known."""

    file: str
    line: int | None = None

    def __str__(self) -> str:
        return self.file if self.line is None else f"{self.file}:{self.line}"


def nowhere(_: Origin) -> Place | None:
    """The ``locate`` of an object that came from no file."""
    return None


class Reviewed(Struct, frozen=True):
    """One object and its verdict.

    ``before`` is the object as written, ``after`` with our defaults; ``patch`` leads from one to the other.
    ``locate`` finds the line of a finding's field, in whichever file it was written; it is called for findings only.
    ``name`` is the generateName where there is no name; ``namespace`` is ``""`` for a cluster-scoped object.
    """

    kind: str
    namespace: str
    name: str
    operation: Literal["CREATE", "UPDATE"]
    at: Place
    verdict: Literal["allow", "warn", "deny"]
    findings: tuple[Judged, ...] = ()
    facts: Facts = Facts()
    patch: tuple[Mapping[str, Any], ...] = ()
    before: Mapping[str, Any] = {}
    after: Mapping[str, Any] = {}
    locate: Callable[[Origin], Place | None] = nowhere

    @property
    def label(self) -> str:
        """``<Kind>/<name>``, as in the ``object`` of an Origin."""
        return f"{self.kind}/{self.name}"

    @property
    def title(self) -> str:
        """``TrainJob/name in namespace``, for people."""
        return f"{self.label} in {self.namespace}" if self.namespace else self.label

    def counting(self) -> list[Judged]:
        """The findings that count: all but the audited."""
        return [finding for finding in self.findings if finding.severity is not Severity.AUDIT]


class Fault(Struct, frozen=True):
    """Something that could not be reviewed: where, and why in one line."""

    file: str | None
    message: str
    line: int | None = None
    field: str | None = None

    def __str__(self) -> str:
        place = "" if self.file is None else str(Place(self.file, self.line))
        return ": ".join(part for part in (place, self.field, self.message) if part)


class Review(Struct, frozen=True):
    """Everything that one call of ``ckptguard review`` found. ``notices`` say what was passed over, a line each."""

    results: tuple[Reviewed, ...] = ()
    faults: tuple[Fault, ...] = ()
    notices: tuple[str, ...] = ()

    def exit_code(self) -> Literal[0, 1, 2]:
        """0 allowed, 1 denied, 2 could not review, which wins over 1."""
        if self.faults:
            return 2
        return 1 if any(result.verdict == "deny" for result in self.results) else 0
