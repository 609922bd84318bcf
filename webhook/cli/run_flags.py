"""What the commands on a run have in common: flags, a connection, progress, and an end that says what is left."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from webhook.cli.cluster_flags import add_context, connect, image_name, object_name
from webhook.cli.output import complain
from webhook.cli.outputs import write_json as write_json

if TYPE_CHECKING:
    import signal

    from webhook.runs.session import Session

INTERRUPTED = 130


def add_flags(
    parser: argparse.ArgumentParser, outputs: tuple[str, ...] = ("text", "json"), timeout: float = 600.0
) -> None:
    """The run's name, where it is, how long to wait."""
    parser.add_argument("name", type=object_name, metavar="NAME", help="the TrainJob")
    parser.add_argument("-n", "--namespace", type=object_name, help="its namespace; default: that of the context")
    add_context(parser)
    parser.add_argument(
        "--timeout",
        type=seconds,
        default=timeout,
        metavar="DURATION",
        help=f"how long each wait may take, as 90s, 10m or 1h (default {timeout:.0f}s)",
    )
    parser.add_argument(
        "--directory", type=_path, metavar="PATH", help="the checkpoint directory, where the run declares none"
    )
    parser.add_argument(
        "--helper-image",
        type=image_name,
        metavar="IMAGE",
        help="image of the helper pod that reads the claim (default: the run's own)",
    )
    parser.add_argument("--policy", metavar="FILE", help="the policy file of the cluster")
    parser.add_argument("-o", "--output", choices=outputs, default="text", help="the format (default text)")


def _path(text: str) -> str:
    if not text.startswith("/"):
        raise argparse.ArgumentTypeError(f'"{text}" is no absolute path of the container')
    return text


def seconds(text: str) -> float:
    """``90``, ``90s``, ``10m``, ``1h``."""
    unit = {"s": 1, "m": 60, "h": 3600}.get(text[-1:], 0)
    number = text[:-1] if unit else text
    try:
        value = float(number) * (unit or 1)
    except ValueError:
        value = 0.0
    if not 0 < value <= 7 * 86400:
        raise argparse.ArgumentTypeError(f'"{text}" is no duration: write 90s, 10m or 1h')
    return value


class Progress:
    """A live line on a terminal (with rich), plain lines elsewhere; all of it on standard error."""

    def __init__(self) -> None:
        self._status: Any = None
        self._console: Any = None
        self._last = ("", 0.0)
        if sys.stderr.isatty():
            try:
                from rich.console import Console

                self._console = Console(stderr=True, highlight=False)
            except ImportError:
                pass

    def live(self, text: str) -> None:
        """What goes on now."""
        if self._console is not None:
            if self._status is None:
                self._status = self._console.status("")
                self._status.start()
            from rich.markup import escape

            from webhook.model.printable import printable

            self._status.update(escape(printable(text)))
            return
        # The number of seconds changes all the time; elsewhere than on a terminal a line a while is enough.
        what = "".join(letter for letter in text if not letter.isdigit())
        now = time.monotonic()
        if what != self._last[0] or now - self._last[1] >= 30:
            self._last = (what, now)
            complain([f"... {text}"])

    def say(self, text: str) -> None:
        """A line that stays."""
        if self._status is not None:
            self._status.stop()
            self._status = None
        complain([text])

    def close(self) -> None:
        if self._status is not None:
            self._status.stop()
            self._status = None


def run_on(arguments: argparse.Namespace, act: Callable[[Session], int]) -> int:
    """Open a session, act, and say what is left behind where it does not come to its end."""
    from webhook.cli.inputs import load_policy_file
    from webhook.reports.review import Fault
    from webhook.reports.text import fault_line

    faults: list[Fault] = []
    policy = load_policy_file(arguments.policy, faults)
    if policy is None:
        complain(fault_line(fault, False) for fault in faults)
        return 2
    api = connect(Path(arguments.kubeconfig) if arguments.kubeconfig else None, arguments.context)
    if api is None:
        return 2
    import signal

    from webhook.cluster.access import Refused, Unreachable
    from webhook.runs.clock import Clock
    from webhook.runs.kube import Kube
    from webhook.runs.run import CannotDo
    from webhook.runs.session import Options, Session

    progress = Progress()
    kube = Kube(api, Clock(time.monotonic, time.sleep, time.time), progress.say)
    options = Options(arguments.timeout, arguments.directory, arguments.helper_image)
    session = Session(
        kube=kube,
        namespace=arguments.namespace or api.namespace,
        name=arguments.name,
        policy=policy,
        options=options,
        say=progress.say,
        live=progress.live,
    )
    session.program = "kubectl ckptguard" if Path(sys.argv[0]).name.startswith("kubectl-") else "ckptguard"
    session.flags = same_flags(arguments, session.namespace)

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    stops = stop_signals()
    before = {one: signal.getsignal(one) for one in (signal.SIGINT, *stops)}
    for one in stops:
        signal.signal(one, stop)
    try:
        return act(session)
    except KeyboardInterrupt:
        progress.close()
        complain([f"interrupted: {session.state}"])
        return INTERRUPTED
    except CannotDo as error:
        progress.close()
        complain([f"error: {error.lines[0]}", *error.lines[1:]])
        _left(session)
    except (Unreachable, Refused) as error:
        progress.close()
        complain([f"error: {error}"])
        _left(session)
    finally:
        # A second Ctrl-C, from impatience, would leave behind what is being cleaned up; it is a few requests.
        for one in before:
            signal.signal(one, signal.SIG_IGN)
        progress.close()
        kube.clean()
        for one, handler in before.items():
            signal.signal(one, handler)
    return 2


def stop_signals() -> tuple[signal.Signals, ...]:
    """What ends a command as Ctrl-C does: SIGTERM, and SIGHUP of a terminal that goes, unless ``nohup`` ignores it."""
    import signal

    hangs_up = getattr(signal, "SIGHUP", None)  # not on Windows
    if hangs_up is None or signal.getsignal(hangs_up) is signal.SIG_IGN:
        return (signal.SIGTERM,)
    return signal.SIGTERM, hangs_up


def same_flags(arguments: argparse.Namespace, namespace: str) -> str:
    """The flags that a command to paste needs to mean the same run, on the same cluster, with the same directory."""
    from shlex import quote

    # What was said is said again: "default" need not be the context's own namespace.
    named = arguments.namespace or (namespace if namespace != "default" else None)
    given = {
        "-n": named,
        "--context": arguments.context,
        "--kubeconfig": arguments.kubeconfig,
        "--directory": arguments.directory,
        "--helper-image": arguments.helper_image,
        "--policy": arguments.policy,
    }
    return "".join(f" {flag} {quote(value)}" for flag, value in given.items() if value)


def _left(session: Session) -> None:
    if "was not changed" not in session.state:
        complain([f"state: {session.state}"])


def saved_json(saved: Any) -> dict[str, Any] | None:
    """A checkpoint for ``--output json``."""
    if saved is None:
        return None
    return {
        "path": saved.path,
        "layout": saved.layout,
        "step": saved.step,
        "unit": saved.unit,
        "bytes": saved.size,
        "files": saved.files,
        "modified": saved.mtime,
        "complete": saved.complete,
        "state": saved.state,
        "why": saved.why,
    }
