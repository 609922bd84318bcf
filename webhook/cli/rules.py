"""``ckptguard rules [ID]``: the catalogue, or one rule's page."""

from __future__ import annotations

import argparse

from webhook.cli.output import complain, write


def configure(parser: argparse.ArgumentParser) -> None:
    """The flags of ``rules``."""
    parser.add_argument("id", metavar="ID", nargs="?", help="print this rule's page: symptom, why, fix, examples")


def run(arguments: argparse.Namespace) -> int:
    """0, or 2 where there is no such rule."""
    from webhook.reports.catalogue import close_to, entries, find, page, table

    among = entries()
    if arguments.id is None:
        write(table(among))
        return 0
    entry = find(arguments.id, among)
    if entry is None:
        close = close_to(arguments.id, among)
        complain([f'error: no rule "{arguments.id}"; nearest: {", ".join(close)}'])
        return 2
    write(page(entry))
    return 0
