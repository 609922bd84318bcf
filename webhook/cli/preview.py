"""``ckptguard preview``: which requests of the audit log would mode enforce, or another policy, refuse?"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from webhook.cli.cluster_flags import add_dump
from webhook.cli.log_flags import add_logs, could_read, logged_verdicts, tally_notes
from webhook.cli.output import complain
from webhook.cli.outputs import add_output, write_outputs
from webhook.model.names import EXCEPTION

if TYPE_CHECKING:
    from collections.abc import Callable

    from webhook.model.cluster import Gap
    from webhook.model.exceptions import Exceptions
    from webhook.preview.count import Denying, Preview
    from webhook.preview.lines import Tally


def configure(parser: argparse.ArgumentParser) -> None:
    """The flags of ``preview``."""
    parser.description = (
        "Read audit lines and count the requests that mode enforce would refuse, by namespace, rule and user. "
        "With --policy they are weighed again by that policy. Dry-runs do not count."
    )
    add_logs(parser)
    parser.add_argument("--policy", metavar="FILE", help="a policy file to weigh the findings by")
    add_dump(
        parser,
        "with --policy: the CheckpointExceptions that count (kubectl get checkpointexceptions -A -o yaml); a file, a "
        "folder or -; repeatable (default: those that the log names)",
    )
    parser.add_argument(
        "--mode",
        choices=("enforce", "warn", "audit", "off"),
        default="enforce",
        help="the mode of all namespaces (default enforce; the others refuse nothing)",
    )
    parser.add_argument(
        "--by",
        metavar="KEYS",
        type=_keys,
        default=("namespace", "rule", "user"),
        help="what to count by, with commas: namespace,rule,user (default all three)",
    )
    add_output(parser, ("text", "json"))
    parser.epilog = "exit code: 0 success, 2 a log or the policy could not be read"


def _keys(text: str) -> tuple[str, ...]:
    from webhook.preview.count import KEYS

    keys = tuple(dict.fromkeys(part.strip() for part in text.split(",")))
    if not all(key in KEYS for key in keys):
        raise argparse.ArgumentTypeError(f'"{text}" is none of {", ".join(KEYS)}, or several with commas')
    return keys


def run(arguments: argparse.Namespace) -> int:
    """0, or 2 as the help says."""
    from webhook.preview.count import Preview
    from webhook.preview.lines import Tally

    notes: list[str] = []
    denying = _denying(arguments, notes)
    if denying is None:
        return 2
    tally = Tally()
    preview = Preview(arguments.by)

    def count() -> bool:
        for line in logged_verdicts(arguments, tally):
            preview.add(line, denying)
        return True

    if not could_read(count):
        return 2
    notes += [*_notes(preview), *tally_notes(tally)]

    def render(output: str, _: bool) -> str:
        return _json(preview, tally, notes) if output == "json" else _text(preview, notes)

    return 0 if write_outputs(arguments.output, render) else 2


def _denying(arguments: argparse.Namespace, notes: list[str]) -> Denying | None:
    """Which rules refuse a line's request; None, and lines on standard error, where the policy cannot be read."""
    from webhook.preview.count import as_logged, nothing

    policy = None
    granted = None
    if arguments.state:
        if arguments.policy is None:
            complain(["error: --state is for --policy: without it the log's own verdicts count, exceptions and all"])
            return None
        granted = _granted(arguments.state)
        if granted is None:
            return None
    if arguments.policy is not None:
        from webhook.cli.inputs import load_policy_file
        from webhook.reports.review import Fault
        from webhook.reports.text import fault_line

        faults: list[Fault] = []
        policy = load_policy_file(arguments.policy, faults, notes)
        if policy is None:
            complain(fault_line(fault, False) for fault in faults)
            return None
    if arguments.mode != "enforce":
        return nothing
    if policy is None:
        return as_logged
    from webhook.preview.replay import Replay

    replay = Replay(policy, granted)
    notes.extend(replay.notes())
    return replay.denying


def _granted(paths: list[str]) -> Callable[[str], Exceptions | Gap] | None:
    """The CheckpointExceptions of a dump; None, and lines on standard error, where it cannot be read."""
    from webhook.cluster.file_view import FileView
    from webhook.cluster.files import load_files

    loaded = load_files(paths)
    if loaded.errors:
        complain(f"error: {error}" for error in loaded.errors)
        return None
    return FileView(loaded.of_kind(EXCEPTION)).exceptions


def _notes(preview: Preview) -> list[str]:
    told = []
    if preview.not_judged:
        told.append(f"{preview.not_judged} requests were let through unseen (exempt, or mode off)")
    if preview.unfilled:
        told.append(
            f"{preview.unfilled} of the refused were in mode audit, where the guard fills nothing in: enforce fills in "
            "what is absent first, and may refuse fewer"
        )
    if preview.older:
        told.append(f"{preview.older} lines are of a release that did not log what enforce would do")
    return told


def _json(preview: Preview, tally: Tally, notes: list[str]) -> str:
    from webhook.reports.json import SCHEMA, encode

    results: list[dict[str, Any]] = [
        {**dict(zip(preview.by, key, strict=True)), "denied": group.denied, "examples": group.examples}
        for key, group in preview.rows()
    ]
    return encode(
        {
            "schema": SCHEMA,
            "results": results,
            "denied": preview.denied,
            "refused": preview.refused,
            "requests": preview.requests,
            "notJudged": preview.not_judged,
            "first": preview.first or None,
            "last": preview.last or None,
            "lines": tally.lines,
            "broken": tally.broken,
            "notes": notes,
        }
    )


def _text(preview: Preview, notes: list[str]) -> str:
    lines = []
    if preview.denied:
        heads = (*(key.upper() for key in preview.by), "DENIED", "EXAMPLES")
        rows = [(*key, str(group.denied), ", ".join(group.examples)) for key, group in preview.rows()]
        widths = [min(max(len(row[at]) for row in (heads, *rows)), 48) for at in range(len(heads) - 1)]
        for row in (heads, *rows):
            cells = (f"{cell:<{width}}" for cell, width in zip(row, widths, strict=False))
            lines.append(f"{'  '.join(cells)}  {row[-1]}".rstrip())
        lines.append("")
    between = f" between {preview.first} and {preview.last}" if preview.requests else ""
    lines.append(
        f"{preview.denied} of {preview.requests} requests{between} would be refused; {preview.refused} were at the time"
    )
    lines += [f"note: {note}" for note in notes]
    return "\n".join(lines) + "\n"
