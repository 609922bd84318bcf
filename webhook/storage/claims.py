"""What a claim is worth: a bound one by its volume, an unbound one by its class and the volumes that may bind."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from webhook.model.caches import cache
from webhook.model.cluster import Claim, ClusterView, Gap, PersistentVolume, StorageClass
from webhook.model.pod import Raw, Storage, StorageKind
from webhook.model.policy import Policy
from webhook.model.size import parse_bytes
from webhook.storage.binding import binding_candidates, class_of, is_bound
from webhook.storage.reach import BUCKETS, on_every_node, provisioner_reach

MANY = "ReadWriteMany"
READ_MANY = "ReadOnlyMany"
ONE_POD = "ReadWriteOncePod"
_HOSTNAME = "kubernetes.io/hostname"
# Labels by which drivers without a kubernetes.io/hostname affinity tie a volume to its node.
_NODE_KEYS = frozenset(
    {
        _HOSTNAME,
        "topology.topolvm.io/node",
        "topology.hostpath.csi/node",
        "openebs.io/nodename",
        "openebs.io/nodeid",
        "topology.lvm.csi/node",
    }
)


_WEIGHT: Final = 2048
_JUDGED: Final = cache("claims")
"""A claim, its volume and the policy, by identity -> their storage: the caches hand out the same objects each time."""


def judge_claim(claim: Claim, cluster: ClusterView, policy: Policy) -> Storage:
    """The storage behind a claim that exists (or, for a template, will exist)."""
    if is_bound(claim, cluster):
        return _by_volume(claim, cluster, policy)
    if claim.volume_name:
        found = class_of(claim, cluster)
        return _by_candidates(claim, cluster, policy, found, "not bound to the volume that it names")
    return _by_class(claim, cluster, policy)


def template_claim(template: Raw, namespace: str, trainjob: str) -> Claim:
    """The claim that JobSet will make of a ``volumeClaimPolicies`` template: ``<template>-<trainjob>``."""
    name = str((template.get("metadata") or {}).get("name") or "")
    spec = template.get("spec") or {}
    return Claim(
        namespace,
        f"{name}-{trainjob}" if trainjob else name,
        tuple(spec.get("accessModes") or ()),
        spec.get("storageClassName"),
        spec.get("volumeName") or "",
        spec.get("volumeMode") or "Filesystem",
        request=parse_bytes(((spec.get("resources") or {}).get("requests") or {}).get("storage")),
    )


def describe(claim: Claim) -> str:
    """The claim in a message: its name and access modes."""
    return f'claim "{claim.name}", accessModes {claim.modes_text()}'


def hostnames(volume: PersistentVolume) -> frozenset[str]:
    """The nodes that the volume's affinity ties it to; empty where some term leaves the node open."""
    nodes: set[str] = set()
    for term in volume.node_affinity:
        pinned = _hostnames_of(term)
        if not pinned:
            return frozenset()
        nodes |= pinned
    return frozenset(nodes)


def _by_volume(claim: Claim, cluster: ClusterView, policy: Policy) -> Storage:
    volume = cluster.volume(claim.volume_name)
    if isinstance(volume, PersistentVolume):
        key = (id(claim), id(volume), id(policy))
        known = _JUDGED.get(key)
        if known is None:
            # With the objects themselves, so that no identity is given to another while it is a key.
            known = (_by_bound_volume(claim, volume, policy), claim, volume, policy)
            _JUDGED.put(key, known, _WEIGHT)
        return known[0]  # type: ignore[no-any-return]
    why = cluster.why_unknown("PersistentVolume") if volume is Gap.UNKNOWN else "its volume does not exist"
    private = f"volume {claim.volume_name}"
    return _storage(claim, StorageKind.UNKNOWN, f"bound: {why}", volume=volume, private=private)


def _by_bound_volume(claim: Claim, volume: PersistentVolume, policy: Policy) -> Storage:
    private = f"volume {claim.volume_name}"
    kind, words, unsure = _judge_volume(volume, claim, policy)
    read_only = _read_only(claim)
    if volume.read_only:
        read_only = "readOnly in its volume"
    elif "ro" in volume.mount_options:
        read_only = 'mount option "ro" of its volume'
    if nodes := sorted(hostnames(volume)):
        private += f", nodes {' '.join(nodes)}"
    return _storage(claim, kind, words, volume=volume, warn_only=unsure, read_only=read_only, private=private)


def _judge_volume(volume: PersistentVolume, claim: Claim, policy: Policy) -> tuple[StorageKind, str, bool]:
    """Kind, words, and whether that is likely only."""
    nodes = hostnames(volume)
    if volume.source == "local":
        return StorageKind.NODE_LOCAL, "bound to a local volume", False
    shared = volume.source == "hostPath" and on_every_node(volume.host_path, policy)
    if volume.source == "hostPath" and not shared:
        # Without an affinity every node may have the same shared directory at that path.
        unsure = MANY in claim.access_modes and not volume.node_affinity
        return StorageKind.NODE_LOCAL, "bound to a hostPath volume", unsure
    if nodes:
        # One volume that several named nodes reach is most likely a replicated one.
        return StorageKind.NODE_LOCAL, "bound to a volume that is pinned by hostname", len(nodes) > 1
    if shared:
        return _by_modes(claim.access_modes), "bound to a hostPath volume of a file system of all nodes", False
    words = (
        f'bound to a volume of driver "{volume.driver}"' if volume.driver else f"bound to {volume.source or 'a'} volume"
    )
    reach = provisioner_reach(volume.driver, policy) if volume.driver else None
    if reach == "node-local":
        return StorageKind.NODE_LOCAL, words, False
    kind = _by_modes(claim.access_modes or volume.access_modes)
    if volume.driver in BUCKETS and kind is not StorageKind.READ_ONLY:
        kind = StorageKind.OBJECT_STORE
    return kind, words, False


