"""What the user left out and a run needs to come back, filled in: ``default`` applies the defaults of one request.

One file is one default. They fill what is absent and never change what somebody wrote; the same request gives the same
patch, and the object after it gives an empty one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from webhook.defaults import (
    backoff_limit,
    checkpoint_variables,
    checkpoint_volume,
    grace_period,
    immutable_default,
    put_back,
    put_back_runtime,
    recover,
    restart_budget,
    restore_managers,
    tiered_layout,
    trainer_label,
)
from webhook.effective import build, build_trainer_pods
from webhook.model.budget import Reading
from webhook.model.cluster import ClusterView, Runtime
from webhook.model.default import Context, Default, Refused
from webhook.model.draft import Draft
from webhook.model.entries import find
from webhook.model.finding import Judged, Origin, as_set, broken_rule
from webhook.model.injected import (
    Added,
    AddedToJob,
    AddedToRuntime,
    read_added,
    read_added_to_runtime,
    record,
    still_there,
)
from webhook.model.names import INJECTED, MULTIKUEUE, RUNTIME_KINDS
from webhook.model.pod import EffectiveJob, EffectiveSet, Raw, Storage
from webhook.model.policy import Policy
from webhook.model.release import Release
from webhook.model.request import Request
from webhook.model.script import Written
from webhook.model.verdict import Defaulted
from webhook.programs import find_directory
from webhook.storage import classify

if TYPE_CHECKING:
    from webhook.programs import Script

TRAINJOB_CREATE: Final = (tiered_layout.DEFAULT, checkpoint_volume.DEFAULT, checkpoint_variables.DEFAULT)
TRAINJOB_PUT_BACK: Final = (put_back.DEFAULT, restore_managers.DEFAULT)
TRAINJOB_UPDATE: Final = (*TRAINJOB_PUT_BACK, recover.DEFAULT)
RUNTIME_CREATE: Final = (
    restart_budget.DEFAULT,
    trainer_label.DEFAULT,
    backoff_limit.DEFAULT,
    grace_period.DEFAULT,
)
RUNTIME_PUT_BACK: Final = (put_back_runtime.DEFAULT,)
RUNTIME_UPDATE: Final = (*RUNTIME_PUT_BACK, restart_budget.DEFAULT, immutable_default.DEFAULT)
"""In the order in which they are applied; later ones see what earlier ones did."""


def default(
    request: Request,
    cluster: ClusterView,
    policy: Policy,
    release: Release,
    refused: Refused,
    put_back_only: bool = False,
) -> Defaulted:
    """The patch for one request. ``mode`` of the answer is not set here.

    ``refused`` says whether the rules would deny a claim that is put under the directory: then it is left out.
    ``put_back_only``: nothing new is filled in, but what an UPDATE takes away of what was filled in before is put back.

    ``findings`` are what ``/mutate`` has to say, with policy's severity and never a denial. A default that raises is
    undone, named in ``broken`` and warned about, and the rest go on.
    """
    context = Context(request, cluster, policy, release)
    draft = Draft(request.object)
    broken: list[str] = []
    applied: list[str] = []
    defaults = _defaults(request, policy, put_back_only)
    if defaults is TRAINJOB_CREATE:
        try:
            _look(context)
        except Exception as error:
            broken.append("effective")
            context.findings.append(_fault(request, "effective", error))
    elif request.kind in RUNTIME_KINDS:
        context.build = _builder(request, release)
    elif request.operation == "UPDATE":
        context.recorded = read_added(request.old, request.object)
    _apply(defaults, draft, context, applied, broken)
    if defaults is TRAINJOB_CREATE and draft.patch and _withdrawn(draft, context, refused, applied, broken):
        # A claim that the pods mount already may do where the one that was asked for does not.
        _apply((checkpoint_variables.DEFAULT,), draft, context, applied, broken)
        if draft.patch:
            _withdrawn(draft, context, refused, applied, broken)
    if draft.patch or _carries_record(defaults, request):
        try:
            if _record(draft, context) and not applied:
                applied.append("record")
        except Exception as error:
            # Without a record nothing could be put back, so nothing is added either.
            draft, applied, broken = Draft(request.object), [], [*broken, "record"]
            context.findings.append(_fault(request, "record", error))
    findings = tuple([told for finding in context.findings for told in as_set(finding, policy.rules)])
    return Defaulted(tuple(draft.patch), draft.object, findings, applied=tuple(applied), broken=tuple(broken))


def _apply(
    defaults: tuple[Default, ...], draft: Draft, context: Context, applied: list[str], broken: list[str]
) -> None:
    for one in defaults:
        mark = draft.mark()
        try:
            if one.apply(draft, context):
                applied.append(one.name)
        except Exception as error:
            draft.undo(mark)
            broken.append(one.name)
            context.findings.append(_fault(context.request, one.name, error))


def _withdrawn(draft: Draft, context: Context, refused: Refused, applied: list[str], broken: list[str]) -> bool:
    """Whether what was added is taken back, since the rules would deny the claim or could not tell."""
    try:
        fault = refused(draft.object, context.path)
    except Exception as error:
        fault = ("", "")
        context.say_refused = None
        broken.append("proposal")
        context.findings.append(_fault(context.request, "proposal", error))
    if fault is None:
        return False
    if context.say_refused is not None:
        context.say_refused(*fault)
    draft.undo(0)
    applied.clear()
    context.withdraw()
    return True


def _defaults(request: Request, policy: Policy, put_back_only: bool) -> tuple[Default, ...]:
    put_back_only = put_back_only or bool((request.object.get("metadata") or {}).get("deletionTimestamp"))
    if request.operation == "CREATE" and put_back_only:
        return ()
    if request.kind == "TrainJob":
        if request.operation == "UPDATE":
            return TRAINJOB_PUT_BACK if put_back_only else TRAINJOB_UPDATE
        return TRAINJOB_CREATE
    if request.kind in RUNTIME_KINDS:
        wanted = request.kind in policy.defaults.runtimes
        if request.operation == "UPDATE":
            if put_back_only:
                return RUNTIME_PUT_BACK
            return RUNTIME_UPDATE if wanted else (*RUNTIME_PUT_BACK, immutable_default.DEFAULT)
        return RUNTIME_CREATE if wanted else ()
    return ()


def _look(context: Context) -> None:
    """The pods of a TrainJob as submitted, and its checkpoint directories."""
    request, release = context.request, context.release
    spec = request.object.get("spec") or {}
    reference = spec.get("runtimeRef") or {}
    runtime = context.cluster.runtime(
        reference.get("kind") or "ClusterTrainingRuntime", request.namespace, reference.get("name") or ""
    )
    if not isinstance(runtime, Runtime):
        return
    # Trainer below 2.3 ignores managedBy and runs an unsuspended job right here.
    context.claims_elsewhere = spec.get("managedBy") == MULTIKUEUE and (
        release.at_least(Release.V2_3) or bool(spec.get("suspend"))
    )
    built = build(request.object, runtime, release)
    effective = built.effective
    namespace, cluster, policy, elsewhere = request.namespace, context.cluster, context.policy, context.claims_elsewhere
    made = effective.template if effective.jobset_spec.get("volumeClaimPolicies") else None

    def storage_of(volume: Raw | None, mount: Raw | None) -> Storage:
        template = made(str(mount.get("name"))) if made is not None and mount is not None else None
        return classify(volume, mount, template, namespace, cluster, policy, elsewhere)

    context.runtime = runtime
    context.storage_of = storage_of
    environment, room = built.environment, Reading()

    def written_by(job: EffectiveJob, container: Raw) -> tuple[Written, Origin] | None:
        return find_directory(job, container, environment, _directory_of, room)

    # Whether something lies under a directory is asked here; what it is worth is the rules' affair.
    context.checkpoints = built.checkpoints(policy.directory.variables, None)
    # Reading costs: it is done where a directory would be declared otherwise.
    context.with_program = lambda: built.checkpoints(policy.directory.variables, written_by)
    trained: list[tuple[EffectiveJob, Raw]] = []
    for job in effective.jobs:
        if job.trains:
            containers = job.training_containers()
            if not containers:
                break
            trained.extend([(job, container) for container in containers])
    else:
        context.trained = trained or None
    context.effective = effective


def _directory_of(script: Script) -> Written | None:
    """What the program itself names counts as named. The frameworks are imported with the first one that is read."""
    from webhook.programs.frameworks import directory_of

    return directory_of(script)


def _builder(request: Request, release: Release) -> Any:
    def build(obj: Mapping[str, Any]) -> EffectiveSet:
        return build_trainer_pods(None, Runtime(request.kind, request.namespace, request.name, obj, {}), release)

    return build


def _carries_record(defaults: tuple[Default, ...], request: Request) -> bool:
    """Whether a TrainJob is created with a record: one that was written out of a cluster, or that we saw before."""
    if defaults is not TRAINJOB_CREATE:
        return False
    return INJECTED in ((request.object.get("metadata") or {}).get("annotations") or ())


def _record(draft: Draft, context: Context) -> bool:
    """What was added now, together with what the record had (a runtime gets more by UPDATE); whether it changed.

    A TrainJob that is created with a record keeps of it what it has: an UPDATE would bring the rest to pods without it.
    """
    if context.request.kind == "TrainJob":
        if context.request.operation != "CREATE":
            return False
        said = read_added(context.request.object) or Added()
        held = still_there(context.request.object, said)
        order = draft.get(("spec", "trainer", "env"))
        env = tuple(sorted((*held.env, *context.added_env), key=lambda one: find(order, one["name"]) or 0))
        now = Added(env, held.mounts, held.targets, held.volumes)
        if context.added_volumes:
            now = Added(env, context.added_mounts, context.targets, context.added_volumes)
        if now == said:
            return False
        record(draft, now)
        return True
    if context.max_restarts_added is None and not context.added_to_jobs:
        return False
    before = None
    if context.request.operation == "UPDATE":
        before = read_added_to_runtime(context.request.old, context.request.object)
    jobs: dict[str, AddedToJob] = dict(before.jobs) if before is not None else {}
    jobs.update(context.added_to_jobs)
    budget = context.max_restarts_added
    if budget is None and before is not None:
        budget = before.max_restarts
    record(draft, AddedToRuntime(jobs, budget))
    return True


def _fault(request: Request, what: str, error: Exception) -> Judged:
    """A fault of ours. The exception's text may hold what the user wrote, so only its type is told."""
    return broken_rule(
        f"{request.kind}/{request.name}",
        what,
        f'default "{what}" failed on this object with {type(error).__name__} and was left out',
        "what the guard fills in may be missing, so the run may not come back",
        what,
    )
