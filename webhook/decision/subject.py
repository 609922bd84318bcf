"""What the rules see of a request: its runtime, the pods that Trainer will build, the directories in them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from webhook.effective import (
    Built,
    InReach,
    Maps,
    build,
    infer,
    judge_checkpoints,
    launches_of,
    locate_checkpoints,
    mounted_files,
)
from webhook.effective.checkpoint import UNJUDGED, Classify, mount_under
from webhook.model.budget import Reading
from webhook.model.cluster import ClusterView, Gap, Runtime
from webhook.model.fields import as_stored
from webhook.model.files import Files, Source
from webhook.model.finding import Origin
from webhook.model.names import MULTIKUEUE, REQUIRE
from webhook.model.pod import Checkpoint, DirectoryStatus, EffectiveJob, EffectiveSet, Raw, Storage, StorageKind
from webhook.model.policy import Policy
from webhook.model.release import Release
from webhook.model.request import Request
from webhook.model.script import Program, ProgramFact, Written
from webhook.model.subject import Subject
from webhook.programs import fact_of, find_directory, find_programs, is_concealed, origin_of, remarks_on
from webhook.programs.cache import FilesOf
from webhook.programs.rules import program_rule
from webhook.storage import cannot_do, classify, staged

if TYPE_CHECKING:
    from webhook.programs import Script

_STRAYS: Final = "directory-not-used"


def build_subject(
    request: Request,
    cluster: ClusterView,
    policy: Policy,
    release: Release,
    given: Runtime | Gap | None = None,
    elsewhere: bool | None = None,
    source: Source | None = None,
) -> Subject:
    """What the rules see of a well-formed request: its runtime, its pods, its checkpoint directories.

    ``given`` is a TrainJob's runtime where it is known already, and ``elsewhere`` whether its claims are on a worker
    cluster. ``source`` is a checkout of what the image holds.
    """
    written: Mapping[str, Any] | None = None
    if not request.uid:
        # No API server has seen it: it is judged as one would store it.
        written = request.object
        stored = as_stored(written, request.kind, release.value)
        request = request if stored is written else replace(request, object=stored)
    obj = request.object
    spec = obj.get("spec") or {}
    trainjob: Mapping[str, Any] | None = None
    runtime: Runtime | Gap
    if request.kind == "TrainJob":
        trainjob = obj
        runtime = given or _runtime_of(request, spec, cluster, release)
        if elsewhere is None:
            elsewhere = _is_elsewhere(spec, release)
    else:
        runtime = Runtime(request.kind, request.namespace, request.name, obj, {})
        elsewhere = False
    built: Built | None = None
    checkpoints: tuple[Checkpoint, ...] = ()
    files_of: FilesOf | None = None
    if isinstance(runtime, Runtime):
        built = build(trainjob, runtime, release).within_limits(policy.directory.variables)
        environment = built.environment
        room = Reading()

        files_of = _files_of(request, built.effective, cluster, policy, source)
        # In admission nothing is told that stands in a ConfigMap alone, so no directory is either.
        told_of = None if request.uid else files_of

        def written_by(job: EffectiveJob, container: Raw) -> tuple[Written, Origin] | None:
            return find_directory(job, container, environment, _directory_of, room, told_of)

        variables = policy.directory.variables
        if told_of is None:
            located = built.checkpoints(variables, written_by)
        else:
            located = locate_checkpoints(built.effective, variables, written_by, environment)
        checkpoints = judge_checkpoints(located, _classifier(request, built.effective, cluster, policy, elsewhere))

    told: list[tuple[Program, ...]] = []

    def programs() -> tuple[Program, ...]:
        if not told:
            annotations = _annotations(obj, runtime)
            told.append(() if built is None else _programs(built, checkpoints, policy, annotations, files_of))
        return told[0]

    before: list[Subject] = []

    def old() -> Subject | None:
        if request.operation != "UPDATE" or request.old is None:
            return None
        if not before:
            then = Request(
                "CREATE",
                request.kind,
                request.namespace,
                request.name,
                request.old,
                None,
                request.user,
                request.groups,
                request.dry_run,
                request.uid,
            )
            # The old object is judged by the runtime of the new one, which cannot refer to another, and by the claims
            # that the new one is judged by: what a resumed run of MultiKueue lacks it lacked before.
            known = runtime if trainjob is not None else None
            before.append(build_subject(then, cluster, policy, release, known, elsewhere, source))
        return before[0]

    return Subject(
        request,
        release,
        policy,
        cluster,
        runtime,
        None if built is None else built.effective,
        checkpoints,
        _required(request, cluster),
        elsewhere,
        old,
        programs,
        {},
        {} if built is None else built.known,
        written,
    )


def build_draft(
    request: Request, cluster: ClusterView, policy: Policy, release: Release, path: str | None
) -> Subject | None:
    """What the rules about claims see of a new TrainJob as the defaults would have it; no program is read for them.

    ``path`` is a mount of theirs that stands for the directory in containers without one. None without a runtime.
    """
    spec = request.object.get("spec") or {}
    runtime = _runtime_of(request, spec, cluster, release)
    if not isinstance(runtime, Runtime):
        return None
    elsewhere = _is_elsewhere(spec, release)
    built = build(request.object, runtime, release)
    located = built.checkpoints(policy.directory.variables, None)
    if path is not None:
        located = tuple([_at(one, path) if one.status is DirectoryStatus.NONE else one for one in located])
    checkpoints = judge_checkpoints(located, _classifier(request, built.effective, cluster, policy, elsewhere))
    return Subject(
        request,
        release,
        policy,
        cluster,
        runtime,
        built.effective,
        checkpoints,
        claims_elsewhere=elsewhere,
        memo={},
        kept=built.known,
    )


def _at(checkpoint: Checkpoint, path: str) -> Checkpoint:
    mount = mount_under(checkpoint.container, path)
    volume = None if mount is None else checkpoint.job.volume(str(mount.get("name") or ""))
    return replace(
        checkpoint, status=DirectoryStatus.DECLARED, storage=UNJUDGED, directory=path, mount=mount, volume=volume
    )


def _is_elsewhere(spec: Raw, release: Release) -> bool:
    """Whether its claims are on a worker cluster.

    Trainer below 2.3 ignores managedBy and runs an unsuspended job right here.
    """
    return spec.get("managedBy") == MULTIKUEUE and (release.at_least(Release.V2_3) or bool(spec.get("suspend")))


def _runtime_of(request: Request, spec: Raw, cluster: ClusterView, release: Release) -> Runtime | Gap:
    """The runtime that Trainer reconciles from: 2.3 keeps its own copy of it from the first reconciliation on."""
    if request.operation == "UPDATE" and release.at_least(Release.V2_3):
        kept = cluster.snapshot(request.namespace, request.name)
        if isinstance(kept, Runtime):
            return kept
    ref = spec.get("runtimeRef") or {}
    return cluster.runtime(ref.get("kind") or "ClusterTrainingRuntime", request.namespace, ref.get("name") or "")


def _required(request: Request, cluster: ClusterView) -> bool:
    if request.kind != "TrainJob":
        return False
    namespace = cluster.namespace(request.namespace)
    return not isinstance(namespace, Gap) and namespace.labels.get(REQUIRE) == "true"


def _directory_of(script: Script) -> Written | None:
    """The directory that a program writes to. The frameworks are imported with the first program that is read."""
    from webhook.programs.frameworks import directory_of

    return directory_of(script)


def _classifier(
    request: Request, effective: EffectiveSet, cluster: ClusterView, policy: Policy, elsewhere: bool
) -> Classify:
    """What lies under a directory of these pods, by what the cluster has now."""
    template = effective.template if effective.jobset_spec.get("volumeClaimPolicies") else None
    run = effective.trainjob or ""
    if effective.generate_name:
        run += "<generated>"
    # A ClusterTrainingRuntime alone has no namespace to look claims up in.
    claims_elsewhere = elsewhere or request.kind == "ClusterTrainingRuntime"

    def classify_here(job: EffectiveJob, container: Raw, mount: Raw | None, volume: Raw | None) -> Storage:
        if volume is not None and (uploads := staged(container, mount, volume)) is not None:
            return uploads
        made = template(str(mount.get("name"))) if template is not None and mount is not None else None
        return classify(volume, mount, made, request.namespace, cluster, policy, claims_elsewhere, run)

    return classify_here


def _programs(
    built: Built,
    checkpoints: tuple[Checkpoint, ...],
    policy: Policy,
    annotations: tuple[Mapping[str, Any], ...],
    files_of: FilesOf | None,
) -> tuple[Program, ...]:
    launches = launches_of(built.effective, checkpoints, policy, annotations, _cannot(checkpoints))
    if files_of is not None:
        return find_programs(built.effective, built.environment, launches, files_of)
    key = ("programs", policy.directory.variables, launches.told)
    found: tuple[Program, ...] | None = built.known.get(key)
    if found is None:
        found = built.known[key] = find_programs(built.effective, built.environment, launches)
    return found


def _cannot(checkpoints: tuple[Checkpoint, ...]) -> tuple[str, ...]:
    """What the storage under the first declared directory cannot do."""
    for checkpoint in checkpoints:
        if checkpoint.directory is not None and checkpoint.status is not DirectoryStatus.INFERRED:
            return cannot_do(checkpoint.storage) if checkpoint.storage.kind is StorageKind.OBJECT_STORE else ()
    return ()


def _files_of(
    request: Request, effective: EffectiveSet, cluster: ClusterView, policy: Policy, source: Source | None
) -> FilesOf | None:
    """What gives the files in reach of each container; None where its pods mount none, as nearly all do."""
    mounts = bool(request.namespace) and _mounts_config_maps(effective)
    if request.uid and policy.programs.config_maps == "off":
        mounts = False
    if not mounts and source is None:
        return None
    namespace = request.namespace
    maps = Maps(lambda name: cluster.config_map(namespace, name), lambda: cluster.why_unknown("ConfigMap"))
    known: dict[int, Files | None] = {}

    def files_of(job: EffectiveJob, container: Raw, command: Sequence[Any], args: Sequence[Any]) -> Files | None:
        if id(container) not in known:
            mounted = mounted_files(job, container, command, args, maps) if mounts else None
            working_dir = str(container.get("workingDir") or "")
            known[id(container)] = mounted if source is None else InReach(mounted, source, working_dir)
        return known[id(container)]

    return files_of


def _mounts_config_maps(effective: EffectiveSet) -> bool:
    """Whether a pod that trains has a volume that may hold texts of a ConfigMap."""
    found: bool | None = effective.memo.get("config maps")
    if found is None:
        found = effective.memo["config maps"] = any(
            volume.get("configMap") is not None or volume.get("projected") is not None
            for job in effective.jobs
            if job.trains
            for volume in job.pod.get("volumes") or ()
        )
    return found


def _annotations(obj: Raw, runtime: Runtime | Gap) -> tuple[Mapping[str, Any], ...]:
    """Those of the object, which count first, and of its runtime."""
    own = (obj.get("metadata") or {}).get("annotations") or {}
    if not isinstance(runtime, Runtime) or runtime.raw is obj:
        return (own,)
    return own, (runtime.raw.get("metadata") or {}).get("annotations") or {}


_IMAGE: Final = ProgramFact("in-image", reason="the image's own entrypoint")
_NONE: Final = ProgramFact("")
_NOT_SAID: Final = ProgramFact("in-image")


def program_fact(subject: Subject) -> ProgramFact | None:
    """How much of the program was read that the first training container runs; None where there is none yet."""
    effective = subject.effective
    if effective is None:
        return None
    try:
        for program in subject.programs():
            return _placed(fact_of(program), program.container)
    except Exception:
        return _NOT_SAID  # it is said as broken-rule
    known: ProgramFact | None = effective.memo.get("fact")
    if known is None:
        known = effective.memo["fact"] = _without_text(effective) or _NONE
    # A runtime alone leaves the program to the TrainJob.
    return None if known is _NONE or (known is _IMAGE and not subject.is_trainjob) else known


def _without_text(effective: EffectiveSet) -> ProgramFact | None:
    """The fact where no program can be read; None where no container trains."""
    for job in effective.jobs:
        for container in job.training_containers():
            words = container.get("command") or ()
            if words:
                first = words[0] if isinstance(words[0], str) and len(words[0]) < 512 else None
                return _placed(ProgramFact("in-image", first), container)
            return _IMAGE
    return None


def _placed(fact: ProgramFact, container: Raw) -> ProgramFact:
    """The same, but that a program on a volume is in no image."""
    if fact.state != "in-image" or not fact.path or not fact.path.startswith("/"):
        return fact
    mount = mount_under(container, fact.path)
    if mount is None:
        return fact
    return ProgramFact("not-found", fact.path, None, f'volume "{mount.get("name")}" is not read')


def with_strays(subject: Subject) -> Subject:
    """The subject with the directories that programs write to beside the declared one: those rules judge them too."""
    effective = subject.effective
    if effective is None or subject.policy.rules.get(_STRAYS) == "off":
        return subject
    found: list[Checkpoint] = []
    for program in subject.programs():
        if program.remarks.get(_STRAYS) == ():
            continue
        job, container = program.job, program.container
        for remark in remarks_on(program, _STRAYS, program_rule(_STRAYS).look):
            if subject.request.uid and is_concealed(program, remark):
                continue
            origin = origin_of(job, container, remark.place, program.files)
            found.append(infer(effective, job, container, remark.directory, "the program", origin))
    if not found:
        return subject
    classify_here = _classifier(subject.request, effective, subject.cluster, subject.policy, subject.claims_elsewhere)
    return replace(subject, checkpoints=(*subject.checkpoints, *judge_checkpoints(tuple(found), classify_here)))
