"""A pod of several is retried alone, while the others wait for a rank that has lost its state.

`backoffLimit: 0` has a price: a run whose node is lost (power, cable) gets no new pod before that node is back, its
Node is deleted, or it is tainted `node.kubernetes.io/out-of-service`. With retries a run of one pod gets a new one
elsewhere within a minute; several pods gain nothing by them. The guard fills in 0 for all, with the policy's
`defaults.backoffLimit: multi-node` for runtimes of several nodes alone, with `keep` for none.

Symptom: one rank is replaced alone while the others wait in a collective operation until they time out.
Fix: let the first failure restart all pods together.
Bad:
    template:
      spec:
        backoffLimit: 6
Good:
    template:
      spec:
        backoffLimit: 0    # with failurePolicy.maxRestarts above 0
Reads: `backoffLimit` (6 where absent), `podFailurePolicy` rules that ignore a failure, pods of each job that trains.
Silent when: the job has one pod; `backoffLimit` is 0; `restartStrategy: InPlaceRestart` asks for retries.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from webhook.effective.restarts import pod_rules
from webhook.model.finding import Finding, Origin, Severity
from webhook.model.pod import EffectiveJob
from webhook.model.release import Release
from webhook.model.rule import Rule
from webhook.model.sign import RETRIES
from webhook.model.subject import Subject


def check(subject: Subject) -> Iterator[Finding]:
    effective = subject.effective
    if effective is None:
        return
    for job in effective.jobs:
        if not job.trains or job.pods < 2:
            continue
        if (effective.failure_policy or {}).get("restartStrategy") == "InPlaceRestart":
            return
        if job.backoff_limit > 0:
            yield _finding(subject, job)
        if job.spec.get("podFailurePolicy"):
            for index, rule, cause in pod_rules(job, "Ignore"):
                origin = job.job_origin
                field = f"podFailurePolicy.rules[{index}]"
                yield Finding(
                    Origin(origin.object, f"{origin.field}.{field}", f"{origin.short} {field}".strip()),
                    f'job "{job.name}" retries one of {job.pods} pods alone: it ignores {cause}',
                    "action: FailJob",
                    job=job.name,
                    subject=f"podFailurePolicy {rule.get('action')} {index}",
                )


_WEDGED: Final = "Trainer 2.0 to 2.2 never resumes those"


def _finding(subject: Subject, job: EffectiveJob) -> Finding:
    origin = job.job_origin
    told, fix = f"backoffLimit {job.backoff_limit}", "backoffLimit: 0"
    if not job.explicit_backoff_limit:
        told = f"no backoffLimit, so {job.backoff_limit} by default"
    if (per_index := job.spec.get("backoffLimitPerIndex")) is not None:
        told = f"backoffLimitPerIndex {per_index}"
        fix = "backoffLimit: 0\n# and without backoffLimitPerIndex"
    if subject.is_trainjob and not subject.release.at_least(Release.V2_3):
        fix += f"\n# in {origin.object}, when none of its runs is unfinished: {_WEDGED}"
    return Finding(
        Origin(origin.object, f"{origin.field}.backoffLimit", f"{origin.short} backoffLimit".strip()),
        f'job "{job.name}" with {job.pods} pods has {told}',
        fix,
        job=job.name,
        subject="backoffLimit",
    )


RULE = Rule(
    id="pods-retry-alone",
    severity=Severity.WARN,
    why="one rank restarts alone while the others hang, and the JobSet, which would restart all of them, waits",
    check=check,
    on_runtime=Severity.DENY,
    when=RETRIES,
    reads_pods_only=True,
)
