"""The flags that ``review``, ``fix`` and ``pods`` share. Nothing of what they need is imported here."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from webhook.cli.outputs import add_output
from webhook.model.release import Release, parse_release


def add_flags(parser: argparse.ArgumentParser, outputs: Sequence[str]) -> None:
    """The flags that both commands take."""
    parser.add_argument("files", metavar="FILE", nargs="*", help="YAML or JSON, a folder, or - for standard input")
    parser.add_argument(
        "-f", "--filename", metavar="FILE", action="append", default=[], dest="more", help="same as FILE"
    )
    parser.add_argument(
        "-n",
        "--namespace",
        metavar="NAMESPACE",
        type=_namespace,
        help='namespace of objects without one (default: the only namespace in FILE and --state, else "default")',
    )
    parser.add_argument(
        "--exclude",
        metavar="GLOB",
        action="append",
        default=[],
        help="skip files and folders by path or name, e.g. 'overlays/*'; repeatable",
    )
    parser.add_argument(
        "--state",
        metavar="PATH",
        action="append",
        default=[],
        help="claims, volumes, classes, namespaces and runtimes of the cluster, as a file or a folder; repeatable",
    )
    parser.add_argument(
        "--live", action="store_true", help="read objects missing from FILE and --state from the current cluster"
    )
    parser.add_argument("--context", help="with --live: context of the kubeconfig; default: the current one")
    parser.add_argument("--kubeconfig", metavar="FILE", help="with --live: default: as for kubectl")
    parser.add_argument(
        "--trainer",
        metavar="RELEASE",
        type=_release,
        help="the Kubeflow Trainer release: "
        f"{', '.join(release.value for release in Release)} (default: by the override field in use, else the newest)",
    )
    add_output(parser, outputs)


def _namespace(text: str) -> str:
    from webhook.effective.buildable.syntax import is_dns_label

    if not is_dns_label(text):
        raise argparse.ArgumentTypeError(f'"{text}" is no namespace: a-z, 0-9 and "-", at most 63 characters')
    return text


def _release(text: str) -> Release:
    try:
        return parse_release(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
