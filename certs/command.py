"""keep the webhook's certificates and registration: run (a process), once (a job), check (what is due or wrong)

Exit codes: 0 in order, 1 something is due or wrong (``check``) or could not be done now (``once``), 2 cannot work at
all: no cluster, a missing right, a Secret that is not ours, a flag that makes no sense.
"""

from __future__ import annotations

import argparse
import sys


def configure(parser: argparse.ArgumentParser) -> None:
    """The three actions and their flags."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    run_ = actions.add_parser("run", help="keep the certificates until SIGTERM; several replicas share a Lease")
    once = actions.add_parser("once", help="do what is due, then end")
    check = actions.add_parser("check", help="say what is due or wrong; write nothing")
    for action in (run_, once, check):
        action.add_argument("--namespace", help="of the Service and the Secrets (default: the pod's own)")
        action.add_argument("--service", default="checkpoint-guard", help="the webhook's Service (default %(default)s)")
        action.add_argument(
            "--name", action="append", default=[], metavar="NAME", help="a further DNS name or address; repeatable"
        )
        action.add_argument("--secret", default="checkpoint-guard-tls", help="what pods mount (default %(default)s)")
        action.add_argument(
            "--ca-secret", default="checkpoint-guard-ca", help="what only this reads (default %(default)s)"
        )
        action.add_argument(
            "--configuration",
            action="append",
            default=[],
            metavar="NAME",
            help="webhook configurations whose caBundle is kept, of both kinds (default checkpoint-guard); repeatable",
        )
        action.add_argument("--kubeconfig", metavar="FILE", help="default: the pod's service account, else kubectl's")
    for action in (run_, once):
        action.add_argument("--life", default="90d", metavar="TIME", help="of a pair (default 90d)")
        action.add_argument("--ca-life", default="730d", metavar="TIME", help="of an authority (730d)")
        action.add_argument(
            "--settle",
            default="20s",
            metavar="TIME",
            help="how long a new authority is published before it signs what is served (default 20s)",
        )
    run_.add_argument("--interval", default="5s", metavar="TIME", help="between two looks (default 5s)")
    run_.add_argument(
        "--without-certificates",
        action="store_true",
        help="somebody else keeps them (cert-manager): turn the registration to Fail, no more",
    )
    run_.add_argument("--lease", default="checkpoint-guard-certs", help="(default %(default)s)")
    run_.add_argument("--listen", metavar="ADDR:PORT", help="serve /healthz and /metrics over HTTP")
    once.add_argument("--renew", choices=("leaf", "ca"), help="replace it as if it were due")


def run(arguments: argparse.Namespace) -> int:
    """Do it; the exit code."""
    try:
        import cryptography  # noqa: F401
        import kubernetes.client  # noqa: F401
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("cryptography", "kubernetes"):
            raise
        sys.stderr.write(
            f"error: certs needs the library {error.name}: pip install 'checkpoint-guard[certs,cluster]'\n"
        )
        return 2
    from certs.actions import perform

    return perform(arguments)
