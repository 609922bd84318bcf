"""The server under measurement: the real process, with the benchmark's cluster in its view. Flags as NAME=VALUE.

``forget=true``: no request finds what an earlier one worked out of the same spec, as if each had one of its own.
"""

from __future__ import annotations

import sys

from bench.objects import BenchView
from webhook.bootstrap import Cluster, assemble, read_settings
from webhook.effective import kept
from webhook.model.cluster import ClusterView
from webhook.model.request import Request
from webhook.server.admission import FixedViews
from webhook.server.logs import log_to_stderr


class Forgetful(FixedViews):
    """The same view for every request, and none remembers another."""

    def at_once(self, request: Request) -> ClusterView | None:
        kept.clear()
        return super().at_once(request)


def main() -> None:
    """Serve until SIGTERM."""
    flags = dict(argument.split("=", 1) for argument in sys.argv[1:])
    views = Forgetful if flags.pop("forget", "") == "true" else FixedViews
    settings = read_settings(flags)
    log_to_stderr(settings.log_level)
    server, close = assemble(settings, Cluster(views(BenchView())))
    server.run()
    close()


if __name__ == "__main__":
    main()
