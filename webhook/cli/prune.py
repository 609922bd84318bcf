"""``ckptguard prune RUN``: remove the older checkpoints of a run that is stopped or has ended."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, Any

from webhook.cli.output import complain, write
from webhook.cli.outputs import write_json
from webhook.cli.run_flags import add_flags, run_on
from webhook.model.printable import printable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from webhook.runs.prune import Plan, Pruned
    from webhook.runs.session import Session


def configure(parser: argparse.ArgumentParser) -> None:
    """The flags of ``prune``."""
    parser.description = (
        "Remove a run's older checkpoints, and keep the newest complete ones. Never removed: a checkpoint of which "
        "nobody can tell whether it is complete, the newest complete one, what a file such as latest or a link names, "
        "and .set-aside. The plan is shown first. It works in a helper pod with the run's own user, follows no link, "
        "and refuses while a pod may write the directory."
    )
    add_flags(parser)
    parser.add_argument("--keep", type=_keep, default=3, metavar="N", help="complete checkpoints to keep (default 3)")
    parser.add_argument("--dry-run", action="store_true", help="show the plan, and remove nothing")
    parser.add_argument("--yes", action="store_true", help="do not ask; demanded where there is no terminal")
    parser.epilog = (
        "exit code: 0 something was removed (with --dry-run: would be), 1 nothing could be removed, 2 it could not be "
        "done, 130 after Ctrl-C (what was removed is said)"
    )


def _keep(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= 10_000:
        raise argparse.ArgumentTypeError(f'"{text}" is no number of checkpoints to keep: at least 1')
    return int(text)


def run(arguments: argparse.Namespace) -> int:
    """0, 1 or 2, as the help says."""
    return run_on(arguments, lambda session: _prune(session, arguments))


def _prune(session: Session, arguments: argparse.Namespace) -> int:
    from webhook.runs.prune import Pruned, carry_out, plan
    from webhook.runs.run import CannotDo
    from webhook.runs.words import size

    made = plan(session, arguments.keep)
    going = made.to_remove()
    text = arguments.output == "text"
    total = size(sum(part.size for part in going))
    what = f"{len(going)} checkpoint{'s' if len(going) != 1 else ''} ({total})"
    if not arguments.dry_run or text:
        (write if text else complain)(_plan_lines(session, made))
    if not going or arguments.dry_run:
        done = [
            Pruned(part, False, f"would be removed: {part.reason}" if part.remove else part.reason)
            for part in made.parts
        ]
        if text:
            write([f"{what} would be removed" if going else "nothing can be removed"])
        else:
            _json(session, made, done)
        return 0 if going else 1
    if not arguments.yes:
        if not sys.stdin.isatty():
            raise CannotDo(f"{what} would be removed: there is no terminal to ask on, so say --yes (or --dry-run)")
        if not _agreed(f"remove {what} for good?"):
            complain(["nothing was removed"])
            return 1
    done = carry_out(session, made)
    removed = [one for one in done if one.removed]
    if not text:
        _json(session, made, done)
        return 0 if removed else 1
    failed = [one for one in done if one.part.remove and (not one.removed or one.reason != one.part.reason)]
    lines = [printable(f"{'kept' if not one.removed else 'removed'} {one.part.path}: {one.reason}") for one in failed]
    if removed:
        freed = size(sum(one.part.size for one in removed))
        lines.append(f"removed {len(removed)} of {len(going)}, {freed} freed")
    else:
        lines.append("nothing was removed")
    write(lines)
    return 0 if removed else 1


def _agreed(question: str) -> bool:
    sys.stderr.write(f"{question} [y/N] ")
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def _plan_lines(session: Session, made: Plan) -> list[str]:
    from webhook.runs.words import size

    directory = made.directory
    lines = [printable(f'{session.name}: "{directory.path}" on {directory.where}')]
    if not made.parts:
        return [*lines, "there is no checkpoint"]
    rows: list[Sequence[str]] = [("", "step", "size", "complete", "path", "why")]
    for part in made.parts:
        complete = "yes" if part.complete else "unknown" if part.complete is None else "no"
        step = "-" if part.step is None else str(part.step)
        rows.append(("remove" if part.remove else "keep", step, size(part.size), complete, part.path, part.reason))
    shown = [[printable(cell) for cell in row] for row in rows]
    widths = [max(len(row[column]) for row in shown) for column in range(5)]
    for row in shown:
        cells = [
            cell.rjust(width) if at in (1, 2) else cell.ljust(width)
            for at, (cell, width) in enumerate(zip(row, widths, strict=False))
        ]
        lines.append("  ".join([*cells, row[5]]).rstrip())
    return lines


def _json(session: Session, made: Plan, done: Sequence[Pruned]) -> None:
    value: dict[str, Any] = {
        "schema": 1,
        "run": session.name,
        "namespace": session.namespace,
        "directory": made.directory.path,
        "claim": made.directory.claim,
        "results": [one.as_json() for one in done],
        "errors": [],
    }
    write_json(value)
