"""JobSet or the Job API will refuse what Trainer builds, after admission and in silence.

Symptom: the TrainJob is accepted and no pod ever comes; kubectl describe trainjob shows no condition.
Fix: mend the field that the finding names: JobSet or the Job API refuses it after admission.
Bad:
    volumeMounts:
    - name: ckpt    # no volume of that name
      mountPath: /mnt/ckpt
Good:
    volumes:
    - name: ckpt
      persistentVolumeClaim: {claimName: train-ckpt}
    containers:
    - name: node
      volumeMounts:
      - name: ckpt
        mountPath: /mnt/ckpt
Reads: whether Trainer's controller makes a JobSet at all; every job as built and the JobSet around it
    (`webhook.effective.buildable`); whether the claim that a `volumeClaimPolicies` template makes is there already.
Silent when: Trainer's webhook or a CRD refuses it first; another rule says it (two sources in a volume, a container
    that an override invents, `podFailurePolicy` beside `OnFailure`); on a runtime alone, what a TrainJob can mend.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from webhook.effective.buildable import CONTROLLER, Refusal, find_refusals
from webhook.model.cluster import Claim, Runtime
from webhook.model.finding import Finding, Origin, Severity
from webhook.model.names import ANCESTOR_LABEL, TRAINER_STEP
from webhook.model.override import override_yaml
from webhook.model.paste import to_yaml
from webhook.model.pod import EMPTY, Raw
from webhook.model.printable import shell_word
from webhook.model.release import Release
from webhook.model.rule import Rule
from webhook.model.subject import Subject

_BUILDABLE: Final = "buildable"


def check(subject: Subject) -> Iterator[Finding]:
    if subject.effective is None:
        return

    def paste(job: str, pod: Raw) -> str:
        return override_yaml(subject.release, subject.spec, job, pod) if subject.is_trainjob else to_yaml(pod)

    if not subject.effective.jobs and subject.effective.stopped is None and isinstance(subject.runtime, Runtime):
        template = (subject.runtime.raw.get("spec") or EMPTY).get("template") or EMPTY
        if not (template.get("spec") or EMPTY).get("replicatedJobs"):
            yield _nothing_to_run(subject)
            return
    prepared = subject.runtime.prepared if subject.is_trainjob and isinstance(subject.runtime, Runtime) else None
    if not subject.kept.get(_BUILDABLE):
        buildable = True
        for refusal in find_refusals(subject.effective, paste, prepared):
            buildable = False
            if subject.is_trainjob or not refusal.mendable:
                yield _finding(refusal)
        subject.kept[_BUILDABLE] = buildable
    if subject.is_trainjob and subject.effective.jobset_spec.get("volumeClaimPolicies"):
        yield from _taken_claims(subject)


def _nothing_to_run(subject: Subject) -> Finding:
    """The template has no job; what else it holds (``containers``, ...) is no field of a JobSet and is pruned."""
    label = subject.effective.runtime_label if subject.effective is not None else subject.label
    pod = {"containers": [{"name": "node", "image": "<image>"}]}
    labels = {"labels": {ANCESTOR_LABEL: TRAINER_STEP}}
    job = {"name": "node", "template": {"metadata": labels, "spec": {"template": {"spec": pod}}}}
    return Finding(
        Origin(label, "spec.template.spec.replicatedJobs", "replicatedJobs"),
        f"{label} has no replicatedJobs, so no pod is ever made",
        to_yaml({"spec": {"template": {"spec": {"replicatedJobs": [job]}}}}),
        subject="replicatedJobs",
        why="the TrainJob is accepted and nothing ever runs, so nothing is trained and nothing resumes",
    )


def _finding(refusal: Refusal) -> Finding:
    does = "stops at it" if refusal.by == CONTROLLER else "refuses it"
    why = f"{refusal.by} {does} after admission and the TrainJob shows nothing, so the run never starts"
    return Finding(
        refusal.at,
        refusal.problem,
        refusal.fix,
        at_most=Severity.WARN if refusal.unsure else None,
        job=refusal.job,
        container=refusal.container,
        subject=refusal.subject,
        why=refusal.why or why,
    )


def _taken_claims(subject: Subject) -> Iterator[Finding]:
    """Claims that JobSet wants to make and that exist: its webhook asks for the same spec, field by field."""
    effective = subject.effective
    request = subject.request
    name = effective.trainjob if effective is not None else None
    if effective is None or request.operation != "CREATE" or subject.claims_elsewhere or not name:
        return
    if not effective.release.at_least(Release.V2_2):
        return
    for at, policy in enumerate(effective.jobset_spec.get("volumeClaimPolicies") or ()):
        kept = (policy.get("retentionPolicy") or {}).get("whenDeleted") == "Retain"
        for index, template in enumerate(policy.get("templates") or ()):
            wanted = f"{(template.get('metadata') or {}).get('name')}-{name}"
            claim = subject.cluster.claim(subject.namespace, wanted)
            # The run's own stands in what was written out of a cluster.
            if isinstance(claim, Claim) and claim.made_for != name:
                state = "bound" if claim.bound else "there"
                yield Finding(
                    Origin(
                        effective.runtime_label,
                        f"spec.template.spec.volumeClaimPolicies[{at}].templates[{index}]",
                        f"volumeClaimPolicies[{at}]",
                    ),
                    f'claim "{wanted}" that JobSet is to make is {state} already'
                    + ("" if kept else " and whenDeleted is Delete"),
                    f"kubectl get pvc {shell_word(wanted)} -n {shell_word(subject.namespace)}"
                    "  # to continue from it, mount it as an ordinary\n"
                    f"# persistentVolumeClaim volume; for a fresh start, give the TrainJob another metadata.name",
                    at_most=Severity.WARN if kept and not claim.bound else None,
                    subject=f"claim {wanted}",
                    why="JobSet refuses a claim template whose claim exists, so the run never starts",
                )


RULE = Rule(
    id="unbuildable-pod",
    severity=Severity.DENY,
    why="JobSet or the Job API refuses it after admission and the TrainJob shows nothing, so the run never starts",
    check=check,
    on_runtime=Severity.DENY,
)
