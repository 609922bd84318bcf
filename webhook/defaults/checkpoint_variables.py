"""A TrainJob that declares no checkpoint directory, and has a claim mounted, gets the variables that declare one.

Fills: ``TRAINJOB_NAME`` and ``CKPT_DIR=<mount>/$(TRAINJOB_NAME)`` in ``spec.trainer.env``.
Silent when: a directory is declared, or a flag of the program names one; no claim, or more than one, is mounted in the
containers that train; Trainer would drop the variables; they would bring the framework's own variables with them;
the tiered layout is asked for.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from webhook.model.default import Context, Default
from webhook.model.draft import Draft
from webhook.model.names import CLAIM
from webhook.model.pod import EMPTY, DirectoryStatus, EffectiveJob, EffectiveSet, Raw, Storage
from webhook.storage.placing import (
    MAX_ENV,
    NAME,
    NAME_FIELD,
    NAME_VARIABLE,
    sidecars_agree,
    switches_framework_on,
)

TRAINER: Final = ("spec", "trainer")
ENV: Final = (*TRAINER, "env")


def apply(draft: Draft, context: Context) -> bool:
    """See above."""
    effective, trained = context.effective, context.trained
    if effective is None or trained is None or context.tiered or not context.policy.directory.variables:
        return False
    for checkpoint in context.checkpoints:
        if checkpoint.status is not DirectoryStatus.NONE:
            return False
    receivers = [container for job, container in trained if job.receives_trainer]
    # Trainer writes the variables to container "node" alone.
    if not receivers or any(container.get("name") != "node" for container in receivers):
        return False
    trainer = draft.get(TRAINER)
    if trainer is None and switches_framework_on(context):
        return False
    path = context.path or _mounted_claim(context, trained, effective)
    if path is None or "$" in path:
        return False
    if any(checkpoint.status is not DirectoryStatus.NONE for checkpoint in context.with_program()):
        return False  # the program names one
    variable = context.policy.directory.variables[0]
    env = (trainer or EMPTY).get("env") or ()
    named = _named_already(variable, receivers, env, draft)
    if named is None:
        return False
    added: list[dict[str, Any]] = []
    if not named:
        added.append(dict(NAME_VARIABLE))
    added.append({"name": variable, "value": f"{path.rstrip('/')}/$({NAME})"})
    if len(env) + len(added) > MAX_ENV:
        return False
    if env:
        for one in added:
            draft.insert(ENV, one)
    else:
        draft.set(ENV, added)
    context.added_env = tuple(added)
    return True


def _named_already(variable: str, receivers: Sequence[Raw], env: Sequence[Raw], draft: Draft) -> bool | None:
    """Whether ``TRAINJOB_NAME`` is there and is the run's name.

    None: it is there and is something else, or the directory's variable is there with an empty value. Both stay.
    """
    found = False
    for variables in (env, *[container.get("env") or () for container in receivers]):
        for other in variables:
            name = other.get("name")
            if name == variable:
                return None
            if name == NAME:
                reference = ((other.get("valueFrom") or EMPTY).get("fieldRef") or EMPTY).get("fieldPath")
                run = draft.get(("metadata", "name"))
                if reference != NAME_FIELD and (not run or other.get("value") != run):
                    return None
                found = True
    return found


def _mounted_claim(
    context: Context, trained: Sequence[tuple[EffectiveJob, Raw]], effective: EffectiveSet
) -> str | None:
    """Where the containers that train all mount the one claim that they can write, if it is fit for checkpoints."""
    where: set[tuple[str, str, str]] = set()
    for job, container in trained:
        writable = list(_writable_claims(job, container, context, effective))
        if len(writable) != 1:
            return None
        mount, storage = writable[0]
        # A claim made from a template goes with the run, and a sub-path that is expanded may differ in every pod.
        if effective.template(mount.get("name") or "") is not None or mount.get("subPathExpr"):
            return None
        where.add((storage.claim_name or "", mount.get("mountPath") or "", mount.get("subPath") or ""))
    if len(where) != 1:
        return None
    claim, path, _ = where.pop()
    asked = ((context.request.object.get("metadata") or EMPTY).get("annotations") or EMPTY).get(CLAIM)
    if asked and asked != claim:
        return None
    path = "/" + path.strip("/") if path.startswith("/") else "/"
    return path if path != "/" and sidecars_agree(path, claim, trained) else None


def _writable_claims(
    job: EffectiveJob, container: Raw, context: Context, effective: EffectiveSet
) -> Iterator[tuple[Raw, Storage]]:
    for mount in container.get("volumeMounts") or ():
        name = mount.get("name") or ""
        volume = job.volume(name)
        if effective.template(name) is None and (volume or EMPTY).get("persistentVolumeClaim") is None:
            continue
        storage = context.storage_of(volume, mount)
        if not storage.read_only:
            yield mount, storage


DEFAULT: Final = Default("checkpoint_variables", apply)
