"""An unbound claim of the pods can never bind.

Symptom: the claim stays Pending for ever, and the pods with it.
Fix: name a class that exists and whose provisioner can serve the access mode.
Bad:
    kind: PersistentVolumeClaim
    spec:
      storageClassName: block    # provisioner ebs.csi.aws.com
      accessModes: [ReadWriteMany]
Good:
    kind: PersistentVolumeClaim
    spec:
      storageClassName: shared-files    # provisioner nfs.csi.k8s.io
      accessModes: [ReadWriteMany]
Reads: the claim's class and its provisioner, its modes, and the PersistentVolumes that no claim holds.
Silent when: the claim is bound, absent (missing-claim) or unknown; a volume may bind it; its class can provision it.
Pending on a WaitForFirstConsumer class says nothing. Where volumes are not known, a class that is not there is audited.
"""

from __future__ import annotations

from collections.abc import Iterator

from webhook.model.cluster import Claim, Gap, StorageClass
from webhook.model.finding import Finding, Severity
from webhook.model.paste import to_yaml
from webhook.model.rule import Rule
from webhook.model.sign import ODD_CLAIMS
from webhook.model.subject import Subject
from webhook.storage import (
    Use,
    binding_candidates,
    claim_uses,
    class_of,
    modes_needed,
    new_claim,
    provisioner_reach,
    size_of,
)

_STATIC = "kubernetes.io/no-provisioner"
_ONE_NODE = "ReadWriteOnce"


def check(subject: Subject) -> Iterator[Finding]:
    for use in claim_uses(subject):
        claim = use.claim
        if not isinstance(claim, Claim) or claim.bound:
            continue
        found = class_of(claim, subject.cluster)
        if isinstance(found, StorageClass):
            yield from _provisioned(subject, use, claim, found)
        elif found is not Gap.UNKNOWN:
            yield from _static(subject, use, claim, found)


def _provisioned(subject: Subject, use: Use, claim: Claim, found: StorageClass) -> Iterator[Finding]:
    """A class with a provisioner binds, unless that cannot make what the claim asks for."""
    by = f'class "{found.name}" (provisioner {found.provisioner})'
    if found.provisioner == _STATIC:
        if binding_candidates(claim, subject.cluster) == []:
            problem = f'claim "{claim.name}" has no volume to bind: {by} makes none'
            yield _finding(subject, use, claim, problem, Severity.WARN)
    elif (
        "ReadWriteMany" in claim.access_modes
        and claim.volume_mode == "Filesystem"
        and provisioner_reach(found.provisioner, subject.policy) == "one-node"
    ):
        candidates = binding_candidates(claim, subject.cluster)
        if isinstance(candidates, Gap) or not candidates:
            problem = (
                f'claim "{claim.name}" with accessModes {claim.modes_text()} can never bind: '
                f"{by} cannot make such a file system"
            )
            # How many pods a runtime's TrainJobs will have is not known.
            alone = subject.is_trainjob and modes_needed(subject) == _ONE_NODE
            yield _finding(subject, use, claim, problem, use.at_most, alone)


def _static(subject: Subject, use: Use, claim: Claim, found: Gap | None) -> Iterator[Finding]:
    """Without a class that exists only a volume of that class name can bind."""
    if found is Gap.ABSENT:
        lacks = f'has class "{claim.storage_class}", which does not exist'
    else:
        lacks = "has no class" if claim.storage_class == "" else "has no class, and no class is the default"
    candidates = binding_candidates(claim, subject.cluster)
    if isinstance(candidates, Gap):
        why = subject.cluster.why_unknown("PersistentVolume")
        problem = f'claim "{claim.name}" {lacks}; whether a volume can bind it is not known: {why}'
        yield _finding(subject, use, claim, problem, Severity.AUDIT)
    elif not candidates:
        yield _finding(subject, use, claim, f'claim "{claim.name}" {lacks}, and no volume can bind it', use.at_most)


def _finding(
    subject: Subject, use: Use, claim: Claim, problem: str, at_most: Severity | None, fewer_modes: bool = False
) -> Finding:
    """``fewer_modes``: the claim's own class does, for what the one pod that trains needs."""
    modes, change = list(claim.access_modes) or [_ONE_NODE], {"storageClassName": "<class>"}
    remark, kept = "\n# <class>: one of kubectl get storageclass", "class"
    if fewer_modes:
        modes, remark, kept = [_ONE_NODE], "", "modes"
        change = {} if claim.storage_class is None else {"storageClassName": claim.storage_class}
    if use.template:
        text = to_yaml({"accessModes": modes} if fewer_modes else change)
        fix = f'{text}{remark}\n# in the volumeClaimPolicies template "{use.name}"'
    else:
        text = new_claim(subject.namespace, claim.name, modes, size_of(claim), change)
        again = f"kubectl delete pvc {claim.name} -n {subject.namespace}"
        fix = f"{text}{remark}\n# it holds no data yet, and a claim keeps its {kept}: {again} first"
    return Finding(
        at=use.origin(),
        problem=problem,
        fix=fix,
        at_most=at_most,
        job=use.job,
        container=use.container,
        subject=claim.name,
    )


RULE = Rule(
    id="unbindable-claim",
    severity=Severity.DENY,
    why="the claim stays Pending and the pods wait for it for ever, so nothing runs and nothing resumes",
    check=check,
    on_runtime=Severity.WARN,
    when=ODD_CLAIMS,
)
