"""Mounts that the Job API refuses (kubernetes pkg/apis/core/validation, ``ValidateVolumeMounts``)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from webhook.effective.buildable.refusal import JOB_API, Refusal
from webhook.effective.buildable.syntax import steps_back
from webhook.model.nearest import Names
from webhook.model.pod import EffectiveJob, Raw

_PROPAGATION: Final = ("None", "HostToContainer", "Bidirectional")
_RECURSIVE: Final = ("Disabled", "IfPossible", "Enabled")
Paste = Callable[[str, Raw], str]
"""Job and PodSpec fields -> text to paste where the reviewed object takes them."""


def no_paste(job: str, pod: Raw) -> str:
    """For whoever only asks whether there is a fault."""
    return ""


def refused_mounts(
    job: EffectiveJob,
    container: Raw,
    owner: str,
    mounts: list[Raw],
    volumes: Names,
    told: set[str],
    paste: Paste,
) -> Iterator[Refusal]:
    """``told`` are the volumes that were said to be missing: once in a pod is enough."""
    paths: set[str] = set()
    for mount in mounts:
        path = mount.get("mountPath") or ""
        name = mount.get("name") or ""
        if (name not in volumes and name not in told) or name == "":
            yield _missing_volume(job, owner, name, path, volumes, paste)
            told.add(name)
        fault = fix = ""
        if path in paths or not path:
            fault = (
                f'mounts "{name}" at "{path}", where another volume is mounted' if path else f'mounts "{name}" nowhere'
            )
            fix = f"- name: {name}\n  mountPath: <another path>"
        paths.add(path)
        if len(mount) > 2:
            within = mount.get("subPath") or ""
            pattern = mount.get("subPathExpr") or ""
            if within and pattern:
                fault = f'mounts "{name}" at "{path}" with both subPath "{within}" and subPathExpr "{pattern}"'
                fix = f"- name: {name}\n  mountPath: {path}\n  subPathExpr: {pattern}"
                fix += f"  # and no subPath{_writer(job, owner, path)}"
            elif within[:1] == "/" or pattern[:1] == "/" or steps_back(within) or steps_back(pattern):
                fault = f'mounts "{name}" with subPath "{within or pattern}", which is absolute or holds ".."'
                fix = f"{'subPath' if within else 'subPathExpr'}: <a relative path without ..>"
            elif (propagation := mount.get("mountPropagation")) is not None and propagation not in _PROPAGATION:
                fault, fix = f'mounts "{name}" with mountPropagation "{propagation}"', "mountPropagation: None"
            elif (recursive := mount.get("recursiveReadOnly")) is not None and recursive not in _RECURSIVE:
                fault, fix = f'mounts "{name}" with recursiveReadOnly "{recursive}"', "recursiveReadOnly: Disabled"
            elif (recursive or "Disabled") != "Disabled" and not mount.get("readOnly"):
                fault, fix = f'mounts "{name}" with recursiveReadOnly and without readOnly', "readOnly: true"
            elif (recursive or "Disabled") != "Disabled" and (propagation or "None") != "None":
                fault = f'mounts "{name}" with recursiveReadOnly beside mountPropagation "{propagation}"'
                fix = "mountPropagation: None"
            elif mount.get("mountPropagation") == "Bidirectional" and not (container.get("securityContext") or {}).get(
                "privileged"
            ):
                fault = f'mounts "{name}" with mountPropagation "Bidirectional" and is not privileged'
                fix = "mountPropagation: HostToContainer"
        if fault:
            yield Refusal(
                JOB_API,
                job.mount_origin(owner, path),
                f'container "{owner}" {fault}',
                fix,
                job=job.name,
                container=owner,
                subject=f"mount {path}",
            )


def _writer(job: EffectiveJob, owner: str, path: str) -> str:
    """The object that gave the mount its subPath, in words."""
    for layer in job.layers:
        for kind in ("containers", "initContainers"):
            for container in layer.pod.get(kind) or ():
                for mount in container.get("volumeMounts") or ():
                    if container.get("name") == owner and mount.get("mountPath") == path and mount.get("subPath"):
                        return f" in {layer.object}"
    return ""


def _missing_volume(job: EffectiveJob, owner: str, name: str, path: str, volumes: Names, paste: Paste) -> Refusal:
    known = volumes.nearest(name)
    there = "the pod has " + (", ".join(f'"{other}"' for other in known[:5]) or "no volume")
    volume = {"name": name or "<volume>", "persistentVolumeClaim": {"claimName": "<claim>"}}
    return Refusal(
        JOB_API,
        job.mount_origin(owner, path),
        f'container "{owner}" mounts volume "{name}", and {there}',
        paste(job.name, {"volumes": [volume]}),
        job=job.name,
        container=owner,
        subject=f"volume {name}",
        mendable=True,
    )