def _by_class(claim: Claim, cluster: ClusterView, policy: Policy) -> Storage:
    found = class_of(claim, cluster)
    if isinstance(found, Gap):
        named = f'class "{claim.storage_class}"' if claim.storage_class else "default class"
        if found is Gap.UNKNOWN:
            words = f"{named}: {cluster.why_unknown('StorageClass')}"
            return _storage(claim, StorageKind.UNKNOWN, words, storage_class=found)
        return _by_candidates(claim, cluster, policy, found, f"{named}, which does not exist")
    if found is None:
        return _by_candidates(claim, cluster, policy, found, "no class")
    words = f'class "{found.name}" (provisioner {found.provisioner})'
    reach = provisioner_reach(found.provisioner, policy)
    read_only = _read_only(claim)
    if "ro" in found.mount_options:
        read_only = f'mount option "ro" of class "{found.name}"'
    if reach == "node-local":
        volumes = binding_candidates(claim, cluster)
        if not isinstance(volumes, Gap) and volumes:
            return _by_candidates(claim, cluster, policy, found, words)
        kind = StorageKind.NODE_LOCAL
    elif reach == "one-node":
        kind = StorageKind.ONE_NODE
    else:
        kind = _by_modes(claim.access_modes)
    return _storage(claim, kind, words, storage_class=found, read_only=read_only)


def _by_candidates(
    claim: Claim, cluster: ClusterView, policy: Policy, found: StorageClass | Gap | None, words: str
) -> Storage:
    """By the volumes that may bind the claim: all of one kind say it, several kinds leave it likely."""
    volumes = binding_candidates(claim, cluster)
    if isinstance(volumes, Gap):
        why = cluster.why_unknown("PersistentVolume")
        return _storage(claim, StorageKind.UNKNOWN, f"{words}: {why}", storage_class=found)
    if not volumes:
        words += "" if claim.volume_name else ", no volume to bind"
        return _storage(claim, StorageKind.UNKNOWN, words, storage_class=found)
    judged = [_judge_volume(volume, claim, policy) for volume in volumes]
    local = [verdict for verdict in judged if verdict[0] is StorageKind.NODE_LOCAL]
    private = "may bind " + " ".join(volume.name for volume in volumes[:5])
    if local:
        unsure = len(local) < len(judged) or any(verdict[2] for verdict in local)
        words = f"{words}, may bind a {'local' if 'local' in local[0][1] else 'node-local'} volume"
        return _storage(claim, StorageKind.NODE_LOCAL, words, storage_class=found, warn_only=unsure, private=private)
    read_only = _read_only(claim)
    if all(volume.read_only or "ro" in volume.mount_options for volume in volumes):
        read_only = "readOnly in every PersistentVolume that may bind"
    return _storage(claim, judged[0][0], words, storage_class=found, read_only=read_only, private=private)


def _by_modes(modes: Sequence[str]) -> StorageKind:
    if MANY in modes:
        return StorageKind.MANY_NODES
    if "ReadWriteOnce" in modes or ONE_POD in modes:
        return StorageKind.ONE_NODE
    return StorageKind.READ_ONLY if READ_MANY in modes else StorageKind.UNKNOWN


def _read_only(claim: Claim) -> str:
    return f"its accessModes are {claim.modes_text()}" if claim.access_modes == (READ_MANY,) else ""


def _storage(claim: Claim, kind: StorageKind, words: str, **more: Any) -> Storage:
    """``more``: the fields of Storage that apply. What is read-only is no durable place, whatever else it is."""
    if "read_only" not in more:
        more["read_only"] = _read_only(claim)
    if more["read_only"] and kind is not StorageKind.NODE_LOCAL:
        kind = StorageKind.READ_ONLY
    modes = f"accessModes {claim.modes_text()}"
    # A reason goes last, what decides goes first: a warning line is cut at its end.
    detail = f"{modes}, {words}" if kind is StorageKind.UNKNOWN else f"{words}, {modes}"
    fact = f'claim "{claim.name}", {detail}'
    return Storage(kind, fact, "persistentVolumeClaim", claim.name, claim, detail=detail, **more)


def _hostnames_of(term: Any) -> set[str]:
    names: set[str] = set()
    for expression in term.get("matchExpressions") or ():
        if expression.get("key") in _NODE_KEYS and expression.get("operator") == "In":
            names.update(expression.get("values") or ())
    for match in term.get("matchFields") or ():
        if match.get("key") == "metadata.name" and match.get("operator") == "In":
            names.update(match.get("values") or ())
    return names
