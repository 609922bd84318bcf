"""What the actions have in common: a policy file read, its faults told, its settings by name."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import msgspec

from webhook.cli.output import complain
from webhook.model.cluster import Namespace
from webhook.model.policy import Policy, changed

if TYPE_CHECKING:
    from webhook.cluster.documents import FileError
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


def add_namespaces(parser: argparse.ArgumentParser) -> None:
    """Where the cluster's Namespaces are read from, for their labels."""
    parser.add_argument(
        "--state", metavar="PATH", action="append", default=[], help="files or folders with the Namespaces; repeatable"
    )
    parser.add_argument("--live", action="store_true", help="read the Namespaces of the current cluster")
    parser.add_argument("--context", help="with --live: context of the kubeconfig")
    parser.add_argument("--kubeconfig", metavar="FILE", help="with --live: default: as for kubectl")


def stored_namespaces(arguments: argparse.Namespace, only: str = "") -> dict[str, Namespace] | None:
    """Those of ``--state`` or ``--live`` by name, or one of them; None, and why, where they cannot be read."""
    from webhook.cluster.objects import parse_namespace

    if arguments.state:
        from webhook.cluster.files import load_files

        loaded = load_files(arguments.state, settled=False)
        if loaded.errors:
            complain(f"error: {error}" for error in loaded.errors)
            return None
        return {document.name: parse_namespace(document.object) for document in loaded.of_kind("Namespace")}
    from pathlib import Path

    from webhook.cli.cluster_flags import connect
    from webhook.cluster.access import Refused, Unreachable
    from webhook.runs.api import each

    api = connect(Path(arguments.kubeconfig) if arguments.kubeconfig else None, arguments.context)
    if api is None:
        return None
    params = {"fieldSelector": f"metadata.name={only}"} if only else None
    try:
        found = [parse_namespace(raw) for raw in each(api, "/api/v1/namespaces", params)]
    except (Refused, Unreachable) as error:
        complain([f"error: {error}"])
        return None
    return {one.name: one for one in found}


def line_of(checked: Checked | None, field: str) -> int:
    """The line of a field that the file writes; 0 where it does not."""
    if checked is None or checked.piece is None:
        return 0
    from webhook.cluster.places import steps_of
    from webhook.cluster.yaml_text import places

    value: Any = checked.raw
    for step in steps_of(field):
        try:
            value = value[step]
        except (KeyError, IndexError, TypeError):
            return 0
    found = places(checked.piece)
    return found[0].find(steps_of(field)) if found else 0
