"""``ckptguard rules [ID]``: the catalogue, or one rule's page."""

from __future__ import annotations

import argparse

from webhook.cli.output import complain
from webhook.cli.outputs import add_output, write_outputs


def configure(parser: argparse.ArgumentParser) -> None:
    """The flags of ``rules``."""
    parser.add_argument("id", metavar="ID", nargs="?", help="print this rule's page: symptom, why, fix, examples")
    add_output(parser, ("text", "json"))


def run(arguments: argparse.Namespace) -> int:
    """0, or 2 where there is no such rule."""
    from webhook.reports.catalogue import as_json, close_to, entries, find, page, table

    among = entries()
    entry = None if arguments.id is None else find(arguments.id, among)
    if arguments.id is not None and entry is None:
        from webhook.model.printable import printable

        close = close_to(arguments.id, among)
        meant = f"; nearest: {', '.join(close)}" if close else "; ckptguard rules lists all"
        complain([f'error: no rule "{printable(arguments.id)}"{meant}'])
        return 2

    def render(output: str, _: bool) -> str:
        if output == "json":
            return as_json(among if entry is None else (entry,))
        return "\n".join(table(among) if entry is None else page(entry)) + "\n"

    return 0 if write_outputs(arguments.output, render) else 2
