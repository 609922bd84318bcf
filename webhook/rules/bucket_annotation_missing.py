"""A Cloud Storage FUSE volume without the pod annotation that brings its sidecar.

Symptom: the pod stays in ContainerCreating, "failed to find the sidecar container in Pod spec".
Fix: put the annotation on the pod template; on the TrainJob or on the Job it does nothing.
Bad:
    metadata:
      annotations: {gke-gcsfuse/volumes: "true"}    # of the TrainJob
Good:
    template:    # of the pod, in the replicatedJob's template.spec
      metadata:
        annotations: {gke-gcsfuse/volumes: "true"}
Reads: volumes of driver gcsfuse.csi.storage.gke.io, inline and behind claims; annotations of the pod template and of
    overrides.
Silent when: the annotation is "true"; the driver behind a claim is not known; the pod brings the sidecar itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Final

from webhook.model.finding import Finding, Severity
from webhook.model.override import override_manager
from webhook.model.paste import to_yaml
from webhook.model.pod import EMPTY, EffectiveJob
from webhook.model.release import Release
from webhook.model.rule import Rule
from webhook.model.sign import ODD_CLAIMS
from webhook.model.subject import Subject
from webhook.storage import claim_uses, driver_of, pod_annotation

_DRIVER: Final = "gcsfuse.csi.storage.gke.io"
_ANNOTATION: Final = "gke-gcsfuse/volumes"
_SIDECAR: Final = "gke-gcsfuse-sidecar"


def check(subject: Subject) -> Iterator[Finding]:
    if subject.effective is None:
        return
    claimed = {
        job.name: use.name for use in claim_uses(subject) if driver_of(use.storage) == _DRIVER for job in use.jobs
    }
    for job in subject.effective.jobs:
        volume = _inline(job) or claimed.get(job.name)
        if volume is None or pod_annotation(job, _ANNOTATION) == "true" or _has_sidecar(job):
            continue
        yield Finding(
            at=job.volume_origin(volume),
            problem=f'pods of job "{job.name}" lack annotation "{_ANNOTATION}", so volume "{volume}" never mounts',
            fix=partial(_fix, subject, job),
            job=job.name,
            subject=volume,
        )


def _inline(job: EffectiveJob) -> str | None:
    for volume in job.pod.get("volumes") or ():
        if (volume.get("csi") or EMPTY).get("driver") == _DRIVER:
            return str(volume.get("name") or "")
    return None


def _has_sidecar(job: EffectiveJob) -> bool:
    return any(container.get("name") == _SIDECAR for _, _, container in job.containers())


def _fix(subject: Subject, job: EffectiveJob) -> str:
    metadata = {"metadata": {"annotations": {_ANNOTATION: "true"}}}
    release = subject.release
    if not subject.is_trainjob or release is Release.V2_0:
        owner = job.job_origin.object
        ask = f"\n# to ask of whoever owns {owner}, with this text" if owner != subject.label else ""
        return f'{to_yaml({"template": metadata})}\n# in template.spec of job "{job.name}" of {owner}{ask}'
    if release is Release.V2_1:
        return to_yaml({"spec": {"podTemplateOverrides": [{"targetJobs": [{"name": job.name}], **metadata}]}})
    patch = {
        "manager": override_manager(subject.spec),
        "trainingRuntimeSpec": {
            "template": {"spec": {"replicatedJobs": [{"name": job.name, "template": {"spec": {"template": metadata}}}]}}
        },
    }
    return to_yaml({"spec": {"runtimePatches": [patch]}})


RULE = Rule(
    id="bucket-annotation-missing",
    severity=Severity.DENY,
    why="the volume waits for a sidecar that nobody adds, so the pod never starts and nothing resumes",
    check=check,
    on_runtime=Severity.WARN,
    when=ODD_CLAIMS,
)
