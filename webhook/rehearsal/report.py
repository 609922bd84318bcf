"""A rehearsal as text, JSON and JUnit."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import Any
from xml.sax.saxutils import escape, quoteattr

from webhook.model.printable import printable, printable_lines
from webhook.rehearsal.judge import went_on_from
from webhook.rehearsal.model import Compared, Report, Save, Start

_WORDS = {"resumed": "resumed", "not-resumed": "NOT RESUMED", "not-rehearsable": "not rehearsed"}
_ENDED = {"exited": "ended", "died": "died of it", "killed": "killed after the grace period"}


def as_text(report: Report) -> str:
    """For people."""
    return "\n".join(printable(line) for line in _lines(report)) + "\n"


def _lines(report: Report) -> Iterator[str]:
    yield f"rehearse {shlex.join(report.command)}"
    for start in report.starts:
        yield f"  start {start.number}: {'; '.join(_start(start))}"
    for line in _saves(report):
        yield f"  {line}"
    if report.compared is not None and not report.compared.why:
        yield f"  compared: {_compared(report.compared)}"
    for note in report.notes:
        yield f"  note: {note}"
    for one in report.findings:
        yield f"{one.severity}: {one.problem} [{one.rule}]"
        yield f"  why: {one.why}"
        yield f"  fix: {one.fix}"
    lost = "" if report.lost is None else f", {report.lost} steps lost"
    yield f"{_WORDS[report.verdict]}{lost} ({report.seconds:.0f} s)"
    for line in report.why:
        yield f"  {line}"


def _start(start: Start) -> Iterator[str]:
    if start.number > 1:
        read = f"read {', '.join(start.read)}" if start.read else "read no checkpoint"
        yield read if start.reads_seen or start.inside.pids else "reads not seen"
        from_ = went_on_from(start)
        if from_ is not None:
            yield f"went on from step {from_}" if from_ else "began at step 0"
    yield f"saved {', '.join(map(_save, start.saves))}" if start.saves else "saved nothing"
    if start.signal == "SIGTERM":
        heard = "saved on SIGTERM" if start.heard else "SIGTERM led to no save"
        yield f"{heard}, {_ENDED[start.ended]}"
    elif start.signal == "SIGKILL" and start.torn:
        how = "cut" if start.cut else "killed in the middle of"
        yield f"{how} {', '.join(start.torn)}"
    elif start.signal is not None:
        yield "killed"
    elif start.code is not None:
        yield f"ended with exit code {start.code}"


def _save(save: Save) -> str:
    return save.path if save.step is None or str(save.step) in save.path else f"{save.path} (step {save.step})"


def _saves(report: Report) -> Iterator[str]:
    saves = [save for start in report.starts for save in start.saves]
    if not saves:
        return
    size = max(save.saved.size for save in saves)
    took = max(save.seconds for save in saves)
    last = report.starts[-1]
    kept = len({one.path for one in last.before if not one.temporary})
    yield f"a save: {size} bytes, {took:.2f} s; {kept} kept"


def _compared(compared: Compared) -> str:
    parts = ", ".join(
        f"{part.name} {'same' if part.same else f'differs ({part.leaves[0]})'}" for part in compared.parts
    )
    return f"at step {compared.step}: {parts}"


def as_dict(report: Report) -> dict[str, Any]:
    """For programs, without ``schema``."""
    return {
        "command": list(report.command),
        "verdict": report.verdict,
        "lostSteps": report.lost,
        "starts": [_start_dict(start) for start in report.starts],
        "findings": [
            {"rule": one.rule, "severity": one.severity, "problem": one.problem, "why": one.why, "fix": one.fix}
            for one in report.findings
        ],
        "compared": _compared_dict(report.compared),
        "notes": report.notes,
        "why": list(report.why),
        "seconds": round(report.seconds, 2),
    }


def _start_dict(start: Start) -> dict[str, Any]:
    steps = start.steps()
    return {
        "from": went_on_from(start) if start.number > 1 else 0,
        "to": steps[-1] if steps else None,
        "read": start.read if start.reads_seen or start.inside.pids else None,
        "signal": start.signal,
        "saved": [
            {"path": one.path, "step": one.step, "bytes": one.saved.size, "seconds": round(one.seconds, 3)}
            for one in start.saves
        ],
        "savedOnSigterm": start.heard,
        "torn": start.torn,
        "exitCode": start.code,
        "outside": start.outside,
        "seconds": round(start.seconds, 2),
    }


def _compared_dict(compared: Compared | None) -> dict[str, Any] | None:
    if compared is None:
        return None
    return {
        "step": compared.step,
        "why": compared.why or None,
        "parts": [
            {"name": part.name, "same": part.same, "differs": list(part.leaves), "most": part.most, "noise": part.noise}
            for part in compared.parts
        ],
    }


def as_json(report: Report) -> str:
    """One document, with its ``schema``."""
    from webhook.reports.json import SCHEMA, encode

    return encode({"schema": SCHEMA, **as_dict(report)})


def as_junit(report: Report) -> str:
    """One suite: a case for the verdict, and one for each finding."""
    name = quoteattr(_clean(f"rehearsal of {shlex.join(report.command)}"))
    cases = []
    failures = sum(one.severity == "warn" for one in report.findings)
    head = f'  <testcase classname={name} name="resumes" time="{report.seconds:.3f}"'
    if report.verdict == "not-rehearsable":
        cases.append(f"{head}><error message={quoteattr(_clean('; '.join(report.why)))}/></testcase>")
    else:
        cases.append(f"{head}/>")
    for one in report.findings:
        words = quoteattr(_clean(one.problem))
        text = escape(_clean(f"why: {one.why}\nfix: {one.fix}"))
        inner = (
            f"<failure message={words}>{text}</failure>"
            if one.severity == "warn"
            else f"<system-out>{text}</system-out>"
        )
        cases.append(f"  <testcase classname={name} name={quoteattr(one.rule)}>{inner}</testcase>")
    errors = int(report.verdict == "not-rehearsable")
    return (
        '<?xml version="1.0" encoding="UTF-8"?>\n'
        f'<testsuites>\n<testsuite name={name} tests="{len(cases)}" failures="{failures}" errors="{errors}" '
        f'time="{report.seconds:.3f}">\n' + "\n".join(cases) + "\n</testsuite>\n</testsuites>\n"
    )


def _clean(text: str) -> str:
    return "\n".join(printable_lines(text))
