"""Where a training container keeps its checkpoints, and what lies under that directory.

A directory is *declared* by the first of the policy's variables that the container's environment sets, *inferred* from
a framework's flag where none does. Under it lies the volume of the longest mount that is a prefix of it by whole
components, ``/ckpt`` and ``/ckpt/`` alike; without a mount it is the container's own file system.

A directory that one training container declares is looked for in all of them: an MPI launcher's variable does not reach
the workers' environment, and both write. A native sidecar (init container with ``restartPolicy: Always``) has a file
system of its own: it cannot lend the trainer a mount. It counts as one more container to look at where it mounts the
same directory from another volume, at least as deep as the trainer does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from msgspec.structs import replace

from webhook.effective.expansion import Value, evaluate, expand, references
from webhook.effective.flags import find_flag
from webhook.effective.launch import EnvironmentOf, environment_of
from webhook.model.addresses import OBJECT_STORES, as_path, scheme_of
from webhook.model.finding import Origin
from webhook.model.path import components
from webhook.model.pod import (
    Checkpoint,
    DirectoryStatus,
    EffectiveJob,
    EffectiveSet,
    Raw,
    Storage,
    StorageKind,
)
from webhook.model.script import Written

Classify = Callable[[EffectiveJob, Raw, Raw | None, Raw | None], Storage]
"""(job, container, mount, volume) -> what the volume is worth."""
WrittenBy = Callable[[EffectiveJob, Raw], tuple[Written, Origin] | None]
"""(job, container) -> the directory that the container's program writes to, and where the user wrote that."""

UNJUDGED: Final = Storage(StorageKind.UNKNOWN, "nobody has asked yet")
"""Stands for the storage of a directory that is known, until somebody asks what it is worth."""
_NONE: Final = Storage(StorageKind.NONE, "no checkpoint directory is declared")
_UNRESOLVED: Final = Storage(StorageKind.UNKNOWN, "the checkpoint directory is not known before the pod runs")
_ADDRESS: Final = Storage(StorageKind.UNKNOWN, "the checkpoint directory is an address, not a directory of the pod")
_OBJECT_STORE: Final = Storage(StorageKind.OBJECT_STORE, "the checkpoint directory is an address of an object store")
_RELATIVE: Final = Storage(
    StorageKind.UNKNOWN, "the checkpoint directory is relative to the image's own working directory"
)
WORKING_DIR: Final = "<workingDir of the image>"
"""Stands before a relative directory whose beginning only the image knows."""
_DECLARED: Final = DirectoryStatus.DECLARED
_INFERRED: Final = DirectoryStatus.INFERRED
_UNEXPANDED: Final = DirectoryStatus.UNEXPANDED


def judge_checkpoints(located: tuple[Checkpoint, ...], classify: Classify) -> tuple[Checkpoint, ...]:
    """What was located, with the storage under each directory that is known, for which ``classify`` is asked once."""
    return tuple(
        [
            replace(
                checkpoint, storage=classify(checkpoint.job, checkpoint.container, checkpoint.mount, checkpoint.volume)
            )
            if checkpoint.storage is UNJUDGED
            else checkpoint
            for checkpoint in located
        ]
    )


def locate_checkpoints(
    effective: EffectiveSet,
    variables: Sequence[str],
    written_by: WrittenBy | None = None,
    environment: EnvironmentOf | None = None,
) -> tuple[Checkpoint, ...]:
    """The checkpoint directory of every training container, sidecars that mount it after it.

    ``variables`` are the names that declare one, first match wins. A volume that JobSet makes from a claim template has
    a mount and no volume. What lies under a directory that is known is ``UNJUDGED``. ``written_by`` reads the program
    where neither a variable nor a flag says anything. ``environment`` has the variables, where others share them.
    """
    environment = environment or environment_of(effective)
    found: list[Checkpoint] = []
    declares: Checkpoint | None = None
    silent = False
    for job in effective.jobs:
        if job.trains:
            for container in job.training_containers():
                checkpoint = _checkpoint(effective, job, container, variables, written_by, environment)
                found.append(checkpoint)
                if checkpoint.status is DirectoryStatus.NONE:
                    silent = True
                elif declares is None and checkpoint.directory is not None:
                    declares = checkpoint
    if silent and declares is not None:
        found = [
            _elsewhere(declares, checkpoint, effective) if checkpoint.status is DirectoryStatus.NONE else checkpoint
            for checkpoint in found
        ]
    for checkpoint in tuple(found):
        if checkpoint.directory is not None and checkpoint.job.pod.get("initContainers"):
            found.extend(_sidecars(checkpoint, effective))
    return tuple(found)


def declaring(container: Raw, variables: Sequence[str]) -> Raw | None:
    """The variable by which a container declares its directory: of the first name that is set, the last entry."""
    env = container.get("env") or ()
    for name in variables:
        found: Raw | None = None
        for variable in env:
            if variable.get("name") == name and (variable.get("value") or variable.get("valueFrom") is not None):
                found = variable
        if found is not None:
            return found
    return None


