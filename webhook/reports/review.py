"""What a review came to: the one input of every report."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, Literal

from msgspec import Struct

from webhook.model.finding import Judged, Origin, Severity
from webhook.model.verdict import Facts

FAIL_ON: Final = ("deny", "warn", "not-judged")
"""What may make the exit code 1; each includes the one before it."""

_SHOWN_OBJECTS: Final = 3
"""How many of the objects that show one fault are named."""


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
    ``judged`` is false where there were no pods to judge; ``unjudged`` then says why, where no finding does.
    ``scope`` is the folder, where another folder has another object of a name that this one may refer to.
    ``assumed`` is the runtime that nobody gave and that Trainer ships: ``torch-distributed as shipped with 2.3``.
    """

    kind: str
    namespace: str
    name: str
    operation: Literal["CREATE", "UPDATE"]
    at: Place
    verdict: Literal["allow", "warn", "deny", "exempt"]
    findings: tuple[Judged, ...] = ()
    facts: Facts = Facts()
    patch: tuple[Mapping[str, Any], ...] = ()
    before: Mapping[str, Any] = {}
    after: Mapping[str, Any] = {}
    locate: Callable[[Origin], Place | None] = nowhere
    judged: bool = True
    unjudged: str = ""
    assumed: str = ""
    scope: str = ""
    ignored: tuple[tuple[Judged, str], ...] = ()
    """Findings that a comment in the program ignores, each with the reason that it gives."""

    @property
    def label(self) -> str:
        """``<Kind>/<name>``, as in the ``object`` of an Origin."""
        return f"{self.kind}/{self.name}"

    @property
    def title(self) -> str:
        """``TrainJob/name in namespace``, for people."""
        return f"{self.label} in {self.namespace}" if self.namespace else self.label

    def why_unjudged(self) -> str:
        """Why it was not judged, in words; empty where it was, or where something was found against it all the same."""
        if self.judged or self.verdict not in ("allow", "exempt"):
            return ""
        return self.unjudged or next((finding.problem for finding in self.findings), "there are no pods to judge")


class Fault(Struct, frozen=True):
    """Something that could not be reviewed: where, and why in one line."""

    file: str | None
    message: str
    line: int | None = None
    field: str | None = None

    def __str__(self) -> str:
        place = "" if self.file is None else str(Place(self.file, self.line))
        return ": ".join(part for part in (place, self.field, self.message) if part)


class Told(Struct, frozen=True):
    """One fault, told at ``result``; ``others`` are the objects that show it as well, ``weights`` what it is there."""

    result: Reviewed
    finding: Judged
    others: list[Reviewed]
    weights: list[Severity]

    def severity(self) -> Severity:
        """The heaviest that it has on any of its objects."""
        return next(one for one in Severity if one is self.finding.severity or one in self.weights)

    def shown_by(self) -> str:
        """``TrainJob/b in team, TrainJob/c in team and 4 more``; empty where no other object shows it."""
        names = [other.title for other in self.others[:_SHOWN_OBJECTS]]
        more = len(self.others) - len(names)
        return ", ".join(names) + (f" and {more} more" if more else "")


class Page(Struct, frozen=True):
    """What is told of one object: ``told`` here, ``elsewhere`` at others, ``assumed`` of the runtime assumed for it."""

    result: Reviewed
    told: list[Told]
    elsewhere: list[tuple[Reviewed, list[Judged]]]
    assumed: list[Judged]

    def assumed_line(self) -> str:
        """The one line about a runtime that Trainer ships."""
        rules = ", ".join(dict.fromkeys(finding.rule for finding in self.assumed))
        return f"for whoever administers {self.assumed[0].at.object}: {rules}"


class Review(Struct, frozen=True):
    """Everything that one call of ``ckptguard review`` found. ``notices`` say what was passed over, a line each.

    ``guarded`` says whether the objects were judged as the guard would store them; ``skipped`` counts what was passed
    over. ``scanned``: these are all objects of a cluster, of which people are shown those with something against them.
    """

    results: tuple[Reviewed, ...] = ()
    faults: tuple[Fault, ...] = ()
    notices: tuple[str, ...] = ()
    guarded: bool = True
    skipped: int = 0
    scanned: bool = False

    def beside(self, other: Review) -> Review:
        """Both as one, this one's objects first."""
        return Review(
            (*self.results, *other.results),
            tuple(dict.fromkeys((*self.faults, *other.faults))),
            tuple(dict.fromkeys((*self.notices, *other.notices))),
            self.guarded,
            self.skipped + other.skipped,
        )

    def exit_code(self, fail_on: str = "deny") -> Literal[0, 1, 2]:
        """0 nothing against it, 1 by ``fail_on`` (one of ``FAIL_ON``), 2 could not review, which wins over 1."""
        if self.faults:
            return 2
        failing = {"deny": ("deny",), "warn": ("deny", "warn"), "not-judged": ("deny", "warn")}[fail_on]
        return (
            1
            if any(
                result.verdict in failing
                or (fail_on == "not-judged" and not result.judged and result.verdict != "exempt")
                for result in self.results
            )
            else 0
        )

    def pages(self) -> list[Page]:
        """Every object in its order, and every fault once.

        What is wrong with a runtime is told at the runtime where that is reviewed too, else at the first TrainJob that
        shows it.
        """
        own: dict[tuple[str, ...], Told] = {}
        pages = [Page(result, [], [], []) for result in self.results]
        for page in pages:
            result = page.result
            for finding in result.findings:
                if finding.at.object == result.label and result.kind != "TrainJob":
                    told = Told(result, finding, [], [])
                    page.told.append(told)
                    own.setdefault(_place_of(result, finding), told)
        first: dict[tuple[str, ...], Told] = {}
        assumed: set[tuple[str, str]] = set()
        for page in pages:
            result = page.result
            elsewhere: dict[int, tuple[Reviewed, list[Judged]]] = {}
            for finding in result.findings:
                if finding.at.object == result.label:
                    if result.kind == "TrainJob":
                        page.told.append(Told(result, finding, [], []))
                    continue
                if result.assumed and finding.severity is not Severity.DENY and "Runtime/" in finding.at.object:
                    if (result.assumed, finding.rule) not in assumed:
                        assumed.add((result.assumed, finding.rule))
                        page.assumed.append(finding)
                    continue
                place = _place_of(result, finding)
                # In one namespace the place makes the fault, whatever number of pods its text has; elsewhere the
                # text has to be the same, since claims are others there.
                ways = ((*place, "in", result.namespace), (*place, "says", finding.problem))
                known = own.get(place) or first.get(ways[0]) or first.get(ways[1])
                if known is None or known.result is result:
                    told = Told(result, finding, [], [])
                    first.update(dict.fromkeys(ways, told))
                    page.told.append(told)
                    continue
                told = known
                told.others.append(result)
                told.weights.append(finding.severity)
                elsewhere.setdefault(id(told.result), (told.result, []))[1].append(finding)
            page.elsewhere.extend(elsewhere.values())
        return pages

    def told(self) -> list[Told]:
        """Every fault once, in the order of the objects."""
        return [told for page in self.pages() for told in page.told]


def _place_of(result: Reviewed, finding: Judged) -> tuple[str, ...]:
    """What makes a fault one and the same for several objects."""
    at = finding.at
    scope = "" if at.object.startswith("ClusterTrainingRuntime/") else result.namespace
    return finding.rule, result.scope, scope, at.object, at.field
