"""Text to paste: a durable claim where something else lies under the directory, and a claim to create."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final

from webhook.model.cluster import Claim, Gap
from webhook.model.finding import Fix
from webhook.model.names import CLAIM as CLAIM_ANNOTATION
from webhook.model.names import DEFAULT_CLAIM
from webhook.model.override import override_yaml, overrides_yaml
from webhook.model.paste import to_yaml
from webhook.model.pod import EMPTY, Checkpoint, EffectiveJob, Raw, StorageKind
from webhook.model.size import format_at_least
from webhook.model.subject import Subject
from webhook.storage.claims import MANY, judge_claim
from webhook.storage.offers import DURABLE, NewClaim, claim_offered, fits, plan_claim
from webhook.storage.sources import CLAIM, source_of
from webhook.storage.uses import Use


def modes_needed(subject: Subject) -> str:
    """The access mode that the training pods need of the claim under their directory."""
    pods = subject.effective.training_pods if subject.effective is not None else 1
    return MANY if pods > 1 else "ReadWriteOnce"


def claim_instead(subject: Subject, checkpoint: Checkpoint, remark: str = "") -> Fix:
    """YAML that puts a claim under the directory, for the place where the user has to write it; ``remark`` ends it.

    A volume of the reviewed object itself is written anew. A claim of the runtime is exchanged by a merge, since it
    would else stay in the pod and hold it to its node. Any other volume of the runtime is left alone where a
    TrainJob is reviewed, since a merge would give it two sources: a volume of another name takes over its mount.
    """
    mode = modes_needed(subject)
    if subject.effective is not None and _of_template(subject, checkpoint):
        # JobSet refuses a template that nothing mounts, so the template itself has to change.
        asked = plan_claim(subject, mode)
        below = f"\n{asked.class_remark}" if asked.class_remark else ""
        return (
            f"{to_yaml({**asked.more, 'accessModes': [mode]})}{below}\n"
            f'# both in the volumeClaimPolicies template "{checkpoint.mount_name}" of {subject.effective.runtime_label}'
            f"{remark}"
        )
    beside = _claim_beside(subject, checkpoint, mode)
    known = _known_claim(subject, mode) if beside is None else beside.storage.claim_name
    claim = known or _new_name(subject)
    new = None if known else plan_claim(subject, mode)
    return partial(_text_of_claim, subject, checkpoint, mode, beside, known, claim, new, remark)


def _text_of_claim(
    subject: Subject,
    checkpoint: Checkpoint,
    mode: str,
    beside: Checkpoint | None,
    known: str | None,
    claim: str,
    new: NewClaim | None,
    remark: str,
) -> str:
    source = {CLAIM: {"claimName": claim}}
    text = ""
    if subject.is_trainjob and not _is_own(subject, checkpoint):
        text = _override(subject, checkpoint, source, None if beside is None else beside.mount)
    if not text and source_of(checkpoint.volume or EMPTY) in _CONTENT:
        text = _beside_content(checkpoint, source)
    text = text or to_yaml({"volumes": [{"name": (checkpoint.volume or EMPTY).get("name") or "ckpt", **source}]})
    if new is None:
        return text + remark
    if not subject.namespace or subject.claims_elsewhere:
        where = "on each worker cluster" if subject.claims_elsewhere else "in the namespace of each TrainJob"
        return f"{text}\n# {claim}: a claim {where}, accessModes [{mode}], on storage that every node can reach{remark}"
    create = new_claim(subject.namespace, claim, [mode], new.size, new.more)
    return f"{create}{new.remarks}\n---\n{text}{remark}"


_CONTENT: Final = frozenset(("image", "configMap", "secret", "projected", "downwardAPI", "gitRepo"))
"""Sources that hold what somebody put there for the program to read: a claim in their place would take it away."""


def _beside_content(checkpoint: Checkpoint, source: Raw) -> str:
    """YAML for the pod that leaves the volume where it is and mounts the claim at the directory, or, where that is all
    of the volume, in its mount's place."""
    name, mount = free_name(checkpoint.job), checkpoint.mount or EMPTY
    path, directory = str(mount.get("mountPath") or "/"), _literal_part(checkpoint.directory or "/")
    below = posixpath.relpath(directory, path)
    inside = not below.startswith(".")
    put = {"name": name, "mountPath": directory, "subPath": below} if inside else {"name": name, "mountPath": path}
    kind = next(
        (kind for kind, _, one in checkpoint.job.containers() if one.get("name") == checkpoint.container_name),
        "containers",
    )
    text = to_yaml(
        {
            "volumes": [{"name": name, **source}],
            kind: [{"name": checkpoint.container_name, "volumeMounts": [put]}],
        }
    )
    if inside:
        return text
    return f'{text}\n# mount volume "{checkpoint.mount_name}", which cannot be written, at another path'