def _checkpoint(
    effective: EffectiveSet,
    job: EffectiveJob,
    container: Raw,
    variables: Sequence[str],
    written_by: WrittenBy | None,
    environment: EnvironmentOf,
) -> Checkpoint:
    declared = declaring(container, variables)
    if declared is None:
        return _inferred(effective, job, container, variables, written_by)
    name, written = declared["name"], declared.get("value")
    value = Value(written) if written and "$" not in written else environment(job, container)[name]
    status = _UNEXPANDED if value.missing else _DECLARED
    if value.unknown:
        return Checkpoint(
            job, container, DirectoryStatus.UNRESOLVED, _UNRESOLVED, None, written, name, per_pod=value.per_pod
        )
    text = value.text
    if "://" in text:
        local = _local_path(text)
        if local is None:
            told = None if written_by is None else written_by(job, container)
            same = told[0] if told is not None and told[0].directory == text else None
            storage = _of_address(text, "" if same is None else same.local, container)
            return Checkpoint(
                job, container, status, storage, text, written, name, None, None, value.per_pod, value.missing
            )
        text = local
    directory = absolute(text, container)
    if directory is None:
        return Checkpoint(job, container, DirectoryStatus.UNRESOLVED, _RELATIVE, None, written, name)
    mount = mount_under(container, directory)
    volume, per_pod, sub_path, unset = _behind(mount, value.per_pod, effective, job, container)
    return Checkpoint(
        job,
        container,
        status,
        UNJUDGED,
        directory,
        written,
        name,
        None,
        None,
        per_pod,
        value.missing,
        mount,
        volume,
        sub_path,
        unset,
    )


def _inferred(
    effective: EffectiveSet,
    job: EffectiveJob,
    container: Raw,
    variables: Sequence[str],
    written_by: WrittenBy | None,
) -> Checkpoint:
    """The directory that a flag or the program names.

    Without one, ``envFrom`` may still define the variable: it is unresolved.
    """
    for field in ("args", "command"):
        words = container.get(field) or ()
        flag = find_flag(words)
        if flag is None:
            continue
        value = Value(flag.value)
        if "$" in flag.value:
            value = _expanded(flag.value, effective, job, container)
        if value.unknown or value.missing or "://" in value.text:
            continue
        origin = _word_origin(job, container, field, words[flag.index])
        return infer(effective, job, container, flag.value, flag.name, origin, value)
    told = None if written_by is None else written_by(job, container)
    if told is not None:
        written, origin = told
        if "://" in written.directory:
            storage = _of_address(written.directory, written.local, container)
            where = written.directory
            return Checkpoint(job, container, _INFERRED, storage, where, where, None, written.name, origin)
        return infer(effective, job, container, written.directory, written.name, origin)
    for source in container.get("envFrom") or ():
        prefix = source.get("prefix") or ""
        for name in variables:
            if name.startswith(prefix):
                return Checkpoint(
                    job,
                    container,
                    DirectoryStatus.UNRESOLVED,
                    _UNRESOLVED,
                    origin=_env_from_origin(job, str(container.get("name") or "")),
                )
    return Checkpoint(job, container, DirectoryStatus.NONE, _NONE)


def _of_address(address: str, local: str, container: Raw) -> Storage:
    """What an address is worth. ``local`` is the writer that takes it for a path, which no volume lies under."""
    if not local:
        return _OBJECT_STORE if scheme_of(address) in OBJECT_STORES else _ADDRESS
    path = absolute(as_path(address), container)
    if path is not None and mount_under(container, path) is not None:
        return _ADDRESS
    return Storage(StorageKind.EPHEMERAL, f'{local} takes "{address}" for a path in the pod')


def infer(
    effective: EffectiveSet,
    job: EffectiveJob,
    container: Raw,
    written: str,
    name: str,
    origin: Origin,
    value: Value | None = None,
) -> Checkpoint:
    """An inferred directory: what it amounts to is a warning at most, and what lies under it is ``UNJUDGED``.

    ``value`` is what the text ``written`` comes to in the container; ``name`` is the flag or argument that holds it.
    """
    value = value or Value(written)
    directory = absolute(value.text, container)
    if directory is None and not container.get("volumeMounts") and value.text[:1] != "~":
        # Wherever the image starts its programs, nothing else is there.
        directory = f"{WORKING_DIR}/{'/'.join(components(value.text))}"
    if directory is None:
        return Checkpoint(job, container, _INFERRED, _RELATIVE, None, written, None, name, origin)
    mount = mount_under(container, directory)
    volume, per_pod, sub_path, unset = _behind(mount, value.per_pod, effective, job, container)
    return Checkpoint(
        job,
        container,
        _INFERRED,
        UNJUDGED,
        directory,
        written,
        None,
        name,
        origin,
        per_pod,
        (),
        mount,
        volume,
        sub_path,
        unset,
    )


def _elsewhere(declares: Checkpoint, silent: Checkpoint, effective: EffectiveSet) -> Checkpoint:
    """The directory of another training container, looked for in one that declares none."""
    job, container = silent.job, silent.container
    directory = declares.directory or ""
    if "://" in directory:
        return silent
    return _looked_for(declares, job, container, mount_under(container, directory), effective)


