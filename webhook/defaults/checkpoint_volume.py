"""A TrainJob whose checkpoint directory lies on no volume gets the claim that its author, namespace or policy names.

Fills: a volume with the claim, and a mount in every container that trains: at the declared directory, or, where none is
declared, at the annotated path or the policy's.
Silent when: no claim is known; a mount lies under the directory; the directory is unknown or holds ``$(VAR)``; its path
is taken; some container that trains is not known; the claim would be denied; the release's shape has no room; the
tiered layout is asked for.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from webhook.model.default import Context, Default
from webhook.model.draft import Draft
from webhook.model.entries import place
from webhook.model.names import CLAIM, PATH
from webhook.model.pod import EMPTY, Checkpoint, DirectoryStatus
from webhook.storage.placing import (
    Trained,
    annotation_of,
    free_volume_name,
    is_free,
    known_claim,
    say_no_room,
    say_not_mounted,
    say_not_used,
    sidecars_agree,
    targets_of,
)

VOLUME: Final = "checkpoint-guard"


def apply(draft: Draft, context: Context) -> bool:
    """See above."""
    effective, trained = context.effective, context.trained
    if effective is None or trained is None or context.tiered:
        return False
    directory = None
    # What is mounted already asks for no claim: that would be a live read where the policy's is not there.
    if any(_stands(checkpoint) for checkpoint in context.checkpoints) or (known := known_claim(context)) is None:
        return False
    for checkpoint in context.with_program():
        if checkpoint.status is DirectoryStatus.NONE:
            continue
        if _stands(checkpoint):
            return False
        # A mount path is not expanded, so it would lie beside the directory or be right for this run alone.
        if "$(" in (checkpoint.written or "") or (directory is not None and checkpoint.directory != directory):
            return False
        directory = checkpoint.directory
    claim, asked_by = known
    path = directory
    annotated, kind = None, ""
    if path is None:
        annotated, kind = annotation_of(context, PATH)
        path = annotated or context.policy.defaults.path
        path = "/" + path.strip("/") if path.startswith("/") else path
        if _mounts_already(claim, trained, path if annotated else None):
            # The same claim a second time is no use: the variables alone will point below the mount that is there.
            return False
    free = is_free(path, trained, context, declared=directory is not None)
    if not free or not sidecars_agree(path, claim, trained):
        if annotated and kind == "TrainJob":
            say_not_used(context, annotated)
        elif directory is None and asked_by == ("TrainJob", CLAIM):
            say_no_room(context, claim, path)
        return False
    name = free_volume_name(trained, effective, VOLUME)
    volume = {"name": name, "persistentVolumeClaim": {"claimName": claim}}
    mount = {"name": name, "mountPath": path}
    if directory is not None:
        mount["subPath"] = directory[1:]
    targets = targets_of(trained)
    if not place(draft, context.release, targets, (volume,), (mount,)):
        return False
    if directory is None:
        context.path = path
    context.added_volumes = (volume,)
    context.added_mounts = (mount,)
    context.targets = targets
    if asked_by is not None:
        context.say_refused = partial(say_not_mounted, context, claim, asked_by)
    return True


def _stands(checkpoint: Checkpoint) -> bool:
    """Whether the directory lies on a mount, or cannot be told."""
    declared = checkpoint.status is not DirectoryStatus.NONE
    return declared and (checkpoint.mount is not None or checkpoint.directory is None)


def _mounts_already(claim: str, trained: Trained, path: str | None) -> bool:
    """Whether every container that trains can write the claim at the path, or somewhere where none is asked for."""
    for job, container in trained:
        for mount in container.get("volumeMounts") or ():
            if path is not None and "/" + (mount.get("mountPath") or "").strip("/") != path:
                continue
            source = (job.volume(mount.get("name") or "") or EMPTY).get("persistentVolumeClaim")
            if source is None or source.get("claimName") != claim:
                continue
            if not source.get("readOnly") and not mount.get("readOnly"):
                break
        else:
            return False
    return True


DEFAULT: Final = Default("checkpoint_volume", apply)
