"""Strategic merge of an override into a PodSpec, as ``apimachinery/pkg/util/strategicpatch`` does it for core/v1.

The patch keys are those of the Go types: volumes, containers, initContainers, env, imagePullSecrets and schedulingGates
merge by ``name``, volumeMounts by ``mountPath``; every other list replaces, every other map merges key by key.

Directives (``$patch``, ``$retainKeys``, ``$setElementOrder/...``, null as "delete") take no effect where the CRD prunes
unknown fields and nulls before Trainer sees them; only maps with keys of any name keep a ``$patch`` (``merge_free``).
And Trainer marshals typed patches, so a zero value of a field that is no pointer (``value: ""``, ``readOnly: false``)
is left out of the patch and leaves the runtime's value standing.
The CRD also fills in some fields of a volume source, and these do replace what the runtime says.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

Raw = Mapping[str, Any]
Merge = Callable[[Raw, Raw], Raw]

POINTERS: Final = frozenset(("csi", "azureDisk"))
"""Volume sources whose ``readOnly`` and ``fsType`` are pointers, so that false and "" count."""
_SAID: Final = frozenset(("type", "path", "storageClassName"))
"""Text fields of volume sources where "" counts, besides those of ``_ALWAYS``."""
_DEFAULTS: Final[Mapping[str, Raw]] = {
    "rbd": {"pool": "rbd", "user": "admin", "keyring": "/etc/ceph/keyring"},
    "iscsi": {"iscsiInterface": "default"},
    "azureDisk": {"cachingMode": "ReadWrite", "kind": "Shared", "fsType": "ext4", "readOnly": False},
    "scaleIO": {"storageMode": "ThinProvisioned", "fsType": "xfs"},
}
"""What the CRD of TrainJobs fills into a volume source."""
_ALWAYS: Final[Mapping[str, Raw]] = {
    "persistentVolumeClaim": {"claimName": ""},
    "hostPath": {"path": ""},
    "nfs": {"server": "", "path": ""},
    "csi": {"driver": ""},
    "iscsi": {"targetPortal": "", "iqn": "", "lun": 0},
    "rbd": {"monitors": [], "image": ""},
    "cephfs": {"monitors": []},
    "glusterfs": {"endpoints": "", "path": ""},
    "azureFile": {"secretName": "", "shareName": ""},
    "azureDisk": {"diskName": "", "diskURI": ""},
    "gcePersistentDisk": {"pdName": ""},
    "awsElasticBlockStore": {"volumeID": ""},
    "cinder": {"volumeID": ""},
    "vsphereVolume": {"volumePath": ""},
    "flexVolume": {"driver": ""},
    "gitRepo": {"repository": ""},
    "quobyte": {"registry": "", "volume": ""},
    "photonPersistentDisk": {"pdID": ""},
    "portworxVolume": {"volumeID": ""},
    "scaleIO": {"gateway": "", "system": ""},
    "projected": {"sources": []},
    "dataSource": {"kind": "", "name": ""},
    "dataSourceRef": {"kind": "", "name": ""},
    "fieldRef": {"fieldPath": ""},
    "resourceFieldRef": {"resource": ""},
    "configMapKeyRef": {"key": ""},
    "secretKeyRef": {"key": ""},
    "fileKeyRef": {"volumeName": "", "path": "", "key": ""},
    "seccompProfile": {"type": ""},
    "appArmorProfile": {"type": ""},
    "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": []},
}
"""Fields without ``omitempty`` (``k8s.io/api/core/v1/types.go``, 1.36): a typed patch always holds them.

