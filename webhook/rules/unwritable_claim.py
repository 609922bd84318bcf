"""The pod runs as non-root, without fsGroup or with one that nobody applies, on a claim whose root belongs to root.

Symptom: the first save fails with "Permission denied".
Fix: set fsGroup, so that the volume's root belongs to a group of the pod. Where the driver leaves fsGroup alone (its
    CSIDriver's fsGroupPolicy; by default every ReadWriteMany volume), hand the directory over in an init container.
Bad:
    securityContext:
      runAsUser: 1000
Good:
    securityContext:
      runAsUser: 1000
      fsGroup: 1000
Reads: securityContext of pod and container, init containers that run as root on the same volume, the claim's driver.
Silent when: the user is root or the image's own; fsGroup is set, and applied or nobody knows (its CSIDriver is not
known); supplementalGroups are set beside it; the driver opens its root directory to others; the volume is of a file
server (nfs, cephfs, ...), whose export decides ownership and where fsGroup is not applied.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from webhook.model.cluster import Claim, CsiDriver, PersistentVolume, StorageClass
from webhook.model.finding import Finding, Severity
from webhook.model.override import override_yaml
from webhook.model.paste import to_yaml
from webhook.model.pod import EMPTY, Checkpoint, Raw, Storage, StorageKind
from webhook.model.release import Release
from webhook.model.rule import Rule
from webhook.model.sign import AS_USER
from webhook.model.subject import Subject
from webhook.storage import Use, applies_group, claim_uses, driver_of

# They mount with a mode or an owner of their own, so that others than root can write.
_OPEN = frozenset({"efs.csi.aws.com", "file.csi.azure.com", "kubernetes.io/azure-file", "csi.juicefs.com"})
# Ownership is the server's or the node's affair; the kubelet does not apply fsGroup there.
_SERVERS = frozenset({"nfs", "cephfs", "glusterfs", "azureFile", "quobyte", "hostPath", "local"})


def check(subject: Subject) -> Iterator[Finding]:
    if not any(map(_may_be, subject.checkpoints)):
        return
    for use in claim_uses(subject):
        checkpoint = use.checkpoint
        if checkpoint is None or not isinstance(use.claim, Claim):
            continue
        pod = checkpoint.job.pod.get("securityContext") or EMPTY
        group = pod.get("fsGroup")
        if not _root_owned(use.storage) or (group is not None and not _is_useless(subject, use, use.claim, pod)):
            continue
        user = _non_root(pod, checkpoint.container.get("securityContext") or EMPTY)
        if user is None or _made_writable(checkpoint):
            continue
        name = checkpoint.container_name
        yield Finding(
            at=checkpoint.job.pod_origin("securityContext"),
            problem=f'container "{name}" runs as {user} without fsGroup on claim "{use.claim.name}"'
            if group is None
            else f'fsGroup {group} does nothing on claim "{use.claim.name}", and container "{name}" runs as {user}: '
            f'driver "{driver_of(use.storage)}" applies none',
            fix=partial(_fix, subject, use, checkpoint, pod),
            at_most=use.at_most,
            job=use.job,
            container=use.container,
            subject=use.claim.name,
        )


def _may_be(checkpoint: Checkpoint) -> bool:
    """Whether more has to be looked at than one directory alone: most pods run as root, or where others may write."""
    context = checkpoint.container.get("securityContext") or EMPTY
    return (
        isinstance(checkpoint.storage.claim, Claim)
        and _root_owned(checkpoint.storage)
        and _non_root(checkpoint.job.pod.get("securityContext") or EMPTY, context) is not None
    )


def _is_useless(subject: Subject, use: Use, claim: Claim, pod: Raw) -> bool:
    """Whether the pod's ``fsGroup`` surely changes no owner on that claim, and is all that the pod has for it.

    Its number is still one of the pod's groups: who adds others knows which of them the volume belongs to.
    """
    driver = driver_of(use.storage)
    if pod.get("supplementalGroups") or not driver or not isinstance(subject.cluster.csi_driver(driver), CsiDriver):
        return False
    return not applies_group(use.storage, claim.access_modes, subject.cluster)


def _root_owned(storage: Storage) -> bool:
    """A new file system belongs to root with mode 0755, unless its driver is known to do otherwise."""
    if storage.kind in (StorageKind.READ_ONLY, StorageKind.NODE_LOCAL, StorageKind.OBJECT_STORE):
        return False
    if isinstance(storage.volume, PersistentVolume):
        return storage.volume.source not in _SERVERS and storage.volume.driver not in _OPEN
    return not (isinstance(storage.storage_class, StorageClass) and storage.storage_class.provisioner in _OPEN)


def _non_root(pod: Raw, container: Raw) -> str | None:
    """The user in words, where it is certain that it is not root; the container's context goes first."""
    user = container.get("runAsUser") if container.get("runAsUser") is not None else pod.get("runAsUser")
    if user is not None:
        return None if user == 0 else f"user {user}"
    named = container.get("runAsNonRoot")
    return "non-root" if (pod.get("runAsNonRoot") if named is None else named) else None


