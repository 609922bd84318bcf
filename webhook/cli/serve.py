"""``ckptguard serve``: the admission webhook as a process."""

from __future__ import annotations

import argparse

from webhook.cli.output import complain


def configure(parser: argparse.ArgumentParser) -> None:
    """The flags of ``serve``; what is not given comes from the environment (prefix CKPTGUARD_)."""
    parser.add_argument("--listen", metavar="ADDR:PORT", help="where to listen (default 0.0.0.0:8443)")
    parser.add_argument("--tls-cert", metavar="FILE", help="certificate chain, PEM; read again when it changes")
    parser.add_argument("--tls-key", metavar="FILE", help="private key, PEM")
    parser.add_argument(
        "--client-ca",
        dest="tls_client_ca",
        metavar="FILE",
        help="authorities of client certificates, PEM: callers without one are told verdict and rule ids alone",
    )
    parser.add_argument("--insecure-http", action="store_true", default=None, help="serve plain HTTP, for tests")
    parser.add_argument("--no-cluster", action="store_true", default=None, help="look nothing up in a cluster")
    parser.add_argument("--policy", metavar="FILE", help="the policy file")
    parser.add_argument(
        "--policy-configmap",
        metavar="NAMESPACE/NAME",
        help="a ConfigMap whose policy.yaml is watched and put in force; the file serves until its first answer",
    )


def run(arguments: argparse.Namespace) -> int:
    """Serve until SIGTERM; 2 where the server's libraries are not installed."""
    try:
        from webhook.bootstrap import serve
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("webhook"):
            raise
        complain([f"error: serve needs the library {error.name}: pip install 'checkpoint-guard[serve]'"])
        return 2
    return int(serve(arguments) or 0)
