"""The CRD of CheckpointException, made of the model: `deploy/components/exceptions/crd.yaml` is written from it."""

from typing import Any, Final

from webhook.model.names import EXCEPTION, EXCEPTION_GROUP, WITHOUT_A_RULE
from webhook.model.policy import NO_EXCEPTION
from webhook.rules import RULES

Object = dict[str, Any]

_DAY: Final = (
    r"^[0-9]{4}-[0-9]{2}-[0-9]{2}([Tt][0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,9})?([Zz]|[+-][0-9]{2}:[0-9]{2}))?$"
)
_REAL_DAY: Final = (
    "timestamp(size(self) == 10 ? self + 'T00:00:00Z' : self.upperAscii()) > timestamp('2000-01-01T00:00:00Z')"
)


def _texts(most: int, description: str, **of_item: Any) -> Object:
    return {
        "type": "array",
        "description": description,
        "maxItems": most,
        "x-kubernetes-list-type": "set",
        "items": {"type": "string", "minLength": 1, **of_item},
    }


def _said(description: str) -> Object:
    return {"type": "string", "description": description, "maxLength": 1024, "pattern": r"\S"}


def build_crd() -> Object:
    """The CustomResourceDefinition as an object."""
    ids = [rule for rule in (*(rule.id for rule in RULES), *WITHOUT_A_RULE) if rule not in NO_EXCEPTION]
    whole = {"maxLength": 253, "pattern": r"^[^*\s]+$"}
    match = {
        "type": "object",
        "description": "Which objects of this namespace it is for: all that is written has to fit. Empty: all of them.",
        "properties": {
            "names": _texts(128, "Names of objects, or globs.", maxLength=253, pattern="^[a-z0-9.*?-]+$"),
            "users": _texts(128, "Names of those who send the object, whole.", **whole),
            "groups": _texts(128, "Groups of those who send the object, whole.", **whole),
            "labels": {
                "type": "object",
                "description": "Labels of the object itself.",
                "maxProperties": 16,
                "additionalProperties": {"type": "string", "maxLength": 63, "pattern": "^[^*?]*$"},
            },
            "fingerprints": _texts(
                128, "One fault of one object each, from ckptguard review -o json.", pattern="^[0-9a-f]{12}$"
            ),
        },
    }
    spec = {
        "type": "object",
        "required": ["rules", "reason", "owner", "until"],
        "properties": {
            "rules": {
                **_texts(len(ids), "Ids of the rules whose findings do not count, as ckptguard rules lists them."),
                "minItems": 1,
                "items": {"type": "string", "enum": ids},
            },
            "match": match,
            "reason": _said("Why; it is told at every use."),
            "owner": _said("Whom to ask."),
            "until": {
                "type": "string",
                "description": "A day (UTC, that day no longer counts) or an RFC 3339 time, at most the policy's "
                "limits.exceptionDays ahead.",
                "maxLength": 40,
                "pattern": _DAY,
                "x-kubernetes-validations": [{"rule": _REAL_DAY, "message": "no day: write 2027-03-31"}],
            },
        },
    }
    schema = {
        "type": "object",
        "description": "What some rules find in objects of this namespace does not count, until a day.",
        "required": ["spec"],
        "properties": {"apiVersion": {"type": "string"}, "kind": {"type": "string"}, "metadata": {"type": "object"}}
        | {"spec": spec},
    }
    columns = [
        {"name": name, "type": "string", "jsonPath": f".spec.{field}"}
        for name, field in (("Rules", "rules"), ("Until", "until"), ("Owner", "owner"), ("Reason", "reason"))
    ]
    version = {
        "name": "v1alpha1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema},
        "additionalPrinterColumns": columns,
    }
    names = {
        "kind": EXCEPTION,
        "listKind": f"{EXCEPTION}List",
        "plural": "checkpointexceptions",
        "singular": "checkpointexception",
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": f"checkpointexceptions.{EXCEPTION_GROUP}",
            # Without the definition all exceptions would be gone.
            "annotations": {"helm.sh/resource-policy": "keep"},
        },
        "spec": {"group": EXCEPTION_GROUP, "names": names, "scope": "Namespaced", "versions": [version]},
    }
