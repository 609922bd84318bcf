"""A TrainJob that declares no checkpoint directory, and has a claim mounted, gets the variables that declare one.

Fills: ``TRAINJOB_NAME`` and ``CKPT_DIR=<mount>/$(TRAINJOB_NAME)`` in ``spec.trainer.env``.
Silent when: a directory is declared, or a flag of the program names one; no claim, or more than one, is mounted in the
containers that train; Trainer would drop the variables; they would bring the framework's own variables with them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgspec

from webhook.model.default import Context, Default
from webhook.model.draft import Draft
from webhook.model.entries import find
from webhook.model.names import CLAIM, JOBSET_NAME_LABEL
from webhook.model.pod import EMPTY, DirectoryStatus, EffectiveJob, EffectiveSet, Raw, Storage
from webhook.storage.refusal import refusal

NAME: Final = "TRAINJOB_NAME"
ENV: Final = ("spec", "trainer", "env")
FIELD: Final = f"metadata.labels['{JOBSET_NAME_LABEL}']"
FRAMEWORKS: Final = ("torch", "jax", "xgboost", "mpi", "flux")
MAX_ENV: Final = 128
"""Most variables of ``spec.trainer.env`` (CRD of Trainer 2.2 and later)."""


def apply(draft: Draft, context: Context) -> bool:
    """See above."""
    effective = context.effective
    if effective is None or any(found.status is not DirectoryStatus.NONE for found in context.checkpoints):
        return False
    receivers = [job for job in effective.jobs if job.trains and job.receives_trainer]
    if not receivers or not all(_is_node(job) for job in receivers) or _switches_framework_on(draft, context):
        return False
    path = context.path or _mounted_claim(context, effective)
    if path is None or "$" in path:
        return False
    variables = context.policy.directory.variables
    named = _named_already(receivers, draft)
    if named is None or not variables or _is_there(variables[0], receivers, draft):
        return False
    added: list[dict[str, Any]] = []
    if not named:
        added.append({"name": NAME, "valueFrom": {"fieldRef": {"fieldPath": FIELD}}})
    added.append({"name": variables[0], "value": f"{path.rstrip('/')}/$({NAME})"})
    if len(draft.get(ENV) or ()) + len(added) > MAX_ENV:
        return False
    if draft.get(ENV[:-1]) is None:
        draft.set(ENV[:-1], {ENV[-1]: added})
    elif draft.get(ENV) is None:
        draft.set(ENV, added)
    else:
        for variable in added:
            draft.insert(ENV, variable)
    context.added = msgspec.structs.replace(context.added, env=tuple(added))
    return True


def _is_node(job: EffectiveJob) -> bool:
    """Trainer writes the variables to container "node" alone."""
    return any(container.get("name") == "node" for container in job.training_containers())


def _switches_framework_on(draft: Draft, context: Context) -> bool:
    """The mere presence of ``spec.trainer`` makes Trainer add the framework's own variables."""
    if draft.get(ENV[:-1]) is not None or context.runtime is None:
        return False
    policy = (context.runtime.raw.get("spec") or EMPTY).get("mlPolicy") or EMPTY
    return any(policy.get(framework) is not None for framework in FRAMEWORKS)


def _named_already(jobs: Sequence[EffectiveJob], draft: Draft) -> bool | None:
    """Whether ``TRAINJOB_NAME`` is there and is the run's name. None: it is something else, which stays."""
    found = False
    name = draft.get(("metadata", "name"))
    for job in jobs:
        for container in job.training_containers():
            env = container.get("env") or ()
            at = find(env, NAME)
            if at is None:
                continue
            reference = ((env[at].get("valueFrom") or EMPTY).get("fieldRef") or EMPTY).get("fieldPath")
            if reference != FIELD and (not name or env[at].get("value") != name):
                return None
            found = True
    return found


def _is_there(name: str, jobs: Sequence[EffectiveJob], draft: Draft) -> bool:
    """An empty value declares no directory, and somebody wrote it all the same."""
    return find(draft.get(ENV), name) is not None or any(
        find(container.get("env"), name) is not None for job in jobs for container in job.training_containers()
    )


def _mounted_claim(context: Context, effective: EffectiveSet) -> str | None:
    """Where the containers that train all mount the one claim that they can write, if it is fit for checkpoints."""
    where: set[tuple[str, str, str]] = set()
    for job in effective.jobs:
        for container in job.training_containers():
            writable = list(_writable_claims(job, container, context, effective))
            if len(writable) != 1:
                return None
            mount, storage = writable[0]
            # A claim made from a template goes with the run, and a sub-path that is expanded may differ in every pod.
            if effective.template(mount.get("name") or "") is not None or mount.get("subPathExpr"):
                return None
            if refusal(storage, effective.training_pods, context.cluster, context.policy) is not None:
                return None
            where.add((storage.claim_name or "", mount.get("mountPath") or "", mount.get("subPath") or ""))
    if len(where) != 1:
        return None
    claim, path, _ = where.pop()
    asked = ((context.request.object.get("metadata") or EMPTY).get("annotations") or EMPTY).get(CLAIM)
    if asked and asked != claim:
        return None
    return path if path.startswith("/") and path.strip("/") else None


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
