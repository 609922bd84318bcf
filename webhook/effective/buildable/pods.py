"""Pods and Jobs that the Job API refuses (kubernetes pkg/apis/batch/validation and ``ValidatePodSpec``)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

from webhook.effective.buildable.refusal import JOB_API, Refusal, under
from webhook.effective.buildable.syntax import is_dns_label, is_dns_subdomain, is_label_value, is_qualified_name
from webhook.model.pod import EffectiveJob, Raw

_RARE_OF_JOB: Final = frozenset(
    [
        "podFailurePolicy",
        "successPolicy",
        "backoffLimitPerIndex",
        "maxFailedIndexes",
        "completionMode",
        "podReplacementPolicy",
        "activeDeadlineSeconds",
        "ttlSecondsAfterFinished",
        "managedBy",
    ]
)
_NEVER_NEGATIVE: Final = (
    "backoffLimit",
    "activeDeadlineSeconds",
    "ttlSecondsAfterFinished",
    "backoffLimitPerIndex",
    "maxFailedIndexes",
)
_OPERATORS: Final = ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt")
_EFFECTS: Final = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_DNS: Final = ("ClusterFirst", "ClusterFirstWithHostNet", "Default", "None")
_LARGEST_INDEXED: Final = 100_000
_LARGEST_ID: Final = 2**31 - 1


def refused_pod(job: EffectiveJob, sound: frozenset[int]) -> Iterator[Refusal]:
    """Fields of the PodSpec itself."""
    pod = job.pod
    policy = pod.get("restartPolicy") or "OnFailure"
    if policy not in ("OnFailure", "Never"):
        yield _pod(job, "restartPolicy", f'restartPolicy is "{policy}"', "restartPolicy: OnFailure  # or Never")
    if (context := pod.get("securityContext")) and id(context) not in sound:
        for field in ("runAsUser", "runAsGroup", "fsGroup"):
            if not 0 <= (context.get(field) or 0) <= _LARGEST_ID:
                yield _pod(job, "securityContext", f"{field} is {context[field]}", f"{field}: 1000")
    for field, problem, fix in _rare_faults(pod):
        yield _pod(job, field, problem, fix)


def depends_on_pods(job: EffectiveJob) -> bool:
    """Whether it takes the number of pods to tell if the JobSpec is right."""
    return "maxFailedIndexes" in job.spec or "successPolicy" in job.spec or "podFailurePolicy" in job.spec


def refused_job(job: EffectiveJob) -> Iterator[Refusal]:
    """Fields of the JobSpec. ``podFailurePolicy`` beside ``OnFailure`` is another rule's (restart-ruled-out)."""
    spec = job.spec
    pods = job.pods // max(job.replicas, 1)
    if pods < 0:
        yield _job(job, "parallelism", f"{pods} pods are asked for", "numNodes: <1 or more>", mendable=True)
    if (spec.get("backoffLimit") or 0) < 0:
        yield _job(job, "backoffLimit", f"backoffLimit is {spec['backoffLimit']}", "backoffLimit: 0")
    if pods > _LARGEST_INDEXED and spec.get("completionMode") != "NonIndexed":
        yield _job(
            job,
            "parallelism",
            f"{pods} pods are asked for, and an Indexed Job has at most {_LARGEST_INDEXED}",
            "numNodes: <fewer>",
            mendable=True,
        )
    if not _RARE_OF_JOB.isdisjoint(spec):
        for field, problem, fix in _rare_faults_of_job(job, spec, pods):
            yield _job(job, field, problem, fix)
    template = (spec.get("template") or {}).get("metadata") or {}
    for key, value in (template.get("labels") or {}).items():
        if not is_qualified_name(key) or not is_label_value(value or ""):
            yield _job(
                job,
                "template.metadata.labels",
                f'pod label "{key}: {value}" is no label',
                f"{key}: <at most 63 of A-Z, a-z, 0-9, -, _ and .>",
            )


def _pod(job: EffectiveJob, field: str, problem: str, fix: str) -> Refusal:
    return Refusal(JOB_API, job.pod_origin(field), f'{problem} in job "{job.name}"', fix, job=job.name, subject=field)


