"""A TrainJob that declares a path, with ``checkpoint-guard.io/layout: tiered``, gets a durable and a fast directory.

Fills: the claim, mounted at ``<path>/durable`` with the run's name as its sub-path, so that each run sees a directory
of its own; an emptyDir of the policy's size (or a generic ephemeral volume of its class) at ``<path>/fast``; the
variables ``TRAINJOB_NAME``, ``CKPT_DIR`` and ``CKPT_FAST_DIR``.
Silent when: the annotation is absent or a namespace's, and the TrainJob says otherwise; the durable directory is
mounted already. Where the TrainJob itself asks and the layout cannot be made, a warning says why, and nothing is added.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Final

from webhook.model.cluster import Gap
from webhook.model.default import Context, Default
from webhook.model.draft import Draft
from webhook.model.entries import find, place
from webhook.model.finding import Judged, Origin, Severity
from webhook.model.names import CLAIM, LAYOUT, PATH, TIERED
from webhook.model.pod import EMPTY, DirectoryStatus, Raw
from webhook.model.policy import NO_VARIABLE
from webhook.storage.placing import (
    MAX_ENV,
    NAME,
    NAME_FIELD,
    NAME_VARIABLE,
    Trained,
    annotation_of,
    free_volume_name,
    is_free,
    known_claim,
    say_not_mounted,
    sidecars_agree,
    switches_framework_on,
    targets_of,
)

FAST: Final = "CKPT_FAST_DIR"
DURABLE_VOLUME: Final = "checkpoint-guard"
FAST_VOLUME: Final = "checkpoint-guard-fast"
TRAINER: Final = ("spec", "trainer")
ENV: Final = (*TRAINER, "env")


def apply(draft: Draft, context: Context) -> bool:
    """See above."""
    layout, asked_by = annotation_of(context, LAYOUT)
    if layout is None:
        return False
    if layout != TIERED:
        if asked_by == "TrainJob":
            _say(context, LAYOUT, f'"{layout}" is no layout', f"{LAYOUT}: {TIERED}")
        return False
    context.tiered = True
    if context.effective is None:
        return False  # the runtime is unknown, which is said elsewhere
    path, _ = annotation_of(context, PATH)
    path = (path or context.policy.defaults.path).rstrip("/")
    durable, fast = f"{path}/durable", f"{path}/fast"
    try:
        if _is_there(draft, context, durable):
            return False
        _make(draft, context, durable, fast)
    except _NotMade as why:
        if asked_by == "TrainJob" and not why.refused:
            _say(context, LAYOUT, why.fact, why.fix)
    return bool(context.targets)


class _NotMade(Exception):  # noqa: N818 - a state
    """Why the layout cannot be made, and the text that changes it. ``refused``: the TrainJob is refused for it, which
    says the same."""

    def __init__(self, fact: str, fix: str, refused: bool = False) -> None:
        super().__init__(fact)
        self.fact = fact
        self.fix = fix
        self.refused = refused


def _is_there(draft: Draft, context: Context, durable: str) -> bool:
    """Whether the durable directory is mounted already. Raises _NotMade where something else is declared."""
    trained = context.trained
    if trained is None:
        raise _NotMade("which container trains is not known", "name: node    # of the container that trains")
    if not context.policy.directory.variables:
        raise _NotMade("the policy has no variable that declares a directory", NO_VARIABLE)
    receivers = [container for job, container in trained if job.receives_trainer]
    if not receivers or any(container.get("name") != "node" for container in receivers):
        raise _NotMade(
            'spec.trainer reaches no container "node" of the runtime, so no variable can be given',
            "trainer.kubeflow.org/trainjob-ancestor-step: trainer    # on the job of the runtime that trains",
        )
    if draft.get(TRAINER) is None and switches_framework_on(context):
        raise _NotMade("spec.trainer is absent, so no variable can be given", "spec:\n  trainer: {}")
    for checkpoint in context.checkpoints:
        if checkpoint.status is DirectoryStatus.NONE:
            continue
        directory = checkpoint.directory
        if directory is not None and (directory == durable or directory.startswith(durable + "/")):
            if checkpoint.mount is not None and _covers(checkpoint.mount, durable):
                return True
            continue
        where = checkpoint.directory_origin()
        what = checkpoint.variable or checkpoint.flag or "a flag"
        shown = directory or checkpoint.written or "something that only the pod knows"
        raise _NotMade(
            f'{what} is "{shown}" already ({where.object} {where.short})',
            f"{what}: {durable}    # or leave it out, and annotation {LAYOUT} with it",
        )
    return False


def _covers(mount: Raw, durable: str) -> bool:
    return ("/" + str(mount.get("mountPath") or "").strip("/")) == durable


def _make(draft: Draft, context: Context, durable: str, fast: str) -> None:
    """Write it into the draft. Raises _NotMade."""
    effective, trained = context.effective, context.trained
    assert effective is not None and trained is not None  # noqa: S101, PT018 - the caller has looked
    known = known_claim(context)
    if known is None:
        there = None if context.claims_elsewhere else _policys_claim(context)
        fix = f"{CLAIM}: <a claim that every training pod can write>"
        raise _NotMade("no claim is known to put it on", fix, there is Gap.ABSENT)
    claim, asked_by = known
    free = is_free(durable, trained, context, declared=False) and is_free(fast, trained, context, declared=False)
    if not free or not sidecars_agree(durable, claim, trained):
        raise _NotMade(
            f'"{durable}" or "{fast}" cannot be mounted: it is taken, relative, or hides what the image needs',
            f"{PATH}: /ckpts",
        )
    sub_path = _sub_path(draft, trained)
    if sub_path is None:
        raise _NotMade(
            f'variable "{NAME}" is set to something else', f"{NAME}: <leave it out: it becomes the run's name>"
        )
    volume = {
        "name": free_volume_name(trained, effective, DURABLE_VOLUME),
        "persistentVolumeClaim": {"claimName": claim},
    }
    mount = {"name": volume["name"], "mountPath": durable, **sub_path}
    variables = _variables(draft, context, durable, fast, named="subPathExpr" in sub_path)
    if len(draft.get(ENV) or ()) + len(variables) > MAX_ENV:
        raise _NotMade(f"spec.trainer.env has no room for {len(variables)} more variables", "# leave some out")
    volumes, mounts = [volume], [mount]
    if any(variable["name"] == FAST for variable in variables):
        name = free_volume_name(trained, effective, FAST_VOLUME)
        volumes.append(_fast_volume(name, context))
        mounts.append({"name": name, "mountPath": fast})
    targets = targets_of(trained)
    if not place(draft, context.release, targets, volumes, mounts):
        raise _NotMade(
            f"spec.{context.release.override_field} has no room for it", "# merge entries that go to the same job"
        )
    if draft.get(ENV):
        for variable in variables:
            draft.insert(ENV, variable)
    elif variables:
        draft.set(ENV, list(variables))
    context.added_env = tuple(variables)
    context.added_volumes, context.added_mounts = tuple(volumes), tuple(mounts)
    context.targets = targets
    if asked_by is not None:
        context.say_refused = partial(say_not_mounted, context, claim, asked_by)
    elif annotation_of(context, LAYOUT)[1] == "TrainJob":
        context.say_refused = partial(_say_not_fit, context, claim)


def _say_not_fit(context: Context, claim: str, rule: str, fact: str) -> None:
    _say(context, LAYOUT, f'claim "{claim}" is not fit for it: {fact}', f"{CLAIM}: <a claim that every pod can write>")


def _policys_claim(context: Context) -> object:
    """The policy's own claim, where the namespace is known to name none: what the rule looks at, too."""
    if isinstance(context.cluster.namespace(context.request.namespace), Gap):
        return Gap.UNKNOWN
    name = context.policy.defaults.claim_name
    return context.cluster.claim(context.request.namespace, name) if name else Gap.ABSENT


