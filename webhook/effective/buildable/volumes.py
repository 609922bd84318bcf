"""Volumes that the Job API refuses (kubernetes pkg/apis/core/validation, ``ValidateVolumes``)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

from webhook.effective.buildable.fields import fault_of_resource_field, is_keyed_field, odd_version
from webhook.effective.buildable.refusal import JOB_API, JOBSET, Refusal
from webhook.effective.buildable.syntax import (
    fault_of_labels,
    fault_of_selector,
    is_dns_label,
    is_dns_subdomain,
    steps_back,
)
from webhook.model.paste import below
from webhook.model.pod import EMPTY, EffectiveJob, Raw
from webhook.model.quantity import parse_quantity

SOURCES: Final = frozenset(
    [
        "emptyDir",
        "hostPath",
        "gitRepo",
        "gcePersistentDisk",
        "awsElasticBlockStore",
        "secret",
        "nfs",
        "iscsi",
        "glusterfs",
        "flocker",
        "persistentVolumeClaim",
        "rbd",
        "cinder",
        "cephfs",
        "quobyte",
        "downwardAPI",
        "fc",
        "flexVolume",
        "configMap",
        "azureFile",
        "vsphereVolume",
        "photonPersistentDisk",
        "portworxVolume",
        "azureDisk",
        "storageos",
        "projected",
        "scaleIO",
        "csi",
        "ephemeral",
        "image",
    ]
)
"""Every volume source of core/v1. Other fields are pruned by the CRD."""

_REQUIRED: Final[dict[str, tuple[str, ...]]] = {
    "persistentVolumeClaim": ("claimName",),
    "hostPath": ("path",),
    "nfs": ("server", "path"),
    "secret": ("secretName",),
    "configMap": ("name",),
    "csi": ("driver",),
    "ephemeral": ("volumeClaimTemplate",),
    "iscsi": ("targetPortal", "iqn"),
    "rbd": ("monitors", "image"),
    "cephfs": ("monitors",),
    "glusterfs": ("endpoints", "path"),
    "azureFile": ("secretName", "shareName"),
    "azureDisk": ("diskName", "diskURI"),
    "gcePersistentDisk": ("pdName",),
    "awsElasticBlockStore": ("volumeID",),
    "cinder": ("volumeID",),
    "vsphereVolume": ("volumePath",),
    "flexVolume": ("driver",),
    "gitRepo": ("repository",),
    "portworxVolume": ("volumeID",),
    "photonPersistentDisk": ("pdID",),
    "quobyte": ("registry", "volume"),
    "storageos": ("volumeName",),
    "scaleIO": ("gateway", "system", "volumeName", "secretRef"),
}


def sources_of(volume: Raw) -> list[str]:
    """The names of the volume's sources, in the order in which they stand. ``emptyDir: {}`` is one, null is none."""
    return [key for key, value in volume.items() if key in SOURCES and value is not None]


def parts_of_volumes(job: EffectiveJob) -> Iterator[tuple[int, bool]]:
    """Identities of the volumes that the runtime gives the job, and of their list, with whether they are right."""
    for volume in job.pod.get("volumes") or ():
        yield (
            id(volume),
            is_dns_label(volume.get("name") or "") and next(_refused_sources(job, volume), None) is None,
        )
    if listed := job.pod.get("volumes"):
        yield id(listed), next(refused_volumes(job, frozenset()), None) is None


