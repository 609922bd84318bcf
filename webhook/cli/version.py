"""``ckptguard version``."""

from __future__ import annotations

import argparse

import webhook
from webhook.cli.output import write


def configure(parser: argparse.ArgumentParser) -> None:
    """It has no flags."""


def run(_: argparse.Namespace) -> int:
    """0."""
    write([f"ckptguard {webhook.__version__}"])
    return 0
