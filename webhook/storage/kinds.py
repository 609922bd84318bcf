"""What a volume under the checkpoint directory is worth to a run that wants to come back."""

from __future__ import annotations

from webhook.model.cluster import Claim, ClusterView, Gap
from webhook.model.pod import EMPTY, Raw, Storage, StorageKind
from webhook.model.policy import Policy
from webhook.storage.claims import judge_claim, template_claim
from webhook.storage.reach import BUCKETS, inline_reach, on_every_node
from webhook.storage.sources import CLAIM, CSI, SOURCES, source_of, sources_of

_REACHES = {
    "node-local": StorageKind.NODE_LOCAL,
    "one-node": StorageKind.ONE_NODE,
    "many-nodes": StorageKind.MANY_NODES,
}
_HOST_PATH = "hostPath"
_KEEPS = frozenset({StorageKind.EPHEMERAL, StorageKind.NODE_LOCAL, StorageKind.NONE})
_NO_MOUNT = Storage(StorageKind.EPHEMERAL, "the container's own file system")


def classify(
    volume: Raw | None,
    mount: Raw | None,
    template: Raw | None,
    namespace: str,
    cluster: ClusterView,
    policy: Policy,
    elsewhere: bool,
    trainjob: str = "",
) -> Storage:
    """The storage of one volume as mounted.

    ``volume`` is the pod's volume (None: there is none of that name), ``mount`` the container's mount (None: nothing is
    mounted), ``template`` what ``EffectiveSet.template`` returns for the mount's name: it goes before the volume, which
    JobSet makes of it. ``elsewhere`` says that claims live on another cluster, so they are not looked up. ``trainjob``
    is the name that JobSet gives to claims made of templates. A look-up that failed gives kind UNKNOWN, with the reason
    in ``fact``; an absent claim gives it too, with ``claim`` saying ABSENT.
    """
    if template is not None:
        judged = _by_template(template, namespace, cluster, policy, elsewhere, trainjob)
    elif volume is None:
        if mount is None:
            return _NO_MOUNT
        name = mount.get("name") or ""
        return Storage(StorageKind.UNKNOWN, f'mount of volume "{name}", which the pod does not have')
    elif len(volume) > 2 and len(sources := sources_of(volume)) > 1:
        # The Job is refused (volume-source-clash), so neither source is worth anything.
        return Storage(StorageKind.UNKNOWN, f'volume "{volume.get("name")}" with sources {" and ".join(sources)}')
    else:
        claim = volume.get(CLAIM)
        judged = (
            _by_claim(claim, namespace, cluster, policy, elsewhere)
            if claim is not None
            else _inline(volume, source_of(volume), policy)
        )
    if mount is not None and mount.get("readOnly"):
        return _made_read_only(judged, "readOnly in the mount")
    return judged


def inline_kind(volume: Raw, source: str, policy: Policy) -> StorageKind:
    """What a volume that is no claim is worth by its source, before anything read-only is looked at.

    An inline ``csi`` volume lives as long as the pod unless its driver says otherwise, which no object shows.
    """
    if source == _HOST_PATH and _shared(volume, policy):
        return StorageKind.MANY_NODES
    if source != CSI:
        return SOURCES.get(source, StorageKind.UNKNOWN)
    reach = inline_reach((volume.get(CSI) or EMPTY).get("driver") or "", policy)
    if reach == "many-nodes" and (volume.get(CSI) or EMPTY).get("driver") in BUCKETS:
        return StorageKind.OBJECT_STORE
    return StorageKind.EPHEMERAL if reach is None else _REACHES[reach]


def _shared(volume: Raw, policy: Policy) -> bool:
    """Whether policy says that every node mounts the directory of a ``hostPath`` volume."""
    path = (volume.get(_HOST_PATH) or EMPTY).get("path") if policy.storage.host_paths else None
    return isinstance(path, str) and on_every_node(path, policy)


def _inline(volume: Raw, source: str, policy: Policy) -> Storage:
    name = volume.get("name") or ""
    body = volume.get(source) or EMPTY
    kind = inline_kind(volume, source, policy)
    fact = f'{source} volume "{name}"'
    unsure = False
    if source == CSI:
        fact = f'csi volume "{name}" of driver "{body.get("driver") or ""}"'
        unsure = kind is StorageKind.EPHEMERAL
    elif source == "flexVolume":
        fact += f' of driver "{body.get("driver") or ""}", which says nothing of its storage'
    elif kind is StorageKind.UNKNOWN:
        fact += ", whose storage is not known"
    storage = Storage(kind, fact, source, warn_only=unsure, read_only=source if kind is StorageKind.READ_ONLY else "")
    if body.get("readOnly"):
        return _made_read_only(storage, f"readOnly in the {source} volume")
    return storage


def _by_claim(source: Raw, namespace: str, cluster: ClusterView, policy: Policy, elsewhere: bool) -> Storage:
    name = source.get("claimName") or ""
    if elsewhere or not namespace:
        where = "on the worker cluster" if elsewhere and namespace else "in the namespace of each TrainJob"
        storage = Storage(StorageKind.UNKNOWN, f'claim "{name}", which is {where}', CLAIM, name)
    else:
        claim = cluster.claim(namespace, name)
        if isinstance(claim, Claim):
            storage = judge_claim(claim, cluster, policy)
        else:
            why = "does not exist" if claim is Gap.ABSENT else cluster.why_unknown("PersistentVolumeClaim")
            words = f", which {why}" if claim is Gap.ABSENT else f": {why}"
            storage = Storage(StorageKind.UNKNOWN, f'claim "{name}"{words}', CLAIM, name, claim)
    if source.get("readOnly"):
        return _made_read_only(storage, "readOnly in the volume")
    return storage


def _by_template(
    found: Raw, namespace: str, cluster: ClusterView, policy: Policy, elsewhere: bool, trainjob: str
) -> Storage:
    """By the template's own words: what it asks for may be no good, but nothing is there to look up yet."""
    template = found.get("template") or EMPTY
    claim = template_claim(template, namespace, trainjob)
    shown = f'template claim "{claim.name}", accessModes {claim.modes_text()}'
    if elsewhere or not namespace:
        return Storage(StorageKind.BY_TEMPLATE, shown, CLAIM, claim.name, claim)
    judged = judge_claim(claim, cluster, policy)
    kind = judged.kind
    if kind is not StorageKind.NODE_LOCAL and kind is not StorageKind.READ_ONLY:
        kind = StorageKind.BY_TEMPLATE
    return Storage(
        kind,
        judged.fact.replace("claim ", "template claim ", 1),
        CLAIM,
        claim.name,
        claim,
        judged.volume,
        judged.storage_class,
        judged.warn_only,
        judged.read_only,
        judged.private,
        judged.detail,
    )


def _made_read_only(storage: Storage, where: str) -> Storage:
    """The same storage as seen through a read-only mount; what is lost with pod or node weighs more and stays."""
    return Storage(
        storage.kind if storage.kind in _KEEPS else StorageKind.READ_ONLY,
        storage.fact,
        storage.source,
        storage.claim_name,
        storage.claim,
        storage.volume,
        storage.storage_class,
        storage.warn_only,
        where,
        storage.private,
        storage.detail,
    )
