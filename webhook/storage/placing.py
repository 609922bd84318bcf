"""Whether a claim may be put into the containers of a TrainJob that train, which one, and where: asked by the defaults.

And the variables that may go with it: ``spec.trainer.env`` reaches container ``node`` of the labelled job alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from webhook.model.cluster import Claim, Namespace
from webhook.model.default import Context
from webhook.model.entries import Target
from webhook.model.finding import Judged, Origin, Severity
from webhook.model.names import CLAIM, DEFAULT_CLAIM, JOBSET_NAME_LABEL, PATH
from webhook.model.pod import EMPTY, EffectiveJob, EffectiveSet, Raw
from webhook.model.printable import shell_word

Trained = Sequence[tuple[EffectiveJob, Raw]]
# Directories that hold the image's own programs and files, or where several programs write.
_SYSTEM: Final = frozenset(
    ("/", "/bin", "/boot", "/dev", "/etc", "/home", "/lib", "/lib64", "/opt", "/proc", "/root", "/run", "/sbin", "/sys")
)
_SHARED: Final = frozenset(("/tmp", "/usr", "/usr/local", "/var"))  # noqa: S108 - paths in a pod
_KERNEL: Final = ("/dev/", "/proc/", "/sys/")
_SOURCE_FILES: Final = (".py", ".sh")

NAME: Final = "TRAINJOB_NAME"
NAME_FIELD: Final = f"metadata.labels['{JOBSET_NAME_LABEL}']"
NAME_VARIABLE: Final = {"name": NAME, "valueFrom": {"fieldRef": {"fieldPath": NAME_FIELD}}}
"""The run's own name, also where the API server generates it."""
MAX_ENV: Final = 128
"""Most variables of ``spec.trainer.env`` (CRD of Trainer 2.2 and later)."""
_FRAMEWORKS: Final = ("torch", "jax", "xgboost", "mpi", "flux")


def known_claim(context: Context) -> tuple[str, tuple[str, str] | None] | None:
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


def targets_of(trained: Trained) -> dict[str, Target]:
    targets: dict[str, Target] = {}
    for job, container in trained:
        containers = job.pod.get("containers") or ()
        order = tuple([other.get("name") or "" for other in containers]) if len(containers) > 1 else ()
        targets[job.name] = Target((container.get("name") or "",), order)
    return targets


def is_mount_path(path: str) -> bool:
    """Whether a pod could have a volume there at all: absolute, as short as it goes, and nothing of the system's."""
    if path[:1] != "/" or ":" in path or "<" in path or "$" in path or len(path) > 1024:
        return False
    if path in _SYSTEM or path in _SHARED or path.startswith(_KERNEL) or path[-1] == "/":
        return False
    return not ("//" in path or "/./" in path + "/" or "/../" in path + "/")


def is_free(path: str, trained: Trained, context: Context, *, declared: bool) -> bool:
    """Whether a volume may be mounted at ``path`` in every container that trains, and hides nothing there."""
    if not is_mount_path(path):
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


def sidecars_agree(path: str, claim: str, trained: Trained) -> bool:
    """Whether no native sidecar has anything but the claim at ``path``.

    One that mounts the directory counts as training, so its volume would be judged as the checkpoints' own.
    """
    for job, _ in trained:
        for sidecar in job.pod.get("initContainers") or ():
            if sidecar.get("restartPolicy") != "Always":
                continue
            for mount in sidecar.get("volumeMounts") or ():
                source = (job.volume(mount.get("name") or "") or EMPTY).get("persistentVolumeClaim") or EMPTY
                if "/" + (mount.get("mountPath") or "").strip("/") == path and source.get("claimName") != claim:
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


def free_volume_name(trained: Trained, effective: EffectiveSet, wanted: str) -> str:
    """A name that no volume, claim template or mount of the jobs has, since names are merged."""
    taken: set[str] = set()
    for job, _ in trained:
        for volume in job.pod.get("volumes") or ():
            taken.add(volume.get("name") or "")
        for _, _, container in job.containers():
            for mount in container.get("volumeMounts") or ():
                taken.add(mount.get("name") or "")
    name, number = wanted, 1
    while name in taken or effective.template(name) is not None:
        number += 1
        name = f"{wanted}-{number}"
    return name


def annotation_of(context: Context, name: str) -> tuple[str | None, str]:
    """An annotation of the TrainJob, else of its namespace (empty counts as none), and the kind that has it."""
    request = context.request
    own = _annotations(request.object)
    if name in own:
        return own[name] or None, "TrainJob"
    namespace = context.cluster.namespace(request.namespace)
    if isinstance(namespace, Namespace) and (value := namespace.annotations.get(name)):
        return value, "Namespace"
    return None, ""


def switches_framework_on(context: Context) -> bool:
    """Whether the mere presence of ``spec.trainer`` makes Trainer add the framework's own variables."""
    if context.runtime is None:
        return False
    policy = (context.runtime.raw.get("spec") or EMPTY).get("mlPolicy") or EMPTY
    return any(policy.get(framework) is not None for framework in _FRAMEWORKS)


def _annotations(obj: Raw) -> Mapping[str, str]:
    annotations: Mapping[str, str] = (obj.get("metadata") or EMPTY).get("annotations") or EMPTY
    return annotations


def say_not_mounted(context: Context, claim: str, asked_by: tuple[str, str], rule: str, fact: str) -> None:
    """Somebody asked for the claim by name, so it is not left out in silence."""
    where = context.request.namespace or "default"
    fix = f"<claim>\n# <claim>: one that all training pods can write, see kubectl get pvc -n {shell_word(where)}"
    fact = fact.removeprefix(f'claim "{claim}" ')
    _say(context, rule, asked_by, f'claim "{claim}" was not mounted: {fact}', fix, claim)


def say_not_used(context: Context, path: str) -> None:
    """The TrainJob's own annotation names a directory where nothing can be mounted: it is not left out in silence."""
    problem = f'no claim was mounted at "{path}": {_why_not(path)}'
    _say(context, "undeclared-checkpoint", ("TrainJob", PATH), problem, context.policy.defaults.path, "path")


def say_no_room(context: Context, claim: str, path: str) -> None:
    """The TrainJob asks for the claim by name and leaves its place to others, where nothing can be mounted."""
    problem = f'claim "{claim}" was not mounted at "{path}": {_why_not(path)}'
    value = f"{claim}\n    {PATH}: <path>    # where nothing of the containers that train lies"
    _say(context, "undeclared-checkpoint", ("TrainJob", CLAIM), problem, value, claim)


def _why_not(path: str) -> str:
    if path[:1] != "/":
        return "it is not absolute"
    if "$" in path:
        return "a mount path is not expanded"
    return "something of the pods lies there already"


def _say(context: Context, rule: str, asked_by: tuple[str, str], problem: str, value: str, subject: str) -> None:
    """A warning at the annotation (kind and name) that asked; ``value`` is what to write there instead."""
    request = context.request
    kind, annotation = asked_by
    label = f"{kind}/{request.name if kind == 'TrainJob' else request.namespace}"
    context.findings.append(
        Judged(
            rule,
            Severity.WARN,
            Origin(label, f'metadata.annotations["{annotation}"]', f"annotation {annotation}"),
            problem,
            "without a volume under the checkpoint directory the run starts again at step 0",
            f"metadata:\n  annotations:\n    {annotation}: {value}",
            subject=subject,
        )
    )
