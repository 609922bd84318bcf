"""What a finding weighs: its rule's severity, after policy, the namespace's mode, and what UPDATE leaves alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from msgspec.structs import replace

from webhook.model.cluster import ClusterView, Gap
from webhook.model.finding import Finding, Judged, Severity, Weight, as_set
from webhook.model.names import MODE
from webhook.model.policy import Policy
from webhook.model.request import Request
from webhook.model.rule import Rule
from webhook.model.subject import Subject

EXEMPT: Final = "exempt"
"""The mode of a request that policy exempts."""

PUT_BACK_ONLY: Final = frozenset({"audit", "off", EXEMPT})
"""The modes in which nothing is filled in, and what is found is only noted."""

WEIGHT: Final = {Severity.DENY: 0, Severity.WARN: 1, Severity.AUDIT: 2}
"""The heaviest first, as findings are reported."""

_MODES: Final = frozenset({"enforce", "warn", "audit", "off"})
_SETTING: Final = {"deny": Severity.DENY, "warn": Severity.WARN, "audit": Severity.AUDIT}


def mode_of(request: Request, cluster: ClusterView, policy: Policy) -> str:
    exempt = policy.exempt
    if request.namespace in exempt.namespaces or request.user in exempt.users:
        return EXEMPT
    if exempt.groups and not set(exempt.groups).isdisjoint(request.groups):
        return EXEMPT
    if exempt.runtimes and _runtime_of(request) in exempt.runtimes:
        return EXEMPT
    if request.namespace:
        namespace = cluster.namespace(request.namespace)
        if not isinstance(namespace, Gap) and (label := namespace.labels.get(MODE)) in _MODES:
            return label
    return policy.modes.default


def _runtime_of(request: Request) -> str:
    """``<Kind>/<name>`` of a runtime, or of the one that a TrainJob refers to."""
    if request.kind != "TrainJob":
        return f"{request.kind}/{request.name}"
    spec = request.object.get("spec")
    ref = spec.get("runtimeRef") if isinstance(spec, Mapping) else None
    return f"{ref.get('kind') or 'ClusterTrainingRuntime'}/{ref.get('name')}" if isinstance(ref, Mapping) else ""


def weigh(rule: Rule, finding: Finding, subject: Subject) -> Weight | None:
    """What a finding weighs in mode ``enforce``, exceptions apart; None where policy turned its rule off.

    Policy's word replaces the rule's own severity, a finding's caps come after it, and on UPDATE nothing is denied that
    the old object had too or that a controller writes.
    """
    setting = subject.policy.rules.get(rule.id)
    if setting == "off":
        return None
    own = finding.raised or rule.severity
    most = finding.at_most
    if rule.on_runtime is not None and not subject.is_trainjob:
        most = rule.on_runtime if most is None else _lighter(most, rule.on_runtime)
    severity = settled(own, setting, most, finding.required)
    # Of what does not deny nobody needs to know whether the old object had it.
    if (
        subject.request.operation == "UPDATE"
        and most is not Severity.AUDIT
        and (severity is not Severity.DENY or subject.request.by_controller or _had_before(rule, finding, subject))
    ):
        most = Severity.WARN
        severity = _lighter(severity, most)
    return Weight(own, severity, most, finding.required, None, finding.measure)


def settled(own: Severity, setting: str | None, most: Severity | None, required: bool) -> Severity:
    """What ``rules`` of a policy makes of a finding, exceptions apart: its word instead of the rule's own severity.

    ``setting`` is that word, not ``off``; ``most`` is what the finding may weigh at most whatever policy says.
    """
    severity = Severity.DENY if required else own if setting is None else _SETTING[setting]
    return severity if most is None else _lighter(severity, most)


def in_this_mode(severity: Severity, mode: str) -> Severity:
    """What counts of a severity in a namespace's mode."""
    if mode == "audit":
        return Severity.AUDIT
    if mode == "warn" and severity is Severity.DENY:
        return Severity.WARN
    return severity


def _had_before(rule: Rule, finding: Finding, subject: Subject) -> bool:
    before = subject.old()
    if before is None:
        return False
    known: set[tuple[str, str, str]] | None = before.memo.get(rule.id)
    if known is None:
        known = {(other.job, other.container, other.subject) for other in rule.check(before)}
        before.memo[rule.id] = known
    return (finding.job, finding.container, finding.subject) in known


def _lighter(one: Severity, other: Severity) -> Severity:
    return one if WEIGHT[one] >= WEIGHT[other] else other


def in_mode(finding: Judged, mode: str, policy: Policy) -> tuple[Judged, ...]:
    """A finding that no rule yields weighs what policy and mode let it weigh; nothing where policy turned it off."""
    return noted(as_set(finding, policy.rules), mode)


def noted(findings: tuple[Judged, ...], mode: str) -> tuple[Judged, ...]:
    """Findings that policy has weighed, in a mode that may only note them, or as they are."""
    if mode not in PUT_BACK_ONLY:
        return findings
    return tuple([replace(one, severity=Severity.AUDIT) for one in findings])
