"""``ckptguard frameworks``: where each framework saves, how it resumes, and how many checkpoints it keeps."""

from __future__ import annotations

import argparse

from webhook.cli.output import complain, write, write_text


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
        complain([f'error: unknown framework "{arguments.framework}"; nearest: {close}'])
        return 2
    if arguments.output == "json":
        import orjson

        rows = [
            {"id": one.id, "title": one.title, "release": one.release, **{cell: getattr(one, cell) for cell in CELLS}}
            for one in shown
        ]
        write_text(orjson.dumps(rows, option=orjson.OPT_INDENT_2).decode() + "\n")
        return 0
    width = max(map(len, CELLS))
    lines: list[str] = []
    for one in shown:
        lines += ["", f"{one.id}  {one.title} ({one.release})"]
        lines += (f"  {cell:<{width}}  {getattr(one, cell)}" for cell in CELLS)
    write(lines[1:])
    return 0