def _job(job: EffectiveJob, field: str, problem: str, fix: str, mendable: bool = False) -> Refusal:
    where = under(job.job_origin, field)
    return Refusal(
        JOB_API, where, f'{problem} in job "{job.name}"', fix, job=job.name, subject=field, mendable=mendable
    )


Fault = tuple[str, str, str]
"""Field, problem, fix."""


def _rare_faults(pod: Raw) -> Iterator[Fault]:
    for field, value in pod.items():
        check = _RARE.get(field)
        if check is not None and value is not None:
            yield from check(field, value, pod)


def _faults_of_selector(field: str, selector: Raw, pod: Raw) -> Iterator[Fault]:
    for key, value in selector.items():
        if not is_qualified_name(key) or not is_label_value(value or ""):
            yield field, f'nodeSelector "{key}: {value}" is no label', "nodeSelector:\n  <label>: <value>"


def _faults_of_tolerations(field: str, tolerations: list[Raw], pod: Raw) -> Iterator[Fault]:
    for toleration in tolerations:
        yield from _faults_of_toleration(toleration)


def _faults_of_gates(field: str, gates: list[Raw], pod: Raw) -> Iterator[Fault]:
    seen: set[str] = set()
    for gate in gates:
        name = gate.get("name") or ""
        if name in seen or not is_qualified_name(name):
            yield field, f'scheduling gate "{name}" is there twice or no name', "- name: <domain/gate>"
        seen.add(name)


def _faults_of_name(field: str, name: str, pod: Raw) -> Iterator[Fault]:
    if name and not is_dns_subdomain(name):
        yield field, f'{field} "{name}" is no object name', f"{field}: <name>"


def _faults_of_host(field: str, name: str, pod: Raw) -> Iterator[Fault]:
    if name and not is_dns_label(name):
        yield field, f'{field} "{name}" is no DNS label', f"{field}: <name>"


def _faults_of_deadline(field: str, deadline: int, pod: Raw) -> Iterator[Fault]:
    if not 1 <= deadline <= _LARGEST_ID:
        yield field, f"activeDeadlineSeconds is {deadline}", "activeDeadlineSeconds: <1 or more>"


def _faults_of_dns(field: str, policy: str, pod: Raw) -> Iterator[Fault]:
    if policy and policy not in _DNS:
        yield field, f'dnsPolicy is "{policy}"', "dnsPolicy: ClusterFirst"
    elif policy == "None" and not (pod.get("dnsConfig") or {}).get("nameservers"):
        yield field, 'dnsPolicy is "None" without a nameserver', "dnsConfig:\n  nameservers: [<address>]"


def _faults_of_preemption(field: str, policy: str, pod: Raw) -> Iterator[Fault]:
    if policy and policy not in ("PreemptLowerPriority", "Never"):
        yield field, f'preemptionPolicy is "{policy}"', "preemptionPolicy: PreemptLowerPriority"


def _faults_of_spread(field: str, constraints: list[Raw], pod: Raw) -> Iterator[Fault]:
    seen: set[tuple[Any, Any]] = set()
    for constraint in constraints:
        pair = (constraint.get("topologyKey"), constraint.get("whenUnsatisfiable"))
        if (constraint.get("maxSkew") or 0) < 1 or not pair[0] or pair[1] not in ("DoNotSchedule", "ScheduleAnyway"):
            yield (
                field,
                f'the constraint on "{pair[0] or ""}" lacks maxSkew, topologyKey or whenUnsatisfiable',
                "maxSkew: 1\ntopologyKey: topology.kubernetes.io/zone\nwhenUnsatisfiable: ScheduleAnyway",
            )
        elif pair in seen:
            yield field, f'two constraints are on "{pair[0]}"', "topologyKey: <another key>"
        seen.add(pair)


def _faults_of_shared_processes(field: str, shared: bool, pod: Raw) -> Iterator[Fault]:
    if shared and pod.get("hostPID"):
        yield field, "shareProcessNamespace stands beside hostPID", "hostPID: false"


def _faults_of_ephemeral(field: str, containers: list[Raw], pod: Raw) -> Iterator[Fault]:
    if containers:
        yield field, "ephemeralContainers stand in a pod template", "ephemeralContainers: []"


