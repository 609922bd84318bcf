"""The claim under the directory is made by JobSet and deleted with it.

Symptom: the TrainJob is deleted or submitted again under its name, and the checkpoints are gone. Without any
    retentionPolicy the run can never be suspended, resumed or preempted, and one with a queue never starts.
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
from functools import partial

from webhook.effective.changes import without_retention
from webhook.model.finding import Finding, Origin, Severity
from webhook.model.paste import to_yaml
from webhook.model.pod import EffectiveSet, Raw
from webhook.model.rule import Rule
from webhook.model.sign import TEMPLATES
from webhook.model.subject import Subject


def check(subject: Subject) -> Iterator[Finding]:
    effective = subject.effective
    if effective is None or not effective.jobset_spec.get("volumeClaimPolicies"):
        return
    deleted = _deleted(effective)
    policies = effective.jobset_spec["volumeClaimPolicies"]
    # JobSet's default for an absent retentionPolicy makes each later write of Trainer a change that is refused.
    held = without_retention(effective.jobset_spec)
    told: set[str] = set()
    for checkpoint in subject.checkpoints:
        name = checkpoint.mount_name
        if name in told:
            continue
        for index in deleted.get(name, ()):
            told.add(name)
            run = subject.request.name if subject.is_trainjob else "<TrainJob>"
            also = ", and the run cannot be suspended or resumed" if held else ""
            under = "" if held else f' under "{checkpoint.directory}"'
            if run.endswith("-"):
                run += "<generated>"
            yield Finding(
                at=Origin(
                    effective.runtime_label,
                    f"spec.template.spec.volumeClaimPolicies[{index}].retentionPolicy.whenDeleted",
                    f"volumeClaimPolicies template {name}",
                ),
                problem=f'claim "{name}-{run}"{under} is deleted with the JobSet{also}',
                fix=partial(_fix, policies[index], name, run),
                job=checkpoint.job.name,
                container=checkpoint.container_name,
                subject=name,
            )
            break


def _deleted(effective: EffectiveSet) -> dict[str, list[int]]:
    """The names of templates whose claims are deleted with the JobSet -> their policies."""
    found: dict[str, list[int]] = {}
    for index, policy in enumerate(effective.jobset_spec["volumeClaimPolicies"]):
        if ((policy.get("retentionPolicy") or {}).get("whenDeleted") or "Delete") == "Delete":
            for name in {(template.get("metadata") or {}).get("name") for template in policy.get("templates") or ()}:
                found.setdefault(name or "", []).append(index)
    return found


_SHOWN = 4
"""Templates of a policy that a text repeats."""


def _fix(policy: Raw, name: str, run: str) -> str:
    kept: Raw = {**policy, "retentionPolicy": {"whenDeleted": "Retain"}}
    rest = ""
    if len(policy.get("templates") or ()) > _SHOWN:
        kept = {field: value for field, value in kept.items() if field != "templates"}
        rest = "\n# and the templates as they are"
    return (
        f"{to_yaml({'volumeClaimPolicies': [kept]})}{rest}\n"
        "# the claim then stays, and a TrainJob of another name resumes from it with\n"
        f"# persistentVolumeClaim: {{claimName: {name}-{run}}}"
    )


RULE = Rule(
    id="claim-deleted-with-job",
    severity=Severity.WARN,
    why="deleting the TrainJob, or its TTL, takes every checkpoint along: a resubmitted run starts at step 0",
    check=check,
    on_runtime=Severity.DENY,
    when=TEMPLATES,
)
