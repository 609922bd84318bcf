"""Raw objects of the API -> the model's values. Odd or missing fields never raise: they count as not written.

Both the files and the watch caches come through here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Final

from msgspec.structs import replace

from webhook.model.cluster import (
    SOME_CLASSES,
    Claim,
    ConfigMap,
    CsiDriver,
    Gap,
    Namespace,
    PersistentVolume,
    Run,
    Runtime,
    StorageClass,
)
from webhook.model.files import LONGEST
from webhook.model.names import DEFAULT_CLASS, QUEUE_LABEL
from webhook.model.size import parse_bytes

_BETA_CLASS: Final = "volume.beta.kubernetes.io/storage-class"
_BETA_DEFAULT_CLASS: Final = "storageclass.beta.kubernetes.io/is-default-class"
_ZONE_KEYS: Final = frozenset(
    {
        "topology.kubernetes.io/zone",
        "failure-domain.beta.kubernetes.io/zone",
        # the CSI drivers' own keys, which their provisioners write instead
        "topology.ebs.csi.aws.com/zone",
        "topology.gke.io/zone",
        "topology.disk.csi.azure.com/zone",
        "topology.cinder.csi.openstack.org/zone",
    }
)
_ZONE_LABELS: Final = ("topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone")
_SNAPSHOT_SUFFIX: Final = "-runtime-snapshot"
_SNAPSHOT_KEY: Final = "runtime"
NOT_SOURCES: Final = frozenset(
    {
        "accessModes",
        "capacity",
        "claimRef",
        "mountOptions",
        "nodeAffinity",
        "persistentVolumeReclaimPolicy",
        "storageClassName",
        "volumeAttributesClassName",
        "volumeMode",
    }
)


def parse_claim(raw: Mapping[str, Any]) -> Claim:
    """A PersistentVolumeClaim."""
    metadata, spec, status = _map(raw, "metadata"), _map(raw, "spec"), _map(raw, "status")
    # The annotation wins over the field, as in the API server's own GetPersistentVolumeClaimClass.
    beta = _map(metadata, "annotations").get(_BETA_CLASS)
    storage_class = beta if isinstance(beta, str) else spec.get("storageClassName")
    return Claim(
        _text(metadata, "namespace") or "default",
        _text(metadata, "name"),
        _texts(spec, "accessModes"),
        storage_class if isinstance(storage_class, str) else None,
        _text(spec, "volumeName"),
        _text(spec, "volumeMode") or "Filesystem",
        _text(status, "phase"),
        parse_bytes(_map(_map(spec, "resources"), "requests").get("storage")),
        parse_bytes(_map(status, "capacity").get("storage")),
        bool(metadata.get("deletionTimestamp")),
        _strings(metadata, "labels"),
        next(
            (_text(owner, "name") for owner in _maps(metadata, "ownerReferences") if owner.get("kind") == "JobSet"), ""
        ),
        _map(spec, "selector"),
    )


def parse_volume(raw: Mapping[str, Any]) -> PersistentVolume:
    """A PersistentVolume. Its source is the field of ``spec`` that is none of the others."""
    metadata, spec = _map(raw, "metadata"), _map(raw, "spec")
    source, settings = "", _NOTHING
    for name, value in spec.items():
        if name not in NOT_SOURCES and isinstance(value, dict):
            source, settings = name, value
            break
    beta = _map(metadata, "annotations").get(_BETA_CLASS)
    terms = _terms(_map(_map(spec, "nodeAffinity"), "required").get("nodeSelectorTerms"))
    labels = _strings(metadata, "labels")
    claim = _map(spec, "claimRef")
    return PersistentVolume(
        _text(metadata, "name"),
        _texts(spec, "accessModes"),
        beta if isinstance(beta, str) else _text(spec, "storageClassName"),
        source,
        _text(settings, "driver") if source in ("csi", "flexVolume") else "",
        settings.get("readOnly") is True,
        _options(spec),
        terms,
        _zones(terms, labels),
        labels,
        _text(_map(raw, "status"), "phase"),
        (_text(claim, "namespace"), _text(claim, "name")) if _text(claim, "name") else None,
        _text(spec, "volumeMode") or "Filesystem",
        parse_bytes(_map(spec, "capacity").get("storage")),
        _text(settings, "path") if source == "hostPath" else "",
    )


def parse_storage_class(raw: Mapping[str, Any]) -> StorageClass:
    """A StorageClass."""
    metadata = _map(raw, "metadata")
    annotations = _map(metadata, "annotations")
    zones: set[str] = set()
    for term in _maps(raw, "allowedTopologies"):
        here: set[str] = set()
        for expression in _maps(term, "matchLabelExpressions"):
            if _text(expression, "key") in _ZONE_KEYS:
                here.update(_texts(expression, "values"))
        if not here:
            # a term that says nothing of zones allows all of them
            zones = set()
            break
        zones |= here
    return StorageClass(
        _text(metadata, "name"),
        _text(raw, "provisioner"),
        "true" in (annotations.get(DEFAULT_CLASS), annotations.get(_BETA_DEFAULT_CLASS)),
        _text(raw, "volumeBindingMode") or "Immediate",
        _options(raw),
        _strings(raw, "parameters"),
        frozenset(zones),
    )


def parse_csi_driver(raw: Mapping[str, Any]) -> CsiDriver:
    """A CSIDriver."""
    spec = _map(raw, "spec")
    return CsiDriver(
        _text(_map(raw, "metadata"), "name"),
        spec.get("attachRequired") is not False,
        _text(spec, "fsGroupPolicy") or "ReadWriteOnceWithFSType",
    )


def parse_config_map(raw: Mapping[str, Any]) -> ConfigMap:
    """A ConfigMap; what stands in ``binaryData`` is told by its key alone, and so is a value that is no text."""
    metadata, data = _map(raw, "metadata"), _map(raw, "data")
    binary = [*_map(raw, "binaryData"), *(key for key, value in data.items() if not isinstance(value, str))]
    uid, version = _text(metadata, "uid"), _text(metadata, "resourceVersion")
    return ConfigMap(
        _text(metadata, "namespace") or "default",
        _text(metadata, "name"),
        _strings(raw, "data"),
        frozenset(key for key in binary if isinstance(key, str)),
        f"{uid}/{version}" if uid and version else "",
    )


def clipped(found: ConfigMap) -> ConfigMap:
    """The same with no more of a text than tells that it is too long to be read."""
    if all(len(text) <= LONGEST for text in found.data.values()):
        return found
    return replace(found, data={key: text[: LONGEST + 1] for key, text in found.data.items()})


def parse_namespace(raw: Mapping[str, Any]) -> Namespace:
    """A Namespace."""
    metadata = _map(raw, "metadata")
    return Namespace(
        _text(metadata, "name"),
        _strings(metadata, "labels"),
        _strings(metadata, "annotations"),
        bool(metadata.get("deletionTimestamp")),
    )


def parse_runtime(raw: Mapping[str, Any]) -> Runtime:
    """A TrainingRuntime or ClusterTrainingRuntime; ``raw`` is kept, not copied."""
    metadata = _map(raw, "metadata")
    kind = _text(raw, "kind")
    namespace = "" if kind == "ClusterTrainingRuntime" else _text(metadata, "namespace") or "default"
    return Runtime(kind, namespace, _text(metadata, "name"), raw, {})


def parse_run(raw: Mapping[str, Any]) -> Run:
    """A TrainJob as other rules need it: its name (or generateName) and the runtime that it refers to."""
    metadata, spec = _map(raw, "metadata"), _map(raw, "spec")
    reference = _map(spec, "runtimeRef")
    return Run(
        _text(metadata, "namespace") or "default",
        _text(metadata, "name") or _text(metadata, "generateName"),
        _text(metadata, "uid"),
        spec.get("suspend") is True,
        _text(reference, "kind") or "ClusterTrainingRuntime",
        _text(reference, "name"),
        bool(_text(_map(metadata, "labels"), QUEUE_LABEL)),
    )


def snapshot_text(raw: Mapping[str, Any]) -> tuple[str, str, str] | None:
    """Namespace, TrainJob and YAML of the runtime, where a ConfigMap is Trainer 2.3's copy of a runtime; else None."""
    metadata = _map(raw, "metadata")
    name = _text(metadata, "name")
    text = _text(_map(raw, "data"), _SNAPSHOT_KEY)
    if not name.endswith(_SNAPSHOT_SUFFIX) or not text:
        return None
    return _text(metadata, "namespace") or "default", name.removesuffix(_SNAPSHOT_SUFFIX), text


