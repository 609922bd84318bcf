"""The checkpoint directory cannot be written.

Symptom: the first save fails with "Read-only file system", often hours after the start.
Fix: mount the claim writable, or point the directory at a volume that can be written.
Bad:
    volumeMounts:
    - name: ckpt
      mountPath: /mnt/ckpt
      readOnly: true
Good:
    volumeMounts:
    - name: ckpt
      mountPath: /mnt/ckpt
Reads: readOnly of the mount, the claim source, the volume source and the PersistentVolume, mount options, access modes.
Silent when: the directory can be written, or where it lies is unknown.
"""

from __future__ import annotations

from collections.abc import Iterator

from webhook.model.finding import Finding, Origin, Severity
from webhook.model.override import override_yaml
from webhook.model.paste import to_yaml
from webhook.model.pod import EMPTY, Checkpoint, Raw, StorageKind
from webhook.model.rule import Rule
from webhook.model.subject import Subject
from webhook.storage import claim_instead, source_of


def check(subject: Subject) -> Iterator[Finding]:
    for checkpoint in subject.checkpoints:
        storage = checkpoint.storage
        if storage.read_only == "" and storage.kind is not StorageKind.READ_ONLY:
            continue
        at, fix = _repair(subject, checkpoint)
        at_most = checkpoint.at_most
        if storage.claim_name is not None and not subject.is_trainjob:
            at_most = Severity.WARN
        by = f": {storage.read_only}" if storage.read_only and storage.read_only != storage.source else ""
        yield Finding(
            at=at,
            problem=f'{storage.what} under "{checkpoint.directory}" cannot be written{by}',
            fix=fix,
            at_most=at_most,
            job=checkpoint.job.name,
            container=checkpoint.container_name,
            subject=storage.claim_name or ("" if checkpoint.volume is None else str(checkpoint.volume.get("name"))),
            private=storage.private,
        )


def _repair(subject: Subject, checkpoint: Checkpoint) -> tuple[Origin, str]:
    """The place that makes it read-only, and what to write there."""
    mount, volume = checkpoint.mount or EMPTY, checkpoint.volume
    if mount.get("readOnly"):
        at = checkpoint.mount_origin()
        writable = {key: value for key, value in mount.items() if key not in ("readOnly", "recursiveReadOnly")}
        mounts = {"volumeMounts": [{**writable, "readOnly": False}]}
        pod = {"containers": [{"name": checkpoint.container_name, **mounts}]}
        return at, _text(subject, checkpoint, at, mounts, pod)
    at = checkpoint.volume_origin()
    if volume is not None and (source := source_of(volume)) and (volume.get(source) or EMPTY).get("readOnly"):
        volumes = {"volumes": [{"name": volume.get("name"), source: {**volume[source], "readOnly": False}}]}
        return at, _text(subject, checkpoint, at, volumes, volumes)
    return at, claim_instead(subject, checkpoint)


def _text(subject: Subject, checkpoint: Checkpoint, at: Origin, part: Raw, pod: Raw) -> str:
    """The part as it belongs at its place; one of the runtime can be written over from the TrainJob."""
    if subject.is_trainjob and at.object != subject.label:
        return override_yaml(subject.release, subject.spec, checkpoint.job.name, pod)
    return to_yaml(part)


RULE = Rule(
    id="read-only-checkpoint",
    severity=Severity.DENY,
    why="no checkpoint is ever written, so there is none to resume from",
    check=check,
    on_runtime=Severity.DENY,
)
