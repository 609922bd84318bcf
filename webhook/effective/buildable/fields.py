"""What a variable or a file of the downward API may read (kubernetes ``validateEnvVarValueFrom``)."""

from __future__ import annotations

from typing import Final

from webhook.effective.buildable.syntax import is_config_key, is_dns_subdomain, is_qualified_name, steps_back
from webhook.model.pod import Raw
from webhook.model.quantity import parse_quantity

_FIELDS: Final = frozenset(
    [
        "metadata.name",
        "metadata.namespace",
        "metadata.uid",
        "spec.nodeName",
        "spec.host",
        "spec.serviceAccountName",
        "status.hostIP",
        "status.hostIPs",
        "status.podIP",
        "status.podIPs",
    ]
)
_KEYED: Final = ("metadata.labels['", "metadata.annotations['")
_RESOURCES: Final = frozenset(
    f"{kind}.{name}" for kind in ("limits", "requests") for name in ("cpu", "memory", "ephemeral-storage")
)
_DIVISORS: Final = {
    "cpu": ("0", "1", "1m"),
    "": ("0", "1", "1k", "1M", "1G", "1T", "1P", "1E", "1Ki", "1Mi", "1Gi", "1Ti", "1Pi", "1Ei"),
}
"""What ``resourceFieldRef`` may divide by: CPUs, and everything else."""


def fault_of_source(kind: str, value: Raw) -> tuple[str, str]:
    """What is wrong with one source of a variable, and how to write it; two empty texts where it is right."""
    if kind == "fieldRef":
        path = value.get("fieldPath") or ""
        if "apiVersion" in value and (version := odd_version(value)):
            return f'reads field "{path}" of apiVersion "{version}"', f"fieldRef:\n  fieldPath: {path}"
        if path not in _FIELDS and not is_keyed_field(path):
            return (
                f'reads field "{path}", which the downward API does not have',
                "fieldRef:\n  fieldPath: metadata.name",
            )
    elif kind == "resourceFieldRef":
        return fault_of_resource_field(value)
    elif kind in ("configMapKeyRef", "secretKeyRef"):
        if not (value.get("name") and is_config_key(value.get("key") or "")):
            return f"has a {kind} without a name and a key", f"{kind}:\n  name: <name>\n  key: <key>"
        if not is_dns_subdomain(value["name"]):
            return f'has a {kind} of name "{value["name"]}", which is no object name', f"{kind}:\n  name: <name>"
    elif kind == "fileKeyRef":
        path = value.get("path") or ""
        if not value.get("key") or not path or path[0] == "/" or steps_back(path):
            return f'reads key "{value.get("key") or ""}" of file "{path}"', "fileKeyRef:\n  key: <key>\n  path: <file>"
    return "", ""


def odd_version(field: Raw) -> str:
    """The ``apiVersion`` of a ``fieldRef`` that is not the one of pods; absent and empty mean ``v1``."""
    version = field.get("apiVersion") or ""
    return "" if version == "v1" else str(version)


def is_keyed_field(path: str) -> bool:
    """``metadata.labels['<key>']`` and ``metadata.annotations['<key>']``."""
    if not path.startswith(_KEYED) or not path.endswith("']"):
        return False
    key = path[path.index("'") + 1 : -2]
    return is_qualified_name(key.lower() if path.startswith(_KEYED[1]) else key)


def fault_of_resource_field(value: Raw) -> tuple[str, str]:
    """The same of a ``resourceFieldRef``."""
    resource = value.get("resource") or ""
    if resource not in _RESOURCES and not resource.startswith(("requests.hugepages-", "limits.hugepages-")):
        return f'reads resource "{resource}", which the downward API does not have', (
            "resourceFieldRef:\n  resource: limits.cpu"
        )
    divisor = value.get("divisor")
    if divisor is not None and (amount := parse_quantity(divisor)) is not None:
        allowed = _DIVISORS["cpu" if resource.endswith(".cpu") else ""]
        if amount not in [parse_quantity(one) for one in allowed]:
            return f'divides resource "{resource}" by "{divisor}"', "resourceFieldRef:\n  divisor: '1'"
    return "", ""
