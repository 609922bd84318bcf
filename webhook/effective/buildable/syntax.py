"""What Kubernetes accepts as a name, a path, a variable: the checks of its validation packages, without expressions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from webhook.model.caches import kept_texts

_QUALIFIED: Final = str.maketrans("", "", "-_.")


@kept_texts(768)  # the same few names stand in every TrainJob
def is_dns_label(text: str) -> bool:
    """RFC 1123 label: at most 63 of a-z, 0-9 and ``-``, neither first nor last ``-``."""
    return (
        0 < len(text) <= 63
        and text.isascii()
        and text[0] != "-" != text[-1]
        and (text.isalnum() or text.replace("-", "").isalnum())
        and text == text.lower()
    )


def is_dns_1035_label(text: str) -> bool:
    """RFC 1035 label: an RFC 1123 label that starts with a letter."""
    return is_dns_label(text) and text[0].isalpha()


def is_dns_subdomain(text: str) -> bool:
    """RFC 1123 subdomain: labels (of any length) joined by dots, at most 253 characters."""
    return len(text) <= 253 and all(is_dns_label(part[:63].rstrip("-") or part) for part in text.split("."))


def is_env_name(text: str) -> bool:
    """A variable's name as Kubernetes accepts it since 1.34: printable ASCII without ``=``."""
    return (text.isidentifier() and text.isascii()) or (
        text != "" and text.isascii() and text.isprintable() and "=" not in text
    )


@kept_texts(384)
def is_qualified_name(text: str) -> bool:
    """``[prefix/]name`` as for label keys: name of at most 63, alphanumeric at both ends."""
    prefix, mark, name = text.rpartition("/")
    if mark and not (prefix and is_dns_subdomain(prefix)):
        return False
    return name != "" and is_label_value(name)


def is_label_value(text: str) -> bool:
    """Empty, or at most 63 of alphanumerics, ``-``, ``_`` and ``.``, alphanumeric at both ends."""
    if len(text) > 63 or not text.isascii():
        return False
    if text == "" or text.isalnum():
        return True
    return text[0].isalnum() and text[-1].isalnum() and text.translate(_QUALIFIED).isalnum()


def is_port_name(text: str) -> bool:
    """At most 15 of a-z, 0-9 and single ``-``, with a letter."""
    return len(text) <= 15 and is_dns_label(text) and "--" not in text and any(letter.isalpha() for letter in text)


def is_config_key(text: str) -> bool:
    """A key of a ConfigMap or Secret."""
    plain = text.translate(_QUALIFIED)
    return (
        0 < len(text) <= 253
        and text not in (".", "..")
        and not text.startswith("..")
        and (plain == "" or (plain.isascii() and plain.isalnum()))
    )


def steps_back(path: str) -> bool:
    """Whether ``..`` is one of the path's components."""
    return ".." in path and ".." in path.split("/")


def is_header_name(text: str) -> bool:
    """A name of an HTTP header: alphanumerics and ``-``."""
    return text != "" and text.isascii() and text.replace("-", "a").isalnum()


def is_domain_prefixed(text: str) -> bool:
    """``domain/path``, as a controller's name is written in ``managedBy``."""
    domain, mark, path = text.partition("/")
    return bool(mark and path) and is_dns_subdomain(domain) and " " not in path


def fault_of_labels(labels: Mapping[str, Any] | None) -> str:
    """The first pair that is no label, as ``key: value``; empty where all are."""
    for key, value in (labels or {}).items():
        if not is_qualified_name(key) or not is_label_value(value or ""):
            return f"{key}: {value or ''}"
    return ""


def fault_of_selector(selector: Mapping[str, Any] | None) -> str:
    """What is wrong with a label selector, in words; empty where nothing is."""
    if selector is None:
        return ""
    if label := fault_of_labels(selector.get("matchLabels")):
        return f'label "{label}"'
    for expression in selector.get("matchExpressions") or ():
        key, operator = expression.get("key") or "", expression.get("operator") or ""
        values = expression.get("values") or ()
        if (
            not is_qualified_name(key)
            or operator not in ("In", "NotIn", "Exists", "DoesNotExist")
            or (operator in ("In", "NotIn")) != bool(values)
            or not all(map(is_label_value, values))
        ):
            return f'expression on "{key}" with operator "{operator}" and {len(values)} values'
    return ""
