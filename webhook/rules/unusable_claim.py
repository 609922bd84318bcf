"""A claim used by the pods can no longer be mounted: it is terminating, Lost, or a block device.

Symptom: the pods stay Pending or in ContainerCreating although the claim is there.
Fix: name a claim that is not being deleted, not Lost, and of volumeMode Filesystem.
Bad:
    kind: PersistentVolumeClaim
    spec:
      volumeMode: Block    # and a volumeMount in the pod
Good:
    kind: PersistentVolumeClaim
    spec:
      volumeMode: Filesystem
Reads: deletionTimestamp, phase and volumeMode of every claim of the training pods.
Silent when: the claim is absent (missing-claim) or unknown, or a block claim is used through volumeDevices alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from webhook.model.cluster import Claim, Gap, StorageClass
from webhook.model.finding import Finding, Severity
from webhook.model.pod import StorageKind
from webhook.model.rule import Rule
from webhook.model.sign import ODD_CLAIMS
from webhook.model.subject import Subject
from webhook.storage import (
    Use,
    claim_uses,
    class_of,
    modes_needed,
    named_claim,
    new_claim,
    plan_claim,
    provisioner_reach,
    size_of,
)

_BLOCK: Final = "Block"


def check(subject: Subject) -> Iterator[Finding]:
    for use in claim_uses(subject):
        claim = use.claim
        if not isinstance(claim, Claim) or not (
            claim.terminating or claim.phase == "Lost" or claim.volume_mode == _BLOCK
        ):
            continue
        for state, why in _states(claim, use.mounted):
            size = size_of(claim)
            mode = modes_needed(subject)
            named, remark = _class_for(subject, use, claim, mode)
            create = new_claim(subject.namespace, f"{claim.name}-new", [mode], size, named) + remark
            yield Finding(
                at=use.origin(),
                problem=f'claim "{claim.name}" {state}',
                fix=f"{create}\n---\n{named_claim(subject, use, f'{claim.name}-new')}",
                at_most=use.at_most,
                job=use.job,
                container=use.container,
                subject=f"{claim.name} {state}",
                why=why,
            )


def _class_for(subject: Subject, use: Use, claim: Claim, mode: str) -> tuple[dict[str, str], str]:
    """The claim's own class, unless that makes no file system of this mode or one that a single node has."""
    found = class_of(claim, subject.cluster)
    reach = provisioner_reach(found.provisioner, subject.policy) if isinstance(found, StorageClass) else None
    if (
        found is Gap.ABSENT
        or use.storage.kind is StorageKind.NODE_LOCAL
        or (reach == "one-node" and mode == "ReadWriteMany")
    ):
        plan = plan_claim(subject, mode)
        return dict(plan.more), plan.class_remark and f"\n{plan.class_remark}"
    return ({} if claim.storage_class is None else {"storageClassName": claim.storage_class}), ""


def _states(claim: Claim, mounted: bool) -> Iterator[tuple[str, str]]:
    if claim.terminating:
        yield "is being deleted", "no new pod may use it, and its data go with it"
    if claim.phase == "Lost":
        yield "has lost its volume (phase Lost)", "the volume with the checkpoints is gone, and pods wait for ever"
    if claim.volume_mode == _BLOCK and mounted:
        yield (
            'has volumeMode "Block" and is mounted as a file system',
            "the pods never start, so nothing runs and nothing resumes",
        )


RULE = Rule(
    id="unusable-claim",
    severity=Severity.DENY,
    why="the pods cannot mount the claim, so nothing runs and nothing resumes",
    check=check,
    on_runtime=Severity.WARN,
    when=ODD_CLAIMS,
)
