"""The pods get too little time between SIGTERM and SIGKILL to write a last checkpoint.

Symptom: the pod is killed while it still writes, and the newest checkpoint is incomplete.
Fix: leave the program time to finish a save after SIGTERM.
Bad:
    spec:
      terminationGracePeriodSeconds: 10
Good:
    spec:
      terminationGracePeriodSeconds: 120
Reads: `terminationGracePeriodSeconds` (30 where absent) of each job that trains; the policy's floor.
Silent when: the time is at or above `limits.terminationGracePeriodSeconds`; it is the plain default and no checkpoint
directory is known.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Final

from webhook.model.finding import Finding, Measure, Severity
from webhook.model.names import QUEUE_LABEL
from webhook.model.override import override_yaml
from webhook.model.release import Release
from webhook.model.rule import Rule
from webhook.model.sign import SHORT_GRACE
from webhook.model.subject import Subject

_FIELD: Final = "terminationGracePeriodSeconds"
_DEFAULT: Final = 30


def check(subject: Subject) -> Iterator[Finding]:
    if subject.effective is None:
        return
    floor = subject.policy.limits.termination_grace_period_seconds
    for job in subject.effective.jobs:
        if not job.trains:
            continue
        grace = job.pod.get(_FIELD, _DEFAULT)
        measure = Measure(grace, "s", floor=floor)
        if measure.kept:
            continue
        written = any(layer.pod.get(_FIELD) is not None for layer in job.layers)
        if not written and not any(one.directory for one in subject.checkpoints):
            continue  # where nothing says what is saved, nobody knows what 30 s are too short for
        told = f"{grace} s" if written else f"{grace} s by default"
        yield Finding(
            job.pod_origin(_FIELD),
            f'pods of job "{job.name}" have {told} to end, under the floor of {floor} s',
            partial(_fix, subject, job.name, floor),
            job=job.name,
            subject=_FIELD,
            measure=measure,
        )


def _fix(subject: Subject, job: str, floor: int) -> str:
    labels = (subject.request.object.get("metadata") or {}).get("labels") or {}
    created = subject.is_trainjob and subject.request.operation == "CREATE"
    if created and subject.release.at_least(Release.V2_3) and QUEUE_LABEL not in labels:
        return override_yaml(subject.release, subject.spec, job, {_FIELD: floor})
    return f"template:\n  spec:\n    {_FIELD}: {floor}"


RULE = Rule(
    id="short-grace",
    severity=Severity.WARN,
    why="the pod is killed before a checkpoint is flushed, so the work since the last one is lost",
    check=check,
    on_runtime=Severity.DENY,
    when=SHORT_GRACE,
)
