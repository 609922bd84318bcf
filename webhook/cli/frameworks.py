"""``ckptguard frameworks``: where each framework saves, how it resumes, and how many checkpoints it keeps."""

from __future__ import annotations

import argparse
import sys


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("framework", nargs="?", metavar="ID", help="show this one alone")
    parser.add_argument("--output", choices=("text", "json"), default="text", help="default: text")


def run(arguments: argparse.Namespace) -> int:
    """0, or 2 for an id that is none."""
    from webhook.frameworks import FRAMEWORKS
    from webhook.frameworks.framework import CELLS

    shown = [one for one in FRAMEWORKS if arguments.framework in (None, one.id)]
    if not shown:
        from webhook.model.nearest import nearest

        close = nearest(arguments.framework, [one.id for one in FRAMEWORKS])[0]
        sys.stderr.write(f'error: unknown framework "{arguments.framework}"; nearest: {close}\n')
        return 2
    if arguments.output == "json":
        import orjson

        rows = [
            {"id": one.id, "title": one.title, "release": one.release, **{cell: getattr(one, cell) for cell in CELLS}}
            for one in shown
        ]
        sys.stdout.write(orjson.dumps(rows, option=orjson.OPT_INDENT_2).decode() + "\n")
        return 0
    width = max(map(len, CELLS))
    for index, one in enumerate(shown):
        sys.stdout.write("\n" if index else "")
        sys.stdout.write(f"{one.id}  {one.title} ({one.release})\n")
        for cell in CELLS:
            sys.stdout.write(f"  {cell:<{width}}  {getattr(one, cell)}\n")
    return 0
