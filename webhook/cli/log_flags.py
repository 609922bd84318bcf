"""What ``preview`` and ``audit`` have in common: logs, and since when."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from webhook.preview.lines import Line, Tally


def add_logs(parser: argparse.ArgumentParser) -> None:
    """The logs, and ``--since``."""
    parser.add_argument("logs", metavar="AUDIT-LOG", nargs="*", help="files, plain or gzip; - or none: standard input")
    parser.add_argument(
        "--since", metavar="TIME", type=_since, help="lines from then on: 30d, 12h, 2026-12-01 or an RFC 3339 time"
    )


def _since(text: str) -> str:
    """As the log writes times, so that texts compare."""
    from datetime import UTC, datetime

    from webhook.model.moment import parse_duration, parse_moment

    ago = parse_duration(text)
    when = parse_moment(text) if ago is None else time.time() - ago
    if when is None:
        raise argparse.ArgumentTypeError(f'"{text}" is no time: write 30d, 12h, 2026-12-01 or 2026-12-01T08:00:00Z')
    try:
        return datetime.fromtimestamp(when, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    except (ValueError, OverflowError, OSError):
        raise argparse.ArgumentTypeError(f'"{text}" is no time that a log could begin at') from None


def logged(arguments: argparse.Namespace, tally: Tally) -> Iterator[dict[str, Any]]:
    """The audit lines that the flags name. Raises CannotRead."""
    from webhook.preview.lines import records

    since = arguments.since
    for record in records(_files(arguments), tally):
        if since is None or str(record.get("time")) >= since:
            yield record


def logged_verdicts(arguments: argparse.Namespace, tally: Tally) -> Iterator[Line]:
    """The same, and of each what a preview needs."""
    from webhook.preview.lines import verdicts

    since = arguments.since
    for line in verdicts(_files(arguments), tally):
        if since is None or str(line.time) >= since:
            yield line


def _files(arguments: argparse.Namespace) -> list[str]:
    from webhook.cli.output import complain

    files: list[str] = arguments.logs
    if not files:
        files = ["-"]
        if sys.stdin.isatty():
            complain(["note: reading audit lines from standard input; kubectl logs ... | ckptguard ..."])
    return files


def could_read(work: Callable[[], bool]) -> bool:
    """What ``work`` says, which reads logs; False, and a line that says why, where one cannot be read."""
    from webhook.cli.output import complain
    from webhook.preview.lines import CannotRead

    try:
        return work()
    except CannotRead as error:
        complain([f"error: {error}"])
    except (TypeError, KeyError, AttributeError) as error:
        complain([f"error: an audit line has another form than this release reads ({type(error).__name__}: {error})"])
    return False


def tally_notes(tally: Tally) -> list[str]:
    """What was read and is no audit line."""
    told = []
    if tally.broken:
        told.append(f"{tally.broken} broken lines were passed over, the first at {tally.broken_at}")
    if tally.other:
        told.append(f"{tally.other} lines are JSON and no audit lines")
    return told