So an override that leaves one out takes away what the runtime says (seen on 2.1 and 2.3).
"""
_FREE: Final = frozenset(("volumeAttributes", "options", "labels", "annotations", "matchLabels"))
"""Maps of text in volume sources whose keys may be anything, ``$patch`` included."""
_DIRECTIVE: Final = "$patch"
_NOTHING: Final[Raw] = {}
_DEEPEST: Final = 24
"""No field of core/v1 that can be merged lies deeper."""


def merge_pod(pod: Raw, patch: Raw) -> dict[str, Any]:
    """The PodSpec with the override merged in. Neither argument changes; what did not change is shared.

    ``patch`` holds fields that the release serves, and no others.
    """
    out = dict(pod)
    for field, value in patch.items():
        if not value and value != 0:
            continue
        merge = _MERGE.get(field)
        if merge is not None:
            key, merge_item = merge
            merged = merge_list(pod.get(field) or (), value, key, merge_item)
            if field == "volumes":
                merged = _settled(merged, value)
            out[field] = merged
        elif field == "tolerations":
            out[field] = value
        elif field == "nodeSelector":
            out[field] = merge_free(pod.get(field), value)
        elif type(value) is dict and type(pod.get(field)) is dict:
            out[field] = merge_map(pod[field], value)
        else:
            out[field] = value
    return out


def merge_list(base: Sequence[Raw], patch: Sequence[Raw], key: str, merge: Merge) -> list[Raw]:
    """The merged list in strategic merge's own order (``normalizeElementOrder``).

    Items of the patch stand in the patch's order, items that only the base has in the base's; of the two next ones the
    base's goes first only if the other stood in the base too, and later.
    """
    if not base:
        return list(patch)
    if len(patch) == 1:
        names = [item.get(key) for item in base]
        name = patch[0].get(key)
        if name not in names:
            return [patch[0], *base]
        if len(set(names)) == len(names):
            first = names.index(name)
            merged = list(base)
            merged[first] = merge(base[first], patch[0])
            return merged
    place: dict[Any, int] = {}
    for index, item in enumerate(base):
        place.setdefault(item.get(key), index)
    ours: dict[Any, list[Raw]] = {}
    for item in patch:
        name = item.get(key)
        known = ours.get(name)
        if known is None:
            at = place.get(name)
            ours[name] = [item if at is None else merge(base[at], item)]
        else:
            known[0] = merge(known[0], item)
    rest: list[tuple[int, Raw]] = []
    for index, item in enumerate(base):
        name = item.get(key)
        first = place[name]
        known = ours.get(name)
        if known is None:
            rest.append((first, item))
        elif first != index:
            known.append(item)
    out: list[Raw] = []
    next_rest = 0
    for name, items in ours.items():
        at = place.get(name, -1)
        for item in items:
            while next_rest < len(rest) and rest[next_rest][0] < at:
                out.append(rest[next_rest][1])
                next_rest += 1
            out.append(item)
    out.extend(item for _, item in rest[next_rest:])
    return out


def merge_map(base: Raw, patch: Raw, pointers: bool = True, depth: int = 0) -> dict[str, Any]:
    """Two maps, key by key; maps in them likewise, lists replace. ``pointers``: whether zero values count."""
    out = dict(base)
    for field, value in patch.items():
        if value is None or field[:1] == "$":
            continue
        if not pointers and not value and _is_unsaid(field, value):
            continue
        mine = out.get(field)
        if type(value) is dict and field in _FREE and _DIRECTIVE in value:
            out[field] = merge_free(mine, value) or None
        elif type(value) is dict and type(mine) is dict and depth < _DEEPEST:
            out[field] = _merge_field(field, mine, value, pointers, depth + 1)
        else:
            out[field] = value
    return out


def merge_free(base: Raw | None, patch: Raw) -> dict[str, Any]:
    """Two maps with keys of any name (labels, a nodeSelector). A ``$patch`` there is obeyed, and drops what is new.

    Trainer's webhook panics over another word than ``replace`` and ``delete``, so no pods follow from one.
    """
    how = patch.get(_DIRECTIVE)
    if how is None:
        return {**base, **patch} if base else dict(patch)
    if not base or how == "delete":
        return {}
    own = {key: value for key, value in patch.items() if key != _DIRECTIVE}
    return own if how == "replace" else {**base, **own}


def _settled(volumes: list[Raw], patch: Sequence[Raw]) -> list[Raw]:
    """The merged volumes without the directives of new ones, which have nothing to act on."""
    for source in ("csi", "flexVolume"):
        if any(source in volume for volume in patch):
            volumes = [
                {**volume, source: merge_map(_NOTHING, volume[source])} if volume.get(source) else volume
                for volume in volumes
            ]
    return volumes


def _merge_field(field: str, base: Raw, patch: Raw, pointers: bool, depth: int = 0) -> dict[str, Any]:
    """``merge_map`` of what stands in ``field``, with what the typed patch holds there although ``patch`` says none."""
    out = merge_map(base, patch, pointers, depth)
    for key, zero in _ALWAYS.get(field, _NOTHING).items():
        if not patch.get(key):
            out[key] = zero
    return out


def _is_unsaid(field: str, value: Any) -> bool:
    """Whether a zero value in a volume source is left out of the patch."""
    if value == "":
        return field not in _SAID
    return value == [] or (value is False and field == "readOnly") or (field == "partition" and value == 0)


def merge_volume(base: Raw, patch: Raw) -> Raw:
    """A volume of a known name: the same source merges, another comes to stand beside it (and the Job is refused)."""
    if base == patch:
        return base
    out = dict(base)
    for source, value in patch.items():
        if value is None or source[:1] == "$":
            continue
        mine = out.get(source)
        if type(value) is dict and type(mine) is dict:
            if source in _DEFAULTS:
                value = {**_DEFAULTS[source], **value}
            out[source] = _merge_field(source, mine, value, source in POINTERS)
        else:
            out[source] = value
    return out


def merge_variable(base: Raw, patch: Raw) -> Raw:
    """A variable of a known name: ``value`` and ``valueFrom`` may both survive (and the Job is refused)."""
    if base == patch:
        return base
    out = dict(base)
    if patch.get("value"):
        out["value"] = patch["value"]
    source = patch.get("valueFrom")
    if source is not None:
        mine = out.get("valueFrom")
        out["valueFrom"] = merge_map(mine, source) if type(mine) is dict else source
    return out


def merge_mount(base: Raw, patch: Raw) -> Raw:
    """A mount at a known path; fields of both survive."""
    if base == patch:
        return base
    pointers = ("mountPropagation", "recursiveReadOnly")
    said = {field: value for field, value in patch.items() if value or (value is not None and field in pointers)}
    return {**base, "name": "", **said}


def merge_container(base: Raw, patch: Raw) -> dict[str, Any]:
    """A container of a known name."""
    out = dict(base)
    variables = patch.get("env")
    if variables:
        out["env"] = merge_list(base.get("env") or (), variables, "name", merge_variable)
    mounts = patch.get("volumeMounts")
    if mounts:
        out["volumeMounts"] = merge_list(base.get("volumeMounts") or (), mounts, "mountPath", merge_mount)
    context = patch.get("securityContext")
    if context is not None:
        mine = base.get("securityContext")
        out["securityContext"] = merge_map(mine, context) if type(mine) is dict else context
    return out


_MERGE: Final[dict[str, tuple[str, Merge]]] = {
    "volumes": ("name", merge_volume),
    "containers": ("name", merge_container),
    "initContainers": ("name", merge_container),
    "imagePullSecrets": ("name", merge_map),
    "schedulingGates": ("name", merge_map),
}
