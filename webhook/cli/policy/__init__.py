"""``ckptguard policy``: check a policy file, explain what holds in a namespace, compare two, test one."""

from __future__ import annotations

import argparse
from importlib import import_module

ACTIONS = {
    "check": "every fault of policy files, with line, field and the nearest known name",
    "explain": "each value that holds in a namespace, and where it comes from",
    "diff": "what another policy file changes; with --audit-log what it would have refused",
    "test": "review the manifests of a folder and compare with its expected.yaml",
}


def configure(parser: argparse.ArgumentParser) -> None:
    """The actions and their flags."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    for name, summary in ACTIONS.items():
        action = actions.add_parser(name, help=summary, description=summary, allow_abbrev=False)
        import_module(f"webhook.cli.policy.{name}").configure(action)


def run(arguments: argparse.Namespace) -> int:
    """0 nothing against it; 1 a fault, a difference, a failed expectation; 2 could not be done."""
    return int(import_module(f"webhook.cli.policy.{arguments.action}").run(arguments))