def refused_volumes(job: EffectiveJob, sound: frozenset[int]) -> Iterator[Refusal]:
    """Names, duplicates and missing fields. A volume without a source becomes an emptyDir; two sources have a rule."""
    seen: set[str] = set()
    for index, volume in enumerate(job.pod.get("volumes") or ()):
        name = volume.get("name") or ""
        if name in seen:
            yield Refusal(
                JOB_API,
                job.volume_origin(name),
                f'two volumes of job "{job.name}" are named "{name}"',
                f"name: {name}-2  # and the same name in the volumeMounts that mean this one",
                job=job.name,
                subject=f"volume {name}",
            )
        seen.add(name)
        if id(volume) in sound:
            continue
        if not is_dns_label(name):
            yield Refusal(
                JOB_API,
                job.volume_origin(name) if "name" in volume else job.pod_origin(f"volumes[{index}]"),
                f'volume name "{name}" of job "{job.name}" is no DNS label',
                f'name: <at most 63 of a-z, 0-9 and ->  # and in volumeMounts, instead of "{name}"',
                job=job.name,
                subject=f"volume {name}",
            )
        yield from _refused_sources(job, volume)


def _refused_sources(job: EffectiveJob, volume: Raw) -> Iterator[Refusal]:
    for source, value in volume.items():
        if value is not None and (source in _REQUIRED or source in _MORE):
            yield from _refused_source(job, volume.get("name") or "", source, value, _REQUIRED.get(source) or ())


def _refused_source(
    job: EffectiveJob, name: str, source: str, value: Raw, required: tuple[str, ...]
) -> Iterator[Refusal]:
    fault = fix = ""
    for field in required:
        if not value.get(field):
            before = _said_before(job, name, source, field)
            fault = f"has no {field}" + (f': the override leaves it out, which takes "{before}" away' if before else "")
            fix = f"{source}:\n  {field}: {before or '<value>'}"
            break
    else:
        if (more := _MORE.get(source)) is not None:
            fault, fix = more(value)
            fix = below(fix, source) if fault else fix
    if fault:
        yield Refusal(
            JOBSET if fault in _REFUSED_BY_JOBSET else JOB_API,
            job.volume_origin(name),
            f'{source} of volume "{name}" {fault}',
            fix,
            job=job.name,
            subject=f"volume {name} {source}",
            mendable=fault == _NO_SOURCES,  # an override brings them
        )


def _said_before(job: EffectiveJob, name: str, source: str, field: str) -> str:
    """The text that an earlier layer has in a field which the last one erases; empty where there is none."""
    for layer in reversed(job.layers):
        for index in layer.where("volumes", name)[:1]:  # a name that stands twice is refused
            text = (layer.pod["volumes"][index].get(source) or EMPTY).get(field)
            if isinstance(text, str) and text:
                return text
    return ""


_MODES: Final = frozenset(("ReadWriteOnce", "ReadOnlyMany", "ReadWriteMany", "ReadWriteOncePod"))


def fault_of_claim(spec: Raw) -> tuple[str, str]:
    """What the API server refuses in a claim's spec, and how to write it; two empty texts where it is right."""
    modes: list[str] = spec.get("accessModes") or []
    asked = ((spec.get("resources") or EMPTY).get("requests") or EMPTY).get("storage")
    if not modes or not _MODES.issuperset(modes):
        return f"has accessModes {_shown(modes)}", "accessModes: [ReadWriteMany]"
    if "ReadWriteOncePod" in modes and len(set(modes)) > 1:
        return "has ReadWriteOncePod beside other accessModes", "accessModes: [ReadWriteOncePod]"
    if asked is None or (parse_quantity(asked) or 0) <= 0:
        return f'asks for storage "{"" if asked is None else asked}"', "resources:\n  requests:\n    storage: <size>"
    if (mode := spec.get("volumeMode")) and mode not in ("Filesystem", "Block"):
        return f'has volumeMode "{mode}"', "volumeMode: Filesystem"
    if (name := spec.get("storageClassName")) and not is_dns_subdomain(name):
        return f'has storageClassName "{name}", which is no object name', "storageClassName: <class>"
    if fault := fault_of_selector(spec.get("selector")):
        return f"has a selector with {fault}", "selector: {}"
    for field in ("dataSource", "dataSourceRef"):
        if (source := spec.get(field)) is not None and not source.get("apiGroup"):
            return _NO_GROUP, f"{field}:\n  apiGroup: <group>  # without it no object can be cloned here"
    return "", ""


