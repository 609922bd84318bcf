"""``ckptguard checkpoints NAME``: the checkpoints of a run, which are complete, and which one a restart takes."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from webhook.cli.output import complain, write
from webhook.cli.outputs import write_json
from webhook.cli.run_flags import add_flags, run_on, saved_json

if TYPE_CHECKING:
    from webhook.runs.reader import Look
    from webhook.runs.run import Directory
    from webhook.runs.session import Session


def configure(parser: argparse.ArgumentParser) -> None:
    """The flags of ``checkpoints``."""
    parser.description = (
        "List the checkpoints of a run: by exec in a pod of it, else by a short-lived pod that mounts the claim."
    )
    add_flags(parser, timeout=60.0)
    parser.epilog = "exit code: 0 success (also for an empty directory), 2 could not read"


def run(arguments: argparse.Namespace) -> int:
    """0 or 2, as the help says."""
    return run_on(arguments, lambda session: _list(session, arguments.output))


def _list(session: Session, output: str) -> int:
    from webhook.runs.reader import first_words, look
    from webhook.runs.run import CannotDo

    run = session.find()
    directory = session.directory(run)
    others = session.warn_shared(run, directory)
    session.live(f"reading {directory.path}")
    lost = session.lost(run)
    try:
        seen = look(session.kube, run, directory, image=session.options.image, seconds=session.options.timeout)
    except CannotDo as error:
        raise CannotDo(*error.lines, *session.waits_lines(lost)) from None
    taken = seen.found.taken
    if output == "json":
        write_json(
            {
                "run": run.name,
                "namespace": run.namespace,
                "directory": directory.path,
                "claim": directory.claim,
                "pathOnClaim": directory.on_claim,
                "readBy": seen.by,
                "notes": [*seen.notes, *(f"shared with {other}" for other in others)],
                "files": seen.listing.files(),
                "bytes": seen.listing.bytes(),
                "waitsFor": [{"pod": one.pod, "node": one.node, "since": one.since} for one in lost],
                "taken": taken.path if taken else None,
                "newestComplete": getattr(seen.found.newest_complete(), "path", None),
                "checkpoints": [saved_json(saved) for saved in seen.found.saved],
            }
        )
        return 0
    complain([*(f"note: {note}" for note in seen.notes)])
    write(_lines(session, directory, seen, first_words(seen, directory)))
    if lost:
        first, *ways = session.waits_lines(lost)
        complain([f'run "{run.name}" {first}', *ways])
    return 0


def _lines(session: Session, directory: Directory, seen: Look, nothing: str | None) -> list[str]:
    from webhook.runs.words import completeness, duration, named, size

    lines = [f'{session.name}: "{directory.path}" on {directory.where}, read by {seen.by}']
    if nothing is not None:
        return [*lines, nothing]
    taken = seen.found.taken
    rows = [("step", "size", "age", "complete", "restart", "path")]
    for saved in seen.found.saved:
        step = "-" if saved.step is None else f"{saved.step}" if saved.unit == "step" else f"{saved.unit} {saved.step}"
        mark = "takes this" if saved is taken else ""
        age = duration(seen.listing.now - saved.mtime) if seen.listing.now else "-"
        path = f"{saved.path}    {saved.why}" if saved.why and saved.complete is False else saved.path
        rows.append((step, size(saved.size), age, completeness(saved), mark, path))
    widths = [max(len(row[column]) for row in rows) for column in range(5)]
    for row in rows:
        cells = [
            cell.rjust(width) if at < 3 else cell.ljust(width)
            for at, (cell, width) in enumerate(zip(row, widths, strict=False))
        ]
        lines.append("  ".join([*cells, row[5]]).rstrip())
    if taken is not None and taken.complete is False:
        better = seen.found.newest_complete()
        if better is None:
            lines.append(f"a restart takes an incomplete one ({taken.why}), and there is none that is complete")
        else:
            step = f": {session.command('resume')} --from-step {better.step}" if better.step is not None else ""
            may = "is complete" if better.complete else "may be complete"
            lines.append(f"a restart takes an incomplete one ({taken.why}); {named(better)} {may}{step}")
    if taken is None and seen.found.pointer is not None:
        lines.append(f"file {seen.found.pointer} names none of them, so a restart takes none")
    if seen.listing.denied:
        lines.append(f"{len(seen.listing.denied)} paths may not be read by that user")
    return lines
