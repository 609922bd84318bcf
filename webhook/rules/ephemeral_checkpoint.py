"""The checkpoint directory is gone with the pod.

Symptom: after a restart, an eviction or a preemption the log begins at step 0 again, and the directory is empty.
Fix: put the directory on a claim that outlives the pod.
Bad:
    volumes:
    - name: ckpt
      emptyDir: {}
Good:
    volumes:
    - name: ckpt
      persistentVolumeClaim:
        claimName: train-ckpt
Reads: the volume under the directory of every container that trains; who writes to an address (s3://...).
Silent when: no directory is known; the program writes to the object store by itself, or an SDK uploads from the volume;
the volume outlives the pod or is unknown; a runtime alone has no mount there, since a TrainJob may bring it.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from webhook.model.finding import Finding, Severity
from webhook.model.pod import Checkpoint, StorageKind
from webhook.model.rule import Rule
from webhook.model.sign import NOT_DURABLE
from webhook.model.subject import Subject
from webhook.storage import claim_instead


def check(subject: Subject) -> Iterator[Finding]:
    for checkpoint in subject.checkpoints:
        storage = checkpoint.storage
        if storage.kind is not StorageKind.EPHEMERAL:
            continue
        if storage.source == "" and not subject.is_trainjob:
            continue
        if "://" in (checkpoint.directory or ""):
            yield _address(subject, checkpoint)
            continue
        if checkpoint.mount is None:
            several = any(other.job is not checkpoint.job for other in subject.checkpoints)
            where = f' in job "{checkpoint.job.name}"' if several else ""
            problem = f'no volume is mounted at "{checkpoint.directory}"{where}, so it is gone with the pod'
        else:
            likely = "most likely " if storage.warn_only else ""
            problem = f'{storage.fact} under "{checkpoint.directory}" is {likely}gone with the pod'
        keeps = "\n# or, if the driver keeps the data, have it listed in the policy under storage.inlineDrivers"
        yield Finding(
            at=checkpoint.directory_origin() if checkpoint.mount is None else checkpoint.volume_origin(),
            problem=problem,
            fix=claim_instead(subject, checkpoint, keeps if storage.source == "csi" else ""),
            at_most=Severity.WARN if storage.warn_only else checkpoint.at_most,
            job=checkpoint.job.name,
            container=checkpoint.container_name,
            subject="" if checkpoint.mount is None else str(checkpoint.mount.get("name") or ""),
        )


def _address(subject: Subject, checkpoint: Checkpoint) -> Finding:
    """An address that the program takes for a path of the pod."""
    name = subject.request.name or "run"
    path = f"{subject.policy.defaults.path}/{name}"
    there = replace(checkpoint, directory=path)
    alone = replace(subject, checkpoints=(there,), memo={})
    given = checkpoint.flag or checkpoint.variable or "the directory"
    return Finding(
        at=checkpoint.directory_origin(),
        problem=f"{checkpoint.storage.fact}: it is gone with the pod, and never in the store",
        fix=claim_instead(alone, there, f"\n# and {given}: {path}, from where a sidecar or the program may upload it"),
        at_most=checkpoint.at_most,
        job=checkpoint.job.name,
        container=checkpoint.container_name,
        subject="address",
    )


RULE = Rule(
    id="ephemeral-checkpoint",
    severity=Severity.DENY,
    why="every restart gets a new pod and an empty directory, so the run starts again at step 0",
    check=check,
    on_runtime=Severity.DENY,
    when=NOT_DURABLE,
)
