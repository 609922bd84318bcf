"""``ckptguard drill NAME``: interrupt a run once, and prove that it goes on from its checkpoint."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from webhook.cli.output import write, write_text
from webhook.cli.outputs import write_json
from webhook.cli.run_flags import add_flags, run_on, saved_json

if TYPE_CHECKING:
    from webhook.runs.drill import Drill
    from webhook.runs.session import Session


def configure(parser: argparse.ArgumentParser) -> None:
    """The flags of ``drill``."""
    parser.description = (
        "Wait for a first checkpoint, suspend the run, resume it, and read in the new pod's first lines whether it "
        "goes on from there. It costs the run one restart."
    )
    add_flags(parser, ("text", "json", "junit"))
    parser.epilog = "exit code: 0 resumed, 1 did not resume from a checkpoint, 2 could not try"


def run(arguments: argparse.Namespace) -> int:
    """0, 1 or 2, as the help says."""
    return run_on(arguments, lambda session: _drill(session, arguments.output))


def _drill(session: Session, output: str) -> int:
    from webhook.cli.resume import result_json
    from webhook.runs.drill import drill

    done = drill(session)
    if output == "json":
        steps = [
            {"name": one.name, "outcome": one.outcome, "words": one.words, "seconds": round(one.seconds, 2)}
            for one in done.steps
        ]
        write_json(
            {
                "run": session.name,
                "namespace": session.namespace,
                "passed": done.code == 0,
                "newest": saved_json(done.newest),
                "steps": steps,
                "verdict": result_json(done.resumed) if done.resumed is not None else None,
            }
        )
    elif output == "junit":
        write_text(junit(session.namespace, session.name, done))
    else:
        from webhook.runs.restart import resumed_words

        words = resumed_words(done.resumed) if done.resumed is not None else "could not be tried"
        verdict = {0: "passed", 1: "FAILED", 2: "not done"}[done.code]
        line = [f"  {done.resumed.pod}: {done.resumed.line}"] if done.resumed is not None and done.resumed.line else []
        write([f"drill {verdict}: {session.name} {words}", *line])
    if done.code == 2 and "was not changed" not in session.state:
        session.say(f"state: {session.state}")
    return done.code


def junit(namespace: str, name: str, done: Drill) -> str:
    """One test suite, one test case a step."""
    from xml.sax.saxutils import escape, quoteattr

    from webhook.model.printable import printable_lines

    def clean(text: str) -> str:
        return "\n".join(printable_lines(text))

    cases: list[str] = []
    for step in done.steps:
        head = (
            f"  <testcase classname={quoteattr(f'drill.{namespace}.{name}')} name={quoteattr(step.name)} "
            f'time="{step.seconds:.3f}"'
        )
        words = quoteattr(clean(step.words))
        inner = {"failed": f"<failure message={words}/>", "error": f"<error message={words}/>", "-": "<skipped/>"}
        if step.outcome in inner:
            cases.append(f"{head}>{inner[step.outcome]}</testcase>")
        else:
            cases.append(f"{head}><system-out>{escape(clean(step.words))}</system-out></testcase>")
    count = {outcome: sum(step.outcome == outcome for step in done.steps) for outcome in ("failed", "error", "-")}
    total = sum(step.seconds for step in done.steps)
    return (
        '<?xml version="1.0" encoding="UTF-8"?>\n'
        f'<testsuites>\n<testsuite name={quoteattr(f"drill of {namespace}/{name}")} tests="{len(done.steps)}" '
        f'failures="{count["failed"]}" errors="{count["error"]}" skipped="{count["-"]}" time="{total:.3f}">\n'
        + "\n".join(cases)
        + "\n</testsuite>\n</testsuites>\n"
    )