def _shown(modes: list[str]) -> str:
    return "[" + ", ".join(f'"{mode}"' for mode in modes) + "]"


_NO_SOURCES: Final = "has no sources"
_NO_GROUP: Final = "has a dataSource without apiGroup"
_REFUSED_BY_JOBSET: Final = frozenset((_NO_SOURCES, _NO_GROUP))
"""Lists and texts that Trainer writes as null where they are absent, which JobSet's schema does not take."""
_SOUND: Final = ("", "")
_FILE_TYPES: Final = frozenset(
    ("", "BlockDevice", "CharDevice", "Directory", "DirectoryOrCreate", "File", "FileOrCreate", "Socket")
)
_POD_FIELDS: Final = frozenset(
    ("metadata.annotations", "metadata.labels", "metadata.name", "metadata.namespace", "metadata.uid")
)


def _fault_of_path(value: Raw) -> tuple[str, str]:
    if steps_back(value.get("path") or ""):
        return 'has ".." in its path', "path: <a path without ..>"
    kind = value.get("type") or ""
    return (f'has type "{kind}"', "type: DirectoryOrCreate") if kind not in _FILE_TYPES else _SOUND


def _fault_of_nfs(value: Raw) -> tuple[str, str]:
    if (value.get("path") or "")[:1] != "/":
        return "has a path that is not absolute", "path: </absolute/path>"
    return _SOUND


def _fault_of_ephemeral(value: Raw) -> tuple[str, str]:
    template = value.get("volumeClaimTemplate") or EMPTY
    metadata = template.get("metadata") or EMPTY
    if metadata.get("name"):
        return f'gives its claim the name "{metadata["name"]}"', "volumeClaimTemplate:\n  metadata: {}  # no name"
    if label := fault_of_labels(metadata.get("labels")):
        return f'gives its claim "{label}", which is no label', "volumeClaimTemplate:\n  metadata:\n    labels: {}"
    fault, fix = fault_of_claim(template.get("spec") or EMPTY)
    return (fault, below(fix, "volumeClaimTemplate", "spec")) if fault else _SOUND


def _fault_of_directory(value: Raw) -> tuple[str, str]:
    limit = value.get("sizeLimit")
    if limit is not None and (parse_quantity(limit) or 0) < 0:
        return f'has sizeLimit "{limit}"', "sizeLimit: <a size above 0>"
    return _SOUND


def _fault_of_csi(value: Raw) -> tuple[str, str]:
    driver, secret = value.get("driver") or "", value.get("nodePublishSecretRef")
    if len(driver) > 63 or not is_dns_subdomain(driver.lower()):
        return f'has driver "{driver}", which is no object name', "driver: <driver>"
    if secret is not None and not secret.get("name"):
        return "has a nodePublishSecretRef without name", "nodePublishSecretRef:\n  name: <secret>"
    return _SOUND


def _fault_of_image(value: Raw) -> tuple[str, str]:
    if (policy := value.get("pullPolicy")) and policy not in ("Always", "IfNotPresent", "Never"):
        return f'has pullPolicy "{policy}"', "pullPolicy: IfNotPresent"
    return _SOUND


def _fault_of_repository(value: Raw) -> tuple[str, str]:
    directory = value.get("directory") or ""
    if directory[:1] == "/" or steps_back(directory):
        return f'has directory "{directory}"', "directory: <a relative path without ..>"
    return _SOUND


def _fault_of_iscsi(value: Raw) -> tuple[str, str]:
    if not value["iqn"].startswith(("iqn", "eui", "naa")):
        return f'has iqn "{value["iqn"]}"', "iqn: <iqn. ..., eui. ... or naa. ...>"
    return (f"has lun {value['lun']}", "lun: <0..255>") if not 0 <= (value.get("lun") or 0) <= 255 else _SOUND


