"""An UPDATE changes the pod template of a JobSet that exists: Trainer lets it through and JobSet refuses it for ever.

Symptom: the update passes, and the run can never be resumed, or never be suspended or preempted, again.
Fix: delete the TrainJob and create it with the change; the checkpoints stay.
Bad:
    # kubectl apply on a suspended TrainJob
    trainer:
      env:
      - {name: LR, value: "0.1"}    # was 0.2
Good:
    # a new TrainJob, on the same checkpoint directory
    metadata:
      name: digits-8
Reads: the pods before and after; whether the TrainJob is or gets suspended; for a runtime in Trainer 2.0-2.2, its
    unfinished TrainJobs.
Silent when: only labels, annotations, nodeSelector, tolerations or scheduling gates change; the run is finished; the
    CRD or Trainer's webhook refuses the change itself; no JobSet was made; 2.3 has its own copy of the runtime.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from webhook.effective.buildable import find_refusals
from webhook.model.cluster import Gap, Run
from webhook.model.finding import Finding, Origin, Severity
from webhook.model.pod import EMPTY, EffectiveJob, EffectiveSet, Raw
from webhook.model.quantity import parse_quantity
from webhook.model.release import Release
from webhook.model.rule import Rule
from webhook.model.subject import Subject

_MAY_CHANGE: Final = frozenset(("nodeSelector", "tolerations", "schedulingGates"))
"""Fields of a PodSpec that JobSet lets change while either side is suspended; so do the template's metadata."""
_NAMED: Final = 50


def check(subject: Subject) -> Iterator[Finding]:
    if subject.request.operation != "UPDATE" or subject.request.old is None:
        return
    if (subject.request.old.get("spec") or EMPTY) == subject.spec:
        return
    if subject.is_trainjob:
        yield from _trainjob(subject)
    elif not subject.release.at_least(Release.V2_3):
        yield from _runtime(subject)


def _trainjob(subject: Subject) -> Iterator[Finding]:
    before = subject.old()
    if before is None or before.effective is None or subject.effective is None or subject.effective.elsewhere:
        return
    was, now = bool(before.spec.get("suspend")), bool(subject.spec.get("suspend"))
    if _finished(subject.request.object) or (not was and not now and subject.release.at_least(Release.V2_2)):
        return
    # Overrides of a run that stays or becomes active are refused by Trainer's own webhook in 2.0 and 2.1.
    if not subject.release.at_least(Release.V2_2) and not now and _overrides(before) != _overrides(subject):
        return
    changed = _changes(before.effective, subject.effective)
    if not changed or _never_made(before.effective):
        return
    active = not was and not now
    told = ", ".join(f'"{change}"' for change in changed[:4]) + (
        f" and {len(changed) - 4} more" if len(changed) > 4 else ""
    )
    state = "running" if active else "suspended"
    name, namespace = subject.request.name, subject.namespace
    yield Finding(
        _origin(subject, before),
        f"JobSet refuses the change of {told} in a {state} TrainJob",
        f"kubectl delete trainjob {name} -n {namespace} --wait\n"
        f"kubectl create -n {namespace} -f <this file>  # a new JobSet takes the change, and the run resumes",
        subject="template",
        why="Trainer lets it through and JobSet refuses it, so the run goes on unchanged and can no longer be suspended"
        if active
        else None,
    )


def _finished(trainjob: Raw) -> bool:
    return any(
        condition.get("type") in ("Complete", "Failed") and condition.get("status") == "True"
        for condition in (trainjob.get("status") or EMPTY).get("conditions") or ()
    )


def _never_made(effective: EffectiveSet) -> bool:
    """Whether JobSet refused the old JobSet, so that this UPDATE may be what makes the first one."""
    return not effective.jobs or any(
        refusal.by == "JobSet" for refusal in find_refusals(effective, lambda job, pod: "")
    )


def _overrides(subject: Subject) -> Any:
    return subject.spec.get(subject.release.override_field) or []


def _changes(before: EffectiveSet, now: EffectiveSet) -> list[str]:
    """The parts of the pods that differ and that JobSet does not let change, as paths below the job's name."""
    if [job.name for job in before.jobs] != [job.name for job in now.jobs]:
        return ["jobs"]
    changed: list[str] = []
    for old, new in zip(before.jobs, now.jobs, strict=True):
        if old.pods != new.pods:
            changed.append(f"{new.name}: number of pods")
        if old.pod is not new.pod:
            changed += _pod_changes(old, new)
        if not _same(old.labels, new.labels):
            changed.append(f"{new.name}: labels of the job template")
    return changed


def _pod_changes(old: EffectiveJob, new: EffectiveJob) -> Iterator[str]:
    for field in dict.fromkeys((*old.pod, *new.pod)):
        one, two = old.pod.get(field), new.pod.get(field)
        if field in _MAY_CHANGE or _same(one, two):
            continue
        if field not in ("containers", "initContainers") or len(one or ()) != len(two or ()):
            yield f"{new.name}: {field}"
            continue
        for left, right in zip(one or (), two or (), strict=True):
            for part in dict.fromkeys((*left, *right)):
                if not _same(left.get(part), right.get(part)):
                    yield f"{new.name}: {part} of {right.get('name')}"