def _made_writable(checkpoint: Checkpoint) -> bool:
    """An init container that is root on the same volume is there to change its owner."""
    volume = (checkpoint.mount or EMPTY).get("name")
    for container in checkpoint.job.pod.get("initContainers") or ():
        if (container.get("securityContext") or EMPTY).get("runAsUser") == 0 and any(
            mount.get("name") == volume for mount in container.get("volumeMounts") or ()
        ):
            return True
    return False


def _fix(subject: Subject, use: Use, checkpoint: Checkpoint, pod: Raw) -> str:
    own = checkpoint.container.get("securityContext") or EMPTY
    groups = (
        pod.get("fsGroup"),
        own.get("runAsGroup"),
        pod.get("runAsGroup"),
        own.get("runAsUser"),
        pod.get("runAsUser"),
    )
    group = next((one for one in groups if one), 1000)
    if isinstance(use.claim, Claim) and not applies_group(use.storage, use.claim.access_modes, subject.cluster):
        return _owned_by_hand(subject, use.claim, checkpoint, group)
    context = {"securityContext": {"fsGroup": group, "fsGroupChangePolicy": "OnRootMismatch"}}
    if subject.is_trainjob and subject.release.at_least(Release.V2_2):
        return override_yaml(subject.release, subject.spec, checkpoint.job.name, context)
    # Overrides of Trainer 2.0 and 2.1 cannot carry a pod's securityContext.
    return f'{to_yaml(context)}\n# in the pod template of job "{checkpoint.job.name}" of the runtime'


def _owned_by_hand(subject: Subject, claim: Claim, checkpoint: Checkpoint, group: Any) -> str:
    """The kubelet leaves the files of such a volume alone: somebody who is root has to hand the directory over."""
    mount = checkpoint.mount or EMPTY
    path = str(mount.get("mountPath") or "/")
    helper = {
        "name": "own-checkpoints",
        "image": "busybox:1.37",
        "command": ["sh", "-c", f"chgrp {group} {path} && chmod g+rwxs {path}"],
        "securityContext": {"runAsUser": 0, "runAsNonRoot": False},
        "volumeMounts": [{key: mount[key] for key in ("name", "mountPath", "subPath") if mount.get(key)}],
    }
    where = checkpoint.job.job_origin.object
    whom = "" if where == subject.label else f"\n# to ask of whoever owns {where}"
    return (
        f'{to_yaml({"initContainers": [helper]})}\n# in the pods of job "{checkpoint.job.name}" of {where}{whom}'
        f"\n# or ask whoever runs the storage of claim {claim.name} to let group {group} write its root directory;"
        "\n# its driver leaves a pod's fsGroup alone"
    )


RULE = Rule(
    id="unwritable-claim",
    severity=Severity.WARN,
    why="the first checkpoint fails with Permission denied, so there is none to resume from",
    check=check,
    on_runtime=Severity.WARN,
    when=AS_USER,
)
