"""More than one training pod mounts what one node alone can mount.

Symptom: one pod runs, the others stay in ContainerCreating with "Multi-Attach error", and the run hangs at its
    rendezvous.
Fix: use a claim with accessModes ["ReadWriteMany"], of a class that can serve it.
Bad:
    kind: PersistentVolumeClaim
    spec:
      accessModes: [ReadWriteOnce]    # and numNodes: 2 in the TrainJob
Good:
    kind: PersistentVolumeClaim
    spec:
      accessModes: [ReadWriteMany]
Reads: access modes of every claim of the training pods, inline disks, the number of pods (over all jobs that train).
Silent when: one pod has it; the claim is absent (missing-claim) or unknown; all mount a ReadOnlyMany claim read-only.
All pods kept on one node (pinned to one hostname, required pod affinity by hostname), a file server that no node
attaches (NFS, a CSIDriver with attachRequired: false), or a volume that offers more than its claim asks for: warned
about, not denied.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Final

from webhook.model.cluster import Claim, PersistentVolume
from webhook.model.finding import Finding, Fix, Severity
from webhook.model.pod import StorageKind
from webhook.model.rule import Rule
from webhook.model.sign import ODD_CLAIMS
from webhook.model.subject import Subject
from webhook.storage import (
    NewClaim,
    Use,
    claim_instead,
    is_attached,
    named_claim,
    new_claim,
    on_one_node,
    plan_claim,
    size_of,
    volume_uses,
)

_MANY: Final = "ReadWriteMany"
_ONE_NODE: Final = "all of them run on one node: when it is lost or full, the run waits for it for ever"
_NOT_ENFORCED: Final = (
    "no node attaches it, so several can mount it; another class of the same claim would hold all but one pod up"
)


def check(subject: Subject) -> Iterator[Finding]:
    if subject.effective is None or subject.effective.training_pods < 2:
        return
    for use in volume_uses(subject):
        if use.pods < 2:
            continue
        claim = use.claim
        if isinstance(claim, Claim):
            if not claim.access_modes or "ReadWriteMany" in claim.access_modes:
                continue
            if use.read_only and "ReadOnlyMany" in claim.access_modes:
                continue
            what, name = f'claim "{claim.name}" with accessModes {claim.modes_text()}', claim.name
        elif use.storage.kind is StorageKind.ONE_NODE and not use.read_only:
            what, name = f"{use.storage.fact}, a disk that one node mounts", use.name
        else:
            continue
        works = _may_work(subject, use)
        yield Finding(
            at=use.origin(),
            problem=f"{use.pods} training pods mount {what}",
            fix=_instead(subject, use, claim),
            at_most=use.at_most if works is None else Severity.WARN,
            job=use.job,
            container=use.container,
            subject=name,
            why=works,
        )


def _may_work(subject: Subject, use: Use) -> str | None:
    """Why several pods may mount it all the same, as a ``why``; None where they cannot."""
    if isinstance(use.claim, Claim):
        if "ReadWriteOncePod" in use.claim.access_modes:
            return None
        volume = use.storage.volume
        if isinstance(volume, PersistentVolume) and "ReadWriteMany" in volume.access_modes:
            return RULE.why
        if not is_attached(use.storage, subject.cluster, subject.policy):
            return _NOT_ENFORCED
    assert subject.effective is not None  # noqa: S101 - there are no uses without it
    return _ONE_NODE if on_one_node(use.jobs, subject.effective) else None


def _instead(subject: Subject, use: Use, claim: object) -> Fix:
    plan = plan_claim(subject, _MANY)
    if isinstance(claim, Claim):
        return partial(_fix, subject, use, plan)
    own = use.origin().object == subject.label
    if use.checkpoint is not None and (own or not subject.is_trainjob):
        return claim_instead(subject, use.checkpoint)
    return partial(_shared, subject, use, use.name, plan, "")


def _fix(subject: Subject, use: Use, plan: NewClaim) -> str:
    claim = use.claim
    if not isinstance(claim, Claim):
        return _shared(subject, use, use.name, plan, "")
    size = size_of(claim) if claim.request else ""
    if use.template:
        return f'accessModes: ["ReadWriteMany"]\n# in the volumeClaimPolicies template "{use.name}"'
    text = _shared(subject, use, claim.name, plan, size)
    one = len(use.jobs) == 1 and use.jobs[0].receives_trainer
    return f"{text}\n# accessModes of a claim are immutable" + (
        "; or train with one pod: spec.trainer.numNodes: 1" if one else ""
    )


def _shared(subject: Subject, use: Use, name: str, plan: NewClaim, size: str) -> str:
    """A claim to create and to mount: neither the class of the old one nor the default is known to serve many nodes."""
    new = f"{name}-shared"
    text = new_claim(subject.namespace, new, [_MANY], size or plan.size, plan.more)
    remarks = plan.remarks if not size else f"\n{plan.class_remark}" if plan.class_remark else ""
    return f"{text}{remarks}\n---\n{named_claim(subject, use, new)}"


RULE = Rule(
    id="claim-not-shared",
    severity=Severity.DENY,
    why="pods on other nodes cannot mount it, so the run hangs before it can resume",
    check=check,
    on_runtime=Severity.WARN,
    when=ODD_CLAIMS,
)
