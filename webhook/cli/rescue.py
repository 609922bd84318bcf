"""``ckptguard rescue RUN``: free a run that JobSet holds, or whose pods stand on a machine that is off."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, Any

from webhook.cli.output import complain, write
from webhook.cli.outputs import write_json
from webhook.cli.run_flags import add_flags, run_on
from webhook.model.printable import printable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from webhook.runs.node_is_off import Stuck
    from webhook.runs.rescue import Wedge
    from webhook.runs.session import Session


def configure(parser: argparse.ArgumentParser) -> None:
    """The flags of ``rescue``."""
    parser.description = (
        "Free a run that can no longer be resumed or suspended because JobSet refuses a change of its pods, after an "
        "upgrade or an edited runtime: its JobSet is deleted in the background, and Trainer makes it anew. Claims and "
        "checkpoints are never touched; the restart count begins again. With --node-is-off: delete by force the pods "
        "that stand Terminating on a machine that is off."
    )
    add_flags(parser, timeout=120.0)
    parser.add_argument(
        "--node-is-off",
        action="store_true",
        help="delete by force the run's pods on nodes that are NotReady; refused while the node is Ready",
    )
    parser.add_argument("--dry-run", action="store_true", help="show what would be done, and do nothing")
    parser.add_argument("--yes", action="store_true", help="do not ask; demanded where there is no terminal")
    parser.epilog = (
        "exit code: 0 the run is free, was never wedged, or --dry-run; 1 it is still wedged; 2 it could not be done; "
        "130 after Ctrl-C"
    )


def run(arguments: argparse.Namespace) -> int:
    """0, 1 or 2, as the help says."""
    return run_on(arguments, lambda session: (_off if arguments.node_is_off else _rescue)(session, arguments))


def _rescue(session: Session, arguments: argparse.Namespace) -> int:
    from webhook.runs.rescue import rescue

    text = arguments.output == "text"

    def agree(wedge: Wedge, action: str) -> bool:
        complain([printable(f"{session.name}: {wedge.text() or 'its JobSet does not follow it'}")])
        return _agreed(arguments, f"would {action}", f"{action}. Go on?")

    done = rescue(session, arguments.dry_run, agree)
    wedge = None if done.wedge is None else done.wedge.text() or "its JobSet does not follow the TrainJob"
    if text:
        lines = [] if wedge is None or not arguments.dry_run else [f"{session.name}: {wedge}", done.action]
        write(printable(line) for line in (*lines, *done.words))
    else:
        _json(session, [{"run": session.name, "wedge": wedge, "action": done.action, "done": done.done}])
    return 0 if done.done or done.wedge is None or arguments.dry_run else 1


def _off(session: Session, arguments: argparse.Namespace) -> int:
    from webhook.runs.node_is_off import free_from_nodes

    text = arguments.output == "text"

    def agree(stuck: Sequence[Stuck]) -> bool:
        now = session.kube.clock.now()
        complain([printable(one.words(now)) for one in stuck])
        count = f"{len(stuck)} pod{'s' if len(stuck) != 1 else ''}"
        nodes = ", ".join(sorted({one.node for one in stuck}))
        return _agreed(
            arguments,
            f"would delete {count} by force",
            printable(f"is {nodes} off for certain (else two pods write one directory)? delete {count} by force?"),
        )

    done, words = free_from_nodes(session, arguments.dry_run, agree)
    now = session.kube.clock.now()
    if text:
        lines = [f"{one.stuck.words(now)}: {one.action}" for one in done]
        write(printable(line) for line in (*lines, *words))
    else:
        _json(
            session,
            [
                {"run": session.name, "wedge": one.stuck.words(now), "action": one.action, "done": one.done}
                for one in done
            ],
        )
    return 0 if arguments.dry_run or all(one.done for one in done) else 1


def _agreed(arguments: argparse.Namespace, what: str, question: str) -> bool:
    """Whether to go on. Raises CannotDo where nobody can be asked."""
    from webhook.runs.run import CannotDo

    if arguments.yes:
        return True
    if not sys.stdin.isatty():
        raise CannotDo(f"{what}: there is no terminal to ask on, so say --yes (or --dry-run)")
    sys.stderr.write(f"{question} [y/N] ")
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def _json(session: Session, results: list[dict[str, Any]]) -> None:
    write_json({"schema": 1, "namespace": session.namespace, "results": results, "errors": []})
