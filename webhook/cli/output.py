"""Standard output and standard error: colour, and readers that leave early."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from typing import TextIO


def coloured(stream: TextIO) -> bool:
    """Colour is for terminals whose user did not set NO_COLOR (https://no-color.org: any value that is not empty)."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def write(lines: Iterable[str]) -> None:
    """Print lines to standard output; a reader that has gone (``| head``) does not change the exit code."""
    _write("\n".join(lines) + "\n")


def write_text(text: str) -> None:
    """Print a document that ends with its own newline."""
    _write(text)


def complain(lines: Iterable[str]) -> None:
    """Print lines to standard error."""
    text = "".join(f"{line}\n" for line in lines)
    if text:
        sys.stderr.write(text)


def _write(text: str) -> None:
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        _discard()
    except OSError as error:
        _discard()
        complain([f"error: standard output cannot be written: {error.strerror}"])
        raise SystemExit(2) from None


def _discard() -> None:
    """Python flushes once more at exit, which would fail again and print a message of its own."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
