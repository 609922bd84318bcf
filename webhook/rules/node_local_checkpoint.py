"""The checkpoint directory stays on one node.

Symptom: the run resumes as long as its pod comes back to the same node; on another node it starts at step 0 or stays
    Pending.
Fix: use a claim of a class whose volumes can be mounted from every node.
Bad:
    volumes:
    - name: ckpt
      hostPath:
        path: /data/ckpt
Good:
    volumes:
    - name: ckpt
      persistentVolumeClaim:
        claimName: train-ckpt    # of a class that every node can mount, e.g. NFS or CephFS
Reads: the volume under the directory; for a claim its volume, or its class and the volumes that may bind it.
Silent when: the storage can be mounted elsewhere; the claim is absent (missing-claim) or on another cluster.
What could not be looked up is audited; a claim that is unknown itself is left to missing-claim.
"""

from __future__ import annotations

from collections.abc import Iterator

from webhook.model.cluster import Gap
from webhook.model.finding import Finding, Severity
from webhook.model.pod import Checkpoint, Storage, StorageKind
from webhook.model.rule import Rule
from webhook.model.sign import NOT_DURABLE
from webhook.model.subject import Subject
from webhook.storage import claim_instead


def check(subject: Subject) -> Iterator[Finding]:
    for checkpoint in subject.checkpoints:
        storage = checkpoint.storage
        if storage.kind is StorageKind.NODE_LOCAL:
            yield _finding(subject, checkpoint)
        elif storage.kind is StorageKind.UNKNOWN and _worth_a_note(subject, checkpoint):
            detail = storage.detail or "unknown"
            yield Finding(
                at=checkpoint.volume_origin(),
                problem=f'{storage.what} under "{checkpoint.directory}" may stay on one node: {detail}',
                fix=_look_up(storage),
                at_most=Severity.AUDIT,
                job=checkpoint.job.name,
                container=checkpoint.container_name,
                subject=storage.claim_name or _volume_name(checkpoint),
                why="whether the directory can follow the run to another node is not known",
                private=storage.private,
            )


def _finding(subject: Subject, checkpoint: Checkpoint) -> Finding:
    storage = checkpoint.storage
    at_most = Severity.WARN if storage.warn_only else checkpoint.at_most
    if storage.claim_name is not None and not subject.is_trainjob:
        at_most = Severity.WARN
    detail = f": {storage.detail}" if storage.detail else ""
    return Finding(
        at=checkpoint.volume_origin(),
        problem=f'{storage.what} under "{checkpoint.directory}" stays on one node{detail}',
        fix=claim_instead(subject, checkpoint),
        at_most=at_most,
        job=checkpoint.job.name,
        container=checkpoint.container_name,
        subject=storage.claim_name or _volume_name(checkpoint),
        private=storage.private,
    )


def _worth_a_note(subject: Subject, checkpoint: Checkpoint) -> bool:
    """Unknown storage that no other rule speaks about: of a claim that is there, or of an opaque source."""
    storage = checkpoint.storage
    if storage.claim_name is not None:
        unread = isinstance(storage.volume, Gap) or storage.storage_class is Gap.UNKNOWN
        return unread and not subject.claims_elsewhere
    return storage.source != "" and checkpoint.volume is not None


def _look_up(storage: Storage) -> str:
    kind = "pv" if isinstance(storage.volume, Gap) else "storageclass"
    if storage.claim_name is None:
        return "put a claim there, whose class says where it can be mounted"
    return f"kubectl get {kind} -o yaml > state.yaml\n# then ckptguard review FILE --state state.yaml"


def _volume_name(checkpoint: Checkpoint) -> str:
    return "" if checkpoint.mount is None else str(checkpoint.mount.get("name") or "")


RULE = Rule(
    id="node-local-checkpoint",
    severity=Severity.DENY,
    why="a pod that restarts on another node finds an empty directory or waits for the old node for ever",
    check=check,
    on_runtime=Severity.DENY,
    when=NOT_DURABLE,
)
