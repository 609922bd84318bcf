"""The job runs on another cluster (MultiKueue), so claims, volumes and classes there could not be looked at.

Symptom: the job is admitted here, and hangs or starts at step 0 on the worker cluster.
Fix: create the claim on every worker cluster, and review the files there.
Bad:
    spec:
      managedBy: kueue.x-k8s.io/multikueue    # and no claim of that name on the worker cluster
Good:
    spec:
      managedBy: kueue.x-k8s.io/multikueue    # the claim is there on every worker cluster
Reads: `spec.managedBy`.
Silent when: the job runs here (Trainer below 2.3 ignores `managedBy` of a job that is not suspended).
"""

from __future__ import annotations

from collections.abc import Iterator

from webhook.model.finding import Finding, Origin, Severity
from webhook.model.rule import Rule
from webhook.model.sign import ELSEWHERE
from webhook.model.subject import Subject


def check(subject: Subject) -> Iterator[Finding]:
    if not subject.claims_elsewhere or not subject.is_trainjob:
        return
    claims = sorted({found.storage.claim_name for found in subject.checkpoints if found.storage.claim_name})
    named = ", ".join(f'"{claim}"' for claim in claims)
    yield Finding(
        Origin(subject.label, "spec.managedBy", "managedBy"),
        f'managedBy is "{subject.spec.get("managedBy")}"'
        + (f", so claim {named} was not looked at" if named else ", so no claim was looked at"),
        "kubectl --context <worker cluster> get pvc "
        + (" ".join(claims) or "<claim>")
        + f" -n {subject.namespace}  # on every worker cluster, ReadWriteMany and on storage that all of them share",
        subject="managedBy",
    )


RULE = Rule(
    id="claims-on-worker-cluster",
    severity=Severity.WARN,
    why="a run that Kueue moves to another worker cluster finds its checkpoints only if both mount the same storage",
    check=check,
    when=ELSEWHERE,
)
