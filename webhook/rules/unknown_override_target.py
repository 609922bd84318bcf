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

from collections.abc import Iterator
from typing import Any

from webhook.effective.buildable import is_foreign
from webhook.effective.overrides import overrides_of
from webhook.model.cluster import Runtime
from webhook.model.finding import Finding, Origin, Severity
from webhook.model.nearest import nearest
from webhook.model.pod import EMPTY, EffectiveJob, Raw
from webhook.model.release import Release
from webhook.model.rule import Rule
from webhook.model.subject import Subject


def check(subject: Subject) -> Iterator[Finding]:
    effective = subject.effective
    if not subject.is_trainjob or effective is None or not isinstance(subject.runtime, Runtime):
        return
    if not subject.spec.get(subject.release.override_field):
        return
    template = (subject.runtime.raw.get("spec") or EMPTY).get("template") or EMPTY
    runtime_jobs = {job.get("name") or "": job for job in (template.get("spec") or EMPTY).get("replicatedJobs") or ()}
    for name, at in _targets(subject):
        if name not in runtime_jobs:
            known = nearest(name, runtime_jobs)
            yield Finding(
                at,
                f'job "{name}" is not in {effective.runtime_label}, which has {_listed(known)}',
                f"name: {known[0] if known else '<a job of the runtime>'}",
                job=name,
                subject="job",
            )
    for name, overrides in overrides_of(subject.spec, subject.label, subject.release).items():
        job = effective.job(name)
        if name not in runtime_jobs or job is None:
            continue
        own = _pod(runtime_jobs[name])
        told: set[tuple[str, str]] = set()
        for override in overrides:
            for kind in ("containers", "initContainers"):
                for index, container in enumerate(override.layer.pod.get(kind) or ()):
                    wanted = container.get("name") or ""
                    if (kind, wanted) not in told and _is_unknown(job, kind, wanted, own):
                        told.add((kind, wanted))
                        at = override.layer.at(f"{kind}[{index}].name", short=f"container {wanted}")
                        yield _container(at, name, kind, wanted, own)


def _targets(subject: Subject) -> Iterator[tuple[str, Origin]]:
    """Every job name in the overrides, with its place."""
    field = subject.release.override_field
    patches = subject.release.at_least(Release.V2_2)
    for index, entry in enumerate(subject.spec.get(field) or ()):
        if patches:
            template = (entry.get("trainingRuntimeSpec") or EMPTY).get("template") or EMPTY
            jobs, path = (template.get("spec") or EMPTY).get("replicatedJobs"), "trainingRuntimeSpec.template.spec."
            path, short = f"{path}replicatedJobs", f"runtimePatches[{entry.get('manager') or index}]"
        else:
            jobs, path, short = entry.get("targetJobs"), "targetJobs", f"{field}[{index}]"
        for at, job in enumerate(jobs or ()):
            name = job.get("name") or ""
            where = Origin(subject.label, f"spec.{field}[{index}].{path}[{at}].name", f"{short} job {name}")
            yield name, where


def _pod(job: Raw) -> Raw:
    spec: Any = job.get("template") or EMPTY
    for key in ("spec", "template", "spec"):
        spec = spec.get(key) or EMPTY
    return spec  # type: ignore[no-any-return]


def _is_unknown(job: EffectiveJob, kind: str, name: str, own: Raw) -> bool:
    if any(container.get("name") == name for container in own.get(kind) or ()):
        return False
    return any(built.get("name") == name and is_foreign(job, kind, built) for built in job.pod.get(kind) or ())


def _container(at: Origin, job: str, kind: str, name: str, own: Raw) -> Finding:
    other = "initContainers" if kind == "containers" else "containers"
    if any(container.get("name") == name for container in own.get(other) or ()):
        there = "an init container" if other == "initContainers" else "an ordinary container"
        problem = f'"{name}" stands under {kind}, and in job "{job}" of the runtime it is {there}'
        fix = f"{other}:\n- name: {name}"
    else:
        known = nearest(name, [str(container.get("name")) for container in own.get(kind) or ()])
        problem = f'job "{job}" of the runtime has no {kind[:-1]} "{name}", it has {_listed(known)}'
        fix = f"name: {known[0] if known else 'node'}"
    return Finding(at, problem, fix, job=job, container=name, subject=kind)


def _listed(names: list[str]) -> str:
    shown = ", ".join(f'"{name}"' for name in names[:6])
    return (shown + (f" and {len(names) - 6} more" if len(names) > 6 else "")) or "none"


RULE = Rule(
    id="unknown-override-target",
    severity=Severity.DENY,
    why="Trainer adds it without an image, JobSet or the Job API refuses that in silence, and no pod ever comes",
    check=check,
)
