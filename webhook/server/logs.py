"""The process's own log: one JSON object a line, as the audit lines beside it: ``kubectl logs | jq`` reads both.

Fields: ``time`` (UTC), ``level``, ``logger``, ``message``, and ``exception`` where there is one. Nothing in them acts
on a terminal or forges a line, whoever wrote it.
"""

from __future__ import annotations

import logging
import sys
from datetime import UTC, datetime
from time import monotonic
from typing import Final

import orjson

from webhook.model.printable import printable

_SECONDS: Final = 10.0
_OFTEN: Final = ("Invalid HTTP request received.", "Unsupported upgrade request.")
"""What strangers can make uvicorn say as often as they like."""
_LIMIT: Final = 4096
"""Characters of a message, and of each line of an exception."""


class JsonLines(logging.Formatter):
    """A record as one line of JSON."""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")[:-6] + "Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": printable(record.getMessage()[:_LIMIT]),
        }
        if record.exc_info:
            lines = self.formatException(record.exc_info).splitlines()
            line["exception"] = "\n".join(printable(part[:_LIMIT]) for part in lines)
        return orjson.dumps(line).decode()


class Seldom(logging.Filter):
    """Lets what strangers can provoke through once in a while."""

    def __init__(self) -> None:
        super().__init__()
        self._next: dict[str, float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        message = str(record.msg)
        if message not in _OFTEN:
            return True
        now = monotonic()
        if now < self._next.get(message, 0.0):
            return False
        self._next[message] = now + _SECONDS
        return True


def log_to_stderr(level: str) -> None:
    """From now on the whole process logs to standard error."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    logging.basicConfig(handlers=[handler], level=level.upper())
    logging.getLogger("uvicorn.error").addFilter(Seldom())
