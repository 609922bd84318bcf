"""``ckptguard rehearse -- COMMAND``: run a program, interrupt it, and see whether it goes on."""

from __future__ import annotations

import argparse
import signal
from typing import TYPE_CHECKING, Any

from webhook.cli.output import complain
from webhook.cli.outputs import add_output, write_outputs
from webhook.cli.run_flags import INTERRUPTED, Progress, seconds

if TYPE_CHECKING:
    from webhook.rehearsal.model import Report


def configure(parser: argparse.ArgumentParser) -> None:
    """The flags of ``rehearse``."""
    parser.usage = "%(prog)s [flags] -- COMMAND..."
    parser.description = (
        "Run a training program here, three times in one fresh directory (in CKPT_DIR): to its first checkpoint and "
        "SIGTERM; to a further save, killed in the middle of it; to the next save. Says what each start read, at which "
        "step it went on, and what was lost. Give it a small model and few steps between saves."
    )
    parser.add_argument(
        "command", nargs="*", metavar="COMMAND", help="what to run, after --; $CKPT_DIR in it is the directory"
    )
    parser.add_argument("--directory", metavar="DIR", help="begin with a copy of these checkpoints")
    parser.add_argument(
        "--saves", type=_count, default=1, metavar="N", help="checkpoints before the first interruption (default 1)"
    )
    parser.add_argument(
        "--timeout",
        type=seconds,
        default=600.0,
        metavar="DURATION",
        help="how long each wait for a save may take (default 10m)",
    )
    parser.add_argument(
        "--grace", type=seconds, default=60.0, metavar="DURATION", help="seconds from SIGTERM to SIGKILL (default 60s)"
    )
    parser.add_argument(
        "--processes",
        type=_count,
        default=1,
        metavar="N",
        help="start it N times, with RANK and WORLD_SIZE as torchrun sets them (default 1)",
    )
    parser.add_argument(
        "--compare",
        action="store_true",
        help="run it uninterrupted as well, and compare the checkpoints of one step part by part",
    )
    parser.add_argument(
        "--write",
        metavar="FILE",
        help="note the verdict in annotation checkpoint-guard.io/rehearsed of the TrainJob in FILE",
    )
    add_output(parser, ("text", "json", "junit"))
    parser.epilog = "exit code: 0 it resumed, 1 it did not, 2 it could not be rehearsed"


def _count(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= 64:
        raise argparse.ArgumentTypeError(f'"{text}" is no number from 1 to 64')
    return int(text)


def run(arguments: argparse.Namespace) -> int:
    """0, 1 or 2, as the help says."""
    command = tuple(arguments.command)
    if not command or not command[0]:
        complain(["error: no COMMAND: ckptguard rehearse -- python train.py"])
        return 2
    try:
        from webhook.rehearsal.local import Rehearsal
        from webhook.rehearsal.model import CannotRehearse, Report, Settings
    except ImportError as error:
        complain([f"error: {error.name} is missing: pip install 'checkpoint-guard[rehearse]'"])
        return 2
    target = None
    if arguments.write is not None:
        try:
            import ruamel.yaml  # noqa: F401
        except ImportError:
            complain(["error: --write needs the library ruamel.yaml: pip install 'checkpoint-guard[fix]'"])
            return 2
        from webhook.cli.rehearsed import CannotNote, find_target, note

        try:
            target = find_target(arguments.write)
        except CannotNote as error:
            complain([f"error: --write {error}"])
            return 2
    settings = Settings(
        command,
        arguments.directory,
        arguments.saves,
        arguments.timeout,
        arguments.grace,
        arguments.processes,
        arguments.compare,
    )
    progress = Progress()

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    handlers = {one: signal.signal(one, stop) for one in (signal.SIGTERM, signal.SIGHUP)}
    try:
        report = Rehearsal(settings, progress.live, progress.say).run()
    except CannotRehearse as error:
        report = Report(command, "not-rehearsable", why=error.lines)
    except KeyboardInterrupt:
        progress.close()
        complain(["interrupted: its processes were ended and its directory was removed"])
        return INTERRUPTED
    finally:
        progress.close()
        for one, handler in handlers.items():
            signal.signal(one, handler)
    code = _write(report, arguments.output)
    if target is not None and report.code != 2:
        import datetime

        try:
            note(target, report.verdict, datetime.datetime.now(datetime.UTC).date())
        except CannotNote as error:
            complain([f"error: --write {error}"])
            return 2
    return code


def _write(report: Report, outputs: Any) -> int:
    from webhook.rehearsal.report import as_json, as_junit, as_text

    forms = {"text": as_text, "json": as_json, "junit": as_junit}
    done = write_outputs(outputs, lambda form, _: forms[form](report))
    return report.code if done else 2
