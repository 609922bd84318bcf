"""What the actions have in common: a policy file read, its faults told, its settings by name."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import msgspec

from webhook.cli.output import complain
from webhook.model.policy import Policy, changed

if TYPE_CHECKING:
    from webhook.cluster.files import FileError
    from webhook.cluster.policy_file import Checked

_UNTOLD = ("apiVersion", "kind", "hash", "derived")


def read(path: str) -> Checked | None:
    """A policy file; None, and a line on standard error, where there is none to read."""
    from webhook.cluster.policy_file import read_policy

    checked = read_policy(path)
    if checked.unread:
        complain(f"error: {fault}" for fault in checked.faults)
        return None
    return checked


def usable(path: str) -> tuple[Checked, Policy] | None:
    """A policy file without faults; None, and all its faults on standard error."""
    checked = read(path)
    if checked is None:
        return None
    if checked.policy is None:
        complain(f"error: {fault}" for fault in checked.faults)
        return None
    return checked, checked.policy


def told(fault: FileError) -> dict[str, Any]:
    """A fault or warning in JSON."""
    return {"line": fault.line, "field": fault.field, "message": fault.message}


def settings(policy: Policy) -> dict[str, Any]:
    """Every value by its name: ``limits.maxRestarts``. Entries of lists by their number; rules by their id."""
    values = msgspec.to_builtins(changed(policy))
    return dict(_flat("", {key: value for key, value in values.items() if key not in _UNTOLD}))


def _flat(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict) and (value or not name):
        for key, item in value.items():
            yield from _flat(f"{name}[{key}]" if "." in key or "/" in key else f"{name}.{key}".lstrip("."), item)
    elif isinstance(value, list | tuple) and value and all(isinstance(item, dict) for item in value):
        for number, item in enumerate(value):
            yield f"{name}[{number}]", item
    elif value != {}:
        yield name, value


def shown(value: Any) -> str:
    """A value on one line, as YAML would take it."""
    return "-" if value is None else value if isinstance(value, str) else msgspec.json.encode(value).decode()


def columns(rows: Iterable[tuple[str, ...]]) -> Iterator[str]:
    """Rows as aligned lines."""
    kept = list(rows)
    widths = [max(len(row[at]) for row in kept) for at in range(len(kept[0]) - 1)] if kept else []
    for row in kept:
        yield "  ".join((*(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=False)), row[-1])).rstrip()
