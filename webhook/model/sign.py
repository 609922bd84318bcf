"""What can be seen of a subject at a glance: most rules have nothing to say where their sign is missing.

A rule names its sign (``Rule.when``), and the decision does not even ask it without. Signs only ever save time: a rule
still looks for itself, and a sign may be there for nothing.
"""

from __future__ import annotations

from typing import Final

from webhook.model.cluster import Claim, Gap
from webhook.model.names import ANCESTOR_LABEL, CHECKPOINT_SIZE, LAST_APPLIED, MODEL_PARAMS, QUEUE_LABEL, TRAINER_STEP
from webhook.model.pod import EMPTY, TRAINER, DirectoryStatus, EffectiveSet, StorageKind
from webhook.model.policy import Limits
from webhook.model.release import OVERRIDE_FIELDS
from webhook.model.subject import Subject

UPDATED: Final = 1
"""It is an UPDATE, or a runtime, which may have been there before."""
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
RETRIES: Final = 64
"""A job of several pods that trains may start one of them again by itself."""
TEMPLATES: Final = 128
"""JobSet makes claims."""
TTL: Final = 256
"""The JobSet is deleted some time after its end."""
RESTARTS: Final = 512
"""Restarts are anything but a number within the policy's ceiling, or rules decide on them."""

ODD_CLAIMS: Final = 1024
"""The pods have a volume that is anything but a bound ReadWriteMany file system free of nodes and zones; see
``webhook.storage.claim_signs``."""
RICH_VOLUMES: Final = 2048
"""A volume has more fields than its name and one source; see ``webhook.storage.claim_signs``."""
SIZED: Final = 4096
"""An annotation of the object or its runtime says how large the checkpoints are."""
UNSERVED: Final = 8192
"""A TrainJob that has, or was applied with, an override field of another release."""
QUEUED: Final = 16384
"""A label names a queue of Kueue."""
UNLABELLED: Final = 32768
"""No job that is labelled trainer has a container ``node``, where it trains."""
SHORT_GRACE: Final = 65536
"""A job that trains has less time to end than the policy asks for."""
AS_USER: Final = 131072
"""A directory lies on a claim, and a ``securityContext`` of pod or container may say who writes there."""

CONTAINERS: Final = 262144
"""An override has containers, or nobody can tell what it has."""
FROM_FILE: Final = 524288
"""No API server has seen the object, so it may have fields that are none."""
REHEARSALS: Final = 1048576
"""The policy asks for rehearsals."""

_DECLARED: Final = DirectoryStatus.DECLARED
_SIZES: Final = frozenset((CHECKPOINT_SIZE, MODEL_PARAMS))
_DURABLE: Final = (StorageKind.ONE_NODE, StorageKind.MANY_NODES, StorageKind.OBJECT_STORE, StorageKind.BY_TEMPLATE)


def signs_of(subject: Subject) -> int:
    """The signs that the subject bears, as bits, apart from those of its volumes."""
    signs = _signs_of_request(subject)
    effective = subject.effective
    if effective is None:
        return signs | CONTAINERS
    unlabelled = UNLABELLED
    if not subject.checkpoints:
        signs |= NOT_PLAIN
    for checkpoint in subject.checkpoints:
        directory = checkpoint.directory or ""
        literal = (
            "$" in directory
            or "`" in directory
            or "{{" in directory
            or "%" in directory
            or "$" in ((checkpoint.mount or EMPTY).get("subPath") or "")
        )
        if (
            checkpoint.status is not _DECLARED
            or checkpoint.per_pod
            or checkpoint.missing
            or checkpoint.unset
            or literal
        ):
            signs |= NOT_PLAIN
        storage, job = checkpoint.storage, checkpoint.job
        if storage.read_only or storage.kind not in _DURABLE:
            signs |= NOT_DURABLE
        if isinstance(storage.claim, Claim) and (
            job.pod.get("securityContext") or checkpoint.container.get("securityContext")
        ):
            signs |= AS_USER
        if checkpoint.container.get("name") == "node" and job.labels.get(ANCESTOR_LABEL) == TRAINER_STEP:
            unlabelled = 0
    limits = subject.policy.limits
    key = ("signs", limits.max_restarts, limits.termination_grace_period_seconds)
    of_pods: int | None = subject.kept.get(key)
    if of_pods is None:
        of_pods = subject.kept[key] = _signs_of_pods(effective, limits)
    return signs | unlabelled | of_pods


def _signs_of_pods(effective: EffectiveSet, limits: Limits) -> int:
    signs = 0 if effective.jobs else CONTAINERS
    restarts = effective.failure_policy
    count = 0 if restarts is None else restarts.get("maxRestarts") or 0
    if restarts is None or restarts.get("rules") or not 0 < count <= limits.max_restarts:
        signs |= RESTARTS
    for job in effective.jobs:
        if job.trains:
            if job.pods > 1 and (job.backoff_limit > 0 or "podFailurePolicy" in job.spec):
                signs |= RETRIES
            if job.pod["terminationGracePeriodSeconds"] < limits.termination_grace_period_seconds:
                signs |= SHORT_GRACE
        if "podFailurePolicy" in job.spec:
            signs |= RESTARTS
        for layer in job.layers[1:]:
            if "containers" in layer.pod and not layer.is_trainer and layer.object != TRAINER:
                signs |= CONTAINERS
    jobset = effective.jobset_spec
    if "volumeClaimPolicies" in jobset:
        signs |= TEMPLATES
    if "ttlSecondsAfterFinished" in jobset:
        signs |= TTL
    return signs


def _signs_of_request(subject: Subject) -> int:
    signs = 0
    request, runtime = subject.request, subject.runtime
    metadata = request.object.get("metadata") or EMPTY
    annotations = metadata.get("annotations") or EMPTY
    if request.operation == "UPDATE" or request.kind != "TrainJob":
        signs |= UPDATED
    if subject.claims_elsewhere:
        signs |= ELSEWHERE
    if subject.written is not None:
        signs |= FROM_FILE
    if "not-rehearsed" in subject.policy.rules:
        signs |= REHEARSALS
    if not _SIZES.isdisjoint(annotations):
        signs |= SIZED
    if isinstance(runtime, Gap):
        signs |= NO_RUNTIME
    elif not _SIZES.isdisjoint((runtime.raw.get("metadata") or EMPTY).get("annotations") or EMPTY):
        signs |= SIZED
    if request.kind != "TrainJob":
        return signs
    if QUEUE_LABEL in (metadata.get("labels") or EMPTY):
        signs |= QUEUED
    spec = request.object.get("spec") or EMPTY
    applied = annotations.get(LAST_APPLIED) or ""
    served = subject.release.override_field
    for field in OVERRIDE_FIELDS:
        if field == served:
            if spec.get(field):
                signs |= OVERRIDES
        elif field in applied or spec.get(field):
            signs |= UNSERVED
    return signs