def _sub_path(draft: Draft, trained: Trained) -> dict[str, str] | None:
    """How each run gets its own directory: by the variable where every container that trains has it or will have it.

    Trainer gives variables to container ``node`` of the labelled job alone (under MPI: to the launcher), so elsewhere
    the name itself has to stand there. None where neither is known.
    """
    run = draft.get(("metadata", "name"))
    reached = True
    for job, container in trained:
        at = find(container.get("env"), NAME)
        if at is None:
            here = job.receives_trainer and container.get("name") == "node"
        else:
            here = _is_name(container["env"][at], run)
        reached = reached and here
    if reached:
        return {"subPathExpr": f"$({NAME})"}
    return {"subPath": run} if run else None


def _is_name(variable: Raw, run: Any) -> bool:
    reference = ((variable.get("valueFrom") or EMPTY).get("fieldRef") or EMPTY).get("fieldPath")
    return reference == NAME_FIELD or bool(run and variable.get("value") == run)


def _variables(draft: Draft, context: Context, durable: str, fast: str, *, named: bool) -> list[dict[str, Any]]:
    """Those that no container that receives them has; what somebody wrote stays as it is."""
    there: dict[str, Raw] = {}
    for job, container in context.trained or ():
        if job.receives_trainer:
            there.update({variable.get("name") or "": variable for variable in container.get("env") or ()})
    there.update({variable.get("name") or "": variable for variable in draft.get(ENV) or ()})
    out: list[dict[str, Any]] = []
    if named and NAME not in there:
        out.append(dict(NAME_VARIABLE))
    if not any(variable in there for variable in context.policy.directory.variables):
        out.append({"name": context.policy.directory.variables[0], "value": durable})
    if FAST not in there:
        out.append({"name": FAST, "value": fast})
    return out


def _fast_volume(name: str, context: Context) -> dict[str, Any]:
    tier = context.policy.tiers.fast
    if tier.storage_class_name is None:
        return {"name": name, "emptyDir": {"sizeLimit": tier.size_limit}}
    spec = {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": tier.size_limit}},
        "storageClassName": tier.storage_class_name,
    }
    return {"name": name, "ephemeral": {"volumeClaimTemplate": {"spec": spec}}}


def _say(context: Context, annotation: str, fact: str, fix: str) -> None:
    """The TrainJob itself asks for the layout, so it is not left out in silence."""
    context.findings.append(
        Judged(
            "undeclared-checkpoint",
            Severity.WARN,
            Origin(
                f"TrainJob/{context.request.name}",
                f'metadata.annotations["{annotation}"]',
                f"annotation {annotation}",
            ),
            f'layout "{TIERED}" was not made: {fact}',
            "without the durable directory the run starts again at step 0",
            fix,
            subject=annotation,
        )
    )


DEFAULT: Final = Default("tiered_layout", apply)
