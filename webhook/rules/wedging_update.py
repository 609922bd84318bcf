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
Reads: the pods before and after; whether the TrainJob is or gets suspended; for a runtime its unfinished TrainJobs:
    in Trainer 2.0-2.2 all of them, also where it is created while there are some (deleted under them by force), from
    2.3 on those with a Kueue queue, which Kueue stops after an edit of containers.
Silent when: only labels, annotations, nodeSelector, tolerations or scheduling gates change; the run is finished; the
    CRD or Trainer's webhook refuses the change itself (another order of ``env`` passes both, and so does a
    ``spec.trainer`` where there was none); no JobSet was made; from 2.3 on no container of the runtime changes (each
    run has its own copy); what our defaults had added comes back.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from webhook.effective import build_trainer_pods
from webhook.effective.buildable import find_refusals
from webhook.effective.changes import job_changes, runtime_changes
from webhook.effective.kueue import container_changes
from webhook.model.cluster import Gap, Run, Runtime
from webhook.model.finding import Finding, Origin, Severity
from webhook.model.injected import without_returned
from webhook.model.pod import EMPTY, EffectiveSet, Raw
from webhook.model.printable import shell_word
from webhook.model.release import Release
from webhook.model.rule import Rule
from webhook.model.sign import UPDATED
from webhook.model.subject import Subject

_NAMED: Final = 50
_QUEUED: Final = 5


def check(subject: Subject) -> Iterator[Finding]:
    if subject.request.operation == "CREATE" and not subject.is_trainjob and not subject.release.at_least(Release.V2_3):
        yield from _made_anew(subject)
    if subject.request.operation != "UPDATE" or subject.request.old is None:
        return
    if (subject.request.old.get("spec") or EMPTY) == subject.spec:
        return
    if subject.is_trainjob:
        yield from _trainjob(subject)
    elif not subject.release.at_least(Release.V2_3):
        yield from _runtime(subject)
    else:
        yield from _queued(subject)


def _trainjob(subject: Subject) -> Iterator[Finding]:
    before = subject.old()
    if before is None or before.effective is None or subject.effective is None or subject.effective.elsewhere:
        return
    was, now = bool(before.spec.get("suspend")), bool(subject.spec.get("suspend"))
    if subject.finished:
        return
    active, patches = not was and not now, subject.release.at_least(Release.V2_2)
    if patches and active and _is_refused(before, subject):
        return
    # Overrides of a run that stays or becomes active are refused by Trainer's own webhook in 2.0 and 2.1.
    if not patches and not now and _overrides(before) != _overrides(subject):
        return
    changed = job_changes(before.effective, subject.effective)
    if not changed or _never_made(before.effective) or _only_returns(subject, before.effective):
        return
    told = ", ".join(f'"{change}"' for change in changed[:4]) + (
        f" and {len(changed) - 4} more" if len(changed) > 4 else ""
    )
    state = "running" if active else "suspended"
    name, namespace = shell_word(subject.request.name), shell_word(subject.namespace)
    yield Finding(
        _origin(subject, before),
        f"JobSet refuses the change of {told} in a {state} TrainJob",
        f"kubectl get trainjob {name} -n {namespace} -o yaml  # write env in the order that it has there"
        if active
        and subject.release.at_least(Release.V2_2)
        and before.spec.get("trainer")
        and subject.spec.get("trainer")
        else f"kubectl delete trainjob {name} -n {namespace} --wait\n"
        f"kubectl create -n {namespace} -f <this file>  # a new JobSet takes the change, and the run resumes",
        subject="template",
        why="Trainer lets it through and JobSet refuses it, so the run goes on unchanged and can no longer be suspended"
        if active
        else None,
    )


def _is_refused(before: Subject, now: Subject) -> bool:
    """Whether the CRD or Trainer's webhook refuses the change of an active run, from 2.2 on.

    They let two things through, which JobSet then refuses (seen on 2.2 and 2.3): a part that only one of the objects
    has, since the rules of the CRD fire where both have it, and another order of ``env``.
    """
    old, new = _in_order(before.spec), _in_order(now.spec)
    return _overrides(before) != _overrides(now) or any(old[field] != new[field] for field in old.keys() & new.keys())


