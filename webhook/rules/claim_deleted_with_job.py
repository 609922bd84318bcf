"""The claim under the directory is made by JobSet and deleted with it.

Symptom: the TrainJob is deleted or submitted again under its name, and the checkpoints are gone.
Fix: use a claim of your own, which no JobSet owns (Retain keeps
    the data, but a job of the same name cannot have it back).
Bad:
    volumeClaimPolicies:
    - templates:
      - metadata: {name: ckpt}
Good:
    # in the pod, and no volumeClaimPolicies
    volumes:
    - name: ckpt
      persistentVolumeClaim: {claimName: train-ckpt}
Reads: volumeClaimPolicies of the runtime (Trainer 2.2 and later), the mounts under the directory.
Silent when: the policy retains its claims, or the directory is on a claim of the user's own.
"""

from __future__ import annotations

from collections.abc import Iterator

from webhook.model.finding import Finding, Origin, Severity
from webhook.model.paste import to_yaml
from webhook.model.rule import Rule
from webhook.model.sign import TEMPLATES
from webhook.model.subject import Subject


def check(subject: Subject) -> Iterator[Finding]:
    effective = subject.effective
    if effective is None or not effective.jobset_spec.get("volumeClaimPolicies"):
        return
    told: set[str] = set()
    for checkpoint in subject.checkpoints:
        name = "" if checkpoint.mount is None else str(checkpoint.mount.get("name") or "")
        for index, policy in enumerate(effective.jobset_spec["volumeClaimPolicies"]):
            names = [(template.get("metadata") or {}).get("name") for template in policy.get("templates") or ()]
            kept = (policy.get("retentionPolicy") or {}).get("whenDeleted") or "Delete"
            if name not in names or kept != "Delete" or name in told:
                continue
            told.add(name)
            run = subject.request.name if subject.is_trainjob else "<TrainJob>"
            if run.endswith("-"):
                run += "<generated>"
            written = to_yaml({"volumeClaimPolicies": [{**policy, "retentionPolicy": {"whenDeleted": "Retain"}}]})
            yield Finding(
                at=Origin(
                    effective.runtime_label,
                    f"spec.template.spec.volumeClaimPolicies[{index}].retentionPolicy.whenDeleted",
                    f"volumeClaimPolicies template {name}",
                ),
                problem=f'claim "{name}-{run}" under "{checkpoint.directory}" is deleted with the JobSet',
                fix=(
                    f"{written}\n# the claim then stays, and a TrainJob of another name resumes from it with\n"
                    f"# persistentVolumeClaim: {{claimName: {name}-{run}}}"
                ),
                job=checkpoint.job.name,
                container=checkpoint.container_name,
                subject=name,
            )


RULE = Rule(
    id="claim-deleted-with-job",
    severity=Severity.WARN,
    why="deleting the TrainJob, or its TTL, takes every checkpoint along: a resubmitted run starts at step 0",
    check=check,
    on_runtime=Severity.DENY,
    when=TEMPLATES,
)
