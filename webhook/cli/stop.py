"""``ckptguard stop NAME``: suspend a run, wait until its GPUs are free, and say how much work is at risk."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from webhook.cli.output import write
from webhook.cli.outputs import write_json
from webhook.cli.run_flags import add_flags, run_on, saved_json

if TYPE_CHECKING:
    from webhook.runs.session import Session


def configure(parser: argparse.ArgumentParser) -> None:
    """The flags of ``stop``."""
    parser.description = "Suspend a run and wait until its pods are gone. The checkpoints stay where they are."
    add_flags(parser)
    parser.epilog = "exit code: 0 stopped, 2 could not stop"


def run(arguments: argparse.Namespace) -> int:
    """0 or 2, as the help says."""
    return run_on(arguments, lambda session: _stop(session, arguments.output))


def _stop(session: Session, output: str) -> int:
    from webhook.runs.stop import stop
    from webhook.runs.words import duration, named

    done = stop(session)
    if output == "json":
        write_json(
            {
                "run": session.name,
                "namespace": session.namespace,
                "stopped": True,
                "newest": saved_json(done.newest),
                "secondsAtRisk": done.at_risk,
                "stepsAtRisk": done.steps_at_risk,
                "seconds": round(done.seconds, 2),
                "note": done.note,
            }
        )
        return 0
    lines = [f"{session.name} is suspended, its pods are gone ({duration(done.seconds)})"]
    if done.newest is not None:
        risk = ""
        if done.at_risk is not None:
            steps = f", some {done.steps_at_risk} steps" if done.steps_at_risk else ""
            risk = f"; at risk: {duration(done.at_risk)} of work{steps}, less what the program flushed at its end"
        lines.append(f"newest complete: {named(done.newest)}{risk}")
    elif done.note:
        lines.append(f"what it has saved is not known: {done.note}")
    else:
        lines.append("it has saved no complete checkpoint: a resume starts afresh")
    lines.append(f"go on with: {session.command('resume')}")
    write(lines)
    return 0