def _in_order(spec: Raw) -> dict[str, Any]:
    """The spec as the CRD compares it from 2.2 on, where ``env`` is a map by name."""
    out = {field: value for field, value in spec.items() if value is not None}
    if trainer := out.get("trainer"):
        out["trainer"] = _by_name(trainer)
    if initializer := out.get("initializer"):
        out["initializer"] = {key: _by_name(part) for key, part in initializer.items()}
    return out


def _by_name(part: Raw | None) -> Raw | None:
    env = part.get("env") if part else None
    return {**(part or EMPTY), "env": sorted(env, key=lambda one: str(one.get("name")))} if env else part


def _never_made(effective: EffectiveSet) -> bool:
    """Whether JobSet refused the old JobSet, so that this UPDATE may be what makes the first one."""
    return not effective.jobs or any(
        refusal.by == "JobSet" for refusal in find_refusals(effective, lambda job, pod: "")
    )


def _only_returns(subject: Subject, before: EffectiveSet) -> bool:
    """Whether nothing else happens than that what our defaults had added, and the TrainJob lost, comes back.

    It was lost while nobody answered. JobSet refused to take it from the pods, and agrees with the TrainJob again.
    """
    field = subject.release.override_field
    without = without_returned(subject.request.object, subject.request.old or EMPTY, field)
    if without is None or not isinstance(subject.runtime, Runtime):
        return False
    return not job_changes(before, build_trainer_pods(without, subject.runtime, subject.release))


def _overrides(subject: Subject) -> Any:
    return subject.spec.get(subject.release.override_field) or []


def _origin(subject: Subject, before: Subject) -> Origin:
    for field in ("trainer", "initializer", subject.release.override_field):
        if (before.spec.get(field) or EMPTY) != (subject.spec.get(field) or EMPTY):
            return Origin(subject.label, f"spec.{field}", f"spec.{field}")
    return Origin(subject.label, "spec", "spec")


def _runtime(subject: Subject) -> Iterator[Finding]:
    """A changed runtime reaches every JobSet that is suspended now or later."""
    changed = runtime_changes(subject.request.old or EMPTY, subject.request.object)
    if not changed:
        return
    request = subject.request
    runs = subject.cluster.runs_of_runtime(request.kind, request.namespace, request.name)
    if runs == () or runs == []:
        return
    told = _told(changed)
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
        f"the change of {told} wedges {len(runs)} unfinished TrainJob{'' if len(runs) == 1 else 's'}: {_listed(runs)}",
        fix,
        private=_listed(runs),
        counted=(
            f"the change of {told} reaches {_counted(runs)}",
            f"{fix}\n# {LISTING[request.kind == 'TrainingRuntime'].format(shell_word(request.namespace))}",
        ),
        at_most=Severity.WARN,
        subject="runtime",
        why=_WHY_RUNTIME,
    )


def _queued(subject: Subject) -> Iterator[Finding]:
    """2.3 and later: Trainer keeps a copy for each run, and Kueue compares its Workload with the runtime as it is.

    Seen with Kueue 0.17.0 and 0.19.2: at its next event each run with a queue is stopped and queued again, with the
    pods of before.
    """
    request = subject.request
    runtimes = [
        Runtime(request.kind, request.namespace, request.name, raw, {})
        for raw in (request.old or EMPTY, request.object)
    ]
    before, now = (build_trainer_pods(None, runtime, subject.release) for runtime in runtimes)
    changed = container_changes(before, now)
    if not changed:
        return
    runs = subject.cluster.runs_of_runtime(request.kind, request.namespace, request.name)
    if isinstance(runs, Gap):
        return
    queued = [run for run in runs if run.queued]
    if not queued:
        return
    told = _told(changed)
    plural = "" if len(queued) == 1 else "s"
    names = ", ".join(f'"{run.namespace}/{run.name}"' for run in queued[:_QUEUED])
    more = f" and {len(queued) - _QUEUED} more" if len(queued) > _QUEUED else ""
    fix = f"# wait until they are finished, or give the change to a new runtime:\nmetadata:\n  name: {request.name}-2"
    yield Finding(
        Origin(subject.label, "spec", "spec"),
        f"after the change of {told} Kueue stops {len(queued)} queued TrainJob{plural}: {names}{more}",
        fix,
        private=f"{names}{more}",
        counted=(
            f"after the change of {told} Kueue stops {len(queued)} queued TrainJob{plural}",
            f"{fix}\n# which they are, with your own rights: ckptguard preflight --runtime <this file>",
        ),
        at_most=Severity.WARN,
        subject="queued",
        why=_WHY_QUEUED,
    )


