"""``ckptguard policy check FILE...``."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from webhook.cli.outputs import add_output, write_outputs
from webhook.cli.policy.reading import add_namespaces, line_of, read, stored_namespaces, told
from webhook.model.policy import Modes

if TYPE_CHECKING:
    from webhook.cluster.documents import FileError
    from webhook.cluster.policy_file import Checked
    from webhook.model.cluster import Namespace


def configure(parser: argparse.ArgumentParser) -> None:
    """The files."""
    parser.add_argument("files", metavar="FILE", nargs="+", help="policy files; - for standard input")
    add_namespaces(parser)
    add_output(parser, ("text", "json"))
    parser.epilog = "exit code: 0 no fault (warnings do not count), 1 a fault, 2 a file could not be read"


def run(arguments: argparse.Namespace) -> int:
    """0, 1 or 2, as the help says."""
    results: list[dict[str, Any]] = []
    lines: list[str] = []
    unread = False
    there = stored_namespaces(arguments) if arguments.state or arguments.live else {}
    if there is None:
        return 2
    for file in arguments.files:
        checked = read(file)
        if checked is None:
            unread = True
            continue
        warnings = [*checked.warnings, *_elsewhere(checked, file), *_idle(checked, file, there)]
        results.append(
            {
                "file": file,
                "hash": None if checked.policy is None else checked.policy.hash,
                "faults": [told(fault) for fault in checked.faults],
                "warnings": [told(warning) for warning in warnings],
            }
        )
        lines += [f"{fault}" for fault in checked.faults]
        lines += [f"{warning} (warning)" for warning in warnings]
        if checked.policy is not None:
            lines.append(f"{file}: no fault, policy {checked.policy.hash}")

    def render(output: str, _: bool) -> str:
        if output == "json":
            from webhook.reports.json import SCHEMA, encode

            return encode({"schema": SCHEMA, "results": results})
        return "".join(f"{line}\n" for line in lines)

    done = write_outputs(arguments.output, render)
    if unread or not done:
        return 2
    return 1 if any(result["faults"] for result in results) else 0


def _elsewhere(checked: Checked, file: str) -> Iterator[FileError]:
    """What holds only where the cluster's own ValidatingAdmissionPolicy says the same."""
    policy = checked.policy
    if policy is None or {*policy.modes.self_service} == {*Modes().self_service}:
        return
    from webhook.cluster.documents import FileError
    from webhook.runs.guarded_modes import NAME, cel

    field = "modes.selfService"
    words = (
        f'ValidatingAdmissionPolicy "{NAME}" has to say the same, in variable selfService: '
        f"{cel(policy.modes.self_service)}; the chart writes it, deploy/policies/mode.yaml is to be changed, "
        "ckptguard install-check compares"
    )
    yield FileError(file, line_of(checked, field) or None, field, words)


def _idle(checked: Checked, file: str, there: Mapping[str, Namespace]) -> Iterator[FileError]:
    """What is for none of the namespaces that there are; nothing where none are known."""
    policy = checked.policy
    if policy is None or not there:
        return
    from webhook.cluster.documents import FileError
    from webhook.decision.in_force import matching

    used = {number for one in there.values() for number in matching(policy, one.name, one.labels)}
    fields = [f"namespaces[{number}]" for number in range(len(policy.namespaces)) if number not in used]
    for number, entry in enumerate(policy.exceptions):
        patterns = entry.match.namespaces
        if patterns and not any(_fits_one(pattern, there) for pattern in patterns):
            fields.append(f"exceptions[{number}].match.namespaces")
    for field in fields:
        yield FileError(file, line_of(checked, field) or None, field, "no namespace that there is fits it")


def _fits_one(pattern: str, there: Mapping[str, Namespace]) -> bool:
    from webhook.model.glob import fits, is_glob

    return pattern in there or (is_glob(pattern) and any(fits(pattern, name) for name in there))
