"""The server as a process, with the tests' engine: python -m tests.server.serve_fake FLAG=VALUE..."""

from __future__ import annotations

import sys

from tests.server.serving import Engine
from webhook.bootstrap import assemble_with, read_settings


def main() -> int:
    flags = dict(argument.split("=", 1) for argument in sys.argv[1:])
    engine = Engine()
    server, close = assemble_with(read_settings(flags), engine.default, engine.judge)
    server.run()
    close()
    return 1 if server.failed else 0


if __name__ == "__main__":
    sys.exit(main())
