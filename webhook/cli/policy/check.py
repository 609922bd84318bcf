"""``ckptguard policy check FILE...``."""

from __future__ import annotations

import argparse
from typing import Any

from webhook.cli.outputs import add_output, write_outputs
from webhook.cli.policy.reading import read, told


def configure(parser: argparse.ArgumentParser) -> None:
    """The files."""
    parser.add_argument("files", metavar="FILE", nargs="+", help="policy files; - for standard input")
    add_output(parser, ("text", "json"))
    parser.epilog = "exit code: 0 no fault (warnings do not count), 1 a fault, 2 a file could not be read"


def run(arguments: argparse.Namespace) -> int:
    """0, 1 or 2, as the help says."""
    results: list[dict[str, Any]] = []
    lines: list[str] = []
    unread = False
    for file in arguments.files:
        checked = read(file)
        if checked is None:
            unread = True
            continue
        results.append(
            {
                "file": file,
                "hash": None if checked.policy is None else checked.policy.hash,
                "faults": [told(fault) for fault in checked.faults],
                "warnings": [told(warning) for warning in checked.warnings],
            }
        )
        lines += [f"{fault}" for fault in checked.faults]
        lines += [f"{warning} (warning)" for warning in checked.warnings]
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