def _looked_for(
    declares: Checkpoint,
    job: EffectiveJob,
    container: Raw,
    mount: Raw | None,
    effective: EffectiveSet,
) -> Checkpoint:
    """A directory that another container declares, in this container."""
    volume, per_pod, sub_path, unset = _behind(mount, declares.per_pod, effective, job, container)
    return Checkpoint(
        job,
        container,
        declares.status,
        UNJUDGED,
        declares.directory,
        declares.written,
        declares.variable,
        declares.flag,
        declares.directory_origin(),
        per_pod,
        declares.missing,
        mount,
        volume,
        sub_path,
        unset,
    )


def _sidecars(checkpoint: Checkpoint, effective: EffectiveSet) -> list[Checkpoint]:
    found: list[Checkpoint] = []
    job = checkpoint.job
    directory = checkpoint.directory or ""
    own = checkpoint.mount
    depth = 0 if own is None else len(components(own.get("mountPath") or ""))
    for sidecar in job.pod.get("initContainers") or ():
        if sidecar.get("restartPolicy") != "Always":
            continue
        mount = mount_under(sidecar, directory)
        if mount is None or len(components(mount.get("mountPath") or "")) < max(depth, 1):
            continue
        if own is not None and mount.get("name") == own.get("name"):
            continue
        found.append(_looked_for(checkpoint, job, sidecar, mount, effective))
    return found


def _behind(
    mount: Raw | None, per_pod: tuple[str, ...], effective: EffectiveSet, job: EffectiveJob, container: Raw
) -> tuple[Raw | None, tuple[str, ...], str | None, tuple[str, ...]]:
    """The volume of the mount, what changes with every pod with the sub-path included, the sub-path itself, and the
    references in it that stay unset."""
    if mount is None:
        return None, per_pod, None, ()
    volume = job.volume(mount.get("name") or "")
    pattern = mount.get("subPathExpr")
    if not pattern:
        return volume, per_pod, None, ()
    others = bool(container.get("envFrom"))
    named = references(pattern)
    known = evaluate(container.get("env") or (), effective, job, others, named)
    value = expand(pattern, known, others)
    text = None if value.unknown or value.missing else value.text
    # Unlike elsewhere, the kubelet asks for a text here; what a variable itself refers to is another matter.
    empty = [name for name in named if name in known and not known[name].text and not known[name].unknown]
    unset = [name for name in value.missing if name in named] + ([] if "$$" in pattern else empty)
    return volume, tuple(dict.fromkeys((*per_pod, *value.per_pod))), text, tuple(dict.fromkeys(unset))


def _expanded(text: str, effective: EffectiveSet, job: EffectiveJob, container: Raw) -> Value:
    """A text with the container's variables put in."""
    others = bool(container.get("envFrom"))
    return expand(text, evaluate(container.get("env") or (), effective, job, others, references(text)), others)


def mount_under(container: Raw, directory: str) -> Raw | None:
    """The mount that an absolute, normalised directory lies on; of two at one path the later, which covers it."""
    best: Raw | None = None
    longest = 0
    for mount in container.get("volumeMounts") or ():
        path = mount.get("mountPath") or ""
        if path[-1:] == "/" or "//" in path or "/." in path or path[:1] != "/":
            path = "/" + "/".join(components(path))
        size = len(path)
        if size >= longest and (
            directory == path or (directory.startswith(path) and (size == 1 or directory[size] == "/"))
        ):
            best = mount
            longest = size
    return best


def absolute(text: str, container: Raw) -> str | None:
    """The directory, absolute and normalised; None where it is relative and the image alone says to what."""
    if text[:1] != "/":
        if text[:1] == "~":
            return None
        base = container.get("workingDir") or ""
        if base[:1] != "/":
            return None
        text = f"{base}/{text}"
    if text[-1:] == "/" or "//" in text or "/." in text:
        return "/" + "/".join(components(text))
    return text


def _local_path(address: str) -> str | None:
    """The path of a ``file:`` address of this machine (RFC 8089; the scheme in any case); None of another address."""
    scheme, _, rest = address.partition("://")
    if scheme.lower() != "file":
        return None
    host, slash, path = rest.partition("/")
    return f"/{path}" if slash and host.lower() in ("", "localhost") else None


def _word_origin(job: EffectiveJob, container: Raw, field: str, word: str) -> Origin:
    """The item of ``command`` or ``args``, in the text that has it."""
    name = str(container.get("name") or "")
    for layer in reversed(job.layers):
        for kind in ("containers", "initContainers"):
            for index, raw in enumerate(layer.pod.get(kind) or ()):
                if raw.get("name") == name and word in (raw.get(field) or ()):
                    at = f"{field}[{list(raw[field]).index(word)}]"
                    return layer.at(at if layer.is_trainer else f"{kind}[{index}].{at}", short=at)
    return job.container_field_origin(name, field)


def _env_from_origin(job: EffectiveJob, name: str) -> Origin:
    return job.container_field_origin(name, "envFrom")
