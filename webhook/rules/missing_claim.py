"""A claim of the pods does not exist in the namespace.

Symptom: the pods stay Pending with "persistentvolumeclaim not found".
Fix: create the claim in the TrainJob's namespace first, or name one that is there.
Bad:
    volumes:
    - name: ckpt
      persistentVolumeClaim:
        claimName: trian-ckpt    # no such claim in the namespace
Good:
    volumes:
    - name: ckpt
      persistentVolumeClaim:
        claimName: train-ckpt
Reads: every claim that a volume of a training pod names.
Silent when: the claim exists, JobSet makes it (volumeClaimPolicies), claims are on another cluster, or no name is given
(unbuildable-pod). A claim that could not be looked up is audited. A dry-run only warns: what stands beside it in the
same apply does not exist yet either.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from webhook.model.cluster import Gap
from webhook.model.finding import Finding, Severity
from webhook.model.printable import shell_word
from webhook.model.rule import Rule
from webhook.model.sign import ODD_CLAIMS
from webhook.model.subject import Subject
from webhook.storage import (
    NewClaim,
    Use,
    claim_offered,
    claim_uses,
    modes_needed,
    named_claim,
    new_claim,
    offered_claims,
    plan_claim,
)


def check(subject: Subject) -> Iterator[Finding]:
    for use in claim_uses(subject):
        name = use.storage.claim_name
        if not name:
            continue
        if use.claim is Gap.ABSENT:
            dry = subject.request.dry_run
            mode = modes_needed(subject)
            offered_claims(subject, mode)  # the fix only asks what is known by now
            plan = plan_claim(subject, mode)
            yield Finding(
                at=use.origin(),
                problem=f'claim "{name}" does not exist in namespace "{subject.namespace}"',
                fix=partial(_fix, subject, use, mode, plan),
                at_most=Severity.WARN if dry else use.at_most,
                job=use.job,
                container=use.container,
                subject=name,
            )
        elif use.claim is Gap.UNKNOWN:
            why = subject.cluster.why_unknown("PersistentVolumeClaim")
            yield Finding(
                at=use.origin(),
                problem=f'claim "{name}" is not known: {why}',
                fix=f"kubectl get pvc {shell_word(name)} -n {shell_word(subject.namespace)} -o yaml > claim.yaml\n"
                "# then ckptguard review FILE --state claim.yaml, or --live",
                at_most=Severity.AUDIT,
                job=use.job,
                container=use.container,
                subject=name,
                why="what the checkpoints would be stored on was not judged",
            )


def _fix(subject: Subject, use: Use, mode: str, plan: NewClaim) -> str:
    name = use.storage.claim_name or ""
    there = claim_offered(subject, mode, name)
    if there is not None:
        return f'{named_claim(subject, use, there)}\n# or create "{name}": accessModes [{mode}]'
    create = new_claim(subject.namespace, name, [mode], plan.size, plan.more)
    return f"{create}{plan.remarks}\n# or name an existing one: kubectl get pvc -n {shell_word(subject.namespace)}"


RULE = Rule(
    id="missing-claim",
    severity=Severity.DENY,
    why="the pods wait for the claim for ever, so nothing runs and nothing resumes",
    check=check,
    on_runtime=Severity.WARN,
    when=ODD_CLAIMS,
)
