"""A rule ends the run on an ordinary failure or a disruption, where a restart was to bring it back.

Symptom: restarts are allowed, and the run ends at the first failure all the same.
Fix: take out the rule that ends the run, or narrow it to exit codes that no restart can mend.
Bad:
    failurePolicy:
      maxRestarts: 3
      rules:
      - {name: stop, action: FailJobSet}
Good:
    failurePolicy:
      maxRestarts: 3
Reads: `failurePolicy.rules` and `podFailurePolicy.rules`, the first that matches each failure of each job that trains.
Silent when: a later rule would end the run but an earlier one answers; the rule asks for exit codes that a program
    chooses itself, for a deadline, or for a message; JobSet restarts the job that `FailJob` failed.
"""

from __future__ import annotations

from collections.abc import Iterator

from webhook.effective.restarts import ORDINARY, first_rule, pod_rules, restarts_left
from webhook.model.finding import Finding, Origin, Severity
from webhook.model.pod import EffectiveJob, EffectiveSet
from webhook.model.rule import Rule
from webhook.model.sign import RESTARTS
from webhook.model.subject import Subject


def check(subject: Subject) -> Iterator[Finding]:
    effective = subject.effective
    if effective is None:
        return
    rules = (effective.failure_policy or {}).get("rules")
    for job in effective.jobs:
        policy = job.spec.get("podFailurePolicy")
        if policy and (job.pod.get("restartPolicy") or "OnFailure") == "OnFailure":
            yield _refused(job)
        elif job.trains and policy:
            yield from _pod_rules(effective, job)
        if job.trains and rules:
            yield from _job_rules(effective, job)


def _refused(job: EffectiveJob) -> Finding:
    written = any(layer.pod.get("restartPolicy") for layer in job.layers)
    told = "OnFailure" if written else "none, so OnFailure"
    return Finding(
        Origin(job.job_origin.object, f"{job.job_origin.field}.podFailurePolicy", f"job {job.name} podFailurePolicy"),
        f'podFailurePolicy of job "{job.name}" needs restartPolicy "Never": it has {told}',
        "template:\n  spec:\n    restartPolicy: Never",
        raised=Severity.DENY,
        job=job.name,
        subject="restartPolicy",
        why="the Job API refuses the pods after admission and the TrainJob shows nothing, so the run never starts",
    )


def _pod_rules(effective: EffectiveSet, job: EffectiveJob) -> Iterator[Finding]:
    if restarts_left(effective.failure_policy, job.name, "PodFailurePolicy") > 0:
        return
    answer = first_rule(effective.failure_policy, job.name, "PodFailurePolicy")
    for index, _, cause in pod_rules(job, "FailJob"):
        field = f"podFailurePolicy.rules[{index}]"
        problem = f'job "{job.name}" fails at once on {cause}'
        if answer:
            rule = answer[1].get("name") or answer[0]
            problem = f'rule "{rule}" fails the JobSet once job "{job.name}" fails: on {cause}'
        yield Finding(
            Origin(job.job_origin.object, f"{job.job_origin.field}.{field}", f"job {job.name} {field}"),
            problem,
            "action: Count" if not answer else f"# in failurePolicy.rules[{answer[0]}]:\naction: RestartJobSet",
            job=job.name,
            subject=f"podFailurePolicy {index}",
        )


def _job_rules(effective: EffectiveSet, job: EffectiveJob) -> Iterator[Finding]:
    reasons = [ORDINARY]
    if job.spec.get("backoffLimitPerIndex") is not None:
        reasons += ["FailedIndexes", "MaxFailedIndexesExceeded"]
    told: set[int] = set()
    for reason in reasons:
        found = first_rule(effective.failure_policy, job.name, reason)
        if found is None or found[1].get("action") != "FailJobSet" or found[0] in told:
            continue
        index, rule = found
        told.add(index)
        field = f"failurePolicy.rules[{index}]"
        yield Finding(
            Origin(effective.runtime_label, f"spec.template.spec.{field}.action", field),
            f'rule "{rule.get("name") or index}" fails the JobSet when job "{job.name}" ends with "{reason}"',
            "action: RestartJobSet\n# failurePolicy cannot be changed in place: delete the runtime and create it anew",
            job=job.name,
            subject=f"failurePolicy {index}",
        )


RULE = Rule(
    id="restart-ruled-out",
    severity=Severity.WARN,
    why="the run ends for good where a restart would have resumed it from its last checkpoint",
    check=check,
    on_runtime=Severity.DENY,
    when=RESTARTS,
    reads_pods_only=True,
)
