"""Standard output and standard error: colour, readers that leave early, and nothing that a terminal would act on.

Everything that a command prints goes through here. Names of files, texts of a cluster and of its users become what they
look like: a control character, a mark that turns the direction of writing, or a line break within a line is shown as an
escape, so that nothing moves the cursor, hides a word or passes for a line of ours. Of a very long line both ends are
shown.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable
from io import TextIOWrapper
from typing import Final, TextIO

from webhook.model.printable import bounded, printable

_COLOUR: Final = re.compile(r"(\x1b\[[0-9;]*m)")
"""What the reports paint with, and nothing else of what a terminal obeys."""
_ACTS: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u0600-\u0605\u061c\u06dd\u070f\u08e2\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f"
    "\ud800-\udfff\ufeff\ufff0-\ufffb\U000110bd\U000110cd\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"
    "\U000e0000-\U000e0fff]"
)
"""Controls, formats, line separators, lone surrogates (Cc, Cf, Zl, Zp, Cs), but line break and tab."""


def coloured(stream: TextIO) -> bool:
    """Colour is for terminals whose user did not set NO_COLOR (https://no-color.org: any value that is not empty)."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def write(lines: Iterable[str], painted: bool = False) -> None:
    """Print lines to standard output; a reader that has gone (``| head``) does not change the exit code.

    ``painted``: they are coloured, and what is not ours in them is harmless already.
    """
    _write("".join(f"{_shown(line, painted)}\n" for line in lines) or "\n")


def write_plain(text: str, whole: bool = False) -> None:
    """Print a text for people that ends with its own newline; it is painted where standard output is coloured.

    ``whole`` as in ``as_text``.
    """
    _write(as_text(text, coloured(sys.stdout), whole))


def write_text(text: str) -> None:
    """Print a document for programs, which ends with its own newline: in UTF-8, whatever the locale says."""
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8", errors="backslashreplace")
    _write(as_document(text))


def complain(lines: Iterable[str], painted: bool = False) -> None:
    """Print lines to standard error; where that cannot be written the exit code has to do. ``painted`` as above."""
    text = "".join(f"{_shown(line, painted)}\n" for line in lines)
    if text:
        try:
            sys.stderr.write(text)
            sys.stderr.flush()
        except OSError:
            _discard(sys.stderr)


def as_text(text: str, painted: bool = False, whole: bool = False) -> str:
    """Lines for people, harmless. ``painted`` as above. ``whole``: of long lines too, since a program reads them."""
    return "\n".join(printable(line) if whole else _shown(line, painted) for line in text.split("\n"))


def as_document(text: str) -> str:
    """A document, harmless: what a terminal would act on is written as JSON writes it, which in JSON is the same."""
    return _ACTS.sub(lambda found: "".join(map(_unit, _units(found[0]))), text)


def _shown(line: str, painted: bool) -> str:
    if not painted:
        return bounded(printable(line))
    return "".join(part if at % 2 else bounded(printable(part)) for at, part in enumerate(_COLOUR.split(line)))


def _units(letter: str) -> Iterable[int]:
    """UTF-16, in which JSON's escapes count."""
    code = ord(letter)
    return (code,) if code < 0x10000 else (0xD7C0 + (code >> 10), 0xDC00 + (code & 0x3FF))


def _unit(number: int) -> str:
    return f"\\u{number:04x}"


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
