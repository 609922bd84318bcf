"""A TrainJob whose checkpoint directory lies on no volume gets the claim that its author, namespace or policy names.

Fills: a volume with the claim, and a mount in every container that trains: at the declared directory, or, where none is
declared, at the annotated path or the policy's.
Silent when: no claim is known; a mount lies under the directory; the directory is unknown or holds ``$(VAR)``; its path
is taken; some container that trains is not known; the claim would be denied; the release's shape has no room.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from webhook.model.cluster import Claim, Namespace
from webhook.model.default import Context, Default
from webhook.model.draft import Draft
from webhook.model.entries import Target, place
from webhook.model.finding import Judged, Origin, Severity
from webhook.model.names import CLAIM, DEFAULT_CLAIM, PATH
from webhook.model.pod import EMPTY, DirectoryStatus, EffectiveJob, EffectiveSet, Raw
from webhook.storage.refusal import refusal

VOLUME: Final = "checkpoint-guard"
# Directories that hold the image's own programs and files, or where several programs write.
_SYSTEM: Final = frozenset(
    ("/", "/bin", "/boot", "/dev", "/etc", "/home", "/lib", "/lib64", "/opt", "/proc", "/root", "/run", "/sbin", "/sys")
)
_SHARED: Final = frozenset(("/tmp", "/usr", "/usr/local", "/var"))  # noqa: S108 - paths in a pod
_KERNEL: Final = ("/dev/", "/proc/", "/sys/")
_SOURCE_FILES: Final = (".py", ".sh")


def apply(draft: Draft, context: Context) -> bool:
    """See above."""
    effective = context.effective
    if effective is None:
        return False
    directory, mounted = None, False
    for checkpoint in context.checkpoints:
        if checkpoint.status is DirectoryStatus.NONE:
            continue
        if checkpoint.directory is None or checkpoint.status is DirectoryStatus.UNEXPANDED:
            return False
        # A mount path is not expanded, so it would lie beside the directory or be right for this run alone.
        if "$(" in (checkpoint.written or "") or (directory is not None and checkpoint.directory != directory):
            return False
        directory = checkpoint.directory
        mounted = mounted or checkpoint.mount is not None
    if mounted:
        return False
    claim = _known_claim(context)
    if claim is None:
        return False
    annotations = _annotations(draft.object)
    path = directory
    if path is None:
        path = annotations.get(PATH) or context.policy.defaults.path
        path = "/" + path.strip("/") if path.startswith("/") else path
    targets = _targets(effective)
    if targets is None or not _free(path, effective, context, declared=directory is not None):
        return False
    if directory is None and PATH not in annotations and _mounts_already(claim[0], effective):
        # The same claim a second time is no use: the variables alone will point below the mount that is there.
        return False
    volume = {"name": _volume_name(effective), "persistentVolumeClaim": {"claimName": claim[0]}}
    mount: dict[str, str] = {"name": volume["name"], "mountPath": path}  # type: ignore[dict-item]
    if directory is not None:
        mount["subPath"] = directory[1:]
    refused = refusal(context.storage_of(volume, mount), effective.training_pods, context.cluster, context.policy)
    if refused is not None:
        if claim[1] is not None:
            _warn(context, claim[0], claim[1], *refused)
        return False
    if not place(draft, context.release, targets, (volume,), (mount,)):
        return False
    if directory is None:
        context.path = path
    context.added = msgspec.structs.replace(
        context.added,
        volumes=(*context.added.volumes, volume),
        mounts=(*context.added.mounts, mount),
        targets=targets,
    )
    return True


def _known_claim(context: Context) -> tuple[str, Origin | None] | None:
    """The claim's name, and where somebody asked for it; the policy's own claim is taken only if it is there."""
    request = context.request
    label = f"{request.kind}/{request.name}"
    if name := _annotations(request.object).get(CLAIM):
        return name, Origin(label, f'metadata.annotations["{CLAIM}"]', f"annotation {CLAIM}")
    namespace = context.cluster.namespace(request.namespace)
    if isinstance(namespace, Namespace) and (name := namespace.annotations.get(DEFAULT_CLAIM)):
        where = f'metadata.annotations["{DEFAULT_CLAIM}"]'
        return name, Origin(f"Namespace/{request.namespace}", where, f"namespace annotation {DEFAULT_CLAIM}")
    name = context.policy.defaults.claim_name
    if name and not context.claims_elsewhere and isinstance(context.cluster.claim(request.namespace, name), Claim):
        return name, None
    return None


def _targets(effective: EffectiveSet) -> dict[str, Target] | None:
    """The jobs that train with their containers; None where one of them does not say which container trains."""
    targets: dict[str, Target] = {}
    for job in effective.jobs:
        if job.trains:
            names = tuple([container.get("name") or "" for container in job.training_containers()])
            if not names or not all(names):
                return None
            order = tuple([container.get("name") or "" for container in job.pod.get("containers") or ()])
            targets[job.name] = Target(names, order if len(order) > 1 else ())
    return targets or None


def _free(path: str, effective: EffectiveSet, context: Context, *, declared: bool) -> bool:
    """Whether a volume may be mounted at ``path`` in every container that trains, and hides nothing there."""
    if not path.startswith("/") or ":" in path or "<" in path or "$" in path or len(path) > 1024:
        return False
    if (
        path in _SYSTEM
        or path in _SHARED
        or path.startswith(_KERNEL)
        or (path != "/" + path.strip("/") or "//" in path)
    ):
        return False
    if any(part in (".", "..") for part in path.split("/")):
        return False
    below = path + "/"
    for job in effective.jobs:
        for container in job.training_containers():
            for mount in container.get("volumeMounts") or ():
                at = "/" + (mount.get("mountPath") or "").strip("/")
                if at == path or at.startswith(below):
                    return False
                if below.startswith(at.rstrip("/") + "/"):
                    # Under the directory of one container, or where the kubelet cannot make the mount point.
                    volume = job.volume(mount.get("name") or "")
                    if declared or context.storage_of(volume, mount).read_only:
                        return False
            for device in container.get("volumeDevices") or ():
                if device.get("devicePath") == path:
                    return False
            if _hides_program(path, container):
                return False
    return True


def _hides_program(path: str, container: Raw) -> bool:
    """A volume over the directory that the program itself lies in would leave nothing to start."""
    below = path + "/"
    if ((container.get("workingDir") or "") + "/").startswith(below):
        return True
    words = [*(container.get("command") or ()), *(container.get("args") or ())]
    return any(word.startswith(below) and (at == 0 or word.endswith(_SOURCE_FILES)) for at, word in enumerate(words))


def _mounts_already(claim: str, effective: EffectiveSet) -> bool:
    """Whether every container that trains can write the claim somewhere."""
    return all(
        any(_writes(claim, mount, job) for mount in container.get("volumeMounts") or ())
        for job in effective.jobs
        for container in job.training_containers()
    )


def _writes(claim: str, mount: Raw, job: EffectiveJob) -> bool:
    volume = job.volume(mount.get("name") or "") or EMPTY
    source = volume.get("persistentVolumeClaim") or EMPTY
    return source.get("claimName") == claim and not source.get("readOnly") and not mount.get("readOnly")


def _volume_name(effective: EffectiveSet) -> str:
    """A name that no volume, claim template or mount of the jobs has, since names are merged."""
    taken: set[str] = set()
    for job in effective.jobs:
        taken.update(volume.get("name") or "" for volume in job.pod.get("volumes") or ())
        for _, _, container in job.containers():
            taken.update(mount.get("name") or "" for mount in container.get("volumeMounts") or ())
    name, number = VOLUME, 1
    while name in taken or effective.template(name) is not None:
        number += 1
        name = f"{VOLUME}-{number}"
    return name


def _annotations(obj: Raw) -> Mapping[str, str]:
    annotations: Mapping[str, str] = (obj.get("metadata") or EMPTY).get("annotations") or EMPTY
    return annotations


def _warn(context: Context, claim: str, origin: Origin, rule: str, fact: str) -> None:
    """Somebody asked for the claim by name, so it is not left out in silence."""
    if context.policy.rules.get(rule) in ("off", "audit"):
        return
    context.findings.append(
        Judged(
            rule,
            Severity.WARN,
            origin,
            f'claim "{claim}" was not mounted: {fact}',
            "without a volume under the checkpoint directory the run starts again at step 0",
            f"kubectl get persistentvolumeclaim {claim} -n {context.request.namespace or 'default'}\n"
            f"{CLAIM}: <a claim that every training pod can write>",
            subject=claim,
        )
    )


DEFAULT: Final = Default("checkpoint_volume", apply)
