"""What an UPDATE changes in a JobSet that JobSet does not let change (its webhook's ``ValidateUpdate``)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from webhook.effective.strategic_merge import merge_free
from webhook.model.names import ANCESTOR_LABEL, TRAINER_STEP
from webhook.model.pod import EMPTY, EffectiveJob, EffectiveSet, Raw
from webhook.model.quantity import parse_quantity

_MAY_CHANGE: Final = frozenset(("nodeSelector", "tolerations", "schedulingGates"))
"""Fields of a PodSpec that JobSet lets change while either side is suspended; so does the template's metadata."""


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
        if not _same(old.labels, new.labels):
            changed.append(f"{new.name}: labels of the job template")
        if old.metadata != new.metadata and not _same(_annotations(before, old), _annotations(now, new)):
            changed.append(f"{new.name}: annotations of the job template")
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
        if field in _MAY_CHANGE or _same(one, two):
            continue
        if field not in ("containers", "initContainers") or len(one or ()) != len(two or ()):
            yield f"{new.name}: {field}"
            continue
        for left, right in zip(one or (), two or (), strict=True):
            for part in dict.fromkeys((*left, *right)):
                if not _same(left.get(part), right.get(part)):
                    yield f"{new.name}: {part} of {right.get('name')}"


def _same(one: Any, two: Any) -> bool:
    """Equality as the API server sees it: absent, null and empty are one, and ``1`` is ``1000m``."""
    if one == two:
        return True
    if isinstance(one, dict) and isinstance(two, dict):
        return all(_same(one.get(key), two.get(key)) for key in {*one, *two})
    if isinstance(one, list) and isinstance(two, list):
        return len(one) == len(two) and all(map(_same, one, two))
    if one in (None, "", [], {}) and two in (None, "", [], {}):
        return True
    amount = parse_quantity(one)
    return amount is not None and isinstance(one, str) and isinstance(two, str | int) and amount == parse_quantity(two)


def runtime_changes(old: Raw, new: Raw) -> list[str]:
    """What differs in the jobs and the mlPolicy besides what JobSet lets change; ``failurePolicy`` is no part of it."""
    before, after = old.get("spec") or EMPTY, new.get("spec") or EMPTY
    policies = before.get("mlPolicy"), after.get("mlPolicy")
    # An empty part says something here: which framework it is.
    changed = [] if _same(*policies) and _said(policies[0]) == _said(policies[1]) else ["mlPolicy"]
    left, right = _jobs(before), _jobs(after)
    if [job.get("name") for job in left] != [job.get("name") for job in right]:
        return [*changed, "replicatedJobs"]
    for one, two in zip(left, right, strict=True):
        if _same(one, two):
            continue
        pods = [((job.get("template") or EMPTY).get("spec") or EMPTY).get("template") or EMPTY for job in (one, two)]
        specs = [(job.get("template") or EMPTY).get("spec") or EMPTY for job in (one, two)]
        name = two.get("name")
        # Trainer writes completions always, and parallelism where mlPolicy counts the pods.
        counted = None not in policies and _is_labelled(one) and _is_labelled(two)
        unread = ("template", "completions", "parallelism") if counted else ("template", "completions")
        changed += [
            f"{name}: {field}"
            for field in dict.fromkeys((*specs[0], *specs[1]))
            if field not in unread and not _same(specs[0].get(field), specs[1].get(field))
        ]
        inner = [pod.get("spec") or EMPTY for pod in pods]
        changed += [
            f"{name}: {field}"
            for field in dict.fromkeys((*inner[0], *inner[1]))
            if field not in _MAY_CHANGE and not _same(inner[0].get(field), inner[1].get(field))
        ]
        labels = [(job.get("template") or EMPTY).get("metadata") for job in (one, two)]
        if not _same(*labels):
            changed.append(f"{name}: metadata of the job template")
        if not _same(one.get("replicas"), two.get("replicas")) or not _same(one.get("dependsOn"), two.get("dependsOn")):
            changed.append(f"{name}: replicas or dependsOn")
    return changed


def _said(policy: Raw | None) -> frozenset[str] | None:
    return None if policy is None else frozenset(field for field, value in policy.items() if value is not None)


def _is_labelled(job: Raw) -> bool:
    labels = ((job.get("template") or EMPTY).get("metadata") or EMPTY).get("labels") or EMPTY
    return labels.get(ANCESTOR_LABEL) == TRAINER_STEP


def _jobs(spec: Raw) -> Sequence[Raw]:
    return ((spec.get("template") or EMPTY).get("spec") or EMPTY).get("replicatedJobs") or ()
