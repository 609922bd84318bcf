"""How Checkpoint Guard is registered with an API server."""

import base64
from typing import Any

from webhook.defaults.registration import PROTECTED_NAMESPACES, PROTECTED_RULES, PROTECTED_WHEN, PUT_BACK

Object = dict[str, Any]

NAME = "checkpoint-guard"
RESOURCES = ("trainjobs", "trainingruntimes", "clustertrainingruntimes")


def build_configurations(url: str, ca_pem: str) -> list[Object]:
    """The MutatingWebhookConfiguration and the ValidatingWebhookConfiguration for a server at `url`.

    `/mutate` never blocks anything, with one exception: an UPDATE that takes away what was added to an object is
    refused while the server is down, because the run would go on without its checkpoints. A CREATE is refused while
    the server is down; an UPDATE passes, so that nothing that already runs is wedged.
    """

    def hook(name: str, path: str, operations: list[str], policy: str, resources: tuple[str, ...]) -> Object:
        return {
            "name": f"{name}.checkpoint-guard.io",
            "clientConfig": {"url": f"{url}{path}", "caBundle": base64.b64encode(ca_pem.encode()).decode()},
            "rules": [
                {
                    "apiGroups": ["trainer.kubeflow.org"],
                    "apiVersions": ["v1alpha1"],
                    "operations": operations,
                    "resources": list(resources),
                    "scope": "*",
                }
            ],
            "failurePolicy": policy,
            "matchPolicy": "Equivalent",
            "sideEffects": "None",
            "timeoutSeconds": 5,
            "admissionReviewVersions": ["v1"],
        }

    mutate = hook("mutate", "/mutate", ["CREATE", "UPDATE"], "Ignore", RESOURCES)
    # After `mutate`, so that they are called only where that one, being down, put nothing back.
    put_back = [
        hook(one.name, "/mutate", ["UPDATE"], "Fail", one.resources)
        | {"matchConditions": [dict(condition) for condition in one.conditions]}
        for one in PUT_BACK
    ]
    for mutating in (mutate, *put_back):
        mutating["reinvocationPolicy"] = "IfNeeded"
    protect = hook("protect", "/validate", [], "Ignore", RESOURCES) | {
        "rules": [dict(rule) for rule in PROTECTED_RULES],
        "namespaceSelector": {"matchExpressions": [dict(PROTECTED_NAMESPACES)]},
        "matchConditions": [dict(condition) for condition in PROTECTED_WHEN],
    }
    return [
        {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "MutatingWebhookConfiguration",
            # Mutators run in the order of these names: before Trainer's, which stamps the time into our entry.
            "metadata": {"name": NAME},
            "webhooks": [mutate, *put_back],
        },
        {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "ValidatingWebhookConfiguration",
            "metadata": {"name": NAME},
            "webhooks": [
                hook("validate", "/validate", ["CREATE"], "Fail", RESOURCES),
                hook("validate-update", "/validate", ["UPDATE"], "Ignore", RESOURCES),
                protect,
            ],
        },
    ]