def _faults_of_toleration(toleration: Raw) -> Iterator[Fault]:
    key, value = toleration.get("key") or "", toleration.get("value") or ""
    operator, effect = toleration.get("operator") or "Equal", toleration.get("effect") or ""
    problem = ""
    if operator not in ("Equal", "Exists", "Lt", "Gt"):
        problem = f'toleration of "{key}" has operator "{operator}"'
    elif not key and operator != "Exists":
        problem = "a toleration without key has an operator other than Exists"
    elif key and not is_qualified_name(key):
        problem = f'toleration key "{key}" is no label key'
    elif operator == "Exists" and value:
        problem = f'toleration of "{key}" has value "{value}" beside operator Exists'
    elif operator == "Equal" and not is_label_value(value):
        problem = f'toleration of "{key}" has value "{value}", which is no label value'
    elif effect and effect not in _EFFECTS:
        problem = f'toleration of "{key}" has effect "{effect}"'
    elif toleration.get("tolerationSeconds") is not None and effect != "NoExecute":
        problem = f'toleration of "{key}" has tolerationSeconds and effect "{effect}"'
    if problem:
        yield "tolerations", problem, "- key: <key>\n  operator: Exists\n  effect: NoSchedule"


def _faults_of_affinity(field: str, affinity: Raw, pod: Raw) -> Iterator[Fault]:
    node = affinity.get("nodeAffinity") or {}
    terms: list[Raw] = []
    required = node.get("requiredDuringSchedulingIgnoredDuringExecution")
    if required is not None:
        terms += required.get("nodeSelectorTerms") or ()
        if not terms:
            yield (
                "affinity",
                "required nodeAffinity has no nodeSelectorTerms",
                ("nodeSelectorTerms:\n- matchExpressions:\n  - {key: <label>, operator: In, values: [<value>]}"),
            )
    preferred = list(node.get("preferredDuringSchedulingIgnoredDuringExecution") or ())
    terms += [term.get("preference") or {} for term in preferred]
    for term in terms:
        for expression in term.get("matchExpressions") or ():
            key, operator = expression.get("key") or "", expression.get("operator")
            count = len(expression.get("values") or ())
            if (
                operator not in _OPERATORS
                or not is_qualified_name(key)
                or (operator in ("In", "NotIn") and not count)
                or (operator in ("Exists", "DoesNotExist") and count)
                or (operator in ("Gt", "Lt") and count != 1)
            ):
                yield (
                    "affinity",
                    f'nodeAffinity on "{key}" has operator "{operator}" with {count} values',
                    ("- {key: <label>, operator: In, values: [<value>]}"),
                )
    pods: list[Raw] = []
    for kind in ("podAffinity", "podAntiAffinity"):
        part = affinity.get(kind) or {}
        pods += part.get("requiredDuringSchedulingIgnoredDuringExecution") or ()
        weighted = part.get("preferredDuringSchedulingIgnoredDuringExecution") or ()
        pods += [term.get("podAffinityTerm") or {} for term in weighted]
        preferred += weighted
    if any(not is_qualified_name(term.get("topologyKey") or "") for term in pods):
        yield "affinity", "a pod affinity term has no topologyKey", "topologyKey: kubernetes.io/hostname"
    if any(not 1 <= (term.get("weight") or 0) <= 100 for term in preferred):
        yield "affinity", "a preferred term has a weight outside 1..100", "weight: 100"


