"""A TrainJob with a Kueue queue sets a field that Kueue drops when it rewrites the object.

Symptom: the run is admitted by Kueue and its pods never come.
Fix: put the field into the runtime.
Bad:
    runtimePatches:
    - manager: example.com/me
      trainingRuntimeSpec:
        template: {spec: {replicatedJobs: [{name: node, template: {spec: {template: {spec: {
          terminationGracePeriodSeconds: 120}}}}}]}}
Good:
    # runtime
    template:
      spec:
        terminationGracePeriodSeconds: 120
Reads: the queue label and `runtimePatches` at CREATE. Kueue 0.17 writes whole objects with the types of Trainer 2.2,
    which do not have `terminationGracePeriodSeconds`.
Silent when: the TrainJob has no queue; the release is not 2.3; the object is updated.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from webhook.effective.overrides import overrides_of
from webhook.model.finding import Finding, Severity
from webhook.model.names import QUEUE_LABEL
from webhook.model.release import Release
from webhook.model.rule import Rule
from webhook.model.sign import OVERRIDES
from webhook.model.subject import Subject

_FIELDS: Final = ("terminationGracePeriodSeconds",)


def check(subject: Subject) -> Iterator[Finding]:
    if subject.release is not Release.V2_3 or not subject.is_trainjob or subject.request.operation != "CREATE":
        return
    queue = ((subject.request.object.get("metadata") or {}).get("labels") or {}).get(QUEUE_LABEL)
    if not queue or not subject.spec.get("runtimePatches"):
        return
    for name, overrides in overrides_of(subject.spec, subject.label, subject.release).items():
        for override in overrides:
            for field in _FIELDS:
                if (value := override.layer.pod.get(field)) is None:
                    continue
                job = subject.effective.job(name) if subject.effective is not None else None
                place = f"{job.job_origin.object} {job.job_origin.field}" if job is not None else "the runtime"
                yield Finding(
                    override.layer.at(field, short=field),
                    # Cut to a warning line it still says what happens; the place names job and field.
                    f'Kueue 0.17 drops "{value}", the run never starts (queue "{queue}")',
                    f"# in {place}, and out of runtimePatches:\ntemplate:\n  spec:\n    {field}: {value}",
                    job=name,
                    subject=field,
                )


RULE = Rule(
    id="lost-by-kueue",
    severity=Severity.WARN,
    why="after Kueue's write the pod template differs from the JobSet's, JobSet refuses it, and the run never starts",
    check=check,
    when=OVERRIDES,
)
