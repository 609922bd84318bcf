"""The two questions that Checkpoint Guard answers: what to fill in, and whether to let it in.

Read this first. Everything below it is pure: the same request, cluster and policy give the same answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, Literal

from msgspec.structs import replace

from webhook.defaults import default
from webhook.effective import Built, build, infer, judge_checkpoints, launches_of
from webhook.effective.checkpoint import Classify
from webhook.model.cluster import ClusterView, Gap, Runtime
from webhook.model.finding import Finding, Judged, Origin, Severity, as_set
from webhook.model.names import KINDS, MODE, MULTIKUEUE, REQUIRE
from webhook.model.pod import Checkpoint, EffectiveJob, EffectiveSet, Raw, Storage
from webhook.model.policy import Policy
from webhook.model.release import Release, infer_release
from webhook.model.request import MalformedObject, Request
from webhook.model.rule import Rule
from webhook.model.script import Program, Written
from webhook.model.shape import check_shape
from webhook.model.sign import signs_of
from webhook.model.subject import Subject
from webhook.model.verdict import Decision, Defaulted, Facts
from webhook.rules import RULES
from webhook.script import find_directory, find_programs, origin_of, remarks_on
from webhook.storage import claim_signs, classify

if TYPE_CHECKING:
    from webhook.script import Script

EXEMPT: Final = "exempt"
"""The mode of a request that policy exempts."""

_PUT_BACK_ONLY: Final = frozenset({"audit", "off", EXEMPT})
Check = tuple[int, Rule, Callable[[Subject], Iterator[Finding]]]
"""Place in the report, rule, its check."""
_MODES: Final = frozenset({"enforce", "warn", "audit", "off"})
_WEIGHT: Final = {Severity.DENY: 0, Severity.WARN: 1, Severity.AUDIT: 2}
# Unpacked once: over some fifty rules a decision, attribute look-ups are what costs.
_CHECKS: Final = tuple((order, rule, rule.check) for order, rule in enumerate(RULES))
_RUNTIME_CHECKS: Final = tuple(entry for entry in _CHECKS if entry[1].on_runtime is not None)
_ABOUT_PROGRAMS: Final = frozenset(rule.id for rule in RULES if rule.reads_program)
_ON_RUNTIME_PROGRAMS: Final = frozenset(entry[1].id for entry in _RUNTIME_CHECKS if entry[1].reads_program)
_OLD: Final = "oldObject"
_STRAYS: Final = "directory-not-used"
_NONE: Final[frozenset[str]] = frozenset()
_SETTING: Final = {"deny": Severity.DENY, "warn": Severity.WARN, "audit": Severity.AUDIT}


def default_object(request: Request, cluster: ClusterView, policy: Policy, release: Release | None = None) -> Defaulted:
    """What is absent and would keep the run from coming back, as an RFC 6902 patch. Never denies, never raises.

    ``release`` overrides what the cluster says of the Trainer release. In the modes ``audit`` and ``off`` and for
    exempt requests nothing is filled in; what was filled in before is still put back on UPDATE, since losing it would
    strip or wedge the run.
    """
    mode = _mode(request, cluster, policy)
    put_back_only = mode in _PUT_BACK_ONLY
    if put_back_only and request.operation == "CREATE":
        return Defaulted((), request.object, mode=mode)
    if (fault := _malformed(request)) is not None:
        return Defaulted((), request.object, _in_mode(fault, mode, policy), mode)
    try:
        done = default(request, cluster, policy, _release(request, cluster, release), put_back_only)
    except Exception as error:
        faults = _in_mode(_broken(request, "defaults", error), mode, policy)
        return Defaulted((), request.object, faults, mode, broken=("defaults",))
    return Defaulted(done.patch, done.object, _noted(done.findings, mode), mode, done.applied, done.broken)


def review_object(request: Request, cluster: ClusterView, policy: Policy, release: Release | None = None) -> Decision:
    """The verdict on the object as it will be stored (after ``default_object``). Never raises.

    ``release`` overrides what the cluster says of the Trainer release.
    """
    mode = _mode(request, cluster, policy)
    if mode in ("off", EXEMPT) or request.kind not in KINDS:
        return Decision("allow", mode=mode, policy_hash=policy.hash)
    metadata = request.object.get("metadata")
    if isinstance(metadata, dict) and metadata.get("deletionTimestamp"):
        return Decision("allow", mode=mode, policy_hash=policy.hash)
    if (fault := _malformed(request)) is not None:
        faults = _in_mode(fault, mode, policy)
        verdict: Literal["allow", "warn"] = "warn" if faults and faults[0].severity is Severity.WARN else "allow"
        return Decision(verdict, faults, mode=mode, policy_hash=policy.hash)
    served = _release(request, cluster, release)
    broken: list[str] = []
    judged: list[tuple[int, int, Judged]] = []
    spoke: set[str] = set()
    subject: Subject | None = None
    try:
        subject = build_subject(request, cluster, policy, served)
    except Exception as error:
        broken.append("effective")
        judged.extend(_failed(request, "effective", error, -1, mode, policy))
    if subject is not None:
        try:
            subject = _with_strays(subject)
            signs = signs_of(subject) | claim_signs(subject)
            asked, keepable = _asked(subject.is_trainjob, signs, _about_programs(subject), _silent(subject))
        except Exception as error:
            asked, keepable = _asked(subject.is_trainjob, ~0, _NONE, _NONE)
            broken.append("script")
            judged.extend(_failed(request, "script", error, -1, mode, policy))
        for entry in asked:
            try:
                for finding in entry[2](subject):
                    order, rule, _ = entry
                    spoke.add(rule.id)
                    severity = _severity(rule, finding, subject, mode)
                    if severity is not None:
                        judged.append((_WEIGHT[severity], order, _judge(rule, finding, severity)))
            except Exception as error:
                order, rule, _ = entry
                broken.append(rule.id)
                judged.extend(_failed(request, rule.id, error, order, mode, policy))
        if not broken and "silent" not in subject.kept:
            # The first time counts: a later one has asked no more of them.
            subject.kept["silent"] = keepable - spoke
    if len(judged) > 1:
        judged.sort(key=_position)
    findings = tuple([entry[2] for entry in judged])
    heaviest = findings[0].severity if findings else Severity.AUDIT
    return Decision(
        "deny" if heaviest is Severity.DENY else "warn" if heaviest is Severity.WARN else "allow",
        findings,
        _facts(subject),
        mode,
        _runtime_label(subject),
        served.value,
        policy.hash,
        tuple(broken),
    )


def _directory_of(script: Script) -> Written | None:
    """The directory that a program writes to. The frameworks are imported with the first program that is read."""
    from webhook.frameworks import directory_of

    return directory_of(script)


def _about_programs(subject: Subject) -> frozenset[str]:
    """Which rules about programs have to be asked: all, unless each has read them before; then those that spoke.

    Most jobs start a program of their image, of which nothing can be read, or the one of their runtime.
    """
    spoke: frozenset[str] = frozenset()
    for program in subject.programs():
        remarks = program.remarks
        mine = remarks.spoke.get(subject.is_trainjob)
        if mine is None:
            every = _ABOUT_PROGRAMS if subject.is_trainjob else _ON_RUNTIME_PROGRAMS
            if not remarks.keys() >= every:
                return every
            mine = remarks.spoke[subject.is_trainjob] = frozenset(rule for rule in every if remarks[rule])
        spoke = spoke | mine if spoke else mine
    return spoke


@lru_cache(maxsize=512)
def _asked(
    trainjob: bool, signs: int, about_programs: frozenset[str], silent: frozenset[str]
) -> tuple[tuple[Check, ...], frozenset[str]]:
    """The rules to ask, in order: those whose sign is there, of those that read programs the ones named, no silent.

    With the ids of those among them whose silence can be kept (``Rule.reads_pods_only``).
    """
    asked = tuple(
        entry
        for entry in (_CHECKS if trainjob else _RUNTIME_CHECKS)
        if (not entry[1].when or entry[1].when & signs)
        and (not entry[1].reads_program or entry[1].id in about_programs)
        and entry[1].id not in silent
    )
    return asked, frozenset(rule.id for _, rule, _ in asked if rule.reads_pods_only)


def _silent(subject: Subject) -> frozenset[str]:
    """The rules that look at the pods alone and had nothing to say of these before; see ``Rule.reads_pods_only``."""
    return subject.kept.get("silent", _NONE)  # type: ignore[no-any-return]


def build_subject(
    request: Request, cluster: ClusterView, policy: Policy, release: Release, given: Runtime | Gap | None = None
) -> Subject:
    """What the rules see of a well-formed request: its runtime, its pods, its checkpoint directories.

    ``given`` is a TrainJob's runtime where it is known already.
    """
    obj = request.object
    spec = obj.get("spec") or {}
    trainjob: Mapping[str, Any] | None = None
    runtime: Runtime | Gap
    elsewhere = False
    if request.kind == "TrainJob":
        trainjob = obj
        runtime = given or _runtime_of(request, spec, cluster, release)
        # Trainer below 2.3 ignores managedBy and runs an unsuspended job right here.
        elsewhere = spec.get("managedBy") == MULTIKUEUE and (
            release.at_least(Release.V2_3) or bool(spec.get("suspend"))
        )
    else:
        runtime = Runtime(request.kind, request.namespace, request.name, obj, {})
    built: Built | None = None
    checkpoints: tuple[Checkpoint, ...] = ()
    if isinstance(runtime, Runtime):
        built = build(trainjob, runtime, release)
        environment = built.environment

        def written_by(job: EffectiveJob, container: Raw) -> tuple[Written, Origin] | None:
            return find_directory(job, container, environment, _directory_of)

        located = built.checkpoints(policy.directory.variables, written_by)
        checkpoints = judge_checkpoints(located, _classifier(request, built.effective, cluster, policy, elsewhere))

    told: list[tuple[Program, ...]] = []

    def programs() -> tuple[Program, ...]:
        if not told:
            told.append(() if built is None else _programs(built, checkpoints, policy, _annotations(obj, runtime)))
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
            # The old object is judged by the runtime of the new one, which cannot refer to another.
            before.append(build_subject(then, cluster, policy, release, runtime if trainjob is not None else None))
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
    )


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
        made = template(str(mount.get("name"))) if template is not None and mount is not None else None
        return classify(volume, mount, made, request.namespace, cluster, policy, claims_elsewhere, run)

    return classify_here


def _with_strays(subject: Subject) -> Subject:
    """The subject with the directories that programs write to beside the declared one: those rules judge them too."""
    effective = subject.effective
    if effective is None or subject.policy.rules.get(_STRAYS) == "off":
        return subject
    found: list[Checkpoint] = []
    for program in subject.programs():
        if program.remarks.get(_STRAYS) == ():
            continue
        from webhook.rules.directory_not_used import look

        job, container = program.job, program.container
        for remark in remarks_on(program, _STRAYS, look):
            origin = origin_of(job, container, remark.place)
            found.append(infer(effective, job, container, remark.directory, "the program", origin))
    if not found:
        return subject
    classify_here = _classifier(subject.request, effective, subject.cluster, subject.policy, subject.claims_elsewhere)
    return replace(subject, checkpoints=(*subject.checkpoints, *judge_checkpoints(tuple(found), classify_here)))


def _programs(
    built: Built, checkpoints: tuple[Checkpoint, ...], policy: Policy, annotations: tuple[Mapping[str, Any], ...]
) -> tuple[Program, ...]:
    launches = launches_of(built.effective, checkpoints, policy, annotations)
    key = ("programs", policy.directory.variables, launches.told)
    found: tuple[Program, ...] | None = built.known.get(key)
    if found is None:
        found = built.known[key] = find_programs(built.effective, built.environment, launches)
    return found


def _annotations(obj: Raw, runtime: Runtime | Gap) -> tuple[Mapping[str, Any], ...]:
    """Those of the object, which count first, and of its runtime."""
    own = (obj.get("metadata") or {}).get("annotations") or {}
    if not isinstance(runtime, Runtime) or runtime.raw is obj:
        return (own,)
    return own, (runtime.raw.get("metadata") or {}).get("annotations") or {}


def _runtime_of(request: Request, spec: Raw, cluster: ClusterView, release: Release) -> Runtime | Gap:
    """The runtime that Trainer reconciles from: 2.3 keeps its own copy of it from the first reconciliation on."""
    if request.operation == "UPDATE" and release.at_least(Release.V2_3):
        kept = cluster.snapshot(request.namespace, request.name)
        if isinstance(kept, Runtime):
            return kept
    ref = spec.get("runtimeRef") or {}
    return cluster.runtime(ref.get("kind") or "ClusterTrainingRuntime", request.namespace, ref.get("name") or "")


def _severity(rule: Rule, finding: Finding, subject: Subject, mode: str) -> Severity | None:
    """What a finding weighs; None where policy turned its rule off.

    Policy's word replaces the rule's own severity, a finding's caps come after it, and on UPDATE nothing is denied that
    the old object had too or that a controller writes.
    """
    setting = subject.policy.rules.get(rule.id)
    if setting == "off":
        return None
    severity = _SETTING[setting] if setting is not None else finding.raised or rule.severity
    if finding.required:
        severity = Severity.DENY
    if finding.at_most is not None:
        severity = _lighter(severity, finding.at_most)
    if rule.on_runtime is not None and not subject.is_trainjob:
        severity = _lighter(severity, rule.on_runtime)
    if (
        severity is Severity.DENY
        and subject.request.operation == "UPDATE"
        and (subject.request.by_controller or _had_before(rule, finding, subject))
    ):
        severity = Severity.WARN
    if mode == "audit":
        return Severity.AUDIT
    if mode == "warn" and severity is Severity.DENY:
        return Severity.WARN
    return severity


def _had_before(rule: Rule, finding: Finding, subject: Subject) -> bool:
    before = subject.old()
    if before is None:
        return False
    known: set[tuple[str, str, str]] | None = before.memo.get(rule.id)
    if known is None:
        known = {(other.job, other.container, other.subject) for other in rule.check(before)}
        before.memo[rule.id] = known
    return (finding.job, finding.container, finding.subject) in known


def _lighter(one: Severity, other: Severity) -> Severity:
    return one if _WEIGHT[one] >= _WEIGHT[other] else other


def _in_mode(finding: Judged, mode: str, policy: Policy) -> tuple[Judged, ...]:
    """A finding that no rule yields weighs what policy and mode let it weigh; nothing where policy turned it off."""
    return _noted(as_set(finding, policy.rules), mode)


def _noted(findings: tuple[Judged, ...], mode: str) -> tuple[Judged, ...]:
    """Findings that policy has weighed, in a mode that may only note them, or as they are."""
    if mode not in _PUT_BACK_ONLY:
        return findings
    return tuple([replace(one, severity=Severity.AUDIT) for one in findings])


def _failed(
    request: Request, what: str, error: Exception, order: int, mode: str, policy: Policy
) -> list[tuple[int, int, Judged]]:
    return [(_WEIGHT[one.severity], order, one) for one in _in_mode(_broken(request, what, error), mode, policy)]


def _judge(rule: Rule, finding: Finding, severity: Severity) -> Judged:
    return Judged(
        rule.id,
        severity,
        finding.at,
        finding.problem,
        finding.why or rule.why,
        finding.fix,
        finding.job,
        finding.container,
        finding.subject,
        finding.private,
    )


def _position(entry: tuple[int, int, Judged]) -> tuple[int, int]:
    return entry[0], entry[1]


def _mode(request: Request, cluster: ClusterView, policy: Policy) -> str:
    exempt = policy.exempt
    if request.namespace in exempt.namespaces or request.user in exempt.users:
        return EXEMPT
    if exempt.groups and not set(exempt.groups).isdisjoint(request.groups):
        return EXEMPT
    if exempt.runtimes and _names_exempt_runtime(request, exempt.runtimes):
        return EXEMPT
    if request.namespace:
        namespace = cluster.namespace(request.namespace)
        if not isinstance(namespace, Gap) and (label := namespace.labels.get(MODE)) in _MODES:
            return label
    return policy.modes.default


def _names_exempt_runtime(request: Request, names: tuple[str, ...]) -> bool:
    if request.kind != "TrainJob":
        return request.name in names
    spec = request.object.get("spec")
    ref = spec.get("runtimeRef") if isinstance(spec, Mapping) else None
    return isinstance(ref, Mapping) and ref.get("name") in names


def _required(request: Request, cluster: ClusterView) -> bool:
    if request.kind != "TrainJob":
        return False
    namespace = cluster.namespace(request.namespace)
    return not isinstance(namespace, Gap) and namespace.labels.get(REQUIRE) == "true"


def _release(request: Request, cluster: ClusterView, release: Release | None) -> Release:
    return release or cluster.release() or infer_release(request.object.get("spec"))


def _malformed(request: Request) -> Judged | None:
    within = ""
    try:
        check_shape(request.kind, request.object)
        if request.operation == "UPDATE":
            within = _OLD
            if request.old is None:
                raise MalformedObject("", "is null in an UPDATE")
            check_shape(request.kind, request.old)
    except MalformedObject as fault:
        field = f"{within}.{fault.field}".strip(".")
        return Judged(
            "malformed-object",
            Severity.WARN,
            Origin(f"{request.kind}/{request.name}", field, field),
            fault.problem,
            "the object cannot be read, so nothing was checked and nothing was filled in",
            f"write {fault.field or request.kind} as the CRD has it: "
            f"kubectl explain {_explain(request.kind, fault.field)}",
        )
    return None


def _explain(kind: str, field: str) -> str:
    plain = "".join(part.split("[")[0] + "." for part in field.split(".") if part)
    return f"{kind.lower()}.{plain}".rstrip(".")


def _broken(request: Request, what: str, error: Exception) -> Judged:
    """A fault of ours. The exception's text may hold what the user wrote, so only its type is told."""
    return Judged(
        "broken-rule",
        Severity.WARN,
        Origin(f"{request.kind}/{request.name}", "", what),
        f'"{what}" failed on this object with {type(error).__name__} and was left out',
        "one check of the guard did not run, so a fault that it looks for may have passed",
        "report it with the object to whoever runs checkpoint-guard",
        subject=what,
    )


def _facts(subject: Subject | None) -> Facts:
    if subject is None or subject.effective is None:
        return Facts()
    nodes = subject.effective.training_pods
    if not subject.checkpoints:
        return Facts(nodes)
    first = subject.checkpoints[0]
    volume = first.volume.get("name") if first.volume is not None else None
    if volume is None and first.mount is not None:
        volume = first.mount.get("name")
    return Facts(nodes, first.directory, volume, first.storage.claim_name, first.storage.kind.value)


def _runtime_label(subject: Subject | None) -> str | None:
    if subject is None:
        return None
    if isinstance(subject.runtime, Runtime):
        return subject.runtime.label
    ref = subject.spec.get("runtimeRef") or {}
    return f"{ref.get('kind') or 'ClusterTrainingRuntime'}/{ref.get('name') or ''}"
