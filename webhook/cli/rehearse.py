"""``ckptguard rehearse -- COMMAND`` and ``rehearse job.yaml``: run it, interrupt it, and see whether it goes on."""

from __future__ import annotations

import argparse
import re
import signal
from typing import TYPE_CHECKING, Any, Final

from webhook.cli.cluster_flags import image_name, object_name
from webhook.cli.output import complain
from webhook.cli.outputs import add_output, write_outputs
from webhook.cli.run_flags import INTERRUPTED, Progress, seconds, stop_signals

if TYPE_CHECKING:
    from webhook.cli.rehearsed import Target
    from webhook.rehearsal.model import Report


def configure(parser: argparse.ArgumentParser) -> None:
    """The flags of ``rehearse``."""
    parser.usage = "%(prog)s [flags] -- COMMAND... | %(prog)s [flags] job.yaml"
    parser.description = (
        "Run a training program here, three times in one fresh directory (in CKPT_DIR): to its first checkpoint and "
        "SIGTERM; to a further save, killed in the middle of it; to the next save. Says what each start read, at which "
        "step it went on, and what was lost. Give it a small model and few steps between saves. With a file that holds "
        "a TrainJob: in the cluster, under another name and in a folder of its own on the claim, interrupted once."
    )
    parser.add_argument(
        "command",
        nargs="*",
        metavar="COMMAND",
        help="what to run, after --; $CKPT_DIR in it is the directory. Or job.yaml",
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
    cluster = parser.add_argument_group("in the cluster (job.yaml)")
    cluster.add_argument("-n", "--namespace", type=object_name, help="where; default: the file's, else the context's")
    cluster.add_argument("--context", help="context of the kubeconfig; default: the current one")
    cluster.add_argument("--kubeconfig", metavar="FILE", help="default: the pod's service account, else kubectl's")
    cluster.add_argument("--nodes", type=_count, metavar="N", help="numNodes of the rehearsal (default: as in the run)")
    cluster.add_argument(
        "--resources",
        type=resources,
        metavar="LIST",
        help="of each node, as cpu=2,memory=8Gi; default same: what the run asks for",
    )
    cluster.add_argument("--claim", type=object_name, metavar="NAME", help="this claim in place of the run's own")
    cluster.add_argument(
        "--helper-image", type=image_name, metavar="IMAGE", help="image of the helper pod (needs Python)"
    )
    cluster.add_argument("--policy", metavar="FILE", help="the policy file of the cluster")
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
    in_cluster = len(command) == 1 and command[0].endswith((".yaml", ".yml", ".json"))
    if (wrong := _misplaced(arguments, in_cluster)) is not None:
        complain([wrong])
        return 2
    if in_cluster:
        from webhook.cli.rehearse_cluster import run_in_cluster

        return run_in_cluster(arguments, command[0])
    try:
        from webhook.rehearsal.local import Rehearsal
        from webhook.rehearsal.model import CannotRehearse, Report, Settings
    except ImportError as error:
        complain([f"error: {error.name} is missing: pip install 'checkpoint-guard[rehearse]'"])
        return 2
    target = None
    if arguments.write is not None:
        from webhook.cli.rehearsed import CannotNote, find_target

        try:
            target = find_target(arguments.write)
        except CannotNote as error:
            complain([f"error: --write {error}"])
            return 2
    settings = Settings(
        command=command,
        directory=arguments.directory,
        saves=arguments.saves,
        timeout=arguments.timeout,
        grace=arguments.grace,
        processes=arguments.processes,
        compare=arguments.compare,
    )
    progress = Progress()

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    handlers = {one: signal.signal(one, stop) for one in stop_signals()}
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
    return finish(report, target, arguments.output)


def finish(report: Report, target: Target | None, outputs: Any) -> int:
    """Write the report, and its verdict into the TrainJob of ``--write``; the exit code."""
    code = write_report(report, outputs)
    if target is not None and report.code != 2:
        import datetime

        from webhook.cli.rehearsed import CannotNote, note

        try:
            note(target, report.verdict, datetime.datetime.now(datetime.UTC).date())
        except CannotNote as error:
            complain([f"error: --write {error}"])
            return 2
    return code


_HERE: Final = {"saves": 1, "grace": 60.0, "processes": 1, "compare": False, "directory": None}
_THERE: Final = ("namespace", "kubeconfig", "context", "nodes", "resources", "claim", "helper_image", "policy")


def _misplaced(arguments: argparse.Namespace, in_cluster: bool) -> str | None:
    """A flag that the other way of rehearsing takes."""
    if in_cluster:
        given = [name for name, usual in _HERE.items() if getattr(arguments, name) != usual]
        where = "for a command that runs here, and not for a file: ckptguard rehearse -- COMMAND"
    else:
        given = [name for name in _THERE if getattr(arguments, name) is not None]
        where = "for the cluster, and not for a command: ckptguard rehearse job.yaml"
    return f"error: --{given[0].replace('_', '-')} is {where}" if given else None


def resources(text: str) -> dict[str, str] | None:
    """``cpu=2,memory=8Gi``; ``same`` is None."""
    if text == "same":
        return None
    found: dict[str, str] = {}
    for part in text.split(","):
        name, _, amount = part.partition("=")
        if not re.fullmatch(r"[a-z0-9A-Z./-]{1,80}", name) or not re.fullmatch(
            r"\d{1,12}(\.\d{1,6})?[mkKMGTPEi]{0,2}", amount
        ):
            raise argparse.ArgumentTypeError(f'"{text}" is no list of resources: cpu=2,memory=8Gi, or same')
        found[name] = amount
    return found


def write_report(report: Report, outputs: Any) -> int:
    """Write it in every form that was asked for; its exit code, or 2 where it could not be written."""
    from webhook.rehearsal.report import as_json, as_junit, as_text

    forms = {"text": as_text, "json": as_json, "junit": as_junit}
    done = write_outputs(outputs, lambda form, _: forms[form](report))
    return report.code if done else 2
