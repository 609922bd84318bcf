"""An override names a job or a container that the runtime does not have.

Symptom: the TrainJob is accepted and no pod ever comes, or the Job is refused with "image: Required value".
Fix: use the names of the runtime's jobs and containers.
Bad:
    replicatedJobs:
    - name: trainer    # the runtime's job is called node
      template: {}
Good:
    replicatedJobs:
    - name: node
      template: {}
Reads: the jobs and containers that the overrides of the served field name, and those of the runtime.
Silent when: the runtime is unknown; the container gets its image elsewhere (`spec.trainer.image`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from webhook.effective.buildable import is_foreign
from webhook.model.finding import Finding, Origin, Severity
from webhook.model.nearest import nearest
from webhook.model.pod import EMPTY, EffectiveJob, EffectiveSet, Layer, Raw
from webhook.model.release import Release
from webhook.model.rule import Rule
from webhook.model.sign import OVERRIDES
from webhook.model.subject import Subject


def check(subject: Subject) -> Iterator[Finding]:
    effective = subject.effective
    if effective is None or not subject.is_trainjob:
        return
    entries = subject.spec.get(subject.release.override_field)
    if not entries:
        return
    names = {job.get("name") or "" for job in effective.jobset_spec.get("replicatedJobs") or ()}
    for index, entry in enumerate(entries):
        for at, target in enumerate(_targets(subject.release, entry)):
            if target.get("name") not in names:
                yield _job(subject, effective, index, entry, at, target.get("name") or "", names)
    own = subject.label
    for job in effective.jobs:
        for layer in job.layers[1:]:
            if layer.object == own and not layer.is_trainer:
                yield from _containers(effective, job, layer)


def _targets(release: Release, entry: Raw) -> Sequence[Raw]:
    if release.at_least(Release.V2_2):
        template = (entry.get("trainingRuntimeSpec") or EMPTY).get("template") or EMPTY
        return (template.get("spec") or EMPTY).get("replicatedJobs") or ()
    return entry.get("targetJobs") or ()


def _job(
    subject: Subject, effective: EffectiveSet, index: int, entry: Raw, at: int, name: str, names: set[str]
) -> Finding:
    field = subject.release.override_field
    patches = subject.release.at_least(Release.V2_2)
    path = "trainingRuntimeSpec.template.spec.replicatedJobs" if patches else "targetJobs"
    known = nearest(name, names)
    fix = f"name: {known[0] if known else '<a job of the runtime>'}"
    # Only here does one job stand once among all entries: Trainer 2.0 refuses another.
    others = subject.spec[field] if subject.release is Release.V2_0 else (entry,)
    if any(known[:1] == [target.get("name")] for other in others for target in _targets(subject.release, other)):
        fix = f'# leave job "{name}" out and move its fields to job "{known[0]}", which is there already'
    return Finding(
        Origin(
            subject.label,
            f"spec.{field}[{index}].{path}[{at}].name",
            f"{field}[{entry.get('manager') or index}] job {name}",
        ),
        f'job "{name}" is not in {effective.runtime_label}, which has {_listed(known)}',
        fix,
        job=name,
        subject="job",
        why=None
        if subject.release is Release.V2_3
        else "Trainer refuses the TrainJob, and does not say which jobs there are",
    )


def _containers(effective: EffectiveSet, job: EffectiveJob, layer: Layer) -> Iterator[Finding]:
    own = job.layers[0].pod
    for kind in ("containers", "initContainers"):
        if not (written := layer.pod.get(kind)):
            continue
        known = {container.get("name") for container in own.get(kind) or ()}
        foreign: set[str] | None = None
        for index, container in enumerate(written):
            name = container.get("name") or ""
            if name in known:
                continue
            if foreign is None:
                foreign = {built.get("name") or "" for built in job.pod.get(kind) or () if is_foreign(job, kind, built)}
            if name in foreign:
                at = layer.at(f"{kind}[{index}].name", short=f"container {name}")
                # An entry of 2.0 and 2.1 may be meant for another of its jobs.
                fits = [
                    other.name
                    for other in effective.jobs
                    if any(mine.field == layer.field for mine in other.layers[1:])
                    and any(there.get("name") == name for there in other.layers[0].pod.get(kind) or ())
                ]
                yield _container(at, job.name, kind, name, own, fits, [one.get("name") or "" for one in written])


def _container(
    at: Origin, job: str, kind: str, name: str, own: Raw, fits: Sequence[str], written: Sequence[str]
) -> Finding:
    other = "initContainers" if kind == "containers" else "containers"
    if any(container.get("name") == name for container in own.get(other) or ()):
        there = "an init container" if other == "initContainers" else "an ordinary container"
        problem = f'"{name}" stands under {kind}, and in job "{job}" of the runtime it is {there}'
        fix = f"{other}:\n- name: {name}"
    else:
        known = nearest(name, [str(container.get("name")) for container in own.get(kind) or ()])
        problem = f'job "{job}" of the runtime has no {kind[:-1]} "{name}", it has {_listed(known)}'
        if fits:
            fix = f'targetJobs:    # job "{job}" in an entry of its own'
            fix += "".join(f"\n- name: {one}" for one in fits)
        elif known and known[0] in written:
            fix = f'# leave container "{name}" out and move its fields to "{known[0]}", which is there already'
        elif known:
            fix = f"name: {known[0]}"
        else:
            fix = f"# in job {job} of the runtime, since an override cannot bring an image:\n"
            fix += f"{kind}:\n- name: {name}\n  image: <image>"
    return Finding(at, problem, fix, job=job, container=name, subject=kind)


def _listed(names: list[str]) -> str:
    shown = ", ".join(f'"{name}"' for name in names[:6])
    return (shown + (f" and {len(names) - 6} more" if len(names) > 6 else "")) or "none"


RULE = Rule(
    id="unknown-override-target",
    severity=Severity.DENY,
    why="Trainer adds it without an image, JobSet or the Job API refuses that in silence, and no pod ever comes",
    check=check,
    when=OVERRIDES,
    reads_pods_only=True,
)
