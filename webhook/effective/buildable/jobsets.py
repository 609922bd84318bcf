"""JobSets that JobSet's own webhook and schema refuse (sigs.k8s.io/jobset pkg/webhooks, 0.8.2 to 0.12.0)."""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterator
from typing import Final

from webhook.effective.buildable.metadata import refused_metadata
from webhook.effective.buildable.refusal import CLAIM_API, JOB_API, JOBSET, TRAINER_API, UNSERVED, Refusal
from webhook.effective.buildable.syntax import is_dns_1035_label, is_dns_label, is_domain_prefixed
from webhook.effective.buildable.volumes import fault_of_claim
from webhook.model.finding import Origin
from webhook.model.nearest import Names, nearest
from webhook.model.pod import EMPTY, EffectiveJob, EffectiveSet, Raw
from webhook.model.release import Release

_CONTROLLER: Final = "jobset.sigs.k8s.io/jobset-controller"
_LONGEST: Final = 63
_SUFFIX: Final = len("-abcde")
_SURELY_SHORT: Final = 30
"""With names of TrainJob and job of this length together no index makes a pod's name too long."""
_GENERATED: Final = 5
"""Characters that the API server adds to ``generateName``."""
_LONGEST_JOB: Final = 20
"""Characters of a replicated job's name in Trainer 2.4. Source: the release notes of 2.4.0."""
_REASONS: Final = frozenset(
    ("BackoffLimitExceeded", "DeadlineExceeded", "FailedIndexes", "MaxFailedIndexesExceeded", "PodFailurePolicy")
)
_GATED: Final = frozenset(("RestartJob", "RestartJobAndIgnoreMaxRestarts"))
_RULE_NAME: Final = str.maketrans("", "", "_,:")
_MAX_INT32: Final = 2**31 - 1
_CKPT: Final = "/mnt/ckpt"
_REFUSED_RUNTIME: Final = "Trainer refuses the runtime, so it cannot be created or changed any more"
_SHOWN: Final = 8
"""Names that a text lists."""


def refused_jobset(effective: EffectiveSet) -> Iterator[Refusal]:
    """Faults of the JobSet as the runtime writes it, which no TrainJob changes."""
    spec = effective.jobset_spec
    jobs: list[Raw] = spec.get("replicatedJobs") or []
    names: set[str] = set()
    ordered: list[str] = []
    in_order = (spec.get("startupPolicy") or EMPTY).get("startupPolicyOrder") == "InOrder"
    for index, job in enumerate(jobs):
        if depends := job.get("dependsOn"):
            yield from _refused_order(effective, index, job, depends, (names, ordered), in_order)
        if (name := job.get("name") or "") not in names:
            names.add(name)
            insort(ordered, name)
        yield from _refused_job(effective, index, job)
    known = Names(names)
    if policy := spec.get("failurePolicy"):
        yield from _refused_failure_policy(effective, policy, known)
    for name in (spec.get("successPolicy") or EMPTY).get("targetReplicatedJobs") or ():
        if name not in names:
            yield _jobset(effective, "successPolicy", *_unknown_job("successPolicy", name, known))
    if (subdomain := (spec.get("network") or EMPTY).get("subdomain")) and not is_dns_1035_label(subdomain):
        yield _jobset(
            effective,
            "network.subdomain",
            f'network subdomain "{subdomain}" is no DNS label',
            "subdomain: <a-z, 0-9, ->",
        )
    if coordinator := spec.get("coordinator"):
        name = coordinator.get("replicatedJob") or ""
        if name not in names:
            yield _jobset(effective, "coordinator", *_unknown_job("coordinator", name, known, "replicatedJob: {}"))
    manager = spec.get("managedBy")
    if manager is not None and (len(manager) > _LONGEST or not is_domain_prefixed(manager)):
        yield _jobset(
            effective,
            "managedBy",
            f'managedBy is "{manager}", which is no domain/name of at most {_LONGEST} characters',
            f"managedBy: {_CONTROLLER}",
        )
    elif manager is not None and manager != _CONTROLLER:
        at = Origin(effective.runtime_label, "spec.template.spec.managedBy", "managedBy")
        problem = f'managedBy of the JobSet is "{manager}", so JobSet\'s own controller passes it over'
        yield Refusal(JOBSET, at, problem, f"managedBy: {_CONTROLLER}", subject="managedBy", unsure=True, why=UNSERVED)


