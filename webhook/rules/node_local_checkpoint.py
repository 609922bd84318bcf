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

from webhook.model.cluster import Claim
from webhook.model.finding import Finding, Severity
from webhook.model.pod import Checkpoint, StorageKind
from webhook.model.rule import Rule
from webhook.model.subject import Subject
from webhook.storage import claim_instead, modes_needed


def check(subject: Subject) -> Iterator[Finding]:
    for checkpoint in subject.checkpoints:
        storage = checkpoint.storage
        if storage.kind is StorageKind.NODE_LOCAL:
            yield _finding(subject, checkpoint)
        elif storage.kind is StorageKind.UNKNOWN and _worth_a_note(subject, checkpoint):
            yield Finding(
                at=checkpoint.volume_origin(),
                problem=f'directory "{checkpoint.directory}" is on {storage.fact}',
                fix="give the missing objects with --state, or read the cluster with --live",
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
    fix = claim_instead(subject, checkpoint)
    if storage.claim_name is not None:
        fix += (
            f"\n# a class that does: kubectl get storageclass, then storageClassName and "
            f"accessModes [{modes_needed(subject)}] in a new claim, since a claim keeps its class"
        )
    return Finding(
        at=checkpoint.volume_origin(),
        problem=f'directory "{checkpoint.directory}" is on {storage.fact}, which one node has',
        fix=fix,
        at_most=at_most,
        job=checkpoint.job.name,
        container=checkpoint.container_name,
        subject=storage.claim_name or _volume_name(checkpoint),
        private=storage.private,
    )


def _worth_a_note(subject: Subject, checkpoint: Checkpoint) -> bool:
    """Unknown storage that no other rule speaks about: the claim is there, or the volume is of an opaque source."""
    storage = checkpoint.storage
    if storage.claim_name is not None:
        return isinstance(storage.claim, Claim) and not subject.claims_elsewhere
    return storage.source != "" and checkpoint.volume is not None


def _volume_name(checkpoint: Checkpoint) -> str:
    return "" if checkpoint.mount is None else str(checkpoint.mount.get("name") or "")


RULE = Rule(
    id="node-local-checkpoint",
    severity=Severity.DENY,
    why="a pod that restarts on another node finds an empty directory or waits for the old node for ever",
    check=check,
    on_runtime=Severity.DENY,
)
