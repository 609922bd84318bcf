"""Which PersistentVolume a claim is bound to or could bind, as the API server's volume controller decides it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from webhook.model.cluster import Claim, ClusterView, Gap, PersistentVolume, StorageClass

_OVER: Final = ("Released", "Failed")
_TAKEN: Final = ("Bound", *_OVER)


def class_of(claim: Claim, cluster: ClusterView) -> StorageClass | Gap | None:
    """The class that provisions for the claim; None where it has none and there is no default."""
    if claim.storage_class == "":
        return None
    if claim.storage_class is None:
        default = cluster.default_storage_class()
        return None if default is Gap.ABSENT else default
    return cluster.storage_class(claim.storage_class)


def is_bound(claim: Claim, cluster: ClusterView) -> bool:
    """Whether the claim has its volume. In a file without status, a named volume counts unless it cannot be its."""
    if not claim.bound or claim.phase:
        return claim.bound
    volume = cluster.volume(claim.volume_name)
    return not isinstance(volume, PersistentVolume) or mismatch(claim, volume, cluster) is None


def mismatch(claim: Claim, volume: PersistentVolume, cluster: ClusterView) -> str | None:
    """Why an unbound claim never binds the volume that it names, in words; None where it does or nobody can tell.

    A volume that names the claim binds whatever its class or size; else class, size, volumeMode and access modes have
    to fit. The claim's selector is not asked.
    """
    if volume.phase in _OVER:
        return f"it is {volume.phase} by another claim" if volume.phase == "Released" else "it is Failed"
    if volume.claim_ref is not None:
        return None if volume.claim_ref == (claim.namespace, claim.name) else "another claim has it"
    wanted = _class_name(claim, cluster)
    if wanted is not None and wanted != volume.storage_class:
        return f'it has class "{volume.storage_class}" and the claim "{wanted}"'
    if volume.volume_mode != claim.volume_mode:
        return f'it has volumeMode "{volume.volume_mode}"'
    if volume.access_modes and not set(claim.access_modes) <= set(volume.access_modes):
        return f"it offers accessModes [{', '.join(volume.access_modes)}]"
    if claim.request is not None and volume.capacity is not None and volume.capacity < claim.request:
        return "it is smaller than the claim"
    return None


def is_taken(volume: PersistentVolume) -> bool:
    """Whether some claim has or had it, of which the watch keeps no name."""
    return volume.claim_ref is None and volume.phase in _TAKEN


def binding_candidates(claim: Claim, cluster: ClusterView) -> Sequence[PersistentVolume] | Gap:
    """Volumes that may bind this claim: the one that it names, else those of its class that no other claim holds."""
    if claim.volume_name:
        named = cluster.volume(claim.volume_name)
        if isinstance(named, Gap):
            return Gap.UNKNOWN if named is Gap.UNKNOWN else ()
        return () if mismatch(claim, named, cluster) is not None else (named,)
    name = _class_name(claim, cluster)
    if name is None:
        return Gap.UNKNOWN
    volumes = cluster.available_volumes(name)
    if isinstance(volumes, Gap):
        return volumes
    return [volume for volume in volumes if _may_bind(volume, claim)]


def _class_name(claim: Claim, cluster: ClusterView) -> str | None:
    """The class name that a volume has to have; None where nobody knows which class is the default."""
    if claim.storage_class is not None:
        return claim.storage_class
    found = cluster.default_storage_class()
    if found is Gap.UNKNOWN:
        return None
    return found.name if isinstance(found, StorageClass) else ""


def _may_bind(volume: PersistentVolume, claim: Claim) -> bool:
    if volume.claim_ref is not None:
        return volume.claim_ref == (claim.namespace, claim.name)
    return (
        volume.volume_mode == claim.volume_mode
        and set(claim.access_modes) <= set(volume.access_modes)
        and (claim.request is None or volume.capacity is None or volume.capacity >= claim.request)
        and (not claim.selector or selects(claim.selector, volume.labels))
    )


def selects(selector: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    """Whether a label selector fits; what of it cannot be read does not count."""
    for key, value in _pairs(selector.get("matchLabels")):
        if labels.get(key) != value:
            return False
    expressions = selector.get("matchExpressions")
    for one in expressions if isinstance(expressions, list) else ():
        if not isinstance(one, Mapping):
            continue
        operator, values = one.get("operator"), one.get("values") or ()
        has = labels.get(str(one.get("key")))
        if operator == "Exists" and has is None:
            return False
        if operator == "DoesNotExist" and has is not None:
            return False
        if operator == "In" and has not in values:
            return False
        if operator == "NotIn" and has is not None and has in values:
            return False
    return True


def _pairs(found: Any) -> list[tuple[str, Any]]:
    return list(found.items()) if isinstance(found, Mapping) else []
