"""The two questions that Checkpoint Guard answers: what to fill in, and whether to let it in.

Read this first. Everything below it is pure: the same request, cluster and policy give the same answer.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Final, Literal

from msgspec.structs import replace

from webhook.decision.asked import every_rule, rules_to_ask
from webhook.decision.counted import Counted
from webhook.decision.excuses import Excuses, indexing
from webhook.decision.faults import broken_part, malformed
from webhook.decision.forged import on_one_line
from webhook.decision.in_force import in_namespace, preparing_entries
from webhook.decision.proposal import by_rules
from webhook.decision.severity import (
    EXEMPT,
    PUT_BACK_ONLY,
    WEIGHT,
    in_mode,
    in_this_mode,
    mode_of,
    noted,
    weigh,
)
from webhook.decision.subject import build_subject, program_fact, with_strays
from webhook.defaults import default
from webhook.model.budget import CUT, FINDINGS
from webhook.model.cluster import ClusterView, Runtime
from webhook.model.files import Source
from webhook.model.finding import Finding, Judged, Made, Origin, Severity, Weight
from webhook.model.names import KINDS
from webhook.model.policy import Policy
from webhook.model.release import Release, infer_release
from webhook.model.request import Request
from webhook.model.rule import Rule
from webhook.model.script import Lines
from webhook.model.subject import Subject
from webhook.model.verdict import Decision, Defaulted, Facts
from webhook.programs import held

_LAST: Final = 1000
"""The place in a report of what no rule says."""

_STEPS: Final = 50
"""Entries that are filed at a time."""

__all__ = ["build_subject", "default_object", "prepare", "preparing", "review_object"]


def prepare(policy: Policy) -> None:
    """Work out now what a policy with many entries would make its first requests wait for."""
    for _ in preparing(policy):
        pass


def preparing(policy: Policy) -> Iterator[None]:
    """The same in steps of well under a millisecond, for whoever has to do something else between them."""
    for step in (indexing(policy), preparing_entries(policy)):
        for count, _ in enumerate(step):
            if not count % _STEPS:
                yield


def default_object(request: Request, cluster: ClusterView, policy: Policy, release: Release | None = None) -> Defaulted:
    """What is absent and would keep the run from coming back, as an RFC 6902 patch. Never denies, never raises.

    ``release`` overrides what the cluster says of the Trainer release. In the modes ``audit`` and ``off`` and for
    exempt requests nothing is filled in; what was filled in before is still put back on UPDATE, since losing it would
    strip or wedge the run.
    """
    policy = in_namespace(policy, request.namespace, cluster)
    mode = mode_of(request, cluster, policy)
    put_back_only = mode in PUT_BACK_ONLY
    if put_back_only and request.operation == "CREATE":
        return Defaulted((), request.object, mode=mode)
    if (fault := malformed(request)) is not None:
        return Defaulted((), request.object, in_mode(fault, mode, policy), mode)
    held.begin()
    try:
        served = _release(request, cluster, release)
        done = default(request, cluster, policy, served, by_rules(request, cluster, policy, served), put_back_only)
    except Exception as error:
        faults = in_mode(broken_part(request, "defaults", error), mode, policy)
        return Defaulted((), request.object, faults, mode, broken=("defaults",))
    finally:
        held.end()
    return Defaulted(done.patch, done.object, noted(done.findings, mode), mode, done.applied, done.broken)


def review_object(
    request: Request,
    cluster: ClusterView,
    policy: Policy,
    release: Release | None = None,
    source: Source | None = None,
) -> Decision:
    """The verdict on the object as it will be stored (after ``default_object``). Never raises.

    ``release`` overrides what the cluster says of the Trainer release; ``source`` is a checkout of the image's files.
    """
    policy = in_namespace(policy, request.namespace, cluster)
    mode = mode_of(request, cluster, policy)
    if mode in ("off", EXEMPT) or request.kind not in KINDS:
        return Decision("allow", mode=mode, policy_hash=policy.hash, judged=False)
    metadata = request.object.get("metadata")
    if isinstance(metadata, dict) and metadata.get("deletionTimestamp"):
        return Decision("allow", mode=mode, policy_hash=policy.hash, judged=False)
    if (fault := malformed(request)) is not None:
        faults = in_mode(fault, mode, policy)
        verdict: Literal["allow", "warn"] = "warn" if faults and faults[0].severity is Severity.WARN else "allow"
        return Decision(verdict, faults, mode=mode, policy_hash=policy.hash, judged=False, would_be=verdict)
    served = _release(request, cluster, release)
    held.begin()
    try:
        return _reviewed(request, cluster, policy, served, mode, source)
    finally:
        held.end()


def _reviewed(
    request: Request, cluster: ClusterView, policy: Policy, served: Release, mode: str, source: Source | None
) -> Decision:
    broken: list[str] = []
    judged: list[tuple[int, int, Judged]] = []
    spoke: set[str] = set()
    excuses: Excuses | None = None
    subject: Subject | None = None
    try:
        excuses = Excuses(request, cluster, policy)
        subject = build_subject(request, Counted(cluster), policy, served, source=source)
    except Exception as error:
        broken.append("effective")
        judged.extend(_failed(request, "effective", error, -1, mode, policy))
    if subject is not None and excuses is not None:
        try:
            subject = with_strays(subject)
            asked, keepable = rules_to_ask(subject)
        except Exception as error:
            asked, keepable = every_rule(subject)
            broken.append("script")
            judged.extend(_failed(request, "script", error, -1, mode, policy))
        for entry in asked:
            try:
                for number, finding in enumerate(entry[2](subject)):
                    order, rule, _ = entry
                    if number == FINDINGS:
                        subject.memo.setdefault(CUT, []).append(rule.id)
                        break
                    spoke.add(rule.id)
                    if (weight := weigh(rule, finding, subject)) is not None:
                        enforced, excuse = excuses.weigh(rule.id, finding.at, weight.enforced)
                        if enforced is not weight.enforced:
                            weight = replace(weight, enforced=enforced, excuse=excuse)
                        severity = in_this_mode(enforced, mode)
                        judged.append((WEIGHT[severity], order, _judge(rule, finding, severity, weight, subject)))
            except Exception as error:
                order, rule, _ = entry
                broken.append(rule.id)
                judged.extend(_failed(request, rule.id, error, order, mode, policy))
        if not broken and "silent" not in subject.kept:
            # The first time counts: a later one has asked no more of them.
            subject.kept["silent"] = keepable - spoke
        for said in excuses.remarks():
            judged.extend((WEIGHT[one.severity], _LAST, one) for one in in_mode(said, mode, policy))
    if len(judged) > 1:
        judged = _told_once(judged)
        judged.sort(key=_position)
    findings = tuple([entry[2] for entry in judged])
    heaviest = findings[0].severity if findings else Severity.AUDIT
    return Decision(
        "deny" if heaviest is Severity.DENY else "warn" if heaviest is Severity.WARN else "allow",
        findings,
        _facts(subject),
        mode,
        _runtime_label(subject),
        served.value,
        policy.hash,
        tuple(broken),
        subject is not None and subject.effective is not None,
        _would_be(findings, heaviest),
    )


def _would_be(findings: tuple[Judged, ...], heaviest: Severity) -> Literal["allow", "warn", "deny"]:
    """The verdict that mode ``enforce`` would give."""
    if heaviest is Severity.DENY:
        return "deny"
    weights = [one.severity if one.weight is None else one.weight.enforced for one in findings]
    return "deny" if Severity.DENY in weights else "warn" if Severity.WARN in weights else "allow"


def _told_once(judged: list[tuple[int, int, Judged]]) -> list[tuple[int, int, Judged]]:
    """Each fact once, the heaviest of several: one file that two commands use, one volume of two containers."""
    known: dict[tuple[str, Origin, str], tuple[int, int, Judged]] = {}
    for entry in judged:
        one = entry[2]
        key = (one.rule, one.at, one.problem)
        if key not in known or entry[0] < known[key][0]:
            known[key] = entry
    return list(known.values())


def _failed(
    request: Request, what: str, error: Exception, order: int, mode: str, policy: Policy
) -> list[tuple[int, int, Judged]]:
    return [(WEIGHT[one.severity], order, one) for one in in_mode(broken_part(request, what, error), mode, policy)]


def _judge(rule: Rule, finding: Finding, severity: Severity, weight: Weight, subject: Subject) -> Judged:
    return Judged(
        rule.id,
        severity,
        finding.at,
        finding.problem,
        finding.why or rule.why,
        Made(partial(on_one_line, finding.fix, subject)),
        finding.job,
        finding.container,
        finding.subject,
        finding.private,
        finding.counted and (finding.counted[0], Made(partial(on_one_line, finding.counted[1], subject))),
        finding.concealed,
        finding.fix if isinstance(finding.fix, Lines) else None,
        weight,
    )


def _position(entry: tuple[int, int, Judged]) -> tuple[int, int]:
    return entry[0], entry[1]


def _release(request: Request, cluster: ClusterView, release: Release | None) -> Release:
    return release or cluster.release() or infer_release(request.object.get("spec"))


def _facts(subject: Subject | None) -> Facts:
    if subject is None or subject.effective is None:
        return Facts()
    nodes = subject.effective.training_pods
    program = program_fact(subject)
    if not subject.checkpoints:
        return Facts(nodes, program=program)
    first = subject.checkpoints[0]
    volume = first.volume.get("name") if first.volume is not None else None
    if volume is None and first.mount is not None:
        volume = first.mount.get("name")
    return Facts(nodes, first.directory, volume, first.storage.claim_name, first.storage.kind.value, program)


def _runtime_label(subject: Subject | None) -> str | None:
    if subject is None:
        return None
    if isinstance(subject.runtime, Runtime):
        return subject.runtime.label
    ref = subject.spec.get("runtimeRef") or {}
    return f"{ref.get('kind') or 'ClusterTrainingRuntime'}/{ref.get('name') or ''}"
