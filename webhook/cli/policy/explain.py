"""``ckptguard policy explain [FILE] -n NAMESPACE``: each effective value, and the file and line it comes from."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from webhook.cli.cluster_flags import object_name
from webhook.cli.output import complain
from webhook.cli.outputs import add_output, write_outputs
from webhook.cli.policy.reading import columns, settings, shown, usable
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
    parser.add_argument(
        "--state", metavar="PATH", action="append", default=[], help="where the Namespace stands, for its labels"
    )
    parser.add_argument("--live", action="store_true", help="read its labels from the current cluster")
    parser.add_argument("--context", help="with --live: context of the kubeconfig")
    parser.add_argument("--kubeconfig", metavar="FILE", help="with --live: default: as for kubectl")
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
    if not name:
        return Namespace("")
    if arguments.state:
        from webhook.cluster.files import load_files
        from webhook.cluster.objects import parse_namespace

        loaded = load_files(arguments.state, settled=False)
        if loaded.errors:
            complain(f"error: {error}" for error in loaded.errors)
            return None
        for document in loaded.of_kind("Namespace"):
            if document.name == name:
                return parse_namespace(document.object)
        complain([f'error: there is no Namespace "{name}" among --state'])
        return None
    return _live(arguments, name) if arguments.live else Namespace(name)


def _live(arguments: argparse.Namespace, name: str) -> Namespace | None:
    from pathlib import Path

    from webhook.cli.cluster_flags import connect
    from webhook.cluster.objects import parse_namespace
    from webhook.runs.api import Unreachable

    api = connect(Path(arguments.kubeconfig) if arguments.kubeconfig else None, arguments.context)
    if api is None:
        return None
    try:
        answer = api.request("GET", f"/api/v1/namespaces/{name}")
    except Unreachable as error:
        complain([f"error: {error}"])
        return None
    if not answer.ok:
        complain([f'error: namespace "{name}" cannot be read: {answer.message}'])
        return None
    return parse_namespace(answer.body)


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
        from_entry = [entry for entry in entries if _line(checked, f"{entry}.mode")]
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
        if _line(checked, f"{entry}.{name}"):
            return _place(checked, file, f"{entry}.{name}")
    return _place(checked, file, name)


def _place(checked: Checked | None, file: str | None, field: str) -> str:
    line = _line(checked, field)
    return f"{file}:{line}" if line else BUILT_IN


def _line(checked: Checked | None, field: str) -> int:
    """The line of a field that the file writes; 0 where it does not."""
    if checked is None or checked.piece is None:
        return 0
    from webhook.cluster.yaml_text import places, steps_of

    value: Any = checked.raw
    for step in steps_of(field):
        try:
            value = value[step]
        except (KeyError, IndexError, TypeError):
            return 0
    found = places(checked.piece)
    return found[0].find(steps_of(field)) if found else 0
