"""``ckptguard resume NAME``: go on with a suspended run, and say from where it went on."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from webhook.cli.output import write
from webhook.cli.outputs import write_json
from webhook.cli.run_flags import add_flags, run_on

if TYPE_CHECKING:
    from webhook.runs.session import Session


def configure(parser: argparse.ArgumentParser) -> None:
    """The flags of ``resume``."""
    parser.description = "Resume a suspended run, wait for its new pod, and report the step it continues from."
    add_flags(parser)
    choice = parser.add_mutually_exclusive_group()
    choice.add_argument(
        "--from-step",
        type=_step,
        metavar="N",
        help="go on from this checkpoint: newer ones are renamed into .set-aside, nothing is deleted",
    )
    choice.add_argument("--undo", action="store_true", help="put back what --from-step set aside last, then go on")
    parser.epilog = "exit code: 0 resumed, 1 did not resume from a checkpoint, 2 could not try"


def _step(text: str) -> int:
    if not text.isdecimal() or len(text) > 15:
        raise argparse.ArgumentTypeError(f'"{text}" is no step')
    return int(text)


def run(arguments: argparse.Namespace) -> int:
    """0, 1 or 2, as the help says."""
    return run_on(arguments, lambda session: _resume(session, arguments))


def _resume(session: Session, arguments: argparse.Namespace) -> int:
    from webhook.runs.restart import record, resumed_words
    from webhook.runs.resume import resume

    done = resume(session, arguments.from_step, arguments.undo)
    record(session, session.find(), done)
    if arguments.output == "json":
        write_json({"run": session.name, "namespace": session.namespace, **result_json(done)})
        return 0 if done.good else 1
    lines = [f"{session.name} {resumed_words(done)}"]
    if done.line:
        lines.append(f"  {done.pod}: {done.line}")
    write(lines)
    return 0 if done.good else 1


def result_json(done: object) -> dict[str, object]:
    """How it went, for ``--output json``."""
    from webhook.runs.restart import Resumed

    assert isinstance(done, Resumed)  # noqa: S101 - its module is imported late
    return {
        "result": done.result,
        "step": done.step,
        "before": done.before,
        "pod": done.pod,
        "line": done.line,
        "why": done.why,
        "seconds": round(done.seconds, 2),
    }
