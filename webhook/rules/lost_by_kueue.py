"""A TrainJob with a Kueue queue sets a field that Kueue drops when it rewrites the object.

Symptom: the run is admitted by Kueue and its pods never come; Kueue's log says "field is immutable", or an event of the
    TrainJob that JobSet refuses the pod template.
Fix: put the field into the runtime; what is empty or false is best left out.
Bad:
    spec:
      trainer:
        env:
        - name: WANDB_MODE
          value: ""    # or args: [], or readOnly: false in a runtimePatch's mount
Good:
    spec:
      trainer:
        env:
        - name: WANDB_MODE    # no value is the empty one
Reads: the queue label at CREATE, whether the cluster serves Kueue (then a grace period is a denial, since the run never
    starts), and what a write of Kueue loses (seen with 0.17.0 and 0.19.2): it writes whole objects with the types of
    Trainer 2.2, which do not have `terminationGracePeriodSeconds` in `runtimePatches`, and whose encoder leaves out
    empty texts, lists and maps and what is false. The CRD of 2.2 and later takes that for a change of `spec.trainer`,
    of `spec.initializer`, or of volumes, containers and security context in a patch, which are immutable.
Silent when: the TrainJob has no queue; the release is 2.0 or 2.1; the object is updated.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from webhook.effective.kueue import GRACE, PARTS, PARTS_OF_POD, dropped_grace, emptied
from webhook.effective.overrides import overrides_of
from webhook.model.finding import Finding, Origin, Severity
from webhook.model.names import QUEUE_LABEL
from webhook.model.release import Release
from webhook.model.rule import Rule
from webhook.model.sign import QUEUED
from webhook.model.subject import Subject

_SHOWN: Final = 6


def check(subject: Subject) -> Iterator[Finding]:
    if not subject.is_trainjob or subject.request.operation != "CREATE":
        return
    queue = ((subject.request.object.get("metadata") or {}).get("labels") or {}).get(QUEUE_LABEL)
    if not queue or not subject.release.at_least(Release.V2_2):
        return
    if not subject.claims_elsewhere:
        for name in PARTS:
            if part := subject.spec.get(name):
                field = f"spec.{name}"
                yield from _emptied(Origin(subject.label, field, field), part, queue)
    if not subject.spec.get("runtimePatches"):
        return
    for name, overrides in overrides_of(subject.spec, subject.label, subject.release).items():
        for override in overrides:
            if not subject.claims_elsewhere:
                for kind in PARTS_OF_POD:
                    if part := override.layer.pod.get(kind):
                        yield from _emptied(override.layer.at(kind, short=kind), part, queue, name)
    # Kueue's types are those of 2.2, so nobody but the runtime can hold it. Where Kueue is served the run never starts.
    raised = Severity.DENY if subject.cluster.serves_kueue() else None
    for name, override, value in dropped_grace(subject.spec, subject.label, subject.release):
        job = subject.effective.job(name) if subject.effective is not None else None
        place = f"{job.job_origin.object} {job.job_origin.field}" if job is not None else "the runtime"
        yield Finding(
            override.layer.at(GRACE, short=GRACE),
            f'Kueue (0.17, 0.19) drops {GRACE} of job "{name}", the run never starts: queue "{queue}"',
            f"# in {place}, and out of runtimePatches:\ntemplate:\n  spec:\n    {GRACE}: {value}",
            raised=raised,
            job=name,
            subject=GRACE,
        )


def _emptied(part: Origin, raw: Any, queue: str, job: str = "") -> Iterator[Finding]:
    """One finding for what is dropped of an immutable part, at the first place."""
    lost = list(emptied(raw))
    if not lost:
        return
    path, text = lost[0]
    more = f" and {len(lost) - 1} more" if len(lost) > 1 else ""
    name = part.field.rpartition(".")[2]
    fix = ["# leave out, since an absent field means the same:"]
    for at, value in lost[:_SHOWN]:
        # An empty list stands for no command at all, an absent one for the runtime's.
        back = "  # (the runtime's applies then)" if at in (".command", ".args") else ""
        fix.append(f"#   {name}{at.rpartition('.')[0]}.{value}{back}")
    if len(lost) > _SHOWN:
        fix.append(f"#   and {len(lost) - _SHOWN} more")
    yield Finding(
        Origin(part.object, part.field + path, part.short + path if not job else part.short),
        f'Kueue (0.17, 0.19) drops "{text}"{more}, the run never starts: queue "{queue}"',
        "\n".join(fix),
        job=job,
        subject=f"{part.short} emptied",
        why="the CRD takes Kueue's write for a change of an immutable field and refuses it, so the run stays suspended",
    )


RULE = Rule(
    id="lost-by-kueue",
    severity=Severity.WARN,
    why="after Kueue's write the pod template differs from the JobSet's, JobSet refuses it, and the run never starts",
    check=check,
    when=QUEUED,
)
