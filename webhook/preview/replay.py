"""What another policy would have said of a decision that is in the audit log.

A line holds what its findings were weighed by: their own severity, the most that they may weigh, the number that was
compared with a limit. What a rule did not find then is not in the log: a rule that was off, a value within its limit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, cast

from msgspec.structs import replace

from webhook.decision.excuses import Excuses, index_of
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

_SEVERITY: Final = {one.value: one for one in Severity}
Granted = Callable[[str], Exceptions | Gap]
"""The CheckpointExceptions of a namespace."""
_OF_POLICY: Final = "exceptions["
"""What the source of an exception begins with that was an entry of the policy of then."""


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

    def denying(self, record: Mapping[str, Any]) -> list[str]:
        """The rules that would refuse the request in mode ``enforce``; ids may come twice."""
        policy = self._in(str(record.get("namespace") or ""))
        exempt = self._policy.exempt
        if policy is None or record.get("user") in exempt.users or record.get("runtime") in exempt.runtimes:
            return []
        request: Request | None = None
        rules = []
        for finding in record["findings"]:
            rule = finding["rule"]
            if _weighed(policy, rule, finding) is not Severity.DENY:
                continue
            if policy.exceptions or "exception" in finding or self._granted is not None:
                request = request or _request(record)
                if self._excused(policy, request, record, finding):
                    continue
            rules.append(rule)
        return rules

    def _in(self, namespace: str) -> Policy | None:
        """The policy of a namespace, of which the log has no labels; None where it exempts all of it."""
        if namespace in self._policy.exempt.namespaces:
            return None
        known = self._known.get(namespace)
        if known is None:
            if len(self._known) > 10_000:
                self._known.clear()
            known = self._known[namespace] = in_named(self._policy, namespace)
        return known

    def _excused(self, policy: Policy, request: Request, record: Mapping[str, Any], finding: Mapping[str, Any]) -> bool:
        """Whether an exception keeps a finding from refusing the request, which has no time yet."""
        rule = finding["rule"]
        given = self._given(policy, rule, finding)
        if self._granted is None and not given:
            index = index_of(policy)
            if index is None or not (index.by_fingerprint or index.may_fit(rule, request)):
                return False
        # Any field will do for the object's own: ``at`` is written as a place already.
        at = Origin(f"{request.kind}/{request.name}", str(finding["at"]), "")
        timed = replace(request, at=parse_moment(str(record.get("time"))) or 0.0)
        return Excuses(timed, self._cluster, policy, given).weigh(rule, at, Severity.DENY)[0] is not Severity.DENY

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
        return [Excuse((rule,), str(given.get("reason")), str(given.get("owner")), until, end, source)]


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


def _request(record: Mapping[str, Any]) -> Request:
    name = record.get("name") or record.get("generateName") or ""
    return Request(
        "UPDATE" if record.get("operation") == "UPDATE" else "CREATE",
        str(record.get("kind")),
        str(record.get("namespace") or ""),
        str(name),
        {},
        user=str(record.get("user") or ""),
    )
