"""The server's log is JSON, line by line, and says nothing in another's name."""

from __future__ import annotations

import json
import logging
import sys

from webhook.server.logs import JsonLines, Seldom


def record(message: str, *arguments: object, exc: bool = False) -> logging.LogRecord:
    info = sys.exc_info() if exc else None
    return logging.LogRecord("ckptguard.server", logging.WARNING, "x.py", 1, message, arguments, info)


def test_one_line_of_json_whatever_is_in_it() -> None:
    hostile = 'a\n{"level":"error"}\x1b[2J\x7f\x9b\u202e\u2028"'
    line = JsonLines().format(record("lost %s", hostile))
    assert line.isprintable()
    read = json.loads(line)
    assert (read["level"], read["logger"]) == ("warning", "ckptguard.server")
    assert read["message"].startswith('lost a\\n{"level":"error"}\\x1b[2J\\x7f\\x9b\\u202e')
    assert read["time"].endswith("Z")
    assert len(read["time"]) == len("2026-12-01T00:00:00.000Z")
    assert "exception" not in read


def test_an_exception_stays_on_the_line() -> None:
    try:
        raise ValueError("x\x1b\ny")
    except ValueError:
        line = JsonLines().format(record("it failed", exc=True))
    assert "\n" not in line
    assert "ValueError: x\\x1b" in json.loads(line)["exception"]


def test_what_strangers_provoke_is_said_seldom() -> None:
    seldom = Seldom()
    assert [seldom.filter(record("Invalid HTTP request received.")) for _ in range(3)] == [True, False, False]
    assert all(seldom.filter(record("shutting down")) for _ in range(3))
