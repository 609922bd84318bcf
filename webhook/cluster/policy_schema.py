"""The JSON Schema of the policy file: ``python -m webhook.cluster.policy_schema > deploy/policy.schema.json``.

Made of the model's own types, so that it has every field; a test holds it against the parser. It says what an editor
can check while one writes; the parser says more (dates, globs, names that nothing can match).
"""

from __future__ import annotations

import json
from typing import Any, Final

import msgspec

from webhook.cluster.policy_check import INTERNAL
from webhook.model.names import WITHOUT_A_RULE
from webhook.model.policy import NEVER_DENIES, Policy

_ID: Final = "https://raw.githubusercontent.com/checkpoint-guard/checkpoint-guard/main/deploy/policy.schema.json"
_DURATION: Final = {"pattern": "^[0-9]{1,9}[smhd]$"}
_PATH: Final = {"pattern": "^/[^:<$]+$"}
_MORE: Final[dict[tuple[str, str], dict[str, Any]]] = {
    ("Limits", "lostWork"): _DURATION,
    ("EntryLimits", "lostWork"): _DURATION,
    ("Defaults", "path"): _PATH,
    ("EntryDefaults", "path"): _PATH,
    ("Exempt", "runtimes"): {"items": {"type": "string", "pattern": "^(Cluster)?TrainingRuntime/[^*?]+$"}},
    ("Exempt", "namespaces"): {"items": {"type": "string", "pattern": "^[a-z0-9]([a-z0-9-]*[a-z0-9])?$"}},
    ("Match", "fingerprints"): {"items": {"type": "string", "pattern": "^[0-9a-f]{12}$"}},
    ("Exemption", "rules"): {"minItems": 1},
    ("Exemption", "until"): {"pattern": "^[0-9]{4}-[0-9]{2}-[0-9]{2}"},
    ("Exemption", "reason"): {"minLength": 1},
    ("Exemption", "owner"): {"minLength": 1},
}


def schema() -> dict[str, Any]:
    """The schema as JSON values."""
    from webhook.rules import RULES

    made = msgspec.json.schema(Policy)
    parts: dict[str, Any] = made["$defs"]
    for name, part in parts.items():
        for key in INTERNAL:
            part["properties"].pop(key, None)
        for field, told in part["properties"].items():
            told.update(_MORE.get((name, field), {}))
            if field == "rules":
                _name_rules(told, [*(rule.id for rule in RULES), *WITHOUT_A_RULE])
    parts["Policy"]["required"] = ["apiVersion", "kind"]
    service = parts["Policy"]["properties"]["selfService"]
    parts["Policy"]["properties"]["selfService"] = {
        "anyOf": [{"$ref": service["$ref"]}, {"type": "array", "items": {"type": "string"}}],
        "default": service["default"],
    }
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": _ID}
    return {**head, "title": "Checkpoint Guard policy", **made}


def _name_rules(told: dict[str, Any], ids: list[str]) -> None:
    """Ids by name: in a list, or as the keys of severities, where some never deny."""
    if told["type"] == "array":
        told["items"] = {"enum": ids}
        return
    severities = told.pop("additionalProperties")
    lighter = {"enum": [word for word in severities["enum"] if word != "deny"]}
    told["properties"] = {rule: lighter if rule in NEVER_DENIES else severities for rule in ids}
    told["additionalProperties"] = False


def text() -> str:
    """The schema as the file has it."""
    return json.dumps(schema(), indent=1) + "\n"


if __name__ == "__main__":
    print(text(), end="")  # noqa: T201
