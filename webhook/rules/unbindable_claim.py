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
A claim that names its volume binds that one alone: it has to be free, or kept for this claim, and fit in class, size,
volumeMode and access modes.
Silent when: the claim is bound, absent (missing-claim) or unknown; a volume may bind it; its class can provision it.
Pending on a WaitForFirstConsumer class says nothing. Where volumes are not known, a class that is not there is audited.
"""

from __future__ import annotations

from collections.abc import Iterator

from webhook.model.cluster import Claim, Gap, PersistentVolume, StorageClass
from webhook.model.finding import Finding, Severity
from webhook.model.paste import to_yaml
from webhook.model.printable import shell_word
from webhook.model.rule import Rule
from webhook.model.sign import ODD_CLAIMS
from webhook.model.size import format_bytes
from webhook.model.subject import Subject
from webhook.storage import (
    Use,
    binding_candidates,
    claim_uses,
    class_of,
    is_bound,
    is_taken,
    mismatch,
    modes_needed,
    new_claim,
    plan_claim,
    provisioner_reach,
    size_of,
)

_STATIC = "kubernetes.io/no-provisioner"
_ONE_NODE = "ReadWriteOnce"
_MANY = "ReadWriteMany"


def check(subject: Subject) -> Iterator[Finding]:
    for use in claim_uses(subject):
        claim = use.claim
        if not isinstance(claim, Claim) or is_bound(claim, subject.cluster):
            continue
        if claim.volume_name:
            yield from _named(subject, use, claim)
            continue
        found = class_of(claim, subject.cluster)
        if isinstance(found, StorageClass):
            yield from _provisioned(subject, use, claim, found)
        elif found is not Gap.UNKNOWN:
            yield from _static(subject, use, claim, found)


def _named(subject: Subject, use: Use, claim: Claim) -> Iterator[Finding]:
    """A claim that names its volume waits for that one alone, whatever its class can make."""
    volume = subject.cluster.volume(claim.volume_name)
    named = f'claim "{claim.name}" names volume "{claim.volume_name}" and can never bind it'
    if volume is Gap.UNKNOWN:
        why = subject.cluster.why_unknown("PersistentVolume")
        problem = f'whether claim "{claim.name}" can bind the volume that it names is not known: {why}'
        yield _finding(subject, use, claim, problem, Severity.AUDIT)
    elif volume is Gap.ABSENT:
        yield _finding(subject, use, claim, f"{named}: there is no such volume", use.at_most)
    elif (why_not := mismatch(claim, volume, subject.cluster)) is not None:
        free = volume.phase in ("", "Available") and volume.claim_ref is None and volume.volume_mode == "Filesystem"
        modes = {modes_needed(subject), "ReadWriteMany"}
        fits = volume if free and not modes.isdisjoint(volume.access_modes) else None
        yield _finding(subject, use, claim, f"{named}: {why_not}", use.at_most, volume=fits)
    elif is_taken(volume):
        # Its claimRef is not kept of a volume that is bound: this very claim may be on its way.
        yield _finding(subject, use, claim, f"{named}: it is {volume.phase} already", Severity.WARN)


def _provisioned(subject: Subject, use: Use, claim: Claim, found: StorageClass) -> Iterator[Finding]:
    """A class with a provisioner binds, unless that cannot make what the claim asks for."""
    by = f'class "{found.name}" (provisioner {found.provisioner})'
    if claim.selector and binding_candidates(claim, subject.cluster) in ([], ()):
        problem = f'claim "{claim.name}" has a selector that no volume fits: {by} provisions for none that has one'
        yield _finding(subject, use, claim, problem, Severity.WARN, without_selector=True)
    elif found.provisioner == _STATIC:
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
        if claim.selector:
            lacks += " and a selector"
        yield _finding(subject, use, claim, f'claim "{claim.name}" {lacks}, and no volume can bind it', use.at_most)


def _finding(
    subject: Subject,
    use: Use,
    claim: Claim,
    problem: str,
    at_most: Severity | None,
    fewer_modes: bool = False,
    volume: PersistentVolume | None = None,
    without_selector: bool = False,
) -> Finding:
    """``fewer_modes``: the claim's own class does, for what the one pod that trains needs. ``volume``: it would do."""
    modes, size = list(claim.access_modes) or [_ONE_NODE], size_of(claim)
    own = {} if claim.storage_class is None else {"storageClassName": claim.storage_class}
    change, remark, kept = own, "", "class"
    if fewer_modes:
        modes, kept = [_ONE_NODE], "modes"
    elif volume is not None:
        change = {"storageClassName": volume.storage_class, "volumeName": volume.name}
        needed = modes_needed(subject)
        modes, kept = [needed if needed in volume.access_modes else "ReadWriteMany"], "spec"
        size = size if volume.capacity is None else format_bytes(volume.capacity)
    elif without_selector:
        kept = "selector"
    else:
        plan = plan_claim(subject, _MANY if {_MANY, "ReadOnlyMany"} & set(modes) else _ONE_NODE)
        change, remark = dict(plan.more), plan.class_remark and f"\n{plan.class_remark}"
    if use.template:
        text = to_yaml({"accessModes": modes} if fewer_modes else change)
        fix = f'{text}{remark}\n# in the volumeClaimPolicies template "{use.name}"'
    else:
        text = new_claim(subject.namespace, claim.name, modes, size, change)
        again = f"kubectl delete pvc {shell_word(claim.name)} -n {shell_word(subject.namespace)}"
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