_TOGETHER: Final = 16
"""Jobs that one text tells of: each finding has the text for its own and those beside it."""


def _override(subject: Subject, checkpoint: Checkpoint, source: Raw, like: Raw | None) -> str:
    """YAML for the TrainJob that puts the claim under the directory, in all jobs that have it on storage of this kind:
    a manager has one entry (a job, in 2.0), so two texts could not be pasted as they are. ``""`` where that cannot be.

    Of many jobs a text has those that stand beside this one: else the texts together would grow with their square.
    """
    peers, place = _peers(subject)[checkpoint.storage.kind]
    first = place.get(id(checkpoint), 0) // _TOGETHER * _TOGETHER
    pods: dict[str, Raw] = {}
    replaced = ""
    for peer in peers[first : first + _TOGETHER]:
        job = peer.job
        if job.name in pods or _is_own(subject, peer):
            continue
        if (job is checkpoint.job and peer is not checkpoint) or _of_template(subject, peer):
            continue
        if _is_claim_of_runtime(subject, peer):
            pods[job.name] = {"volumes": [{"name": peer.mount_name, **source}]}
            continue
        name = free_name(job)
        part = _pod_over(subject, peer, name, [{"name": name, **source}], like if peer.mount is None else None)
        if part is not None:
            pods[job.name] = part[0]
            replaced = replaced or part[1]
    if checkpoint.job.name not in pods:
        return ""
    text = _instead_of(replaced) + overrides_yaml(subject.release, subject.spec, pods)
    if len(peers) <= _TOGETHER:
        return text
    return f"{text}\n# the same for the others of {len(peers)} jobs, in the same entry of the override"


def _peers(subject: Subject) -> Mapping[StorageKind, tuple[list[Checkpoint], dict[int, int]]]:
    """The directories on storage of each kind, in order, and the place of each by its identity."""
    found: dict[StorageKind, tuple[list[Checkpoint], dict[int, int]]] | None = subject.memo.get("peers")
    if found is None:
        found = subject.memo["peers"] = {}
        for checkpoint in subject.checkpoints:
            peers, place = found.setdefault(checkpoint.storage.kind, ([], {}))
            place[id(checkpoint)] = len(peers)
            peers.append(checkpoint)
    return found


def override_at(subject: Subject, checkpoint: Checkpoint, name: str, volumes: Sequence[Raw]) -> str:
    """YAML for the TrainJob that puts volume ``name`` under the directory; ``""`` where an override cannot."""
    part = _pod_over(subject, checkpoint, name, volumes)
    if part is None:
        return ""
    return _instead_of(part[1]) + override_yaml(subject.release, subject.spec, checkpoint.job.name, part[0])


def _instead_of(volume: str) -> str:
    return f'# instead of the mount of volume "{volume}"\n' if volume else ""


def _pod_over(
    subject: Subject, checkpoint: Checkpoint, name: str, volumes: Sequence[Raw], like: Raw | None = None
) -> tuple[Raw, str] | None:
    """The PodSpec fields that put volume ``name`` under the directory, and a volume of the TrainJob's own whose mount
    they take the place of; None where an override cannot.

    Other containers of the pod that share the old volume with this one get the new one as well.
    ``like`` is another container's mount of the same claim, to be repeated where this one has none.
    """
    old = checkpoint.mount_name
    over = _mount_over(subject, checkpoint, name, like)
    if over is None:
        return None
    pod: dict[str, Any] = {"volumes": list(volumes)} if volumes else {}
    replaced = ""
    for kind, _, container in checkpoint.job.containers():
        own = container.get("name") == checkpoint.container_name
        put = over if own else _moved(container, old, name)
        if put is not None:
            pod.setdefault(kind, []).append({"name": container.get("name"), "volumeMounts": [put]})
            replaced = replaced or _own_mount(subject, checkpoint.job, kind, str(container.get("name")), put)
    return pod, replaced


