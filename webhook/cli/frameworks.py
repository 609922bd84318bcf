"""``ckptguard frameworks``: where each framework saves, how it resumes, and how many checkpoints it keeps."""

from __future__ import annotations

import argparse

from webhook.cli.output import complain
from webhook.cli.outputs import add_output, write_outputs


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("framework", nargs="?", metavar="ID", help="show this one alone")
    add_output(parser, ("text", "json"))


def run(arguments: argparse.Namespace) -> int:
    """0, or 2 for an id that is none."""
    from webhook.programs.frameworks import FRAMEWORKS
    from webhook.programs.frameworks.framework import CELLS

    shown = [one for one in FRAMEWORKS if arguments.framework in (None, one.id)]
    if not shown:
        from webhook.model.nearest import near
        from webhook.model.printable import printable

        close = near(arguments.framework, [one.id for one in FRAMEWORKS])
        meant = f"; nearest: {close}" if close else "; ckptguard frameworks lists all"
        complain([f'error: unknown framework "{printable(arguments.framework)}"{meant}'])
        return 2

    def render(output: str, _: bool) -> str:
        if output == "json":
            from webhook.reports.json import SCHEMA, encode

            rows = [
                {
                    "id": one.id,
                    "title": one.title,
                    "release": one.release,
                    **{cell: getattr(one, cell) for cell in CELLS},
                }
                for one in shown
            ]
            return encode({"schema": SCHEMA, "results": rows})
        width = max(map(len, CELLS))
        lines: list[str] = []
        for one in shown:
            lines += ["", f"{one.id}  {one.title} ({one.release})"]
            lines += (f"  {cell:<{width}}  {getattr(one, cell)}" for cell in CELLS)
        return "\n".join(lines[1:]) + "\n"

    return 0 if write_outputs(arguments.output, render) else 2
