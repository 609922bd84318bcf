"""What an UPDATE changes in a JobSet that JobSet does not let change (its webhook's ``ValidateUpdate``)."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any, Final

from webhook.effective.strategic_merge import merge_free
from webhook.model.names import ANCESTOR_LABEL, TRAINER_STEP
from webhook.model.pod import EMPTY, EffectiveJob, EffectiveSet, Raw
from webhook.model.quantity import parse_quantity

_MAY_CHANGE: Final = frozenset(("nodeSelector", "tolerations", "schedulingGates"))
"""Fields of a PodSpec that JobSet lets change while either side is suspended; so does the template's metadata."""

_POINTERS: Final = frozenset(
    ("securityContext", "affinity", "nodeAffinity", "podAffinity", "podAntiAffinity", "dnsConfig", "emptyDir")
)
"""Parts of a pod that are there when they are empty: JobSet refuses ``securityContext: {}`` where there was none."""
_DEFAULTS: Final[Raw] = {"restartPolicy": "OnFailure", "completionMode": "Indexed", "replicas": 1}
"""What JobSet fills in, so that saying it changes nothing (seen on 2.1)."""
_JOBSET: Final[Raw] = {
    "managedBy": None,
    "network": {"enableDNSHostnames": True, "publishNotReadyAddresses": True},
    "startupPolicy": {"startupPolicyOrder": "AnyOrder"},
    "successPolicy": {"operator": "All"},
    "volumeClaimPolicies": None,
}
"""Fields of a JobSet beside its jobs that never change, with what JobSet fills in."""


def job_changes(before: EffectiveSet, now: EffectiveSet) -> list[str]:
    """The parts of the pods that differ and that JobSet does not let change, as paths below the job's name."""
    if [job.name for job in before.jobs] != [job.name for job in now.jobs]:
        return ["jobs"]
    changed: list[str] = []
    for old, new in zip(before.jobs, now.jobs, strict=True):
        if old.pods != new.pods:
            changed.append(f"{new.name}: number of pods")
        if old.pod is not new.pod:
            changed += _pod_changes(old, new)
        if not same(old.labels, new.labels):
            changed.append(f"{new.name}: labels of the job template")
        if old.metadata != new.metadata and not same(_annotations(before, old), _annotations(now, new)):
            changed.append(f"{new.name}: annotations of the job template")
    return changed


def refused_changes(before: EffectiveSet, now: EffectiveSet) -> list[str]:
    """What JobSet refuses to change between two JobSets of one run: in the pods and beside them."""
    changed = job_changes(before, now)
    if before.jobset_spec is not now.jobset_spec:
        old, new = ({"spec": {"template": {"spec": one.jobset_spec}}} for one in (before, now))
        changed += [change for change in jobset_changes(old, new) if change not in changed]
    return changed


def _annotations(effective: EffectiveSet, job: EffectiveJob) -> Raw:
    """Those of the Job's template: the runtime's and what runtimePatches say."""
    found: Raw = EMPTY
    for raw in effective.jobset_spec.get("replicatedJobs") or ():
        if raw.get("name") == job.name:
            found = ((raw.get("template") or EMPTY).get("metadata") or EMPTY).get("annotations") or EMPTY
    for part in job.metadata:
        if part.of == "Job":
            found = merge_free(found, part.raw.get("annotations") or EMPTY)
    return found


def _pod_changes(old: EffectiveJob, new: EffectiveJob) -> Iterator[str]:
    for field in dict.fromkeys((*old.pod, *new.pod)):
        one, two = old.pod.get(field), new.pod.get(field)
        if field in _MAY_CHANGE or same(one, two, field):
            continue
        if field not in ("containers", "initContainers") or len(one or ()) != len(two or ()):
            yield f"{new.name}: {field}"
            continue
        for left, right in zip(one or (), two or (), strict=True):
            for part in dict.fromkeys((*left, *right)):
                if not same(left.get(part), right.get(part), part):
                    yield f"{new.name}: {part} of {right.get('name')}"


def same(one: Any, two: Any, field: str = "") -> bool:
    """Equality as the API server sees it: absent, null and empty are one, and ``1`` is ``1000m``."""
    if one == two:
        return True
    if isinstance(one, dict) and isinstance(two, dict):
        return all(same(one.get(key), two.get(key), key) for key in {*one, *two})
    if isinstance(one, list) and isinstance(two, list):
        return len(one) == len(two) and all(map(same, one, two))
    if one in (None, "", [], {}) and two in (None, "", [], {}):
        return field not in _POINTERS
    amount = parse_quantity(one)
    return amount is not None and isinstance(one, str) and isinstance(two, str | int) and amount == parse_quantity(two)


def _differ(pair: Sequence[Raw], besides: Collection[str]) -> Iterator[str]:
    """The fields in which two maps differ, taking each for JobSet's default where it is not said."""
    for field in dict.fromkeys(field for raw in pair for field in raw):
        default = _DEFAULTS.get(field)
        left, right = (default if raw.get(field) is None else raw[field] for raw in pair)
        if field not in besides and not same(left, right, field):
            yield field


