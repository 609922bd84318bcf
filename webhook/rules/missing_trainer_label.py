"""No job carries the trainer label, so Trainer drops what `spec.trainer` says, and the framework's own variables too.

Symptom: the run starts with the runtime's own image and command, as if spec.trainer were not there.
Fix: label the job template that trains.
Bad:
    replicatedJobs:
    - name: node
      template:
        spec: {}
Good:
    replicatedJobs:
    - name: node
      template:
        metadata:
          labels:
            trainer.kubeflow.org/trainjob-ancestor-step: trainer
        spec: {}
Reads: the labels of the jobs as built, the fields of `spec.trainer`, and which of them MPI hands on by the job's name.
Silent when: a job that has container `node` carries the label; the runtime is unknown.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from webhook.model.cluster import Runtime
from webhook.model.finding import Finding, Origin, Severity
from webhook.model.names import ANCESTOR_LABEL, TRAINER_STEP
from webhook.model.override import override_manager
from webhook.model.paste import to_yaml
from webhook.model.pod import EMPTY, EffectiveJob, EffectiveSet
from webhook.model.release import Release
from webhook.model.rule import Rule
from webhook.model.sign import UNLABELLED
from webhook.model.subject import Subject

_LISTS: Final = ("env", "resourcesPerNode")
_WORDS: Final = ("image", "command", "args")


def check(subject: Subject) -> Iterator[Finding]:
    effective = subject.effective
    if effective is None or not effective.jobs:
        return
    labelled: list[EffectiveJob] = []
    for job in effective.jobs:
        if job.labels.get(ANCESTOR_LABEL) == TRAINER_STEP:
            if _has_node(job):
                return
            labelled.append(job)
    dropped = _dropped(subject, effective, bool(labelled)) if subject.is_trainjob else []
    if labelled and not dropped:
        return
    job = _candidate(labelled or list(effective.jobs))
    runtime = effective.runtime_label
    lacks = f'job "{labelled[0].name}" has no container "node"' if labelled else "no job has the trainer label"
    path = job.job_origin.field.removesuffix(".spec")
    if dropped:
        yield Finding(
            Origin(subject.label, "spec.trainer", "spec.trainer"),
            f"Trainer drops {', '.join(dropped)} of spec.trainer: {lacks}",
            _fix(subject, job, path),
            job=job.name,
            subject="label",
        )
    else:
        yield Finding(
            Origin(runtime, f"{path}.metadata.labels", f"job {job.name} labels"),
            lacks,
            _fix(subject, job, path),
            at_most=Severity.WARN,
            job=job.name,
            subject="label",
            why="numNodes, the framework's variables and anything that spec.trainer will say never reach the pods",
        )


def _has_node(job: EffectiveJob) -> bool:
    return any(container.get("name") == "node" for container in job.pod.get("containers") or ())


def _dropped(subject: Subject, effective: EffectiveSet, labelled: bool) -> list[str]:
    """The fields of ``spec.trainer`` that reach no pod."""
    trainer = subject.spec.get("trainer") or EMPTY
    dropped = [field for field in _WORDS if trainer.get(field) is not None]
    reached = any(job.receives_trainer and _has_node(job) for job in effective.jobs)
    if not reached:
        dropped += [field for field in _LISTS if trainer.get(field)]
    if trainer.get("numNodes") is not None and not labelled:
        policy = EMPTY
        if isinstance(subject.runtime, Runtime):
            policy = (subject.runtime.raw.get("spec") or EMPTY).get("mlPolicy") or EMPTY
        # Under MPI the number of pods goes to the job named node, whatever its labels are.
        if policy.get("mpi") is None or effective.job("node") is None:
            dropped.append("numNodes")
    return dropped


def _candidate(jobs: list[EffectiveJob]) -> EffectiveJob:
    """The job that the label most likely belongs to."""
    for job in jobs:
        if _has_node(job):
            return job
    return next((job for job in jobs if job.trains), jobs[0])


def _fix(subject: Subject, job: EffectiveJob, path: str) -> str:
    labels = {"metadata": {"labels": {ANCESTOR_LABEL: TRAINER_STEP}}}
    if subject.is_trainjob and _has_node(job) and subject.release.at_least(Release.V2_2):
        entry = {
            "manager": override_manager(subject.spec),
            "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": [{"name": job.name, "template": labels}]}}},
        }
        return to_yaml({"spec": {"runtimePatches": [entry]}}) + f"\n# or, for all its runs, in {job.job_origin.object}"
    text = f"# in {job.job_origin.object}, {path}:\n{to_yaml(labels)}"
    if not _has_node(job):
        node = {"spec": {"template": {"spec": {"containers": [{"name": "node"}]}}}}
        text += f"\n{to_yaml(node)}  # Trainer looks for this name alone"
    return text


RULE = Rule(
    id="missing-trainer-label",
    severity=Severity.DENY,
    why="the pods run the runtime's own program and variables, so the run that was asked for never writes a checkpoint",
    check=check,
    on_runtime=Severity.WARN,
    when=UNLABELLED,
    reads_pods_only=True,
)
