"""Standard output and standard error: colour, and readers that leave early."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from io import TextIOWrapper
from typing import TextIO


def coloured(stream: TextIO) -> bool:
    """Colour is for terminals whose user did not set NO_COLOR (https://no-color.org: any value that is not empty)."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def write(lines: Iterable[str]) -> None:
    """Print lines to standard output; a reader that has gone (``| head``) does not change the exit code."""
    _write("\n".join(lines) + "\n")


def write_plain(text: str) -> None:
    """Print a text for people that ends with its own newline."""
    _write(text)


def write_text(text: str) -> None:
    """Print a document for programs, which ends with its own newline: in UTF-8, whatever the locale says."""
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8", errors="backslashreplace")
    _write(text)


def complain(lines: Iterable[str]) -> None:
    """Print lines to standard error; where that cannot be written the exit code has to do."""
    text = "".join(f"{line}\n" for line in lines)
    if text:
        try:
            sys.stderr.write(text)
            sys.stderr.flush()
        except OSError:
            _discard(sys.stderr)


def _write(text: str) -> None:
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        _discard(sys.stdout)
    except OSError as error:
        _discard(sys.stdout)
        complain([f"error: standard output cannot be written: {error.strerror}"])
        raise SystemExit(2) from None


def _discard(stream: TextIO) -> None:
    """Python flushes once more at exit, which would fail again, print a message and change the exit code."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