def _fault_of_fc(value: Raw) -> tuple[str, str]:
    if bool(value.get("targetWWNs")) == bool(value.get("wwids")):
        return "needs one of targetWWNs and wwids", "targetWWNs: [<wwn>]\nlun: <lun>"
    if value.get("targetWWNs") and not 0 <= (-1 if (lun := value.get("lun")) is None else lun) <= 255:
        return "has targetWWNs without a lun of 0..255", "lun: <0..255>"
    return _SOUND


def _fault_of_flocker(value: Raw) -> tuple[str, str]:
    name = value.get("datasetName") or ""
    if bool(name) == bool(value.get("datasetUUID")) or "/" in name:
        return "needs one of datasetName (without a slash) and datasetUUID", "datasetName: <name>"
    return _SOUND


def _fault_of_partition(value: Raw) -> tuple[str, str]:
    partition = value.get("partition") or 0
    return (f"has partition {partition}", "partition: <1..255>") if not 0 <= partition <= 255 else _SOUND


def _fault_of_azure_disk(value: Raw) -> tuple[str, str]:
    kind, uri, caching = value.get("kind", "Shared"), value["diskURI"], value.get("cachingMode")
    if kind is not None and kind not in ("Shared", "Dedicated", "Managed"):
        return f'has kind "{kind}"', "kind: Managed"
    begin = "/subscriptions/" if kind == "Managed" else "https://"
    if not uri.startswith(begin):
        return f'has diskURI "{uri}" and kind "{kind}"', f"diskURI: {begin}<disk>"
    if caching is not None and caching not in ("None", "ReadOnly", "ReadWrite"):
        return f'has cachingMode "{caching}"', "cachingMode: ReadWrite"
    return _SOUND


def _fault_of_cinder(value: Raw) -> tuple[str, str]:
    secret = value.get("secretRef")
    if secret is not None and not secret.get("name"):
        return "has a secretRef without name", "secretRef:\n  name: <secret>"
    return _SOUND


def _fault_of_quobyte(value: Raw) -> tuple[str, str]:
    if not all(":" in pair for pair in value["registry"].split(",")):
        return f'has registry "{value["registry"]}"', "registry: <host>:<port>"
    return _SOUND


def _fault_of_flex(value: Raw) -> tuple[str, str]:
    for key in value.get("options") or ():
        domain = key.lower().partition("/")[0] if "/" in key else ""
        if domain.endswith(("kubernetes.io", "k8s.io")):
            return f'has option "{key}", which is reserved', "options: {}"
    return _SOUND


def _fault_of_mode(value: Raw) -> tuple[str, str]:
    mode = value.get("defaultMode")
    if mode is not None and not 0 <= mode <= 0o777:
        return f"has defaultMode {mode}, which is outside 0..0777 (511)", "defaultMode: 0644"
    return _SOUND


def _fault_of_projected(value: Raw) -> tuple[str, str]:
    if not value.get("sources"):
        return _NO_SOURCES, "sources:\n- configMap: {name: <configMap>}"
    paths: set[str] = set()
    for entry in value["sources"]:
        parts = [(kind, part) for kind, part in entry.items() if part is not None]
        if len(parts) > 1:
            return f"has {len(parts)} kinds in one source", "sources:\n- configMap: {name: <configMap>}"
        for kind, part in parts:
            if kind in ("configMap", "secret") and not part.get("name"):
                return f"has a {kind} without name", f"sources:\n- {kind}: {{name: <name>}}"
            if kind == "serviceAccountToken":
                path, seconds = part.get("path") or "", part.get("expirationSeconds")
                if not _is_inside(path):
                    fix = below("path: <a relative path without ..>", "sources[]", kind)
                    return f'has a serviceAccountToken at "{path}"', fix
                if seconds is not None and not 600 <= seconds <= 2**32:
                    return f"has a serviceAccountToken for {seconds} s", below(
                        "expirationSeconds: 3600", "sources[]", kind
                    )
            elif kind in ("configMap", "secret", "downwardAPI"):
                fault, fix = _fault_of_items(kind, part)
                if fault:
                    return fault, below(fix, "sources[]", kind)
            for item in part.get("items") or ():
                if item.get("path") in paths:
                    return f'has two files "{item["path"]}"', below(
                        "path: <another path>", "sources[]", kind, "items[]"
                    )
                paths.add(item.get("path") or "")
    return _fault_of_mode(value)


