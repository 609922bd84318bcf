"""Whether all pods that have a volume run on one node, so that one node alone has to mount it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from webhook.model.names import JOBSET_NAME_LABEL
from webhook.model.pod import EMPTY, EffectiveJob, EffectiveSet, Raw

_HOSTNAME: Final = "kubernetes.io/hostname"
_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_OF_KUEUE: Final = "kueue.x-k8s.io/podset-required-topology"
"""Kueue's topology-aware scheduling: all pods of the job in one domain of that level."""
_ADDED: Final = frozenset(("controller-uid", "batch.kubernetes.io/controller-uid"))
_ADDED_BY: Final = ("jobset.sigs.k8s.io/", "batch.kubernetes.io/", "trainer.kubeflow.org/")
"""Labels that controllers give pods, whose values are not known here."""


def on_one_node(jobs: Sequence[EffectiveJob], effective: EffectiveSet) -> bool:
    """Whether the scheduler has no choice but one node for all pods of these jobs: they are pinned to one hostname, or
    required pod affinity by hostname keeps them together. What only the running pods' labels tell counts as kept.
    """
    hosts = {_hostname(job) for job in jobs}
    if len(hosts) == 1 and None not in hosts:
        return True
    if len(jobs) == 1 and pod_annotation(jobs[0], _OF_KUEUE) == _HOSTNAME:
        return True
    # One job leads, and every other follows its pods. Under MPI that is the first or the last.
    return any(_follow(jobs, leader, effective) for leader in dict.fromkeys((jobs[0].name, jobs[-1].name)))


def _follow(jobs: Sequence[EffectiveJob], leader: str, effective: EffectiveSet) -> bool:
    led = next(job for job in jobs if job.name == leader)
    labels = _labels(led, effective)
    return all((job is led and job.pods == 1) or _follows(job, labels, effective.namespace) for job in jobs)


def _follows(job: EffectiveJob, labels: Mapping[str, str | None], namespace: str) -> bool:
    """Whether a required affinity of the job's pods puts each beside pods with these labels, on the same node."""
    affinity = (job.pod.get("affinity") or EMPTY).get("podAffinity") or EMPTY
    return any(_joins(term, labels, namespace) for term in affinity.get(_REQUIRED) or ())


def _joins(term: Raw, labels: Mapping[str, str | None], namespace: str) -> bool:
    if term.get("topologyKey") != _HOSTNAME or term.get("labelSelector") is None:
        return False
    if term.get("namespaces") and namespace not in term["namespaces"] and term.get("namespaceSelector") is None:
        return False
    selector = term["labelSelector"]
    keys = term.get("matchLabelKeys") or ()
    # A selector that names nothing joins the pods of any run.
    if not selector.get("matchLabels") and not selector.get("matchExpressions") and not keys:
        return False
    for key, value in (selector.get("matchLabels") or EMPTY).items():
        if not _may_have(labels, key, (value,)):
            return False
    for one in selector.get("matchExpressions") or ():
        key, operator, values = one.get("key") or "", one.get("operator"), one.get("values") or ()
        if operator in ("In", "Exists"):
            if not _may_have(labels, key, values if operator == "In" else None):
                return False
        elif _must_have(labels, key, values if operator == "NotIn" else None):
            return False
    return True


def _may_have(labels: Mapping[str, str | None], key: str, values: Sequence[str] | None) -> bool:
    if key in labels:
        value = labels[key]
        return values is None or value is None or value in values
    return key in _ADDED or key.startswith(_ADDED_BY)


def _must_have(labels: Mapping[str, str | None], key: str, values: Sequence[str] | None) -> bool:
    value = labels.get(key)
    return value is not None and (values is None or value in values)


def _labels(job: EffectiveJob, effective: EffectiveSet) -> Mapping[str, str | None]:
    """Labels of the job's pods; None where the API server makes the value up."""
    labels: dict[str, str | None] = {JOBSET_NAME_LABEL: effective.trainjob or None}
    labels["jobset.sigs.k8s.io/replicatedjob-name"] = job.name
    template = (job.spec.get("template") or EMPTY).get("metadata") or EMPTY
    labels.update(template.get("labels") or EMPTY)
    for metadata in job.metadata:
        if metadata.of == "pod":
            labels.update(metadata.raw.get("labels") or EMPTY)
    return labels


def pod_annotation(job: EffectiveJob, name: str) -> Any:
    """An annotation of the job's pods, by the runtime's template or an override; None without it."""
    found = (((job.spec.get("template") or EMPTY).get("metadata") or EMPTY).get("annotations") or EMPTY).get(name)
    for metadata in job.metadata:
        if metadata.of == "pod":
            found = (metadata.raw.get("annotations") or EMPTY).get(name, found)
    return found


def _hostname(job: EffectiveJob) -> str | None:
    """The one node that all pods of the job are pinned to; None where there is a choice."""
    pinned = (job.pod.get("nodeSelector") or EMPTY).get(_HOSTNAME) or job.pod.get("nodeName")
    if pinned:
        return str(pinned)
    affinity = (job.pod.get("affinity") or EMPTY).get("nodeAffinity") or EMPTY
    terms = (affinity.get(_REQUIRED) or EMPTY).get("nodeSelectorTerms") or ()
    hosts = {_only_host(term) for term in terms}
    return hosts.pop() if len(hosts) == 1 else None


def _only_host(term: Raw) -> str | None:
    for expression in [*(term.get("matchExpressions") or ()), *(term.get("matchFields") or ())]:
        values = expression.get("values") or []
        if (
            expression.get("key") in (_HOSTNAME, "metadata.name")
            and expression.get("operator") == "In"
            and len(values) == 1
        ):
            return str(values[0])
    return None
