"""Volumes that the Job API refuses (kubernetes pkg/apis/core/validation, ``ValidateVolumes``)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from webhook.effective.buildable.refusal import JOB_API, Refusal
from webhook.effective.buildable.syntax import is_dns_label, steps_back
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
}


def sources_of(volume: Raw) -> list[str]:
    """The names of the volume's sources, in the order in which they stand. ``emptyDir: {}`` is one, null is none."""
    return [key for key, value in volume.items() if key in SOURCES and value is not None]


def sound_volumes(job: EffectiveJob) -> Iterator[int]:
    """Identities of the volumes that the runtime gives the job and whose names and sources are right."""
    for volume in job.layers[0].pod.get("volumes") or ():
        if is_dns_label(volume.get("name") or "") and next(_refused_sources(job, volume), None) is None:
            yield id(volume)


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
                job.volume_origin(name) if name else job.pod_origin(f"volumes[{index}]"),
                f'volume name "{name}" of job "{job.name}" is no DNS label',
                f'name: <at most 63 of a-z, 0-9 and ->  # and in volumeMounts, instead of "{name}"',
                job=job.name,
                subject=f"volume {name}",
            )
        yield from _refused_sources(job, volume)


def _refused_sources(job: EffectiveJob, volume: Raw) -> Iterator[Refusal]:
    for source, value in volume.items():
        if value is not None and (source in _REQUIRED or source in _LISTS):
            yield from _refused_source(job, volume.get("name") or "", source, value, _REQUIRED.get(source) or ())


def _refused_source(
    job: EffectiveJob, name: str, source: str, value: Raw, required: tuple[str, ...]
) -> Iterator[Refusal]:
    fault = fix = ""
    for field in required:
        if not value.get(field):
            fault, fix = f"has no {field}", f"{source}:\n  {field}: <value>"
            break
    else:
        if source in ("hostPath", "nfs"):
            path = value.get("path") or ""
            if source == "hostPath" and steps_back(path):
                fault, fix = 'has ".." in its path', "path: <a path without ..>"
            elif source == "nfs" and path[:1] != "/":
                fault, fix = "has a path that is not absolute", "path: </absolute/path>"
        elif source == "ephemeral":
            fault, fix = fault_of_claim((value.get("volumeClaimTemplate") or EMPTY).get("spec") or EMPTY)
        elif source in _LISTS:
            fault, fix = _fault_of_files(source, value)
    if fault:
        yield Refusal(
            JOB_API,
            job.volume_origin(name),
            f'{source} of volume "{name}" {fault}',
            fix,
            job=job.name,
            subject=f"volume {name} {source}",
        )


_LISTS: Final = frozenset(("secret", "configMap", "downwardAPI", "projected"))


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
    return "", ""


def _shown(modes: list[str]) -> str:
    return "[" + ", ".join(f'"{mode}"' for mode in modes) + "]"


def _fault_of_files(source: str, value: Raw) -> tuple[str, str]:
    mode = value.get("defaultMode")
    if mode is not None and not 0 <= mode <= 0o777:
        return f"has defaultMode {mode}, which is outside 0..0777 (511)", "defaultMode: 0644"
    parts = [(source, value)]
    if source == "projected":
        parts = [(key, part) for entry in value.get("sources") or () for key, part in entry.items() if part]
    for kind, part in parts:
        for item in part.get("items") or ():
            path = item.get("path") or ""
            if not path or path[0] == "/" or path.startswith("..") or steps_back(path):
                return f'has an item with path "{path}"', "path: <a relative path without ..>"
            if kind != "downwardAPI" and not item.get("key"):
                return "has an item without key", "key: <key>"
            if kind == "downwardAPI" and not (item.get("fieldRef") or item.get("resourceFieldRef")):
                return f'has item "{path}" without fieldRef', "fieldRef:\n  fieldPath: metadata.name"
    return "", ""
