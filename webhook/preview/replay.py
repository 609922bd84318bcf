"""What another policy would have said of a decision that is in the audit log.

A line holds what its findings were weighed by: their own severity, the most that they may weigh, the number that was
compared with a limit. What a rule did not find then is not in the log: a rule that was off, a value within its limit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any, Final, cast

from msgspec import Struct
from msgspec.structs import replace

from webhook.decision.excuses import Excuses, fitting, index_of
from webhook.decision.in_force import in_named
from webhook.decision.severity import settled
from webhook.model.cluster import ClusterView, Gap
from webhook.model.exceptions import OBJECT, Exceptions
from webhook.model.excuse import Excuse
from webhook.model.finding import Measure, Origin, Severity
from webhook.model.moment import parse_duration, parse_moment
from webhook.model.names import ALLOW
from webhook.model.policy import MEASURED, Policy, Selector
from webhook.model.request import Request
from webhook.preview.lines import Findings, Line

_SEVERITY: Final = {one.value: one for one in Severity}
Granted = Callable[[str], Exceptions | Gap]
"""The CheckpointExceptions of a namespace."""
_MOST: Final = 10_000
"""Namespaces that are remembered, and lists of findings that were weighed."""
_EXEMPT: Final = Policy()
"""Stands for a namespace that is exempt."""
_OF_POLICY: Final = "exceptions["
"""What the source of an exception begins with that was an entry of the policy of then."""


class _Heavy(Struct, frozen=True):
    """The findings of a line that deny by a policy, exceptions apart, and the rule of each."""

    rules: tuple[str, ...]
    findings: list[Mapping[str, Any]]
    excusable: bool
    """Whether there may be an exception for one."""


class _Logged:
    """The cluster, of which a log holds nothing: what excused a finding then stands with it, unless it is given."""

    def __init__(self, granted: Granted | None) -> None:
        self._granted = granted

    def excused_runs(self, namespace: str, besides: str) -> int | Gap:
        return Gap.UNKNOWN

    def exceptions(self, namespace: str) -> Exceptions | Gap:
        return Gap.ABSENT if self._granted is None else self._granted(namespace)


class Replay:
    """One policy, asked about many lines.

    ``granted`` has the CheckpointExceptions of each namespace; None: those that the log names count as they did then.
    """

    def __init__(self, policy: Policy, granted: Granted | None = None) -> None:
        self._policy = policy
        self._granted = granted
        self._cluster = cast(ClusterView, _Logged(granted))
        self._known: dict[str, Policy] = {}
        self._heavy: dict[tuple[int, int], _Heavy] = {}

    def notes(self) -> list[str]:
        """What the log does not hold of what the policy asks for."""
        policy = self._policy
        told = [
            "what a rule did not find then (off, or a value within its limit) is not in the log, and not counted; "
            "nor is what only warned on UPDATE: nobody asked then whether the object had it before"
        ]
        groups = sum(bool(one.match.groups or one.match.labels) for one in policy.exceptions)
        if groups:
            told.append(
                f"{groups} exceptions ask for groups or labels, which the log does not hold: they fit nobody here"
            )
        entries = sum(isinstance(one.selector, Selector) for one in policy.namespaces)
        if entries:
            told.append(
                f"{entries} entries of namespaces select by labels, which the log does not hold: they are for none here"
            )
        return told

    def denying(self, line: Line) -> Sequence[str]:
        """The rules that would refuse the request in mode ``enforce``; ids may come twice."""
        namespace = line.namespace or ""
        policy = self._known.get(namespace) or self._in(str(namespace))
        exempt = self._policy.exempt
        if policy is _EXEMPT or line.user in exempt.users or line.runtime in exempt.runtimes:
            return ()
        heavy = self._heavy_of(policy, line.findings)
        if not heavy.excusable:
            return heavy.rules
        request = _request(line)
        return [
            rule
            for rule, finding in zip(heavy.rules, heavy.findings, strict=True)
            if not self._excused(policy, request, line, rule, finding)
        ]

    def _heavy_of(self, policy: Policy, findings: Sequence[Mapping[str, Any]]) -> _Heavy:
        """Of the findings those that deny, exceptions apart; worked out once for all lines that have the same."""
        if not isinstance(findings, Findings):
            return self._weigh(policy, findings)
        key = (findings.number, id(policy))  # a policy of a namespace lives as long as this table
        found = self._heavy.get(key)
        if found is None:
            if len(self._heavy) > _MOST:
                self._heavy.clear()
            found = self._heavy[key] = self._weigh(policy, findings)
        return found

    def _weigh(self, policy: Policy, findings: Sequence[Mapping[str, Any]]) -> _Heavy:
        heavy = [one for one in findings if _weighed(policy, one["rule"], one) is Severity.DENY]
        asked = bool(policy.exceptions) or self._granted is not None
        excusable = bool(heavy) and (asked or any("exception" in one for one in heavy))
        return _Heavy(tuple([one["rule"] for one in heavy]), heavy, excusable)

    def _in(self, namespace: str) -> Policy:
        """The policy of a namespace, of which the log has no labels; ``_EXEMPT`` where all of it is exempt."""
        if len(self._known) > _MOST:
            self._known.clear()
            self._heavy.clear()
        exempt = namespace in self._policy.exempt.namespaces
        known = self._known[namespace] = _EXEMPT if exempt else in_named(self._policy, namespace)
        return known

    def _excused(self, policy: Policy, request: Request, line: Line, rule: str, finding: Mapping[str, Any]) -> bool:
        """Whether an exception keeps a finding from refusing the request, which has no time yet."""
        given = self._given(policy, rule, finding) if "exception" in finding else ()
        if self._granted is None and not given:
            return _excused_by(policy, request, line, rule, str(finding["at"]))
        # Any field will do for the object's own: ``at`` is written as a place already.
        place = Origin(f"{request.kind}/{request.name}", str(finding["at"]), "")
        timed = replace(request, at=_time(line))
        return Excuses(timed, self._cluster, policy, given).weigh(rule, place, Severity.DENY)[0] is not Severity.DENY

    def _given(self, policy: Policy, rule: str, finding: Mapping[str, Any]) -> list[Excuse]:
        """What excused the finding then and is no part of a policy: a line of an annotation, another object."""
        given = finding.get("exception")
        source = str(given.get("from") or "") if isinstance(given, Mapping) else ""
        if not source or source.startswith(_OF_POLICY) or (source == ALLOW and rule not in policy.self_service.rules):
            return []
        if self._granted is not None and source.startswith(OBJECT):
            return []
        assert isinstance(given, Mapping)  # noqa: S101 - it has a source
        until = str(given.get("until"))
        end = parse_moment(until)
        end = float("inf") if end is None else end
        return [
            Excuse(
                rules=(rule,),
                reason=str(given.get("reason")),
                owner=str(given.get("owner")),
                until=until,
                end=end,
                source=source,
            )
        ]


def _excused_by(policy: Policy, request: Request, line: Line, rule: str, at: str) -> bool:
    """As ``Excuses`` has it of the policy alone: one that has not ended, and on UPDATE one that has."""
    index = index_of(policy)
    if index is None:
        return False
    now: float | None = None
    for excuse in fitting(index, rule, request, at):
        if request.operation == "UPDATE":
            return True
        if now is None:
            now = _time(line)
        if not now or now < excuse.end:
            return True
    return False


def _time(line: Line) -> float:
    """When the request was; 0 where the line does not say."""
    text = line.time
    if type(text) is str and text[-1:] == "Z":
        with suppress(ValueError):  # as the guard writes it
            return datetime.fromisoformat(text).timestamp()
    return parse_moment(str(text)) or 0.0


def _weighed(policy: Policy, rule: str, finding: Mapping[str, Any]) -> Severity | None:
    """What a finding weighs by this policy, exceptions apart; None where there is none by it."""
    setting = policy.rules.get(rule)
    if setting == "off" or _within(policy, rule, finding.get("measure")):
        return None
    own = finding.get("own") or finding.get("enforced") or finding["severity"]
    most = finding.get("most")
    return settled(
        _SEVERITY.get(own, Severity.AUDIT),
        setting,
        None if most is None else _SEVERITY.get(most, Severity.AUDIT),
        bool(finding.get("required")),
    )


def _within(policy: Policy, rule: str, measure: Any) -> bool:
    """Whether the number that was measured is within the policy's limit."""
    if rule not in MEASURED or not isinstance(measure, Mapping) or not isinstance(measure.get("value"), int | float):
        return False
    side, name = MEASURED[rule]
    limit = getattr(policy.limits, name)
    if isinstance(limit, str):
        limit = parse_duration(limit)
    return Measure(measure["value"], "", **{side: limit}).kept


def _request(line: Line) -> Request:
    return Request(
        operation="UPDATE" if line.operation == "UPDATE" else "CREATE",
        kind=str(line.kind),
        namespace=str(line.namespace or ""),
        name=str(line.name or line.generate_name or ""),
        object={},
        user=str(line.user or ""),
    )