def _same(one: Any, two: Any) -> bool:
    """Equality as the API server sees it: absent, null and empty are one, and ``1`` is ``1000m``."""
    if one == two:
        return True
    if isinstance(one, dict) and isinstance(two, dict):
        return all(_same(one.get(key), two.get(key)) for key in {*one, *two})
    if isinstance(one, list) and isinstance(two, list):
        return len(one) == len(two) and all(map(_same, one, two))
    if one in (None, "", [], {}) and two in (None, "", [], {}):
        return True
    amount = parse_quantity(one)
    return amount is not None and isinstance(one, str) and isinstance(two, str | int) and amount == parse_quantity(two)


def _origin(subject: Subject, before: Subject) -> Origin:
    for field in ("trainer", "initializer", subject.release.override_field):
        if (before.spec.get(field) or EMPTY) != (subject.spec.get(field) or EMPTY):
            return Origin(subject.label, f"spec.{field}", f"spec.{field}")
    return Origin(subject.label, "spec", "spec")


def _runtime(subject: Subject) -> Iterator[Finding]:
    """A changed runtime reaches every JobSet that is suspended now or later."""
    changed = _runtime_changes(subject.request.old or EMPTY, subject.request.object)
    if not changed:
        return
    request = subject.request
    runs = subject.cluster.runs_of_runtime(request.kind, request.namespace, request.name)
    if runs == () or runs == []:
        return
    told = ", ".join(f'"{change}"' for change in changed[:3]) + (
        f" and {len(changed) - 3} more" if len(changed) > 3 else ""
    )
    where = Origin(subject.label, "spec", "spec")
    fix = (
        f"# wait until the runs are finished, or give the change to a new runtime:\nmetadata:\n  name: {request.name}-2"
    )
    if isinstance(runs, Gap):
        yield Finding(
            where,
            f"the change of {told} reaches every unfinished TrainJob of the runtime, and those are not known",
            fix,
            at_most=Severity.AUDIT,
            subject="runtime",
            why=_WHY_RUNTIME,
        )
        return
    yield Finding(
        where,
        f"the change of {told} reaches {_listed(runs)}",
        fix,
        at_most=Severity.WARN,
        subject="runtime",
        why=_WHY_RUNTIME,
    )


def _listed(runs: Sequence[Run]) -> str:
    asleep = [f"{run.namespace}/{run.name}" for run in runs if run.suspended]
    awake = [f"{run.namespace}/{run.name}" for run in runs if not run.suspended]
    parts: list[str] = []
    for names, fate in ((asleep, "suspended, will never resume"), (awake, "running, can no longer be suspended")):
        if names:
            shown = ", ".join(f'"{name}"' for name in names[:_NAMED])
            more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
            parts.append(f"{shown}{more} ({fate})")
    return " and ".join(parts)


def _runtime_changes(old: Raw, new: Raw) -> list[str]:
    """What differs in the jobs and the mlPolicy besides what JobSet lets change; ``failurePolicy`` is no part of it."""
    before, after = old.get("spec") or EMPTY, new.get("spec") or EMPTY
    changed = [] if _same(before.get("mlPolicy"), after.get("mlPolicy")) else ["mlPolicy"]
    left, right = _jobs(before), _jobs(after)
    if [job.get("name") for job in left] != [job.get("name") for job in right]:
        return [*changed, "replicatedJobs"]
    for one, two in zip(left, right, strict=True):
        if _same(one, two):
            continue
        pods = [((job.get("template") or EMPTY).get("spec") or EMPTY).get("template") or EMPTY for job in (one, two)]
        specs = [(job.get("template") or EMPTY).get("spec") or EMPTY for job in (one, two)]
        name = two.get("name")
        changed += [
            f"{name}: {field}"
            for field in dict.fromkeys((*specs[0], *specs[1]))
            if field != "template" and not _same(specs[0].get(field), specs[1].get(field))
        ]
        inner = [pod.get("spec") or EMPTY for pod in pods]
        changed += [
            f"{name}: {field}"
            for field in dict.fromkeys((*inner[0], *inner[1]))
            if field not in _MAY_CHANGE and not _same(inner[0].get(field), inner[1].get(field))
        ]
        labels = [(job.get("template") or EMPTY).get("metadata") for job in (one, two)]
        if not _same(*labels):
            changed.append(f"{name}: metadata of the job template")
        if not _same(one.get("replicas"), two.get("replicas")) or not _same(one.get("dependsOn"), two.get("dependsOn")):
            changed.append(f"{name}: replicas or dependsOn")
    return changed


def _jobs(spec: Raw) -> Sequence[Raw]:
    return ((spec.get("template") or EMPTY).get("spec") or EMPTY).get("replicatedJobs") or ()


_WHY_RUNTIME: Final = (
    "Trainer 2.0 to 2.2 writes the change to JobSets that exist, and JobSet refuses it: suspended runs never resume, "
    "running ones cannot be suspended or preempted"
)

RULE = Rule(
    id="wedging-update",
    severity=Severity.DENY,
    why="Trainer lets it through and JobSet refuses it, so the suspended run never resumes from its checkpoint",
    check=check,
    on_runtime=Severity.WARN,
)