def _moved(container: Raw, old: str, new: str) -> Raw | None:
    """The container's mount of volume ``old`` as one of ``new``; None where it has none or there is nothing to move."""
    for mount in container.get("volumeMounts") or () if old not in ("", new) else ():
        if mount.get("name") == old:
            return {"name": new, "mountPath": mount.get("mountPath")}
    return None


def _mount_over(subject: Subject, checkpoint: Checkpoint, name: str, like: Raw | None) -> Raw | None:
    """The mount of volume ``name`` under the directory, for an override; None where an override cannot.

    An override's mount is merged with the runtime's at the same path and cannot take ``readOnly`` back, since Trainer
    drops what is false: over such a mount the directory itself is mounted.
    """
    default = subject.policy.defaults.path
    mount, directory = checkpoint.mount, _literal_part(checkpoint.directory or default)
    # Of a directory that begins where the image starts nothing can be mounted; the program has to name this one.
    directory = default if directory == "/" and checkpoint.directory != "/" else directory
    if mount is None and like is not None:
        return {**like, "name": name}
    if mount is None:
        return {"name": name, "mountPath": directory, "subPath": directory.strip("/")}
    if not mount.get("readOnly"):
        return {"name": name, "mountPath": mount.get("mountPath")}
    path = str(mount.get("mountPath") or "/")
    below = posixpath.relpath(directory, path)
    if below.startswith(".") or mount.get("subPathExpr"):
        return None
    above = str(mount.get("subPath") or "") if name == mount.get("name") else ""
    return {"name": name, "mountPath": directory, "subPath": posixpath.join(above, below)}


def _own_mount(subject: Subject, job: EffectiveJob, kind: str, container: str, over: Raw) -> str:
    """The volume of a mount of the TrainJob's own that cannot stand beside ``over``: in one override a volume is
    mounted once, and a path is taken once."""
    mounts = (
        mount
        for layer in job.layers
        if layer.object == subject.label
        for own in layer.pod.get(kind) or ()
        if own.get("name") == container
        for mount in own.get("volumeMounts") or ()
    )
    clashing = (
        mount for mount in mounts if mount.get("name") == over["name"] or mount.get("mountPath") == over["mountPath"]
    )
    return next((str(mount.get("name") or "") for mount in clashing), "")


def named_claim(subject: Subject, use: Use, claim: str) -> str:
    """YAML that puts another claim into the volumes of ``use``, for the place where the user has to write it.

    A claim of the runtime is exchanged by an override of the same name: only ``claimName`` differs, and is merged. An
    inline volume of the runtime would keep its source, so the runtime has to change.
    """
    source = {CLAIM: {"claimName": claim}}
    if not subject.is_trainjob or use.origin().object == subject.label:
        kept = (
            {CLAIM: {"readOnly": True, **source[CLAIM]}} if (use.volume.get(CLAIM) or EMPTY).get("readOnly") else source
        )
        return to_yaml({"volumes": [{"name": use.name, **kept}]})
    if any(volume.get(CLAIM) is None for _, volume in use.volumes):
        volumes = to_yaml({"volumes": [{"name": use.name, **source}]})
        return f"{volumes}\n# in {use.origin().object}: no override takes a volume away"
    pods: dict[str, dict[str, Any]] = {}
    for job, volume in use.volumes:
        pods.setdefault(job.name, {"volumes": []})["volumes"].append({"name": volume.get("name"), **source})
    return overrides_yaml(subject.release, subject.spec, pods)


def free_name(job: EffectiveJob) -> str:
    """A volume name that the pod does not have yet."""
    taken = {volume.get("name") for volume in job.pod.get("volumes") or ()}
    name = "ckpt"
    while name in taken:
        name += "-claim"
    return name


