"""``ckptguard audit``: the lines of an audit log that one is looking for, or how many there are of each."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from webhook.cli.log_flags import add_logs, could_read, logged, tally_notes
from webhook.cli.output import complain, write, write_text
from webhook.cli.outputs import add_output, printed, write_outputs

if TYPE_CHECKING:
    from webhook.preview.lines import Tally

_FILTERS = ("rule", "namespace", "user", "verdict")


def configure(parser: argparse.ArgumentParser) -> None:
    """The flags of ``audit``."""
    parser.description = "Print the audit lines that fit all flags, or with --summary count them."
    add_logs(parser)
    parser.add_argument("--rule", metavar="ID", help="lines with a finding of this rule")
    parser.add_argument("-n", "--namespace", metavar="NAMESPACE", help="lines of this namespace")
    parser.add_argument("--user", metavar="NAME", help="lines of this user")
    parser.add_argument("--verdict", choices=("allow", "warn", "deny"), help="lines of this verdict (no patches)")
    parser.add_argument("--summary", action="store_true", help="counts by verdict, rule and namespace instead of lines")
    add_output(parser, ("text", "json"))
    parser.epilog = "exit code: 0 success, 2 a log could not be read"


def run(arguments: argparse.Namespace) -> int:
    """0, or 2 as the help says."""
    from webhook.preview.lines import Tally

    tally = Tally()
    if not could_read(lambda: _told(arguments, tally)):
        return 2
    if not arguments.summary:
        complain(f"note: {note}" for note in tally_notes(tally))
    return 0


def _told(arguments: argparse.Namespace, tally: Tally) -> bool:
    """Print the lines, or their counts; whether all could be written."""
    wanted = _wanted(arguments)
    found = (record for record in logged(arguments, tally) if wanted(record))
    if arguments.summary:
        return _summarize(found, arguments, tally)
    line = _as_json if printed(arguments.output) == "json" else _as_text
    for record in found:
        line(record)
    return True


def _wanted(arguments: argparse.Namespace) -> Callable[[dict[str, Any]], bool]:
    fields = {name: value for name in _FILTERS[1:] if (value := getattr(arguments, name)) is not None}
    rule = arguments.rule

    def wanted(record: dict[str, Any]) -> bool:
        if "verdict" in fields and record["webhook"] != "validate":
            return False
        if any(record.get(name) != value for name, value in fields.items()):
            return False
        return rule is None or any(one.get("rule") == rule for one in record["findings"])

    return wanted


def _as_json(record: dict[str, Any]) -> None:
    """The line as the log has it."""
    import orjson

    write_text(orjson.dumps(record, option=orjson.OPT_APPEND_NEWLINE).decode())


def _as_text(record: dict[str, Any]) -> None:
    """One line for people: when, what came of it, whose object, and why."""
    findings = ", ".join(f"{one['rule']} ({one['severity']})" for one in record["findings"][:20])
    name = record.get("name") or f"{record.get('generateName') or ''}*"
    verdict = record["verdict"] if record["webhook"] == "validate" else "patch" if record.get("patched") else "no patch"
    would = record.get("wouldBe")
    if would == "deny" and verdict != "deny":
        verdict += " (enforce: deny)"
    where = f"{record.get('namespace') or '-'}/{record.get('kind')}/{name}"
    write([f"{record.get('time')} {verdict} {record.get('operation')} {where} {record.get('user')}: {findings or '-'}"])


def _summarize(found: Iterator[dict[str, Any]], arguments: argparse.Namespace, tally: Tally) -> bool:
    from collections import Counter

    counts: dict[str, Counter[str]] = {name: Counter() for name in ("verdict", "wouldBe", "rule", "namespace", "mode")}
    requests = patches = 0
    for record in found:
        if record["webhook"] != "validate":
            patches += bool(record.get("patched"))
            continue
        requests += 1
        counts["verdict"][str(record.get("verdict"))] += 1
        counts["mode"][str(record.get("mode"))] += 1
        _bounded(counts["namespace"], str(record.get("namespace") or ""))
        if "wouldBe" in record:
            counts["wouldBe"][str(record["wouldBe"])] += 1
        for rule in {str(one.get("rule")) for one in record["findings"]}:
            _bounded(counts["rule"], rule)

    def render(output: str, _: bool) -> str:
        if output == "json":
            from webhook.reports.json import SCHEMA, encode

            told = {name: dict(counter.most_common()) for name, counter in counts.items()}
            more = {"requests": requests, "patches": patches, "lines": tally.lines, "broken": tally.broken}
            return encode({"schema": SCHEMA, **more, **told, "notes": tally_notes(tally)})
        lines = [f"{requests} requests, {patches} patches"]
        for name, counter in counts.items():
            lines += [f"{name}:", *(f"  {number:>8}  {key or '-'}" for key, number in counter.most_common(50))]
        lines += [f"note: {note}" for note in tally_notes(tally)]
        return "\n".join(lines) + "\n"

    return write_outputs(arguments.output, render)


def _bounded(counter: Any, key: str) -> None:
    """Count, with no more than 50,000 keys."""
    counter[key if key in counter or len(counter) < 50_000 else "(others)"] += 1
