"""Pods and Jobs that the Job API refuses (kubernetes pkg/apis/batch/validation and ``ValidatePodSpec``)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

from webhook.effective.buildable.contexts import faults_of_pod
from webhook.effective.buildable.metadata import refused_metadata
from webhook.effective.buildable.refusal import JOB_API, UNSERVED, Refusal, under
from webhook.effective.buildable.syntax import (
    fault_of_selector,
    is_dns_label,
    is_dns_subdomain,
    is_domain_prefixed,
    is_label_value,
    is_qualified_name,
)
from webhook.model.paste import below
from webhook.model.pod import EffectiveJob, Raw
from webhook.model.quantity import BILLION, parse_quantity

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
        "manualSelector",
        "selector",
    ]
)
_CONTROLLER: Final = "kubernetes.io/job-controller"
_NEVER_NEGATIVE: Final = (
    "backoffLimit",
    "activeDeadlineSeconds",
    "ttlSecondsAfterFinished",
    "backoffLimitPerIndex",
    "maxFailedIndexes",
)
_OPERATORS: Final = ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt")
_GATED_OPERATORS: Final = ("Lt", "Gt")
_BY_PODS: Final = ("maxFailedIndexes", "successPolicy")
"""Fields whose limits are the number of pods, which ``spec.trainer.numNodes`` can change."""
_EFFECTS: Final = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_DNS: Final = ("ClusterFirst", "ClusterFirstWithHostNet", "Default", "None")
_LARGEST_INDEXED: Final = 100_000
_MOST_RULES: Final = 20
_LARGEST_ID: Final = 2**31 - 1


def refused_pod(job: EffectiveJob, sound: frozenset[int]) -> Iterator[Refusal]:
    """Fields of the PodSpec itself."""
    pod = job.pod
    policy = pod.get("restartPolicy") or "OnFailure"
    if policy not in ("OnFailure", "Never"):
        yield _pod(job, "restartPolicy", f'restartPolicy is "{policy}"', "restartPolicy: OnFailure  # or Never")
    if (context := pod.get("securityContext")) and id(context) not in sound:
        for problem, fix in faults_of_pod(context, pod):
            yield _pod(job, "securityContext", problem, fix)
        if (context.get("windowsOptions") or {}).get("hostProcess") and not pod.get("hostNetwork"):
            yield _pod(job, "securityContext", "hostProcess stands without hostNetwork", "windowsOptions: {}")
    for rare in [field for field in pod if field in _RARE]:
        if (value := pod[rare]) is not None:
            for field, problem, fix in _RARE[rare](rare, value, pod):
                yield _pod(job, field, problem, fix)
    for toleration in pod.get("tolerations") or ():
        if toleration.get("operator") in _GATED_OPERATORS:
            yield Refusal(
                JOB_API,
                job.pod_origin("tolerations"),
                f'toleration of "{toleration.get("key")}" has operator "{toleration["operator"]}", which Kubernetes '
                f'takes under gate TaintTolerationComparisonOperators alone, in job "{job.name}"',
                "operator: Equal",
                job=job.name,
                subject="tolerations",
                unsure=True,
            )


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
        manager = spec.get("managedBy")
        if manager not in (None, _CONTROLLER) and is_domain_prefixed(manager):
            yield Refusal(
                JOB_API,
                under(job.job_origin, "managedBy"),
                f'managedBy of job "{job.name}" is "{manager}", so the Job controller passes it over',
                f"managedBy: {_CONTROLLER}",
                job=job.name,
                subject="managedBy",
                unsure=True,
                why=UNSERVED,
            )
        for field, problem, fix in _rare_faults_of_job(job, spec, pods):
            yield _job(job, field, problem, fix, job.receives_trainer and field.startswith(_BY_PODS))
    if metadata := (spec.get("template") or {}).get("metadata"):
        yield from refused_metadata(JOB_API, under(job.job_origin, "template.metadata"), "pod", metadata, job.name)


def _pod(job: EffectiveJob, field: str, problem: str, fix: str) -> Refusal:
    return Refusal(JOB_API, job.pod_origin(field), f'{problem} in job "{job.name}"', fix, job=job.name, subject=field)


def _job(job: EffectiveJob, field: str, problem: str, fix: str, mendable: bool = False) -> Refusal:
    where = under(job.job_origin, field)
    return Refusal(
        JOB_API, where, f'{problem} in job "{job.name}"', fix, job=job.name, subject=field, mendable=mendable
    )


Fault = tuple[str, str, str]
"""Field, problem, fix."""


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


def _faults_of_dns_config(field: str, config: Raw, pod: Raw) -> Iterator[Fault]:
    servers = config.get("nameservers") or ()
    if len(servers) > 3 or not all(map(_is_address, servers)):
        yield field, f"dnsConfig has nameservers {list(servers)}", "nameservers: [<at most three addresses>]"
    for domain in config.get("searches") or ():
        if domain != "." and not is_dns_subdomain(domain.removesuffix(".").replace("_", "-").strip("-") or "-"):
            yield field, f'dnsConfig searches "{domain}"', "searches: [<domain>]"
    if not all(option.get("name") for option in config.get("options") or ()):
        yield field, "dnsConfig has an option without name", "options:\n- name: <name>"


def _is_address(text: str) -> bool:
    if ":" in text:
        return all(part == "" or len(part) <= 4 for part in text.split(":")) or "." in text
    parts = text.split(".")
    return len(parts) == 4 and all(part.isdecimal() and int(part) < 256 and str(int(part)) == part for part in parts)


def _faults_of_runtime_class(field: str, name: str, pod: Raw) -> Iterator[Fault]:
    if not is_dns_subdomain(name):
        yield field, f'{field} "{name}" is no object name', f"{field}: <name>"


def _faults_of_host_override(field: str, name: str, pod: Raw) -> Iterator[Fault]:
    if name and (len(name) > 64 or not is_dns_subdomain(name) or pod.get("hostNetwork")):
        yield field, f'{field} is "{name}"', f"{field}: <name>"


def _faults_of_overhead(field: str, overhead: Raw, pod: Raw) -> Iterator[Fault]:
    for name, text in overhead.items():
        amount = parse_quantity(text)
        if amount is not None and (amount < 0 or ("/" in name and "kubernetes.io/" not in name and amount % BILLION)):
            yield field, f'overhead has {name} "{text}"', f"{name}: <a quantity above 0>"


def _faults_of_system(field: str, system: Raw, pod: Raw) -> Iterator[Fault]:
    if (name := system.get("name") or "") not in ("linux", "windows"):
        yield field, f'os has name "{name}"', "os:\n  name: linux"


def _faults_of_readiness(field: str, gates: list[Raw], pod: Raw) -> Iterator[Fault]:
    for gate in gates:
        if not is_qualified_name(name := gate.get("conditionType") or ""):
            yield field, f'readiness gate "{name}" is no name', "- conditionType: <domain/condition>"


def _faults_of_resource_claims(field: str, claims: list[Raw], pod: Raw) -> Iterator[Fault]:
    for claim in claims:
        name = claim.get("name") or ""
        ways = [claim.get("resourceClaimName"), claim.get("resourceClaimTemplateName")]
        if not is_dns_label(name) or (ways[0] is None) == (ways[1] is None):
            yield (
                field,
                f'resource claim "{name}" is badly named or not one of resourceClaimName and resourceClaimTemplateName',
                "- name: <name>\n  resourceClaimTemplateName: <template>",
            )


def _faults_of_aliases(field: str, aliases: list[Raw], pod: Raw) -> Iterator[Fault]:
    for alias in aliases:
        if not _is_address(alias.get("ip") or "") or not all(map(is_dns_subdomain, alias.get("hostnames") or ())):
            yield field, f'host alias "{alias.get("ip")}" is badly formed', "- ip: <address>\n  hostnames: [<name>]"


def _faults_of_pod_resources(field: str, resources: Raw, pod: Raw) -> Iterator[Fault]:
    for kind in ("limits", "requests"):
        for name in resources.get(kind) or ():
            if name not in ("cpu", "memory") and not name.startswith("hugepages-"):
                yield field, f'resources of the pod name "{name}"', f"{kind}: {{}}  # {name} in the containers"
    limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
    for name, text in requests.items():
        amount, ceiling = parse_quantity(text), parse_quantity(limits.get(name))
        fixed = name.startswith("hugepages-")
        if amount is not None and ceiling is not None and (amount > ceiling or (fixed and amount != ceiling)):
            yield (
                field,
                f'resources of the pod request {name} "{text}" of "{limits[name]}"',
                f"limits:\n  {name}: {text}",
            )


def _faults_of_preemption(field: str, policy: str, pod: Raw) -> Iterator[Fault]:
    if policy not in ("PreemptLowerPriority", "Never"):
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
        elif fault := _fault_of_constraint(constraint):
            yield field, f'the constraint on "{pair[0]}" {fault[0]}', fault[1]
        seen.add(pair)


def _fault_of_constraint(constraint: Raw) -> tuple[str, str] | None:
    domains, keys = constraint.get("minDomains"), constraint.get("matchLabelKeys") or ()
    selector = constraint.get("labelSelector")
    if domains is not None and (domains < 1 or constraint.get("whenUnsatisfiable") != "DoNotSchedule"):
        return f"has minDomains {domains}", "whenUnsatisfiable: DoNotSchedule\nminDomains: <1 or more>"
    for policy in ("nodeAffinityPolicy", "nodeTaintsPolicy"):
        if (word := constraint.get(policy)) is not None and word not in ("Honor", "Ignore"):
            return f'has {policy} "{word}"', f"{policy}: Honor"
    if fault := _fault_of_keys(keys, selector):
        return f"has matchLabelKeys {fault}", "matchLabelKeys: []"
    if fault := fault_of_selector(selector):
        return f"has a labelSelector with {fault}", "labelSelector:\n  matchLabels: {<key>: <value>}"
    return None


def _fault_of_keys(keys: Any, selector: Raw | None) -> str:
    if keys and selector is None:
        return "without labelSelector"
    for key in keys:
        if not is_qualified_name(key):
            return f'with "{key}", which is no label key'
    return ""


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
    if operator in _GATED_OPERATORS:
        return
    if operator not in ("Equal", "Exists"):
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
        named, kept = key if is_qualified_name(key) else "<key>", effect if effect in _EFFECTS else "NoSchedule"
        yield "tolerations", problem, f"- key: {named}\n  operator: Exists\n  effect: {kept}"


_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"


def _faults_of_affinity(field: str, affinity: Raw, pod: Raw) -> Iterator[Fault]:
    node = affinity.get("nodeAffinity") or {}
    at: tuple[str, ...] = ("nodeAffinity", _REQUIRED, "nodeSelectorTerms[]")
    terms: list[tuple[tuple[str, ...], Raw]] = []
    required = node.get(_REQUIRED)
    if required is not None:
        terms += ((at, term) for term in required.get("nodeSelectorTerms") or ())
        if not terms:
            yield (
                "affinity",
                "required nodeAffinity has no nodeSelectorTerms",
                below("matchExpressions:\n- {key: <label>, operator: In, values: [<value>]}", *at),
            )
    at = ("nodeAffinity", f"{_PREFERRED}[]")
    preferred = [(at, term) for term in node.get(_PREFERRED) or ()]
    terms += (((*at, "preference"), term.get("preference") or {}) for _, term in preferred)
    for at, term in terms:
        for expression in term.get("matchExpressions") or ():
            key, operator = expression.get("key") or "", expression.get("operator")
            values = expression.get("values") or ()
            count = len(values)
            if (
                operator not in _OPERATORS
                or (operator in ("In", "NotIn") and not all(map(is_label_value, values)))
                or not is_qualified_name(key)
                or (operator in ("In", "NotIn") and not count)
                or (operator in ("Exists", "DoesNotExist") and count)
                or (operator in ("Gt", "Lt") and count != 1)
            ):
                yield (
                    "affinity",
                    f'nodeAffinity on "{key}" has operator "{operator}" with {count} values',
                    below("{key: <label>, operator: In, values: [<value>]}", *at, "matchExpressions[]"),
                )
        for expression in term.get("matchFields") or ():
            key, named = expression.get("key") or "", expression.get("values") or []
            if (
                key != "metadata.name"
                or expression.get("operator") not in ("In", "NotIn")
                or not (len(named) == 1 and is_dns_subdomain(named[0]))
            ):
                yield (
                    "affinity",
                    f'nodeAffinity on field "{key}" is not metadata.name In or NotIn one node',
                    below("{key: metadata.name, operator: In, values: [<node>]}", *at, "matchFields[]"),
                )
    pods: list[tuple[tuple[str, ...], Raw]] = []
    for kind in ("podAffinity", "podAntiAffinity"):
        part = affinity.get(kind) or {}
        pods += (((kind, f"{_REQUIRED}[]"), term) for term in part.get(_REQUIRED) or ())
        at = (kind, f"{_PREFERRED}[]")
        for term in part.get(_PREFERRED) or ():
            preferred.append((at, term))
            pods.append(((*at, "podAffinityTerm"), term.get("podAffinityTerm") or {}))
    for at, term in pods:
        if not is_qualified_name(term.get("topologyKey") or ""):
            fix = below("topologyKey: kubernetes.io/hostname", *at)
            yield "affinity", "a pod affinity term has no topologyKey", fix
            break
    for at, term in pods:
        selectors = [fault_of_selector(term.get(kind)) for kind in ("labelSelector", "namespaceSelector")]
        keys = [term.get("matchLabelKeys") or (), term.get("mismatchLabelKeys") or ()]
        fault = (
            selectors[0]
            or selectors[1]
            or _fault_of_keys(keys[0], term.get("labelSelector"))
            or (keys[1] and term.get("labelSelector") is None and "mismatchLabelKeys without labelSelector")
            or (not {*keys[0]}.isdisjoint(keys[1]) and "a key of matchLabelKeys in mismatchLabelKeys too")
        )
        fix = "labelSelector:\n  matchLabels: {<key>: <value>}"
        if not fault and not all(map(is_dns_label, term.get("namespaces") or ())):
            fault, fix = "a namespace that is no name", "namespaces: [<namespace>]"
        if fault:
            yield "affinity", f"a pod affinity term has {fault}", below(fix, *at)
    for at, term in preferred:
        if not 1 <= (term.get("weight") or 0) <= 100:
            yield "affinity", "a preferred term has a weight outside 1..100", below("weight: 100", *at)
            break


def _rare_faults_of_job(job: EffectiveJob, spec: Raw, pods: int) -> Iterator[Fault]:
    for field in _NEVER_NEGATIVE[1:]:
        if (spec.get(field) or 0) < 0:
            yield field, f"{field} is {spec[field]}", f"{field}: <0 or more>"
    mode = "Indexed" if (mode := spec.get("completionMode")) is None else mode
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
    if replacement is not None and (
        replacement not in ("Failed", "TerminatingOrFailed") or (policy and replacement != "Failed")
    ):
        beside = " beside podFailurePolicy" if policy else ""
        yield "podReplacementPolicy", f'podReplacementPolicy is "{replacement}"{beside}', "podReplacementPolicy: Failed"
    if spec.get("manualSelector"):
        yield (
            "manualSelector",
            "manualSelector is true, and JobSet's pods bear no labels to select by",
            ("manualSelector: false"),
        )
    elif (spec.get("selector") or {}).get("matchLabels") or (spec.get("selector") or {}).get("matchExpressions"):
        yield "selector", "selector stands without manualSelector", "# no selector"
    if (manager := spec.get("managedBy")) is not None and not is_domain_prefixed(manager):
        yield "managedBy", f'managedBy is "{manager}"', f"managedBy: {_CONTROLLER}"
    if policy is not None and not policy.get("rules"):
        yield "podFailurePolicy", "podFailurePolicy has no rules", "# no podFailurePolicy, or rules in it"
    if policy:
        if len(policy.get("rules") or ()) > _MOST_RULES:
            yield "podFailurePolicy", f"podFailurePolicy has more than {_MOST_RULES} rules", "rules: [<fewer>]"
        names = [container.get("name") for _, _, container in job.containers()]
        for index, rule in enumerate(policy.get("rules") or ()):
            if fault := _fault_of_rule(rule, names, spec.get("backoffLimitPerIndex") is not None):
                yield f"podFailurePolicy.rules[{index}]", fault[0], fault[1]
    success = spec.get("successPolicy")
    if success is not None and mode == "Indexed":
        rules = success.get("rules") or ()
        if not rules or len(rules) > _MOST_RULES:
            yield (
                "successPolicy",
                f"successPolicy has {len(rules) or 'no'} rules, and {_MOST_RULES} is the most",
                "rules:\n- succeededIndexes: '0'",
            )
        for index, rule in enumerate(rules):
            count = rule.get("succeededCount")
            if (count is None and rule.get("succeededIndexes") is None) or not 0 <= (count or 0) <= max(pods, 0):
                yield (
                    f"successPolicy.rules[{index}]",
                    f"a successPolicy rule asks for {count or 'no'} successes of {pods} pods",
                    f"succeededCount: {pods}",
                )
            elif (indexes := rule.get("succeededIndexes")) is not None and not _are_indexes(indexes, pods, count):
                yield (
                    f"successPolicy.rules[{index}]",
                    f'a successPolicy rule names indexes "{indexes}" of {pods} pods',
                    "succeededIndexes: '0'",
                )


def _are_indexes(text: str, pods: int, count: int | None) -> bool:
    """``0,2-4``: ascending, below the number of pods, at least ``count`` of them."""
    last, found = -1, 0
    for part in text.split(",") if text else ():
        first, mark, end = part.partition("-")
        if not first.isdecimal() or (mark and not end.isdecimal()):
            return False
        low, high = int(first), int(end if mark else first)
        if not last < low <= high < max(pods, 1):
            return False
        found += high - low + 1
        last = high
    return count is None or count <= found


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
        right = sorted({*values} - ({0} if operator != "NotIn" else set()))
        listed = ", ".join(map(str, right)) if 0 < len(right) <= 255 else "<code>"
        fix = f"onExitCodes:\n  operator: {'NotIn' if operator == 'NotIn' else 'In'}\n  values: [{listed}]"
        if operator not in ("In", "NotIn"):
            return f'a podFailurePolicy rule has operator "{operator or ""}"', fix
        if not values or len(values) > 255 or values != sorted(set(values)) or (operator == "In" and 0 in values):
            return f"podFailurePolicy exit codes {values} are not ascending, unique and above 0", fix
        if (name := codes.get("containerName")) is not None and name not in containers:
            return f'a podFailurePolicy rule names container "{name}", which the pod does not have', (
                f"containerName: {containers[0] if containers else 'node'}"
            )
    for condition in conditions:
        kind, status = condition.get("type") or "", condition.get("status") or "True"
        if not is_qualified_name(kind) or status not in ("True", "False", "Unknown"):
            return f'a podFailurePolicy rule names condition "{kind}" with status "{status}"', (
                "onPodConditions:\n- type: DisruptionTarget"
            )
    return None


_RARE: Final[dict[str, Callable[[str, Any, Raw], Iterator[Fault]]]] = {
    "nodeSelector": _faults_of_selector,
    "tolerations": _faults_of_tolerations,
    "affinity": _faults_of_affinity,
    "schedulingGates": _faults_of_gates,
    "serviceAccountName": _faults_of_name,
    "priorityClassName": _faults_of_name,
    "serviceAccount": _faults_of_name,
    "nodeName": _faults_of_name,
    "runtimeClassName": _faults_of_runtime_class,
    "hostname": _faults_of_host,
    "hostnameOverride": _faults_of_host_override,
    "dnsConfig": _faults_of_dns_config,
    "overhead": _faults_of_overhead,
    "os": _faults_of_system,
    "readinessGates": _faults_of_readiness,
    "resourceClaims": _faults_of_resource_claims,
    "hostAliases": _faults_of_aliases,
    "resources": _faults_of_pod_resources,
    "activeDeadlineSeconds": _faults_of_deadline,
    "dnsPolicy": _faults_of_dns,
    "preemptionPolicy": _faults_of_preemption,
    "topologySpreadConstraints": _faults_of_spread,
    "shareProcessNamespace": _faults_of_shared_processes,
    "ephemeralContainers": _faults_of_ephemeral,
}
"""The fields of a PodSpec that few pods have, and what may be wrong with each: (field, value, pod) -> faults."""