def jobset_changes(old: Raw, new: Raw) -> list[str]:
    """What differs in two runtimes outside of the pods and what JobSet refuses: ``job_changes`` tells of the pods."""
    sets = [((raw.get("spec") or EMPTY).get("template") or EMPTY).get("spec") or EMPTY for raw in (old, new)]
    changed = _set_changes(sets)
    left, right = (raw.get("replicatedJobs") or () for raw in sets)
    if [job.get("name") for job in left] != [job.get("name") for job in right]:
        return [*changed, "replicatedJobs"]
    for one, two in zip(left, right, strict=True):
        if one is two or one == two:
            continue
        specs = [(job.get("template") or EMPTY).get("spec") or EMPTY for job in (one, two)]
        # How many pods a job has is told by the pods as built.
        parts = [*_differ(specs, {"template", "completions", "parallelism"})]
        if [*_differ((one, two), {"template", "name", "groupName", "replicas"})]:
            parts.append("dependsOn")
        changed += [f"{two.get('name')}: {part}" for part in parts]
    return changed


def without_retention(jobset_spec: Raw) -> bool:
    """Whether JobSet refuses each suspend and resume of such a run, whoever asks for it.

    JobSet fills ``retentionPolicy`` in on CREATE alone, its CRD lets no volumeClaimPolicies change, and Trainer applies
    them as the runtime has them (seen with Trainer 2.2.1 and 2.3.0, JobSet 0.11.1 and 0.12.0; an empty one passes).
    """
    return any(policy.get("retentionPolicy") is None for policy in jobset_spec.get("volumeClaimPolicies") or ())


def _policies(value: Any) -> Any:
    """volumeClaimPolicies with the CRD's default in each retentionPolicy that is there."""
    if not isinstance(value, list):
        return value
    return [
        policy
        if not isinstance(policy, dict) or policy.get("retentionPolicy") is None
        else {**policy, "retentionPolicy": {"whenDeleted": "Delete", **policy["retentionPolicy"]}}
        for policy in value
    ]


def _set_changes(sets: Sequence[Raw]) -> list[str]:
    """The fields of a JobSet beside its jobs in which two runtimes differ."""
    changed: list[str] = []
    for field, default in _JOBSET.items():
        values = [_filled(raw.get(field), default) for raw in sets]
        if field == "volumeClaimPolicies":
            values = [_policies(value) for value in values]
        if not same(values[0], values[1]):
            changed.append(field)
    return changed


def runtime_changes(old: Raw, new: Raw) -> list[str]:
    """What differs in the jobs and the mlPolicy besides what JobSet lets change; ``failurePolicy`` is no part of it."""
    before, after = old.get("spec") or EMPTY, new.get("spec") or EMPTY
    policies = before.get("mlPolicy"), after.get("mlPolicy")
    changed = [] if same(_policy(policies[0]), _policy(policies[1])) else ["mlPolicy"]
    sets = [(spec.get("template") or EMPTY).get("spec") or EMPTY for spec in (before, after)]
    changed += _set_changes(sets)
    left, right = (raw.get("replicatedJobs") or () for raw in sets)
    if [job.get("name") for job in left] != [job.get("name") for job in right]:
        return [*changed, "replicatedJobs"]
    for one, two in zip(left, right, strict=True):
        if one == two:
            continue
        specs = [(job.get("template") or EMPTY).get("spec") or EMPTY for job in (one, two)]
        inner = [(spec.get("template") or EMPTY).get("spec") or EMPTY for spec in specs]
        name = two.get("name")
        # Trainer writes completions always, and parallelism where mlPolicy counts the pods.
        unread = {"template", "completions"}
        if None not in policies and _is_labelled(one) and _is_labelled(two):
            unread.add("parallelism")
        parts = [*_differ(specs, unread), *_differ(inner, _MAY_CHANGE)]
        labels = [(job.get("template") or EMPTY).get("metadata") for job in (one, two)]
        if not same(labels[0], labels[1]):
            parts.append("metadata of the job template")
        if [*_differ((one, two), {"template", "name", "groupName"})]:
            parts.append("replicas or dependsOn")
        changed += [f"{name}: {part}" for part in parts]
    return changed


def _policy(policy: Raw | None) -> Any:
    """What counts of an mlPolicy: also which parts are there, since an empty one says which framework it is."""
    if policy is None:
        return None
    said = sorted(field for field, value in policy.items() if value is not None and field != "numNodes")
    return [{**policy, "numNodes": policy.get("numNodes") or 1}, said]


def _filled(value: Any, default: Raw | None) -> Any:
    return {**default, **(value or EMPTY)} if default else value


def _is_labelled(job: Raw) -> bool:
    labels = ((job.get("template") or EMPTY).get("metadata") or EMPTY).get("labels") or EMPTY
    return labels.get(ANCESTOR_LABEL) == TRAINER_STEP
