"""``ckptguard install-check``: check that the API server calls the webhook and gets correct answers."""

from __future__ import annotations

import argparse
from pathlib import Path

from webhook.cli.cluster_flags import add_kubeconfig, add_output, connect, object_name
from webhook.cli.output import complain, write
from webhook.cli.outputs import write_json


def configure(parser: argparse.ArgumentParser) -> None:
    """The flags of ``install-check``."""
    parser.description = (
        "Send a good and a bad runtime and TrainJob to the API server as a dry-run until each is answered as "
        "expected; else say what is wrong. Nothing is stored."
    )
    parser.add_argument(
        "--namespace",
        type=object_name,
        default="default",
        help="where to try it; not the guard's own (default %(default)s)",
    )
    parser.add_argument(
        "--guard-namespace",
        type=object_name,
        default="checkpoint-guard",
        metavar="NAMESPACE",
        help="where it is (default %(default)s)",
    )
    parser.add_argument(
        "--timeout", type=_seconds, default=60.0, metavar="SECONDS", help="how long to wait for it (default 60)"
    )
    add_kubeconfig(parser)
    add_output(parser)
    parser.epilog = "exit code: 0 the guard works, 1 it does not, 2 could not reach a cluster"


def _seconds(text: str) -> float:
    try:
        number = float(text.removesuffix("s"))
    except ValueError:
        number = -1.0
    if not 0 <= number <= 3600:
        raise argparse.ArgumentTypeError(f'"{text}" is no number of seconds up to 3600')
    return number


def run(arguments: argparse.Namespace) -> int:
    """0, 1 or 2, as the help says."""
    import time

    from webhook.cluster.access import Unreachable
    from webhook.runs.install_check import Clock, check
    from webhook.runs.installation import Installation

    api = connect(Path(arguments.kubeconfig) if arguments.kubeconfig else None)
    if api is None:
        return 2
    installation = Installation(arguments.guard_namespace, arguments.namespace)
    try:
        report = check(
            api, installation, arguments.timeout, Clock(time.monotonic, time.sleep), lambda line: complain([line])
        )
    except Unreachable as error:
        complain([f"error: {error}"])
        return 2
    if arguments.output == "json":
        said = {
            "ok": report.good,
            "probes": [{"what": probe.what, "outcome": probe.outcome, "said": probe.words} for probe in report.probes],
            "faults": report.faults,
        }
        write_json(said)
    else:
        write(f"{probe.what}: {probe.outcome}, {probe.words}" for probe in report.probes)
        write(
            [f"{fault.part}: {fault.problem}\n  fix: {fault.fix}" for fault in report.faults]
            if not report.good
            else ["the guard guards"]
        )
    return 0 if report.good else 1
