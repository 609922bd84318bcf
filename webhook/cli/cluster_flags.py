"""What the commands that talk to a cluster have in common: flags, and a connection."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Final

from webhook.cli.output import complain
from webhook.model.release import Release, parse_release

if TYPE_CHECKING:
    from webhook.runs.api import KubernetesApi


RELEASES: Final = ", ".join(release.value for release in Release)
"""What ``--trainer`` takes."""


def add_kubeconfig(parser: argparse.ArgumentParser) -> None:
    """``--kubeconfig``."""
    parser.add_argument("--kubeconfig", metavar="FILE", help="default: the pod's service account, else kubectl's")


def add_scope(parser: argparse.ArgumentParser, one: str, every: str) -> None:
    """``-n`` or ``-A``. ``one``, ``every``: what their help says."""
    where = parser.add_mutually_exclusive_group()
    where.add_argument("-n", "--namespace", type=object_name, help=one)
    where.add_argument("-A", "--all-namespaces", action="store_true", help=every)


def add_context(parser: argparse.ArgumentParser) -> None:
    """``--context`` and ``--kubeconfig``."""
    parser.add_argument("--context", help="context of the kubeconfig; default: the current one")
    add_kubeconfig(parser)


def add_dump(parser: argparse.ArgumentParser, text: str) -> None:
    """``--state``: a dump where else a cluster is read. ``text``: what its help says."""
    parser.add_argument("--state", metavar="PATH", action="append", default=[], help=text)


def add_output(parser: argparse.ArgumentParser) -> None:
    """``--output``."""
    parser.add_argument("-o", "--output", choices=("text", "json"), default="text", help="the format (default text)")


def object_name(text: str) -> str:
    """An argument that is a name or a namespace: it becomes part of a path, so it has to look like one."""
    from webhook.effective.buildable.syntax import is_dns_subdomain

    if not is_dns_subdomain(text):
        raise argparse.ArgumentTypeError(f'"{text}" is no name: a-z, 0-9, "-" and ".", at most 253 characters')
    return text


def image_name(text: str) -> str:
    """An argument that is an image."""
    if not text or any(letter.isspace() for letter in text):
        raise argparse.ArgumentTypeError(f'"{text}" is no image')
    return text


def trainer_release(text: str) -> Release:
    """An argument that is a release of Trainer."""
    try:
        return parse_release(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def connect(kubeconfig: Path | None, context: str | None = None) -> KubernetesApi | None:
    """A connection with the rights of whoever runs the command; None, and a line about it, where there is none."""
    from webhook.cluster.access import NoCluster
    from webhook.runs.api import KubernetesApi

    try:
        return KubernetesApi(kubeconfig, context)
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("webhook"):
            raise
        complain([f"error: this needs the library {error.name}: pip install 'checkpoint-guard[cluster]'"])
    except NoCluster as error:
        complain([f"error: {error}"])
    return None