def size_of(claim: Claim) -> str:
    """The size that a claim asks for, to be asked for again."""
    return format_at_least(claim.request) if claim.request else "<size>"


def new_claim(namespace: str, name: str, modes: Sequence[str], size: str, more: Mapping[str, Any] | None = None) -> str:
    """YAML of a claim to create with ``kubectl apply``; ``more`` goes into its spec first (``storageClassName``)."""
    spec = {**(more or {}), "accessModes": list(modes), "resources": {"requests": {"storage": size}}}
    metadata = {"name": name, "namespace": namespace or "default"}
    return to_yaml({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": spec})


def _claim_beside(subject: Subject, checkpoint: Checkpoint, mode: str) -> Checkpoint | None:
    """Another training container that has this directory on a claim that would do for all: under MPI, the launcher."""
    found: dict[str | None, list[Checkpoint]] | None = subject.memo.get("claims that do")
    if found is None:
        found = subject.memo["claims that do"] = {}
        for other in subject.checkpoints:
            claim = other.storage.claim
            if isinstance(claim, Claim) and not other.storage.read_only and _would_do(claim, mode, subject):
                found.setdefault(other.directory, []).append(other)
    return next((other for other in found.get(checkpoint.directory, ()) if other is not checkpoint), None)


def _known_claim(subject: Subject, mode: str) -> str | None:
    """A claim of the namespace that would do: by annotation or policy, else one that is there."""
    if "known claim" not in subject.memo:
        subject.memo["known claim"] = _look_for_claim(subject, mode)
    known: str | None = subject.memo["known claim"]
    return known


def _look_for_claim(subject: Subject, mode: str) -> str | None:
    if not subject.namespace or subject.claims_elsewhere:
        return None
    names = [((subject.request.object.get("metadata") or {}).get("annotations") or {}).get(CLAIM_ANNOTATION)]
    namespace = subject.cluster.namespace(subject.namespace)
    if not isinstance(namespace, Gap):
        names.append(namespace.annotations.get(DEFAULT_CLAIM))
    for name in (*names, subject.policy.defaults.claim_name):
        claim = subject.cluster.claim(subject.namespace, name) if name else None
        if isinstance(claim, Claim) and _would_do(claim, mode, subject):
            return claim.name
    return claim_offered(subject, mode, subject.policy.defaults.claim_name)


def _new_name(subject: Subject) -> str:
    """The policy's name for claims where that is free, else one of the run's own."""
    name = subject.policy.defaults.claim_name
    taken = subject.namespace and isinstance(subject.cluster.claim(subject.namespace, name), Claim)
    return f"{name}-{subject.request.name.rstrip('-')}" if taken else name


def _would_do(claim: Claim, mode: str, subject: Subject) -> bool:
    return fits(claim, mode) and judge_claim(claim, subject.cluster, subject.policy).kind.value in DURABLE


def _of_template(subject: Subject, checkpoint: Checkpoint) -> bool:
    return subject.effective is not None and subject.effective.template(checkpoint.mount_name) is not None


def _is_claim_of_runtime(subject: Subject, checkpoint: Checkpoint) -> bool:
    """Whether an override of ``claimName`` is enough; what is read-only stays so in a merge."""
    held = (checkpoint.volume or EMPTY).get(CLAIM)
    if held is None or held.get("readOnly") or (checkpoint.mount or EMPTY).get("readOnly"):
        return False
    return not _is_own(subject, checkpoint)


def _is_own(subject: Subject, checkpoint: Checkpoint) -> bool:
    """Whether a claim written there stands alone: what another object writes of the volume stays in the merge."""
    if checkpoint.volume is None or checkpoint.volume_origin().object != subject.label:
        return False
    written = checkpoint.job.written_volumes(str(checkpoint.volume.get("name") or ""))
    others = [volume for owner, volume, _ in written if owner != subject.label]
    return all(source_of(volume) == CLAIM and not volume[CLAIM].get("readOnly") for volume in others)


def _literal_part(directory: str) -> str:
    """The directory up to the first component that is known to the running pod alone."""
    parts: list[str] = []
    for part in directory.strip("/").split("/"):
        if "<" in part or "$(" in part:
            break
        parts.append(part)
    return "/" + "/".join(parts)
