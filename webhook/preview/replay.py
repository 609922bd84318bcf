"""What another policy would have said of a decision that is in the audit log.

A line holds what its findings were weighed by: their own severity, the most that they may weigh, the number that was
compared with a limit. What a rule did not find then is not in the log: a rule that was off, a value within its limit.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from webhook.decision.in_force import in_named
from webhook.model.exceptions import Exceptions
from webhook.model.excuse import fingerprint
from webhook.model.moment import parse_duration, parse_moment
from webhook.model.names import ALLOW
from webhook.model.policy import Policy
from webhook.model.request import Request

_WEIGHT: Final = {"deny": 0, "warn": 1, "audit": 2}


class Replay:
    """One policy, asked about many lines."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._exceptions = Exceptions(policy.exceptions)
        self._known: dict[str, Policy] = {}

    def notes(self) -> list[str]:
        """What the log does not hold of what the policy asks for."""
        policy = self._policy
        told = ["what a rule did not find then (off, or a value within its limit) is not in the log, and not counted"]
        groups = sum(bool(one.match.groups or one.match.labels) for one in policy.exceptions)
        if groups:
            told.append(
                f"{groups} exceptions ask for groups or labels, which the log does not hold: they fit nobody here"
            )
        return told

    def denying(self, record: Mapping[str, Any]) -> list[str]:
        """The rules that would refuse the request in mode ``enforce``; ids may come twice."""
        policy = self._in(str(record.get("namespace") or ""))
        exempt = self._policy.exempt
        if policy is None or record.get("user") in exempt.users or record.get("runtime") in exempt.runtimes:
            return []
        request = _request(record)
        found: dict[str, Any] | None = None
        rules = []
        for finding in record["findings"]:
            rule = finding["rule"]
            if self._severity(policy, rule, finding) != "deny":
                continue
            if policy.exceptions or "exception" in finding:
                if found is None:
                    found = self._exceptions.for_request(request)
                if self._excused(found, policy, request, rule, finding):
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

    def _severity(self, policy: Policy, rule: str, finding: Mapping[str, Any]) -> str:
        setting = policy.rules.get(rule)
        if setting == "off" or _within(policy, rule, finding.get("measure")):
            return "off"
        own = finding.get("own") or finding.get("enforced") or finding["severity"]
        severity = "deny" if finding.get("required") else setting or own
        most = finding.get("most")
        return most if most is not None and _WEIGHT[severity] < _WEIGHT.get(most, 2) else severity

    def _excused(
        self, found: Mapping[str, Any], policy: Policy, request: Request, rule: str, finding: Mapping[str, Any]
    ) -> bool:
        mark = fingerprint(rule, request.kind, request.namespace, request.name, finding["at"])
        of_mark = self._exceptions.of_fingerprint(request, mark)
        for one in (*found.get(rule, ()), *of_mark.get(rule, ())):
            marks = one.entry.match.fingerprints
            if (not marks or mark in marks) and (request.operation == "UPDATE" or request.at < one.excuse.end):
                return True
        given = finding.get("exception")
        if not isinstance(given, Mapping) or given.get("from") != ALLOW or rule not in policy.self_service.rules:
            return False
        end = parse_moment(str(given.get("until")))
        return end is None or request.at < end


def _within(policy: Policy, rule: str, measure: Any) -> bool:
    """Whether the number that was measured is within the policy's limit."""
    if not isinstance(measure, Mapping):
        return False
    value = measure.get("value")
    if not isinstance(value, int | float):
        return False
    limits = policy.limits
    if rule == "short-grace":
        return value >= limits.termination_grace_period_seconds
    if rule == "unbounded-restarts":
        return value <= limits.max_restarts
    if rule == "save-interval":
        return value <= (parse_duration(limits.lost_work) or 0)
    return False


def _request(record: Mapping[str, Any]) -> Request:
    name = record.get("name") or record.get("generateName") or ""
    return Request(
        "UPDATE" if record.get("operation") == "UPDATE" else "CREATE",
        str(record.get("kind")),
        str(record.get("namespace") or ""),
        str(name),
        {},
        user=str(record.get("user") or ""),
        at=parse_moment(str(record.get("time"))) or 0.0,
    )
