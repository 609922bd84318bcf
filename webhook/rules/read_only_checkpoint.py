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

from webhook.model.finding import Finding, Fix, Origin, Severity
from webhook.model.paste import to_yaml
from webhook.model.pod import EMPTY, Checkpoint, Raw, StorageKind
from webhook.model.rule import Rule
from webhook.model.sign import NOT_DURABLE
from webhook.model.subject import Subject
from webhook.storage import claim_instead, free_name, override_at, source_of


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


def _repair(subject: Subject, checkpoint: Checkpoint) -> tuple[Origin, Fix]:
    """The place that makes it read-only, and what to write there or, over a runtime's, in the TrainJob.

    The runtime's counts first: what an override leaves out stays in the merge, and Trainer drops its ``false``.
    """
    mount, volume, job = checkpoint.mount or EMPTY, checkpoint.volume, checkpoint.job
    if mount.get("readOnly"):
        written = job.written_mounts(checkpoint.container_name, str(mount.get("mountPath") or ""))
        at = _first([place for _, own, place in written if own.get("readOnly")], checkpoint.mount_origin())
        writable = {key: value for key, value in mount.items() if key not in ("readOnly", "recursiveReadOnly")}
        over = _over(subject, checkpoint, at, str(mount.get("name") or ""), [])
        return at, over or to_yaml({"volumeMounts": [writable]})
    if volume is not None and (source := source_of(volume)) and (volume.get(source) or EMPTY).get("readOnly"):
        texts = job.written_volumes(str(volume.get("name") or ""))
        places = [place for _, own, place in texts if (own.get(source) or EMPTY).get("readOnly")]
        at = _first(places, checkpoint.volume_origin())
        body = {key: value for key, value in volume[source].items() if key != "readOnly"}
        name = free_name(checkpoint.job)
        over = _over(subject, checkpoint, at, name, [{"name": name, source: body}])
        return at, over or to_yaml({"volumes": [{"name": volume.get("name"), source: body}]})
    return checkpoint.volume_origin(), claim_instead(subject, checkpoint)


def _first(last_first: list[Origin], otherwise: Origin) -> Origin:
    return last_first[-1] if last_first else otherwise


def _over(subject: Subject, checkpoint: Checkpoint, at: Origin, name: str, volumes: list[Raw]) -> str:
    if not subject.is_trainjob or at.object == subject.label:
        return ""
    return override_at(subject, checkpoint, name, volumes)


RULE = Rule(
    id="read-only-checkpoint",
    severity=Severity.DENY,
    why="no checkpoint is ever written, so there is none to resume from",
    check=check,
    on_runtime=Severity.DENY,
    when=NOT_DURABLE,
)
