"""How Checkpoint Guard is registered with an API server."""

import base64
from typing import Any

Object = dict[str, Any]

NAME = "checkpoint-guard"
ANNOTATION = "checkpoint-guard.io/injected"
MANAGER = "checkpoint-guard.io/webhook"
RESOURCES = ("trainjobs", "trainingruntimes", "clustertrainingruntimes")

# Which names we added, the annotation says. It is JSON without spaces; CEL cannot read it, but can look for a text.
_RECORDED = f"""oldObject.metadata.annotations['{ANNOTATION}'].contains('"name":"' + {{name}} + '"')"""

# One alternative for each place that we write to: a recorded name stands there in the old object and not in the new.
_LOST = " || ".join(
    (
        # spec.trainer.env, all releases
        "oldObject.spec.?trainer.?env.orValue([]).exists(e, "
        + _RECORDED.format(name="e.name")
        + " && !object.spec.?trainer.?env.orValue([]).exists(n, n.name == e.name))",
        # Trainer 2.0
        "oldObject.spec.?podSpecOverrides.orValue([]).exists(o, o.?volumes.orValue([]).exists(v, "
        + _RECORDED.format(name="v.name")
        + " && !object.spec.?podSpecOverrides.orValue([]).exists(n, "
        "n.?volumes.orValue([]).exists(w, w.name == v.name))))",
        # Trainer 2.1
        "oldObject.spec.?podTemplateOverrides.orValue([]).exists(o, o.?spec.?volumes.orValue([]).exists(v, "
        + _RECORDED.format(name="v.name")
        + " && !object.spec.?podTemplateOverrides.orValue([]).exists(n, "
        "n.?spec.?volumes.orValue([]).exists(w, w.name == v.name))))",
        # Trainer 2.2 and later: the whole entry is ours
        f"oldObject.spec.?runtimePatches.orValue([]).exists(p, p.manager == '{MANAGER}')"
        f" && !object.spec.?runtimePatches.orValue([]).exists(p, p.manager == '{MANAGER}')",
    )
)


def build_configurations(url: str, ca_pem: str) -> list[Object]:
    """The MutatingWebhookConfiguration and the ValidatingWebhookConfiguration for a server at `url`.

    `/mutate` never blocks anything, with one exception: an UPDATE that takes from a TrainJob what was added to it is
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
    # After `mutate`, so that it is called only where that one, being down, put nothing back.
    put_back = hook("put-back", "/mutate", ["UPDATE"], "Fail", ("trainjobs",)) | {
        "matchConditions": [
            {"name": "not-being-deleted", "expression": "!has(object.metadata.deletionTimestamp)"},
            {
                "name": "something-was-added",
                "expression": f"'{ANNOTATION}' in oldObject.metadata.?annotations.orValue({{}})",
            },
            {"name": "and-is-lost", "expression": _LOST},
        ]
    }
    for mutating in (mutate, put_back):
        mutating["reinvocationPolicy"] = "IfNeeded"
    return [
        {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "MutatingWebhookConfiguration",
            # Mutators run in the order of these names: before Trainer's, which stamps the time into our entry.
            "metadata": {"name": NAME},
            "webhooks": [mutate, put_back],
        },
        {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "ValidatingWebhookConfiguration",
            "metadata": {"name": NAME},
            "webhooks": [
                hook("validate", "/validate", ["CREATE"], "Fail", RESOURCES),
                hook("validate-update", "/validate", ["UPDATE"], "Ignore", RESOURCES),
            ],
        },
    ]