def _told(changed: Sequence[str]) -> str:
    more = f" and {len(changed) - 3} more" if len(changed) > 3 else ""
    return ", ".join(f'"{change}"' for change in changed[:3]) + more


def _made_anew(subject: Subject) -> Iterator[Finding]:
    """A runtime that is created while runs refer to it was there before: they were made of what it was then.

    Trainer 2.0 to 2.2 holds a runtime by a finalizer until no TrainJob refers to it, so somebody took that away. Of
    files only a TrainJob that came from a cluster (it has a uid) is one that runs.
    """
    request = subject.request
    found = subject.cluster.runs_of_runtime(request.kind, request.namespace, request.name)
    runs = () if isinstance(found, Gap) else [run for run in found if run.uid]
    if not runs:
        return
    what = f"{len(runs)} unfinished TrainJob{' refers' if len(runs) == 1 else 's refer'} to the runtime, which is new"
    run = runs[0]
    jobset = f"kubectl get jobset {shell_word(run.name)} -n {shell_word(run.namespace)} -o yaml"
    yield Finding(
        Origin(subject.label, "spec", "spec"),
        f"{what}: {_listed(runs, 'cannot resume', 'cannot be suspended')} if its pods differ from theirs",
        f"{jobset}  # what the run was made of: create the runtime with the same pod template",
        private=_listed(runs),
        counted=(
            f"{what}: none can be suspended or resumed if its pods differ from theirs",
            LISTING[request.kind == "TrainingRuntime"].format(shell_word(request.namespace)),
        ),
        at_most=Severity.WARN,
        subject="made anew",
        why=_WHY_RUNTIME,
    )


def _listed(
    runs: Sequence[Run],
    asleep_fate: str = "suspended, will never resume",
    awake_fate: str = "running, can no longer be suspended",
) -> str:
    asleep = [f"{run.namespace}/{run.name}" for run in runs if run.suspended]
    awake = [f"{run.namespace}/{run.name}" for run in runs if not run.suspended]
    parts: list[str] = []
    for names, fate in ((asleep, asleep_fate), (awake, awake_fate)):
        if names:
            shown = ", ".join(f'"{name}"' for name in names[:_NAMED])
            more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
            parts.append(f"{shown}{more} ({fate})")
    return " and ".join(parts)


def _counted(runs: Sequence[Run]) -> str:
    asleep = sum(run.suspended for run in runs)
    parts = ((asleep, "suspended, will never resume"), (len(runs) - asleep, "running, can no longer be suspended"))
    return " and ".join(f"{number} TrainJob{'' if number == 1 else 's'} ({fate})" for number, fate in parts if number)


LISTING: Final = (
    "kubectl get trainjobs -A  # which they are, with your own rights",
    "kubectl get trainjobs -n {}  # which they are, with your own rights",
)
_WHY_RUNTIME: Final = (
    "Trainer 2.0 to 2.2 writes the change to JobSets that exist, and JobSet refuses it: suspended runs never resume, "
    "running ones cannot be suspended or preempted"
)
_WHY_QUEUED: Final = (
    "each is stopped at its next event and queued again, with the pods of before: where the queue is full it waits"
)

RULE = Rule(
    id="wedging-update",
    severity=Severity.DENY,
    why="Trainer lets it through and JobSet refuses it, so the suspended run never resumes from its checkpoint",
    check=check,
    on_runtime=Severity.WARN,
    when=UPDATED,
)
