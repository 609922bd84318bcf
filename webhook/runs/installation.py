"""What can be wrong with an installation: registration, certificate, Service, endpoints, CRDs, mode."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from msgspec import Struct

from webhook.defaults.registration import PUT_BACK
from webhook.model.names import GROUP, MODE
from webhook.model.policy import Policy
from webhook.runs.api import Answer, Api

Raw = Mapping[str, Any]

CONFIGURATION: Final = "checkpoint-guard"
KINDS: Final = {
    "MutatingWebhookConfiguration": "mutatingwebhookconfigurations",
    "ValidatingWebhookConfiguration": "validatingwebhookconfigurations",
}
_HOOKS: Final = {
    "MutatingWebhookConfiguration": ("mutate", *(one.name for one in PUT_BACK)),
    "ValidatingWebhookConfiguration": ("validate", "validate-update", "protect"),
}
"""Their webhooks, each with ``.checkpoint-guard.io`` behind its name."""
_COMPONENT: Final = "app.kubernetes.io/component"
_KEEPERS: Final = ("certs", "keeper")
"""Components that turn the registration to Fail, and make the certificates or leave them to cert-manager."""
_REGISTRATION: Final = "/apis/admissionregistration.k8s.io/v1"
VALIDATING: Final = f"{_REGISTRATION}/validatingwebhookconfigurations"
_CRDS: Final = tuple(f"{plural}.{GROUP}" for plural in ("trainjobs", "trainingruntimes", "clustertrainingruntimes"))


class Installation(Struct, frozen=True):
    """Where the guard is (``guard``: its namespace) and in which namespace it is tried."""

    guard: str = "checkpoint-guard"
    namespace: str = "default"
    service: str = "checkpoint-guard"


class Fault(Struct, frozen=True):
    """One thing that is wrong: the part, the fact, and what to do."""

    part: str
    problem: str
    fix: str


def find_faults(api: Api, installation: Installation) -> Iterator[Fault]:
    """Everything that is wrong, as far as this user may look. Raises Unreachable."""
    yield from _crds(api)
    hooks: list[Raw] = []
    yield from _registration(api, installation, hooks)
    if not hooks or any((hook.get("clientConfig") or {}).get("service") for hook in hooks):
        yield from _service(api, installation)
    yield from _mode(api, installation, hooks)


def explain_call(message: str) -> Fault:
    """Why the API server could not call the webhook, from what it says."""
    text = message.partition("failed calling webhook")[2].rpartition('": ')[2] or message
    text = " ".join(text.split())[:300]
    lower = message.lower()
    if "x509" in lower or "tls:" in lower or "certificate" in lower:
        return Fault(
            "certificate",
            f"the API server does not trust what the guard serves: {text}",
            "caBundle and the serving pair do not belong together: ckptguard certs check, or kubectl describe "
            "certificate where cert-manager makes them",
        )
    if "service" in lower and "not found" in lower:
        return Fault("service", f"there is no Service to call: {text}", "apply the manifests again")
    if "connection refused" in lower or "no endpoints" in lower or "no route to host" in lower:
        return Fault("endpoints", f"no pod of the guard answers: {text}", "kubectl get pods: is one ready?")
    if "deadline exceeded" in lower or "timeout" in lower or "timed out" in lower:
        return Fault(
            "network",
            f"the guard does not answer the API server in time: {text}",
            "let the control plane reach port 8443 of the pods (firewall, NetworkPolicy), and look at their load",
        )
    return Fault("call", f"the API server cannot call the guard: {text}", "look at the log of the guard's pods")


def _crds(api: Api) -> Iterator[Fault]:
    for name in _CRDS:
        answer = api.request("GET", f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{name}")
        if answer.code == 404:
            yield Fault("CRDs", f'CustomResourceDefinition "{name}" does not exist', "install Kubeflow Trainer v2")
        elif not answer.ok:
            yield _unseen("CRDs", answer)
            return


def _registration(api: Api, installation: Installation, hooks: list[Raw]) -> Iterator[Fault]:
    """``hooks`` takes in the webhooks that are registered."""
    bundles: dict[str, str] = {}
    for kind, plural in KINDS.items():
        answer = api.request("GET", f"{_REGISTRATION}/{plural}/{CONFIGURATION}")
        if answer.code == 404:
            yield Fault("registration", f'{kind} "{CONFIGURATION}" does not exist', "apply the manifests again")
            continue
        if not answer.ok:
            yield _unseen("registration", answer)
            continue
        found = answer.body.get("webhooks") or ()
        hooks.extend(found)
        names = [f"{name}.checkpoint-guard.io" for name in _HOOKS[kind]]
        if lacking := [name for name in names if all(hook.get("name") != name for hook in found)]:
            missing = ", ".join(f'"{name}"' for name in lacking)
            yield Fault("registration", f'{kind} "{CONFIGURATION}" lacks {missing}', "apply the manifests again")
        for hook in found:
            name = str(hook.get("name"))
            config = hook.get("clientConfig") or {}
            bundles[f"{kind} {name}"] = str(config.get("caBundle") or "")
            service = config.get("service")
            if service and (service.get("namespace"), service.get("name")) != (
                installation.guard,
                installation.service,
            ):
                yield Fault(
                    "service",
                    f'{kind} "{name}" calls Service "{service.get("namespace")}/{service.get("name")}", '
                    f'the guard is "{installation.guard}/{installation.service}"',
                    "apply the manifests again, or say --guard-namespace",
                )
    without = [name for name, bundle in bundles.items() if not bundle]
    if without:
        yield Fault(
            "caBundle",
            f"{len(without)} of {len(bundles)} webhooks have none ({without[0]}, ...)",
            f"whoever makes the certificates has not written it: kubectl logs -n {installation.guard} "
            f"deploy/{installation.service}-certs, or cert-manager's cainjector",
        )
    elif len(set(bundles.values())) > 1:
        yield Fault("caBundle", "the webhooks do not have the same", "ckptguard certs check")


def _service(api: Api, installation: Installation) -> Iterator[Fault]:
    namespace, name = installation.guard, installation.service
    answer = api.request("GET", f"/api/v1/namespaces/{namespace}/services/{name}")
    if answer.code == 404:
        yield Fault("service", f'there is no Service "{name}" in namespace {namespace}', "apply the manifests again")
        return
    if not answer.ok:
        yield _unseen("service", answer)
        return
    slices = api.request(
        "GET",
        f"/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices",
        {"labelSelector": f"kubernetes.io/service-name={name}"},
    )
    if not slices.ok:
        yield _unseen("endpoints", slices)
        return
    ready = [
        endpoint
        for piece in slices.body.get("items") or ()
        for endpoint in piece.get("endpoints") or ()
        if (endpoint.get("conditions") or {}).get("ready") is not False
    ]
    if not ready:
        yield Fault(
            "endpoints",
            f'Service "{name}" has no ready endpoint: {_pods(api, namespace)}',
            f"kubectl get pods -n {namespace}; kubectl logs -n {namespace} deploy/{name}",
        )


def _pods(api: Api, namespace: str) -> str:
    answer = api.request(
        "GET",
        f"/api/v1/namespaces/{namespace}/pods",
        {"labelSelector": f"app.kubernetes.io/name=checkpoint-guard,{_COMPONENT} in (webhook,{','.join(_KEEPERS)})"},
    )
    if not answer.ok:
        return f"and its pods cannot be looked at ({answer.message})"
    pods = list(answer.body.get("items") or ())
    states = [_state(pod) for pod in pods if _component(pod) not in _KEEPERS][:5] or ["there is no pod"]
    # Without the Secret that the keeper makes, a pod of the webhook does not even try to pull its image.
    late = [pod for pod in pods if _component(pod) in _KEEPERS and not _ready(pod)]
    return "; ".join([*states, *(f"the keeper's {_state(pod)}" for pod in late[:2])])


def _component(pod: Raw) -> object:
    return ((pod.get("metadata") or {}).get("labels") or {}).get(_COMPONENT)


def _ready(pod: Raw) -> bool:
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return any(one.get("type") == "Ready" and one.get("status") == "True" for one in conditions)


def _state(pod: Raw) -> str:
    name, status = (pod.get("metadata") or {}).get("name"), pod.get("status") or {}
    for container in status.get("containerStatuses") or ():
        waiting = (container.get("state") or {}).get("waiting")
        if waiting:
            more = f" ({waiting['message'][:120]})" if waiting.get("message") else ""
            return f'pod "{name}" waits: {waiting.get("reason")}{more}'
        if not container.get("ready"):
            return f'pod "{name}" runs and is not ready'
    for condition in status.get("conditions") or ():
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            return f'pod "{name}" is not scheduled: {condition.get("message", "")[:160]}'
    return f'pod "{name}" is {status.get("phase")}'


def _mode(api: Api, installation: Installation, hooks: list[Raw]) -> Iterator[Fault]:
    answer = api.request("GET", f"/api/v1/namespaces/{installation.namespace}")
    if answer.code == 404:
        yield Fault("namespace", f'namespace "{installation.namespace}" does not exist', "say --namespace")
        return
    if not answer.ok:
        yield _unseen("mode", answer)
        return
    labels = (answer.body.get("metadata") or {}).get("labels") or {}
    label = labels.get(MODE)
    if label in ("off", "audit"):
        yield Fault(
            "mode",
            f'namespace "{installation.namespace}" is labelled {MODE}={label}, so nothing is refused there',
            f"kubectl label namespace {installation.namespace} {MODE}-, or say another --namespace",
        )
    elif left_out := [str(hook.get("name")) for hook in hooks if not _selects(hook.get("namespaceSelector"), labels)]:
        yield Fault(
            "mode",
            f'namespace "{installation.namespace}" is left out by the namespaceSelector of "{left_out[0]}"',
            "say another --namespace",
        )
    elif installation.namespace in Policy().exempt.namespaces:
        problem = f'namespace "{installation.namespace}" is exempt, so nothing is refused there'
        yield Fault("mode", problem, "say another --namespace")


def _selects(selector: Raw | None, labels: Raw) -> bool:
    """Whether a label selector takes these labels; an absent one takes all."""
    wanted = selector or {}
    for one in wanted.get("matchExpressions") or ():
        there = one.get("key") in labels
        among = there and labels[one["key"]] in (one.get("values") or ())
        if not {"In": among, "NotIn": not among, "Exists": there, "DoesNotExist": not there}.get(one["operator"], True):
            return False
    return dict(wanted.get("matchLabels") or {}).items() <= dict(labels).items()


def _unseen(part: str, answer: Answer) -> Fault:
    if answer.code in (401, 403):
        return Fault("RBAC", f"{part} cannot be looked at: {answer.message}", "run it as somebody who may look")
    return Fault(part, f"cannot be looked at: {answer.message}", "try again")
