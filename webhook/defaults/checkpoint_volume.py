"""A TrainJob whose checkpoint directory lies on no volume gets the claim that its author, namespace or policy names.

Fills: a volume with the claim, and a mount in every container that trains: at the declared directory, or, where none is
declared, at the annotated path or the policy's.
Silent when: no claim is known; a mount lies under the directory; the directory is unknown or holds ``$(VAR)``; its path
is taken; some container that trains is not known; the claim would be denied; the release's shape has no room.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

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
Trained = Sequence[tuple[EffectiveJob, Raw]]
_SOURCE_FILES: Final = (".py", ".sh")


def apply(draft: Draft, context: Context) -> bool:
    """See above."""
    effective, trained = context.effective, context.trained
    if effective is None or trained is None:
        return False
    directory = None
    for checkpoint in context.checkpoints:
        if checkpoint.status is DirectoryStatus.NONE:
            continue
        if checkpoint.mount is not None or checkpoint.directory is None:
            return False
        # A mount path is not expanded, so it would lie beside the directory or be right for this run alone.
        if "$(" in (checkpoint.written or "") or (directory is not None and checkpoint.directory != directory):
            return False
        directory = checkpoint.directory
    known = _known_claim(context)
    if known is None:
        return False
    claim, asked_by = known
    path = directory
    if path is None:
        annotated = _annotations(draft.object).get(PATH)
        path = annotated or context.policy.defaults.path
        path = "/" + path.strip("/") if path.startswith("/") else path
        if not annotated and _mounts_already(claim, trained):
            # The same claim a second time is no use: the variables alone will point below the mount that is there.
            return False
    if not _free(path, trained, context, declared=directory is not None):
        return False
    name = _volume_name(trained, effective)
    volume = {"name": name, "persistentVolumeClaim": {"claimName": claim}}
    mount = {"name": name, "mountPath": path}
    if directory is not None:
        mount["subPath"] = directory[1:]
    refused = refusal(context.storage_of(volume, mount), effective.training_pods, context.cluster, context.policy)
    if refused is not None:
        if asked_by is not None:
            _warn(context, claim, asked_by, *refused)
        return False
    targets = _targets(trained)
    if not place(draft, context.release, targets, (volume,), (mount,)):
        return False
    if directory is None:
        context.path = path
    context.added_volumes = (volume,)
    context.added_mounts = (mount,)
    context.targets = targets
    return True


def _known_claim(context: Context) -> tuple[str, tuple[str, str] | None] | None:
    """The claim's name, and the kind and annotation that asked for it; the policy's own only if it is there."""
    request = context.request
    if name := _annotations(request.object).get(CLAIM):
        return name, ("TrainJob", CLAIM)
    namespace = context.cluster.namespace(request.namespace)
    if isinstance(namespace, Namespace) and (name := namespace.annotations.get(DEFAULT_CLAIM)):
        return name, ("Namespace", DEFAULT_CLAIM)
    name = context.policy.defaults.claim_name
    if name and not context.claims_elsewhere and isinstance(context.cluster.claim(request.namespace, name), Claim):
        return name, None
    return None


def _targets(trained: Trained) -> dict[str, Target]:
    targets: dict[str, Target] = {}
    for job, container in trained:
        containers = job.pod.get("containers") or ()
        order = tuple([other.get("name") or "" for other in containers]) if len(containers) > 1 else ()
        targets[job.name] = Target((container.get("name") or "",), order)
    return targets


def _free(path: str, trained: Trained, context: Context, *, declared: bool) -> bool:
    """Whether a volume may be mounted at ``path`` in every container that trains, and hides nothing there."""
    if path[:1] != "/" or ":" in path or "<" in path or "$" in path or len(path) > 1024:
        return False
    if path in _SYSTEM or path in _SHARED or path.startswith(_KERNEL) or path[-1] == "/":
        return False
    if "//" in path or "/./" in path + "/" or "/../" in path + "/":
        return False
    below = path + "/"
    for job, container in trained:
        for mount in container.get("volumeMounts") or ():
            at = "/" + (mount.get("mountPath") or "").strip("/")
            if at == path or at.startswith(below):
                return False
            if below.startswith(at.rstrip("/") + "/") and (
                # Under the directory of one container, or where the kubelet cannot make the mount point.
                declared or context.storage_of(job.volume(mount.get("name") or ""), mount).read_only
            ):
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
    command = container.get("command") or ()
    if command and command[0].startswith(below):
        return True
    for words in (command, container.get("args") or ()):
        for word in words:
            if word.startswith(below) and word.endswith(_SOURCE_FILES):
                return True
    return False


def _mounts_already(claim: str, trained: Trained) -> bool:
    """Whether every container that trains can write the claim somewhere."""
    for job, container in trained:
        for mount in container.get("volumeMounts") or ():
            source = (job.volume(mount.get("name") or "") or EMPTY).get("persistentVolumeClaim")
            if source is None or source.get("claimName") != claim:
                continue
            if not source.get("readOnly") and not mount.get("readOnly"):
                break
        else:
            return False
    return True


def _volume_name(trained: Trained, effective: EffectiveSet) -> str:
    """A name that no volume, claim template or mount of the jobs has, since names are merged."""
    taken: set[str] = set()
    for job, _ in trained:
        for volume in job.pod.get("volumes") or ():
            taken.add(volume.get("name") or "")
        for _, _, container in job.containers():
            for mount in container.get("volumeMounts") or ():
                taken.add(mount.get("name") or "")
    name, number = VOLUME, 1
    while name in taken or effective.template(name) is not None:
        number += 1
        name = f"{VOLUME}-{number}"
    return name


def _annotations(obj: Raw) -> Mapping[str, str]:
    annotations: Mapping[str, str] = (obj.get("metadata") or EMPTY).get("annotations") or EMPTY
    return annotations


def _warn(context: Context, claim: str, asked_by: tuple[str, str], rule: str, fact: str) -> None:
    """Somebody asked for the claim by name, so it is not left out in silence."""
    if context.policy.rules.get(rule) in ("off", "audit"):
        return
    request = context.request
    kind, annotation = asked_by
    label = f"{kind}/{request.name if kind == 'TrainJob' else request.namespace}"
    context.findings.append(
        Judged(
            rule,
            Severity.WARN,
            Origin(label, f'metadata.annotations["{annotation}"]', f"annotation {annotation}"),
            f'claim "{claim}" was not mounted: {fact}',
            "without a volume under the checkpoint directory the run starts again at step 0",
            f"kubectl get persistentvolumeclaim {claim} -n {request.namespace or 'default'}\n"
            f"{annotation}: <a claim that every training pod can write>",
            subject=claim,
        )
    )


DEFAULT: Final = Default("checkpoint_volume", apply)
