"""What can be seen of a subject at a glance: most rules have nothing to say where their sign is missing.

A rule names its sign (``Rule.when``), and the decision does not even ask it without. Signs only ever save time: a rule
still looks for itself, and a sign may be there for nothing.
"""

from __future__ import annotations

from typing import Final

from webhook.model.cluster import Gap
from webhook.model.pod import DirectoryStatus, StorageKind
from webhook.model.subject import Subject

UPDATED: Final = 1
"""It is an UPDATE."""
NO_RUNTIME: Final = 2
"""There is no runtime to build the pods from."""
OVERRIDES: Final = 4
"""A TrainJob with overrides in the field that the release serves."""
ELSEWHERE: Final = 8
"""Claims are on another cluster."""
NOT_DURABLE: Final = 16
"""A directory lies on storage that is not known to be durable and writable."""
NOT_PLAIN: Final = 32
"""A directory is not declared, or depends on the pod or on variables that are not there; or there is none."""
MANY_PODS: Final = 64
"""More than one pod trains."""
TEMPLATES: Final = 128
"""JobSet makes claims."""
TTL: Final = 256
"""The JobSet is deleted some time after its end."""
RESTARTS: Final = 512
"""Restarts are anything but a number within the policy's ceiling, or rules decide on them."""

ODD_CLAIMS: Final = 1024
"""The pods have a volume that is anything but a bound ReadWriteMany file system free of nodes and zones; see
``webhook.storage.claim_signs``."""

_DECLARED: Final = DirectoryStatus.DECLARED
_DURABLE: Final = (StorageKind.ONE_NODE, StorageKind.MANY_NODES, StorageKind.BY_TEMPLATE)


def signs_of(subject: Subject) -> int:
    """The signs that the subject bears, as bits, apart from those of its claims."""
    signs = 0
    request = subject.request
    if request.operation == "UPDATE":
        signs |= UPDATED
    if subject.claims_elsewhere:
        signs |= ELSEWHERE
    if isinstance(subject.runtime, Gap):
        signs |= NO_RUNTIME
    if request.kind == "TrainJob" and (request.object.get("spec") or {}).get(subject.release.override_field):
        signs |= OVERRIDES
    if not subject.checkpoints:
        signs |= NOT_PLAIN
    for checkpoint in subject.checkpoints:
        if checkpoint.status is not _DECLARED or checkpoint.per_pod or checkpoint.missing or checkpoint.unset:
            signs |= NOT_PLAIN
        storage = checkpoint.storage
        if storage.read_only or storage.kind not in _DURABLE:
            signs |= NOT_DURABLE
    effective = subject.effective
    if effective is None:
        return signs
    restarts = effective.failure_policy
    count = 0 if restarts is None else restarts.get("maxRestarts") or 0
    if restarts is None or restarts.get("rules") or not 0 < count <= subject.policy.limits.max_restarts:
        signs |= RESTARTS
    pods = 0
    for job in effective.jobs:
        if job.trains:
            pods += job.pods
        if "podFailurePolicy" in job.spec:
            signs |= RESTARTS
    if pods > 1:
        signs |= MANY_PODS
    jobset = effective.jobset_spec
    if "volumeClaimPolicies" in jobset:
        signs |= TEMPLATES
    if "ttlSecondsAfterFinished" in jobset:
        signs |= TTL
    return signs