def _refused_job(effective: EffectiveSet, index: int, job: Raw) -> Iterator[Refusal]:
    name = job.get("name") or ""
    if len(name) > _LONGEST_JOB and effective.release.at_least(Release.V2_4):
        field = f"replicatedJobs[{index}].name"
        at = Origin(effective.runtime_label, f"spec.template.spec.{field}", field)
        problem = f'job name "{name}" has {len(name)} characters, and Trainer 2.4 takes at most {_LONGEST_JOB}'
        fix = f"name: {name[:_LONGEST_JOB].rstrip('-')}    # and wherever it is named"
        # Told by the notes of that release alone, so it is said and not denied.
        yield Refusal(TRAINER_API, at, problem, fix, subject=field, unsure=True, why=_REFUSED_RUNTIME)
    group = job.get("groupName")
    if group and effective.release.at_least(Release.V2_1) and not is_dns_1035_label(group):
        field = f"replicatedJobs[{index}].groupName"
        yield _jobset(effective, field, f'group name "{group}" is no DNS label', "groupName: <a-z, 0-9, ->")
    if metadata := (job.get("template") or EMPTY).get("metadata"):
        field = f"spec.template.spec.replicatedJobs[{index}].template.metadata"
        at = Origin(effective.runtime_label, field, f"job {job.get('name')} metadata")
        yield from refused_metadata(JOB_API, at, "Job", metadata, job.get("name") or "")


def refused_coordinator(effective: EffectiveSet) -> Iterator[Refusal]:
    """The pod that the JobSet of a TrainJob names as coordinator; that the job exists, ``refused_jobset`` checks."""
    coordinator = effective.jobset_spec["coordinator"]
    job = effective.job(coordinator.get("replicatedJob") or "")
    if job is None:
        return
    index, pod = coordinator.get("jobIndex") or 0, coordinator.get("podIndex") or 0
    pods = job.pods // max(job.replicas, 1)
    subdomain = (effective.jobset_spec.get("network") or EMPTY).get("subdomain") or effective.trainjob
    address = f"{effective.trainjob}-{job.name}-{index}-{pod}.{subdomain}"
    if not 0 <= index < job.replicas or not 0 <= pod < pods:
        yield _jobset(
            effective,
            "coordinator",
            f'coordinator is pod {pod} of Job {index}, and job "{job.name}" has {job.replicas} of {pods} pods',
            f"coordinator:\n  replicatedJob: {job.name}\n  jobIndex: 0\n  podIndex: 0",
        )
    elif (job.spec.get("completionMode") or "Indexed") != "Indexed":
        yield _jobset(
            effective,
            "coordinator",
            f'coordinator is in job "{job.name}", which is not Indexed',
            "completionMode: Indexed",
        )
    elif effective.trainjob and len(address) > _LONGEST:
        yield _jobset(
            effective,
            "coordinator",
            f'coordinator would be "{address}", of {len(address)} characters, and {_LONGEST} is the most',
            "# a shorter name of the TrainJob, or of network.subdomain",
        )


def _jobset(effective: EffectiveSet, field: str, problem: str, fix: str, unsure: bool = False) -> Refusal:
    at = Origin(effective.runtime_label, f"spec.template.spec.{field}", field)
    return Refusal(JOBSET, at, problem, fix, subject=field, unsure=unsure)


def _unknown_job(where: str, name: str, names: Names, fix: str = "targetReplicatedJobs:\n- {}") -> tuple[str, str]:
    known = names.nearest(name)
    there = ", ".join(f'"{other}"' for other in known[:5])
    return f'{where} names job "{name}", and the runtime has {there}', fix.format(known[0] if known else "node")


