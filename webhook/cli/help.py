"""``ckptguard help [COMMAND]``: the overview, or what ``ckptguard COMMAND --help`` says."""

from __future__ import annotations

import argparse


def configure(parser: argparse.ArgumentParser) -> None:
    """The command to explain."""
    parser.add_argument("command", metavar="COMMAND", nargs="*", help="explain this one; without it, list all")


def run(arguments: argparse.Namespace) -> int:
    """0, or 2 for a command that is none."""
    from webhook.cli import main

    try:
        return main([*arguments.command, "--help"])
    except SystemExit as done:
        return int(done.code or 0)