def parse_labels(raw: Any) -> Mapping[str, str]:
    """Labels, without what is no text."""
    return _strings({"labels": raw}, "labels")


def created(raw: Mapping[str, Any]) -> str:
    """``metadata.creationTimestamp``; RFC 3339 in UTC, so text order is time order."""
    return _text(_map(raw, "metadata"), "creationTimestamp")


def first_classes(default: StorageClass | Gap, among: Iterable[StorageClass]) -> Sequence[StorageClass]:
    """``default`` before the others, ``SOME_CLASSES`` in all."""
    first = () if isinstance(default, Gap) else (default,)
    return (*first, *islice((found for found in among if found is not default), SOME_CLASSES - len(first)))


# --- reading without trust

_NOTHING: Final[Mapping[str, Any]] = {}


def _map(raw: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = raw.get(key)
    return value if isinstance(value, dict) else _NOTHING


def _text(raw: Mapping[str, Any], key: str) -> str:
    value = raw.get(key)
    return value if isinstance(value, str) else ""


def _options(raw: Mapping[str, Any]) -> tuple[str, ...]:
    """Mount options one by one: the kubelet joins the items with commas, so one item may hold several."""
    options = _texts(raw, "mountOptions")
    if not any("," in option for option in options):
        return options
    return tuple([part for option in options for word in option.split(",") if (part := word.strip())])


def _texts(raw: Mapping[str, Any], key: str) -> tuple[str, ...]:
    value = raw.get(key)
    return tuple(item for item in value if isinstance(item, str)) if isinstance(value, list) else ()


def _maps(raw: Mapping[str, Any], key: str) -> Iterator[Mapping[str, Any]]:
    value = raw.get(key)
    if isinstance(value, list):
        for item in value:
            if isinstance(item, dict):
                yield item


def _terms(value: Any) -> tuple[Mapping[str, Any], ...]:
    """Node selector terms. What of one is odd is left out: each part narrows the choice, each term widens it."""
    if not isinstance(value, list):
        return ()
    return tuple(
        {
            key: [one for one in _maps(term, key) if _is_requirement(one)]
            for key in ("matchExpressions", "matchFields")
            if key in term
        }
        if isinstance(term, dict)
        else _NOTHING
        for term in value
    )


def _is_requirement(one: Mapping[str, Any]) -> bool:
    values = one.get("values")
    return (
        isinstance(one.get("key"), str)
        and isinstance(one.get("operator"), str)
        and (values is None or (isinstance(values, list) and all(isinstance(value, str) for value in values)))
    )


def _strings(raw: Mapping[str, Any], key: str) -> Mapping[str, str]:
    value = _map(raw, key)
    if all(isinstance(item, str) for item in value.values()):
        return value
    return {name: item for name, item in value.items() if isinstance(item, str)}


def _zones(terms: tuple[Mapping[str, Any], ...], labels: Mapping[str, str]) -> frozenset[str]:
    """Zones by node affinity: terms are alternatives, expressions of one term all hold. Else the zone label."""
    zones: set[str] = set()
    for term in terms:
        here: set[str] | None = None
        for expression in _maps(term, "matchExpressions"):
            if expression["key"] in _ZONE_KEYS and expression["operator"] == "In":
                values = set(_texts(expression, "values"))
                here = values if here is None else here & values
        if here is None:
            zones = set()
            break
        zones |= here
    if not zones and not terms:
        for label in _ZONE_LABELS:
            if labels.get(label):
                # a regional disk carries its zones as a__b
                return frozenset(labels[label].split("__"))
    return frozenset(zones)
