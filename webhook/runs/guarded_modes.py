"""Whether the ValidatingAdmissionPolicy ``checkpoint-guard-mode`` lets users set what ``modes.selfService`` says.

The API server evaluates it by itself and reads no policy file, so the list stands in both (``deploy/policies``).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from webhook.model.policy import Policy
from webhook.runs.api import Api
from webhook.runs.probe import Probe

NAME: Final = "checkpoint-guard-mode"
_PATH: Final = f"/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies/{NAME}"
_CONFIGMAP: Final = "checkpoint-guard-policy"
_VARIABLE: Final = "selfService"
_WORD: Final = re.compile(r"'([^']*)'")


def self_service(api: Api, guard: str) -> Iterator[Probe]:
    """One probe; none where there is no such ValidatingAdmissionPolicy, or one of the two cannot be looked at."""
    found = api.request("GET", _PATH)
    stored = api.request("GET", f"/api/v1/namespaces/{guard}/configmaps/{_CONFIGMAP}") if found.ok else found
    text = (stored.body.get("data") or {}).get("policy.yaml") if stored.ok else None
    if not isinstance(text, str):
        return
    policy = _policy(text)
    if policy is None:
        yield Probe("modes", "left out", f'ConfigMap "{_CONFIGMAP}" holds no policy that can be used')
        return
    lets, wanted = allowed_by(found.body), policy.modes.self_service
    if lets is not None and set(lets) == set(wanted):
        yield Probe("modes", "as expected", f"users may set {_and(wanted)}")
        return
    says = "fixed words" if lets is None else _and(lets)
    yield Probe(
        "modes",
        "not yet",
        f'modes.selfService is {_and(wanted)}, and ValidatingAdmissionPolicy "{NAME}" lets users set {says}',
        fix=f'in deploy/policies/mode.yaml: {{name: {_VARIABLE}, expression: "{cel(wanted)}"}}, and apply it',
    )


def allowed_by(obj: Mapping[str, Any]) -> tuple[str, ...] | None:
    """The modes that such a ValidatingAdmissionPolicy lets users set; None where it has no variable for them."""
    for one in (obj.get("spec") or {}).get("variables") or ():
        if one.get("name") == _VARIABLE:
            return tuple(word for word in _WORD.findall(str(one.get("expression"))) if word)
    return None


def cel(modes: tuple[str, ...]) -> str:
    """The expression that lists them."""
    quoted = ", ".join([f"'{mode}'" for mode in modes or ("",)])
    return f"[{quoted}]"


def _and(modes: tuple[str, ...]) -> str:
    return " and ".join(modes) if modes else "none"


def _policy(text: str) -> Policy | None:
    from webhook.cluster.policy_file import check_policy

    return check_policy(text.encode("utf-8", "surrogatepass"), _CONFIGMAP).policy