def refused_names(effective: EffectiveSet) -> Iterator[Refusal]:
    """Names of jobs and pods, which are made of those of the TrainJob and of the job."""
    if not effective.trainjob and not effective.generate_name:
        return
    generated = not effective.trainjob
    name = (
        effective.generate_name[: _LONGEST - _GENERATED] + "x" * _GENERATED if generated else effective.trainjob or ""
    )
    longest, culprit = 0, ""
    places = None
    for job in effective.jobs:
        if job.name and not is_dns_label(job.name):
            places = places or _places(effective)
            field = f"replicatedJobs[{places.get(job.name, 0)}].name"
            yield _jobset(effective, field, f'job name "{job.name}" is no DNS label', "name: <a-z, 0-9, ->")
        if len(name) + len(job.name) < _SURELY_SHORT:
            continue
        length = len(name) + len(job.name) + len(str(max(job.replicas - 1, 0))) + 2
        if job.spec.get("completionMode") != "NonIndexed":
            length += len(str(max(job.pods // max(job.replicas, 1) - 1, 0))) + 1 + _SUFFIX
        if length > longest:
            longest, culprit = length, job.name
    if longest <= _LONGEST:
        return
    room = len(name) - (longest - _LONGEST) - (_GENERATED if generated else 0)
    field = "generateName" if generated else "name"
    yield Refusal(
        JOBSET,
        Origin(f"TrainJob/{effective.trainjob or effective.generate_name}", f"metadata.{field}", field),
        f'pods of job "{culprit}" would have names of {longest} characters, and {_LONGEST} is the most',
        f"{field}: <at most {room} characters>" if room > 0 else "name: <a shorter name of the replicatedJob>",
        job=culprit,
        subject="name",
    )


def _places(effective: EffectiveSet) -> dict[str, int]:
    places: dict[str, int] = {}
    for index, job in enumerate(effective.jobset_spec.get("replicatedJobs") or ()):
        places.setdefault(job.get("name") or "", index)
    return places


def _refused_order(
    effective: EffectiveSet,
    index: int,
    job: Raw,
    depends: list[Raw],
    earlier: tuple[set[str], list[str]],
    in_order: bool,
) -> Iterator[Refusal]:
    """``earlier`` are the names of the jobs before it, as they are looked up and in order."""
    names, ordered = earlier
    field, name = f"replicatedJobs[{index}].dependsOn", job.get("name") or ""
    if index == 0:
        yield _jobset(
            effective,
            field,
            f'the first job, "{name}", depends on another',
            f'dependsOn: []  # and "{name}" below the job that it waits for',
        )
        return
    if in_order:
        yield _jobset(
            effective,
            field,
            f'job "{name}" has dependsOn beside startupPolicy InOrder',
            "startupPolicy:\n  startupPolicyOrder: AnyOrder",
        )
    # JobSet 0.8 looks at the first entry alone.
    for item in depends if effective.release.at_least(Release.V2_1) else depends[:1]:
        if item.get("name") not in names and item.get("name") != name:
            there = ", ".join(f'"{other}"' for other in ordered[:_SHOWN])
            there += f" and {len(ordered) - _SHOWN} more" if len(ordered) > _SHOWN else ""
            yield _jobset(
                effective,
                field,
                f'job "{name}" depends on "{item.get("name")}", with only {there} before it',
                f"dependsOn:\n- name: {ordered[-1]}\n  status: Complete",
            )


def _refused_failure_policy(effective: EffectiveSet, policy: Raw, names: Names) -> Iterator[Refusal]:
    if policy.get("restartStrategy") == "InPlaceRestart":
        yield from _refused_in_place(effective)
    seen: set[str] = set()
    for index, rule in enumerate(policy.get("rules") or ()):
        field = f"failurePolicy.rules[{index}]"
        name = rule.get("name") or f"failurePolicyRule{index}"
        plain = name.translate(_RULE_NAME)
        if name in seen:
            yield _jobset(
                effective, field, f'two failurePolicy rules are named "{name}"', f"name: {name[:120]}_{index}"
            )
        elif not (
            plain.isalnum() and plain.isascii() and name[0].isalpha() and name[-1] not in ",:" and len(name) <= 128
        ):
            yield _jobset(effective, field, f'failurePolicy rule name "{name}" is badly formed', f"name: rule_{index}")
        seen.add(name)
        for target in rule.get("targetReplicatedJobs") or ():
            if target not in names:
                yield _jobset(effective, field, *_unknown_job(f'failurePolicy rule "{name}"', target, names))
        for reason in rule.get("onJobFailureReasons") or ():
            if reason not in _REASONS:
                near = nearest(reason, _REASONS)[0]
                yield _jobset(
                    effective,
                    field,
                    f'failurePolicy rule "{name}" names unknown reason "{reason}"',
                    f"onJobFailureReasons:\n- {near}",
                )
        if (action := rule.get("action")) in _GATED:
            yield _jobset(
                effective,
                field,
                f'failurePolicy rule "{name}" has action "{action}", which JobSet takes under gate RestartJob alone',
                "action: RestartJobSet",
                unsure=True,
            )


def _refused_in_place(effective: EffectiveSet) -> Iterator[Refusal]:
    field = "failurePolicy.restartStrategy"
    wrong = [
        job
        for job in effective.jobs
        if job.backoff_limit != _MAX_INT32 or job.spec.get("podReplacementPolicy") != "Failed"
    ]
    for job in wrong:
        policy = job.spec.get("podReplacementPolicy") or ""
        yield Refusal(
            JOBSET,
            Origin(effective.runtime_label, f"spec.template.spec.{field}", field),
            f'restartStrategy is "InPlaceRestart" and job "{job.name}" has backoffLimit {job.backoff_limit} and '
            f'podReplacementPolicy "{policy}"',
            f"restartStrategy: Recreate\n# or, in {job.job_origin.field}:\n"
            f"#   backoffLimit: {_MAX_INT32}\n#   podReplacementPolicy: Failed",
            job=job.name,
            subject=field,
        )
    if not wrong:
        yield _jobset(
            effective,
            field,
            'restartStrategy is "InPlaceRestart", which JobSet takes under gate InPlaceRestart alone',
            "restartStrategy: Recreate",
            unsure=True,
        )


def refused_templates(effective: EffectiveSet) -> Iterator[Refusal]:
    """Claim templates (2.2 and later): names, those that nobody mounts, those that a volume is named after."""
    name = effective.trainjob or ""
    mounts = [
        mount
        for job in effective.jobs
        for _, _, container in job.containers()
        for mount in container.get("volumeMounts") or ()
    ]
    mounted = {mount.get("name") for mount in mounts}
    taken = any(mount.get("mountPath") == _CKPT for mount in mounts)
    owners: dict[str, list[EffectiveJob]] = {}
    for job in effective.jobs:
        for volume in {volume.get("name") or "" for volume in job.pod.get("volumes") or ()}:
            owners.setdefault(volume, []).append(job)
    seen: set[str] = set()
    for at, policy in enumerate(effective.jobset_spec.get("volumeClaimPolicies") or ()):
        if not policy.get("templates"):
            field = f"volumeClaimPolicies[{at}]"
            yield _jobset(effective, field, f"{field} has no templates", "# no volumeClaimPolicies")
        for index, template in enumerate(policy.get("templates") or ()):
            claim = (template.get("metadata") or EMPTY).get("name") or ""
            field = f"volumeClaimPolicies[{at}].templates[{index}]"
            if claim in seen:
                yield _jobset(
                    effective, field, f'two claim templates are named "{claim}"', f"metadata:\n  name: {claim}-2"
                )
            elif not is_dns_label(claim):
                yield _jobset(
                    effective, field, f'claim template name "{claim}" is no volume name', "metadata:\n  name: ckpt"
                )
            elif len(claim) + 1 + len(name) > _LONGEST:
                yield _jobset(
                    effective,
                    field,
                    f'claim "{claim}-{name}" has {len(claim) + 1 + len(name)} characters, and {_LONGEST} is the most',
                    f"metadata:\n  name: <at most {max(_LONGEST - 1 - len(name), 1)} characters>",
                )
            seen.add(claim)
            at_metadata = Origin(effective.runtime_label, f"spec.template.spec.{field}.metadata", field)
            yield from refused_metadata(CLAIM_API, at_metadata, "claim", template.get("metadata") or EMPTY)
            fault, fix = fault_of_claim(template.get("spec") or EMPTY)
            if fault:
                at_spec = Origin(effective.runtime_label, f"spec.template.spec.{field}.spec", field)
                yield Refusal(
                    CLAIM_API, at_spec, f'claim template "{claim}" {fault}', fix, subject=f"template {claim} spec"
                )
            if claim not in mounted:
                free = f"/mnt/{claim}" if taken else _CKPT
                yield Refusal(
                    JOBSET,
                    Origin(effective.runtime_label, f"spec.template.spec.{field}", field),
                    f'no container mounts claim template "{claim}"',
                    "volumeMounts:  # in the container that trains; or leave the template out\n"
                    f"- name: {claim}\n  mountPath: {free}",
                    subject=f"template {claim}",
                    mendable=True,
                )
            for job in owners.get(claim, ()):
                yield Refusal(
                    JOBSET,
                    job.volume_origin(claim),
                    f'volume "{claim}" of job "{job.name}" has the name of a claim template',
                    f"name: {claim}-2  # and the same name in the volumeMounts that mean this volume",
                    job=job.name,
                    subject=f"template {claim}",
                )
