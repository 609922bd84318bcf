"""The server under measurement: the real process, with the benchmark's cluster in its view. Flags as NAME=VALUE."""

from __future__ import annotations

import sys

from bench.objects import BenchView
from webhook.bootstrap import Cluster, assemble, read_settings
from webhook.server.admission import FixedViews


def main() -> None:
    """Serve until SIGTERM."""
    settings = read_settings(dict(argument.split("=", 1) for argument in sys.argv[1:]))
    server, close = assemble(settings, Cluster(FixedViews(BenchView())))
    server.run()
    close()


if __name__ == "__main__":
    main()
