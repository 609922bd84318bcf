"""``ckptguard uninstall``: the registration, and what the guard made itself; the manifests' own objects are left."""

from __future__ import annotations

import argparse
from pathlib import Path

from webhook.cli.cluster_flags import add_kubeconfig, connect, object_name
from webhook.cli.output import complain, write


def configure(parser: argparse.ArgumentParser) -> None:
    """The flags of ``uninstall``."""
    parser.description = (
        "Delete the two webhook configurations, and with them every wait for the guard; then the keeper of the "
        "certificates with its Secrets and its Lease. The rest is deleted with the manifests or the Helm release. "
        "Needs no running guard."
    )
    parser.add_argument(
        "--namespace",
        type=object_name,
        default="checkpoint-guard",
        metavar="NAMESPACE",
        help="of the guard (default %(default)s)",
    )
    parser.add_argument("--registration", action="store_true", help="the webhook configurations alone: switch it off")
    add_kubeconfig(parser)
    parser.epilog = "exit code: 0 all removed, 1 something is left, 2 could not reach a cluster"


def run(arguments: argparse.Namespace) -> int:
    """0, 1 or 2, as the help says."""
    import time

    from webhook.cluster.access import Unreachable
    from webhook.runs.uninstall import Clock, remove

    api = connect(Path(arguments.kubeconfig) if arguments.kubeconfig else None)
    if api is None:
        return 2
    good = True
    try:
        for removed in remove(api, arguments.namespace, Clock(time.monotonic, time.sleep), arguments.registration):
            good = good and not removed.fault
            write([f"{removed.label}: {removed.fault or 'gone'}"])
    except Unreachable as error:
        complain([f"error: {error}"])
        return 2
    return 0 if good else 1
