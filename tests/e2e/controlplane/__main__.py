"""`python -m tests.e2e.controlplane build | playground`."""

import argparse
import sys

from . import build, playground
from .releases import NEWEST, RELEASES


def main() -> int:
    """Runs one of the commands; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.e2e.controlplane", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    building = commands.add_parser("build", help="build what is not in the cache yet")
    building.add_argument(
        "--only",
        nargs="+",
        default=[],
        metavar="NAME",
        help='"etcd", "trainer", "trainer-2.3.0", or "2.3.0" for the Trainer and the JobSet of that release',
    )
    playing = commands.add_parser("playground", help="leave a cluster running until Ctrl-C")
    playing.add_argument("--release", choices=list(RELEASES), default=NEWEST)
    playing.add_argument("--kueue", action="store_true", help="with Kueue (Trainer 2.2 and 2.3)")
    playing.add_argument("--no-guard", action="store_true", help="without Checkpoint Guard")
    arguments = parser.parse_args()
    try:
        if arguments.command == "build":
            build.ensure_all(build.components(arguments.only), lambda line: print(line, flush=True))
            return 0
        return playground.run(RELEASES[arguments.release], kueue=arguments.kueue, guard=not arguments.no_guard)
    except (ValueError, build.GoMissingError, build.BuildError) as error:
        print(error, file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
