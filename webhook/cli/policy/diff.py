"""``ckptguard policy diff OLD NEW``: settings that differ, and what of an audit log the new one would have refused."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from webhook.cli.output import complain
from webhook.cli.outputs import add_output, write_outputs
from webhook.cli.policy.reading import columns, settings, shown, usable

if TYPE_CHECKING:
    from webhook.model.policy import Policy

_EXAMPLES = 5


def configure(parser: argparse.ArgumentParser) -> None:
    """The two files."""
    parser.add_argument("old", metavar="OLD_FILE", help="the policy file that is in force; - for standard input")
    parser.add_argument("new", metavar="NEW_FILE", help="the one that is to be")
    parser.add_argument(
        "--audit-log", metavar="LOG", action="append", default=[], help="compare what both refuse of it; repeatable"
    )
    add_output(parser, ("text", "json"))
    parser.epilog = "exit code: 0 they say the same, 1 they differ, 2 a file could not be read or used"


def run(arguments: argparse.Namespace) -> int:
    """0, 1 or 2, as the help says."""
    old, new = usable(arguments.old), usable(arguments.new)
    if old is None or new is None:
        return 2
    before, after = settings(old[1]), settings(new[1])
    rows = [
        (name, before.get(name), after.get(name))
        for name in dict.fromkeys((*before, *after))
        if before.get(name) != after.get(name)
    ]
    requests = _requests(arguments.audit_log, old[1], new[1]) if arguments.audit_log else {}
    if requests is None:
        return 2

    def render(output: str, _: bool) -> str:
        if output == "json":
            from webhook.reports.json import SCHEMA, encode

            results = [{"setting": name, "old": was, "new": now} for name, was, now in rows]
            return encode({"schema": SCHEMA, "results": results} | ({"requests": requests} if requests else {}))
        lines = [*columns((name, f"{shown(was)} -> {shown(now)}") for name, was, now in rows)] or ["no difference"]
        return "".join(f"{line}\n" for line in (*lines, *_told(requests)))

    if not write_outputs(arguments.output, render):
        return 2
    return 1 if rows else 0


def _requests(logs: list[str], old: Policy, new: Policy) -> dict[str, Any] | None:
    """What both would refuse in mode enforce; None, and why, where a log cannot be read."""
    from webhook.preview.count import Preview
    from webhook.preview.lines import CannotRead, Tally, verdicts
    from webhook.preview.replay import Replay

    tally = Tally()
    by_old, by_new = Replay(old), Replay(new)
    more: list[str] = []
    fewer: list[str] = []
    counts = {"more": 0, "fewer": 0}
    first, second = Preview(("rule",)), Preview(("rule",))
    try:
        for line in verdicts(logs, tally):
            was, now = first.denied, second.denied
            first.add(line, by_old.denying)
            second.add(line, by_new.denying)
            was, now = first.denied - was, second.denied - now
            if was == now:
                continue
            which, examples = ("more", more) if now else ("fewer", fewer)
            counts[which] += 1
            name = line.name or f"{line.generate_name or ''}*"
            examples.append(f"{line.namespace or '-'}/{line.kind}/{name}")
            del examples[:-_EXAMPLES]
    except CannotRead as error:
        complain([f"error: {error}"])
        return None
    return {
        "all": first.requests,
        "old": first.denied,
        "new": second.denied,
        "refusedByNewAlone": counts["more"],
        "refusedByOldAlone": counts["fewer"],
        "examplesNew": more,
        "examplesOld": fewer,
        "broken": tally.broken,
        "notes": by_new.notes(),
    }


def _told(requests: dict[str, Any]) -> list[str]:
    if not requests:
        return []
    lines = ["", f"of {requests['all']} requests the old policy refuses {requests['old']}, the new {requests['new']}"]
    for which, word in (("New", "new"), ("Old", "old")):
        if number := requests[f"refusedBy{which}Alone"]:
            lines.append(f"  by the {word} one alone: {number}, such as {', '.join(requests[f'examples{which}'])}")
    return [*lines, *(f"note: {note}" for note in requests["notes"])]
