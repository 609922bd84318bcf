"""Whether a claim, put under a checkpoint directory, would be denied: asked before one is put there."""

from __future__ import annotations

from collections.abc import Iterator

from webhook.model.cluster import Claim, ClusterView, Gap, PersistentVolume, StorageClass
from webhook.model.pod import Storage, StorageKind
from webhook.model.policy import Policy
from webhook.storage.claims import MANY, ONE_POD, binding_candidates, class_of
from webhook.storage.reach import provisioner_reach


def refusal(storage: Storage, pods: int, cluster: ClusterView, policy: Policy) -> tuple[str, str] | None:
    """The id of the rule that would deny the claim for ``pods`` pods, and the fact in words; None where none would.

    What is unknown is no denial, and neither is a rule that policy does not let deny.
    """
    for rule, fact in _faults(storage, pods, cluster, policy):
        if policy.rules.get(rule, "deny") == "deny":
            return rule, fact
    return None


def _faults(storage: Storage, pods: int, cluster: ClusterView, policy: Policy) -> Iterator[tuple[str, str]]:
    claim = storage.claim
    if claim is Gap.ABSENT:
        yield "missing-claim", "it does not exist"
        return
    if storage.kind is StorageKind.NODE_LOCAL and not storage.warn_only:
        yield "node-local-checkpoint", "its storage stays on one node"
    if storage.kind is StorageKind.READ_ONLY or storage.read_only:
        yield "read-only-checkpoint", f"it cannot be written ({storage.read_only or storage.fact})"
    if not isinstance(claim, Claim):
        return
    if claim.terminating or claim.phase == "Lost" or claim.volume_mode == "Block":
        what = "terminating" if claim.terminating else "Lost" if claim.phase == "Lost" else "volumeMode Block"
        yield "unusable-claim", f"it is {what}"
    if pods > 1 and claim.access_modes and MANY not in claim.access_modes and not _offers_more(claim, storage):
        yield "claim-not-shared", f"{pods} pods train and its accessModes are {claim.modes_text()}"
    if not claim.bound and (why := _unbindable(claim, cluster, policy)) is not None:
        yield "unbindable-claim", why


def _offers_more(claim: Claim, storage: Storage) -> bool:
    """A volume that many nodes may mount serves a claim that asks for less: warned about, not denied."""
    volume = storage.volume
    return isinstance(volume, PersistentVolume) and MANY in volume.access_modes and ONE_POD not in claim.access_modes


def _unbindable(claim: Claim, cluster: ClusterView, policy: Policy) -> str | None:
    storage_class = class_of(claim, cluster)
    if storage_class is Gap.UNKNOWN:
        return None
    if isinstance(storage_class, StorageClass):
        one_node = provisioner_reach(storage_class.provisioner, policy) == "one-node"
        if not one_node or MANY not in claim.access_modes or claim.volume_mode != "Filesystem":
            return None
        volumes = binding_candidates(claim, cluster)
        if not isinstance(volumes, Gap) and volumes:
            return None
        return f"provisioner {storage_class.provisioner} cannot make it with accessModes {claim.modes_text()}"
    candidates = binding_candidates(claim, cluster)
    if isinstance(candidates, Gap) or candidates:
        return None
    return f'there is no class "{claim.storage_class or ""}" and no volume that it can bind'