def _fault_of_config_map(value: Raw) -> tuple[str, str]:
    return _fault_of_files("configMap", value)


def _fault_of_secret(value: Raw) -> tuple[str, str]:
    return _fault_of_files("secret", value)


def _fault_of_downward(value: Raw) -> tuple[str, str]:
    return _fault_of_files("downwardAPI", value)


def _fault_of_files(kind: str, value: Raw) -> tuple[str, str]:
    fault = _fault_of_mode(value)
    return fault if fault[0] else _fault_of_items(kind, value)


def _is_inside(path: str) -> bool:
    return path != "" and path[0] != "/" and not path.startswith("..") and not steps_back(path)


def _fault_of_items(kind: str, value: Raw) -> tuple[str, str]:
    for item in value.get("items") or ():
        fault, fix = _fault_of_item(kind, item)
        if fault:
            return fault, below(fix, "items[]")
    return _SOUND


def _fault_of_item(kind: str, item: Any) -> tuple[str, str]:
    path, mode = item.get("path") or "", item.get("mode")
    if not _is_inside(path):
        return f'has an item with path "{path}"', "path: <a relative path without ..>"
    if mode is not None and not 0 <= mode <= 0o777:
        return f'has item "{path}" with mode {mode}, which is outside 0..0777 (511)', "mode: 0644"
    if kind != "downwardAPI":
        if not item.get("key"):
            return "has an item without key", "key: <key>"
        return _SOUND
    field, resource = item.get("fieldRef"), item.get("resourceFieldRef")
    if bool(field) == bool(resource):
        beside = "fieldRef beside resourceFieldRef" if field else "neither fieldRef nor resourceFieldRef"
        return f'has item "{path}" with {beside}', "fieldRef:\n  fieldPath: metadata.name"
    if field:
        name = field.get("fieldPath") or ""
        if version := odd_version(field):
            return f'has item "{path}" of a field of apiVersion "{version}"', f"fieldRef:\n  fieldPath: {name}"
        if name not in _POD_FIELDS and not is_keyed_field(name):
            return f'has item "{path}" of field "{name}"', "fieldRef:\n  fieldPath: metadata.name"
    elif not resource.get("containerName"):
        return f'has item "{path}" of a resource without containerName', "resourceFieldRef:\n  containerName: node"
    elif (found := fault_of_resource_field(resource))[0]:
        return f'has item "{path}" that {found[0]}', found[1]
    return _SOUND


_MORE: Final[dict[str, Callable[[Raw], tuple[str, str]]]] = {
    "hostPath": _fault_of_path,
    "nfs": _fault_of_nfs,
    "ephemeral": _fault_of_ephemeral,
    "emptyDir": _fault_of_directory,
    "csi": _fault_of_csi,
    "image": _fault_of_image,
    "gitRepo": _fault_of_repository,
    "iscsi": _fault_of_iscsi,
    "fc": _fault_of_fc,
    "flocker": _fault_of_flocker,
    "gcePersistentDisk": _fault_of_partition,
    "awsElasticBlockStore": _fault_of_partition,
    "azureDisk": _fault_of_azure_disk,
    "cinder": _fault_of_cinder,
    "quobyte": _fault_of_quobyte,
    "flexVolume": _fault_of_flex,
    "configMap": _fault_of_config_map,
    "secret": _fault_of_secret,
    "downwardAPI": _fault_of_downward,
    "projected": _fault_of_projected,
}
"""What else may be wrong with a source that has its required fields."""
