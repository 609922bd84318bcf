"""``ckptguard policy explain [FILE] -n NAMESPACE``: each effective value, and the file and line it comes from."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from webhook.cli.cluster_flags import object_name
from webhook.cli.output import complain
from webhook.cli.outputs import add_output, write_outputs
from webhook.cli.policy.reading import add_namespaces, columns, line_of, settings, shown, stored_namespaces, usable
from webhook.model.cluster import Namespace
from webhook.model.names import MODE, REQUIRE
from webhook.model.policy import Policy

if TYPE_CHECKING:
    from webhook.cluster.policy_file import Checked

BUILT_IN = "built-in"
_OF_ALL = ("namespaces", "exceptions")


def configure(parser: argparse.ArgumentParser) -> None:
    """The file and the namespace."""
    parser.add_argument("file", metavar="FILE", nargs="?", help="the policy file; without it the built-in policy")
    parser.add_argument("--policy", metavar="FILE", help="the same")
    parser.add_argument("-n", "--namespace", type=object_name, help="the namespace; without it what holds elsewhere")
    add_namespaces(parser)
    add_output(parser, ("text", "json"))
    parser.epilog = "exit code: 0 success, 2 the policy or the namespace could not be read"


def run(arguments: argparse.Namespace) -> int:
    """0 or 2, as the help says."""
    file = arguments.file or arguments.policy
    checked: Checked | None = None
    policy = Policy()
    if file is not None:
        found = usable(file)
        if found is None:
            return 2
        checked, policy = found
    namespace = _namespace(arguments)
    if namespace is None:
        return 2
    labels = namespace.labels
    rows = [*_rows(policy, checked, file, namespace.name, labels)]
    known = bool(arguments.state or arguments.live or not arguments.namespace)
    note = "" if known else f"the labels of {namespace.name} are not known here: --live or --state FILE reads them"

    def render(output: str, _: bool) -> str:
        if output == "json":
            from webhook.reports.json import SCHEMA, encode

            results = [{"setting": name, "value": value, "from": source} for name, value, source in rows]
            return encode({"schema": SCHEMA, "results": results, "notes": [note] if note else []})
        lines = columns((name, shown(value), source) for name, value, source in rows)
        return "".join(f"{line}\n" for line in lines) + (f"note: {note}\n" if note else "")

    return 0 if write_outputs(arguments.output, render) else 2


def _namespace(arguments: argparse.Namespace) -> Namespace | None:
    """The namespace with its labels, as far as they are asked for; None, and why, where they cannot be read."""
    name = arguments.namespace or ""
    if not name or not (arguments.state or arguments.live):
        return Namespace(name)
    found = stored_namespaces(arguments, name)
    if found is None:
        return None
    if name not in found:
        complain([f'error: there is no Namespace "{name}" {"among --state" if arguments.state else "in the cluster"}'])
    return found.get(name)


def _rows(
    policy: Policy, checked: Checked | None, file: str | None, namespace: str, labels: Mapping[str, str]
) -> Iterator[tuple[str, Any, str]]:
    """Setting, value, where it comes from; the mode first."""
    from webhook.decision.in_force import in_named, matching

    here = in_named(policy, namespace, labels)
    entries = [f"namespaces[{number}]" for number in matching(policy, namespace, labels)] if namespace else []
    values = settings(here)
    sources = {name: _source(name, entries, checked, file) for name in values}
    mode = labels.get(MODE)
    if mode in ("enforce", "warn", "audit", "off"):
        yield "mode", mode, f"label {MODE} of the namespace"
    else:
        from_entry = [entry for entry in entries if line_of(checked, f"{entry}.mode")]
        place = f"{from_entry[-1]}.mode" if from_entry else "modes.default"
        yield "mode", here.modes.default, _place(checked, file, place)
    if labels.get(REQUIRE) == "true":
        yield "require", True, f"label {REQUIRE} of the namespace"
    if namespace in here.exempt.namespaces:
        yield "exempt", True, _place(checked, file, "exempt.namespaces")
    for name, value in values.items():
        if not name.startswith(_OF_ALL):
            yield name, value, sources[name]
    for number, entry in enumerate(policy.exceptions):
        if _may_be_for(entry.match.namespaces, namespace):
            told = f"{', '.join(entry.rules)} until {entry.until}: {entry.reason} ({entry.owner})"
            yield f"exceptions[{number}]", told, _place(checked, file, f"exceptions[{number}]")


def _may_be_for(patterns: tuple[str, ...], namespace: str) -> bool:
    from webhook.model.glob import fits

    return not namespace or not patterns or any(fits(pattern, namespace) for pattern in patterns)


def _source(name: str, entries: list[str], checked: Checked | None, file: str | None) -> str:
    """The last entry that writes it, else the file, else the built-in policy."""
    for entry in reversed(entries):
        if line_of(checked, f"{entry}.{name}"):
            return _place(checked, file, f"{entry}.{name}")
    return _place(checked, file, name)


def _place(checked: Checked | None, file: str | None, field: str) -> str:
    line = line_of(checked, field)
    return f"{file}:{line}" if line else BUILT_IN
