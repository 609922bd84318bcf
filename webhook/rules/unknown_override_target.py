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

from webhook.model.finding import Finding, Origin, Severity
from webhook.model.nearest import Names
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
    names = Names(job.get("name") or "" for job in effective.jobset_spec.get("replicatedJobs") or ())
    named: set[str | None] | None = None
    if subject.release is Release.V2_0:
        # Only here does one job stand once among all entries: Trainer 2.0 refuses another.
        named = {target.get("name") for entry in entries for target in _targets(subject.release, entry)}
    for index, entry in enumerate(entries):
        targets = _targets(subject.release, entry)
        for at, target in enumerate(targets):
            if (target.get("name") or "") not in names:
                here = {one.get("name") for one in targets} if named is None else named
                yield _job(subject, effective, index, entry, at, target.get("name") or "", names, here)
    own = subject.label
    others: _Others = {}
    for job in effective.jobs:
        for layer in job.layers[1:]:
            if layer.object == own and not layer.is_trainer:
                yield from _containers(effective, job, layer, others)


_Others = dict[str, list[EffectiveJob]]
"""The place of an override's entry -> the jobs that it was merged into."""


def _jobs_with(effective: EffectiveSet, others: _Others, name: str, kind: str, layer: Layer) -> list[str]:
    """The jobs of the same entry whose runtime has the container: an entry of 2.0 and 2.1 may be meant for those."""
    if not others:
        for job in effective.jobs:
            for field in {mine.field for mine in job.layers[1:]}:
                others.setdefault(field, []).append(job)
    return [job.name for job in others.get(layer.field, ()) if job.layers[0].where(kind, name)]


def _targets(release: Release, entry: Raw) -> Sequence[Raw]:
    if release.at_least(Release.V2_2):
        template = (entry.get("trainingRuntimeSpec") or EMPTY).get("template") or EMPTY
        return (template.get("spec") or EMPTY).get("replicatedJobs") or ()
    return entry.get("targetJobs") or ()


def _job(
    subject: Subject,
    effective: EffectiveSet,
    index: int,
    entry: Raw,
    at: int,
    name: str,
    names: Names,
    named: set[str | None],
) -> Finding:
    field = subject.release.override_field
    patches = subject.release.at_least(Release.V2_2)
    path = "trainingRuntimeSpec.template.spec.replicatedJobs" if patches else "targetJobs"
    known = names.nearest(name)
    fix = f"name: {known[0] if known else '<a job of the runtime>'}"
    if known and known[0] in named:
        fix = f'# leave job "{name}" out and move its fields to job "{known[0]}", which is there already'
    return Finding(
        Origin(
            subject.label,
            f"spec.{field}[{index}].{path}[{at}].name",
            f"{field}[{entry.get('manager') or index}] job {name}",
        ),
        f'job "{name}" is not in {effective.runtime_label}, which has {_listed(known, len(names))}',
        fix,
        job=name,
        subject="job",
        why=None
        if subject.release.at_least(Release.V2_3)
        else "Trainer refuses the TrainJob, and does not say which jobs there are",
    )


def _containers(effective: EffectiveSet, job: EffectiveJob, layer: Layer, others: _Others) -> Iterator[Finding]:
    own = job.layers[0].pod
    for kind in ("containers", "initContainers"):
        if not (written := layer.pod.get(kind)):
            continue
        known = Names(container.get("name") or "" for container in own.get(kind) or ())
        mine = {container.get("name") or "" for container in written}
        foreign: set[str] | None = None
        for index, container in enumerate(written):
            name = container.get("name") or ""
            if name in known:
                continue
            if foreign is None:
                # Of a name that the runtime does not have: foreign (``is_foreign``) is what nobody gave an image.
                foreign = {built.get("name") or "" for built in job.pod.get(kind) or () if not built.get("image")}
            if name in foreign:
                at = layer.at(f"{kind}[{index}].name", short=f"container {name}")
                fits = _jobs_with(effective, others, name, kind, layer)
                yield _container(at, job, kind, name, known, fits, mine)


def _container(
    at: Origin, job: EffectiveJob, kind: str, name: str, known: Names, fits: Sequence[str], written: set[str]
) -> Finding:
    other = "initContainers" if kind == "containers" else "containers"
    if job.layers[0].where(other, name):
        there = "an init container" if other == "initContainers" else "an ordinary container"
        problem = f'"{name}" stands under {kind}, and in job "{job.name}" of the runtime it is {there}'
        fix = f"{other}:\n- name: {name}"
    else:
        near = known.nearest(name)
        listed = _listed(near, len(known))
        problem = f'job "{job.name}" of the runtime has no {kind[:-1]} "{name}", it has {listed}'
        if fits:
            fix = f'targetJobs:    # job "{job.name}" in an entry of its own'
            fix += "".join(f"\n- name: {one}" for one in fits[:_SHOWN])
        elif near and near[0] in written:
            fix = f'# leave container "{name}" out and move its fields to "{near[0]}", which is there already'
        elif near:
            fix = f"name: {near[0]}"
        else:
            fix = f"# in job {job.name} of the runtime, since an override cannot bring an image:\n"
            fix += f"{kind}:\n- name: {name}\n  image: <image>"
    return Finding(at, problem, fix, job=job.name, container=name, subject=kind)


_SHOWN = 6


def _listed(names: list[str], there: int) -> str:
    shown = ", ".join(f'"{name}"' for name in names[:_SHOWN])
    return (shown + (f" and {there - _SHOWN} more" if there > _SHOWN else "")) or "none"


RULE = Rule(
    id="unknown-override-target",
    severity=Severity.DENY,
    why="Trainer adds it without an image, JobSet or the Job API refuses that in silence, and no pod ever comes",
    check=check,
    when=OVERRIDES,
    reads_pods_only=True,
)
