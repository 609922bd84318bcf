"""Label selectors, as Kubernetes matches them (apimachinery ``labels.Selector``), and their syntax."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from webhook.model.policy import Requirement, Selector

_NAME: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?", re.ASCII)
_PREFIX: Final = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*", re.ASCII)


def selects(selector: Selector, labels: Mapping[str, str]) -> bool:
    """Whether the labels fit."""
    return all(labels.get(key) == value for key, value in selector.match_labels.items()) and all(
        _fits(one, labels) for one in selector.match_expressions
    )


def _fits(one: Requirement, labels: Mapping[str, str]) -> bool:
    match one.operator:
        case "In":
            return labels.get(one.key) in one.values
        case "NotIn":
            return labels.get(one.key) not in one.values
        case "Exists":
            return one.key in labels
        case _:
            return one.key not in labels


def contradiction(selector: Selector) -> str | None:
    """The key whose conditions no object can meet together; None where each can be met."""
    keys = {*selector.match_labels, *(one.key for one in selector.match_expressions)}
    for key in keys:
        expressions = [one for one in selector.match_expressions if one.key == key]
        wanted = {selector.match_labels[key]} if key in selector.match_labels else None
        barred: set[str] = set()
        there = key in selector.match_labels
        for one in expressions:
            if one.operator == "In":
                wanted = {*one.values} if wanted is None else wanted & {*one.values}
            elif one.operator == "NotIn":
                barred.update(one.values)
            there = there or one.operator in ("In", "Exists")
        gone = any(one.operator == "DoesNotExist" for one in expressions)
        if (there and gone) or (wanted is not None and not wanted - barred):
            return key
    return None


def is_label_key(text: str) -> bool:
    """``name`` or ``prefix/name``, as the API server takes it."""
    prefix, slash, name = text.rpartition("/")
    if slash and not (len(prefix) <= 253 and _PREFIX.fullmatch(prefix)):
        return False
    return _NAME.fullmatch(name) is not None


def is_label_value(text: str) -> bool:
    """At most 63 letters, or empty, as the API server takes it."""
    return not text or _NAME.fullmatch(text) is not None
