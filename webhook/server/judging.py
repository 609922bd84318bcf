"""From a review to everything that follows of it: answer, audit record, what is counted. Pure but for the clock.

The event loop and the worker process both come through here, so that an answer does not depend on where it was made.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import replace

from webhook.audit import decision_record, deletion_record, patch_record
from webhook.metrics import MUTATE, VALIDATE
from webhook.model.cluster import ClusterView
from webhook.model.deletion import Deletion
from webhook.model.finding import Judged, Severity, as_set
from webhook.model.names import CERTIFICATE, PROBE
from webhook.model.policy import Policy
from webhook.model.release import Release
from webhook.model.request import Request
from webhook.model.verdict import Decision, Defaulted
from webhook.server.caller import Caller
from webhook.server.envelope import (
    Review,
    allow,
    broken,
    deletion_judged,
    for_anybody,
    judged,
    patched,
    told_strangers,
    without_maps,
)

Default = Callable[[Request, ClusterView, Policy, Release | None], Defaulted]
Judge = Callable[[Request, ClusterView, Policy, Release | None], Decision]


class Outcome(Struct):
    """One answer, and what is written and counted of it."""

    answer: bytes
    kind: str = ""
    operation: str = ""
    verdict: str = ""
    """Of ``/validate``; empty where nothing was judged."""
    denies: bool = False
    patched: bool = False
    found: tuple[tuple[str, str], ...] = ()
    """Rule and severity of each finding of ``/validate``."""
    broken: tuple[str, ...] = ()
    would_deny: str = ""
    """The mode of a request that mode ``enforce`` refuses; empty where it does not."""
    record: dict[str, Any] | None = None
    """The audit line, but for the time that it took."""
    deletion: Deletion | None = None
    """A DELETE that is still to be judged; ``answer`` lets it through."""


def answer_review(
    webhook: str,
    request: Request,
    view: ClusterView,
    policy: Policy,
    release: Release | None,
    default: Default,
    judge: Judge,
    caller: Caller,
    trace: str,
) -> Outcome:
    """The engine's answer. Raises what the engine raises."""
    if webhook == MUTATE:
        return _patched(request, default(request, view, policy, release), policy.hash, caller, trace)
    return _judged(request, judge(request, view, policy, release), caller, trace)


def pass_by(webhook: str, review: Review, policy: Policy, caller: Caller, trace: str) -> Outcome:
    """Nothing to decide, or an object that cannot be read: through it goes."""
    if review.malformed is None or review.about is None:
        return Outcome(allow(review.uid), deletion=review.deletion if webhook == VALIDATE else None)
    findings = as_set(review.malformed, policy.rules)
    if webhook == MUTATE:
        return _patched(review.about, Defaulted((), {}, findings), policy.hash, caller, trace)
    warns = any(finding.severity is Severity.WARN for finding in findings)
    verdict: Literal["allow", "warn"] = "warn" if warns else "allow"
    decision = Decision(verdict, findings, policy_hash=policy.hash, would_be=verdict)
    return _judged(review.about, decision, caller, trace)


def guarded(webhook: str, request: Request, error: Exception, caller: Caller) -> Outcome:
    """The last resort: whatever went wrong in us, the object goes through, with a warning."""
    finding = broken(request, error)
    if webhook == MUTATE:
        return _patched(request, Defaulted((), {}, (finding,), broken=("server",)), "", caller, "")
    return _judged(request, Decision("warn", (finding,), broken=("server",)), caller, "")


def _patched(request: Request, defaulted: Defaulted, policy_hash: str, caller: Caller, trace: str) -> Outcome:
    record = patch_record(request, defaulted, _generated(request), 0.0, policy_hash, trace)
    if caller is Caller.STRANGER:
        answer = told_strangers(request.uid, True, defaulted.findings)
    else:
        if defaulted.findings:
            defaulted = replace(defaulted, findings=without_maps(defaulted.findings))
        if caller is Caller.ANYBODY and defaulted.findings:
            defaulted = replace(defaulted, findings=for_anybody(defaulted.findings))
        answer = patched(request.uid, defaulted, policy_hash)
    return Outcome(
        answer,
        request.kind,
        request.operation,
        patched=bool(defaulted.patch),
        broken=defaulted.broken,
        record=record,
    )


def _judged(request: Request, decision: Decision, caller: Caller, trace: str) -> Outcome:
    denies = decision.verdict == "deny"
    if caller is Caller.STRANGER:
        answer = told_strangers(request.uid, not denies, decision.findings)
    else:
        told = decision
        if decision.findings:
            told = replace(decision, findings=without_maps(decision.findings))
        if caller is Caller.ANYBODY and told.findings:
            told = replace(told, findings=for_anybody(told.findings))
        probed = request.name == PROBE and request.dry_run
        remark = f"{CERTIFICATE}{'shown' if caller is Caller.KNOWN else 'not asked for'}" if probed else ""
        answer = judged(request.uid, told, f"{request.kind}/{request.name}", remark)
    return Outcome(
        answer,
        request.kind,
        request.operation,
        decision.verdict,
        denies,
        found=_pairs(decision.findings) if decision.findings else (),
        broken=decision.broken,
        would_deny=decision.mode if decision.would_be == "deny" else "",
        record=decision_record(request, decision, _generated(request), 0.0, trace),
    )


def answer_deletion(deletion: Deletion, decision: Decision, caller: Caller, trace: str) -> Outcome:
    """What ``/validate`` says of a DELETE."""
    denies = decision.verdict == "deny"
    told = decision
    if caller is Caller.ANYBODY and decision.findings:
        told = replace(decision, findings=for_anybody(decision.findings))
    if caller is Caller.STRANGER:
        answer = told_strangers(deletion.uid, not denies, decision.findings)
    else:
        answer = deletion_judged(deletion.uid, told, f"{deletion.kind}/{deletion.name}")
    record = None
    if decision.findings:
        record = deletion_record(deletion, decision, trace)
    return Outcome(answer, deletion.kind, "DELETE", decision.verdict, denies, record=record)


def _pairs(findings: tuple[Judged, ...]) -> tuple[tuple[str, str], ...]:
    return tuple([(finding.rule, finding.severity.value) for finding in findings])


def _generated(request: Request) -> bool:
    """Whether the name is a generateName: the API server has not made a name of it yet."""
    metadata = request.object.get("metadata") or {}
    return not metadata.get("name") and bool(metadata.get("generateName"))