def _rare_faults_of_job(job: EffectiveJob, spec: Raw, pods: int) -> Iterator[Fault]:
    for field in _NEVER_NEGATIVE[1:]:
        if (spec.get(field) or 0) < 0:
            yield field, f"{field} is {spec[field]}", f"{field}: <0 or more>"
    mode = spec.get("completionMode") or "Indexed"
    if mode not in ("Indexed", "NonIndexed"):
        yield "completionMode", f'completionMode is "{mode}"', "completionMode: Indexed"
    elif mode == "NonIndexed":
        for field in ("backoffLimitPerIndex", "maxFailedIndexes", "successPolicy"):
            if spec.get(field) is not None:
                yield field, f"{field} stands beside completionMode NonIndexed", "completionMode: Indexed"
    failed = spec.get("maxFailedIndexes")
    if failed is not None and spec.get("backoffLimitPerIndex") is None:
        yield "maxFailedIndexes", "maxFailedIndexes stands without backoffLimitPerIndex", "backoffLimitPerIndex: 0"
    elif failed is not None and mode == "Indexed" and failed > max(pods, 0):
        yield "maxFailedIndexes", f"maxFailedIndexes is {failed} of {pods} pods", "maxFailedIndexes: 0"
    replacement = spec.get("podReplacementPolicy")
    policy = spec.get("podFailurePolicy")
    if replacement and (replacement not in ("Failed", "TerminatingOrFailed") or (policy and replacement != "Failed")):
        beside = " beside podFailurePolicy" if policy else ""
        yield "podReplacementPolicy", f'podReplacementPolicy is "{replacement}"{beside}', "podReplacementPolicy: Failed"
    if policy:
        names = [container.get("name") for _, _, container in job.containers()]
        for index, rule in enumerate(policy.get("rules") or ()):
            if fault := _fault_of_rule(rule, names, spec.get("backoffLimitPerIndex") is not None):
                yield f"podFailurePolicy.rules[{index}]", fault[0], fault[1]
    success = spec.get("successPolicy")
    if success is not None and mode == "Indexed":
        rules = success.get("rules") or ()
        if not rules:
            yield "successPolicy", "successPolicy has no rules", "rules:\n- succeededIndexes: '0'"
        for index, rule in enumerate(rules):
            count = rule.get("succeededCount")
            if (count is None and rule.get("succeededIndexes") is None) or not 0 <= (count or 0) <= max(pods, 0):
                yield (
                    f"successPolicy.rules[{index}]",
                    f"a successPolicy rule asks for {count or 'no'} successes of {pods} pods",
                    f"succeededCount: {pods}",
                )


def _fault_of_rule(rule: Raw, containers: list[Any], per_index: bool) -> tuple[str, str] | None:
    action, codes, conditions = rule.get("action") or "", rule.get("onExitCodes"), rule.get("onPodConditions") or ()
    if action not in ("FailJob", "FailIndex", "Ignore", "Count"):
        return f'a podFailurePolicy rule has action "{action}"', "action: Count"
    if action == "FailIndex" and not per_index:
        return "a podFailurePolicy rule has action FailIndex without backoffLimitPerIndex", "action: FailJob"
    if (codes is None) == (not conditions):
        return "a podFailurePolicy rule needs one of onExitCodes and onPodConditions", (
            "onPodConditions:\n- type: DisruptionTarget"
        )
    if codes is not None:
        values = list(codes.get("values") or ())
        operator = codes.get("operator")
        fix = "onExitCodes:\n  operator: In\n  values: [<code>]  # ascending, each once"
        if operator not in ("In", "NotIn"):
            return f'a podFailurePolicy rule has operator "{operator or ""}"', fix
        if not values or values != sorted(set(values)) or (operator == "In" and 0 in values):
            return f"a podFailurePolicy rule has exit codes {values}, which are not ascending, unique and above 0", fix
        if (name := codes.get("containerName")) and name not in containers:
            return f'a podFailurePolicy rule names container "{name}", which the pod does not have', (
                f"containerName: {containers[0] if containers else 'node'}"
            )
    return None


_RARE: Final[dict[str, Callable[[str, Any, Raw], Iterator[Fault]]]] = {
    "nodeSelector": _faults_of_selector,
    "tolerations": _faults_of_tolerations,
    "affinity": _faults_of_affinity,
    "schedulingGates": _faults_of_gates,
    "serviceAccountName": _faults_of_name,
    "priorityClassName": _faults_of_name,
    "runtimeClassName": _faults_of_name,
    "hostname": _faults_of_host,
    "subdomain": _faults_of_host,
    "activeDeadlineSeconds": _faults_of_deadline,
    "dnsPolicy": _faults_of_dns,
    "preemptionPolicy": _faults_of_preemption,
    "topologySpreadConstraints": _faults_of_spread,
    "shareProcessNamespace": _faults_of_shared_processes,
    "ephemeralContainers": _faults_of_ephemeral,
}
"""The fields of a PodSpec that few pods have, and what may be wrong with each: (field, value, pod) -> faults."""
