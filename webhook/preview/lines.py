"""Audit logs, line by line, however large: plain or gzip, from files or standard input.

What is read at a time is bounded, and so is a line: one that is longer is passed over and counted as broken, so that
memory stays level whatever a file holds.
"""

from __future__ import annotations

import gzip
import sys
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Any, Final, cast

import orjson
from msgspec import Struct

LONGEST: Final = 4 * 1024 * 1024
"""Bytes of a line: 200 findings with texts of 1,024 characters each stay below."""
_PIECE: Final = 1024 * 1024
_TOO_LONG: Final = b"..."
_GZIP: Final = b"\x1f\x8b"


class Tally(Struct):
    """What was read."""

    lines: int = 0
    broken: int = 0
    """Lines that are no JSON object, or too long; a gzip file that ends early counts as one."""
    other: int = 0
    """JSON that is no audit line, such as the process's own messages beside it."""
    broken_at: str = ""
    """File and line of the first broken one."""


class CannotRead(Exception):  # noqa: N818
    """A file that cannot be read; the text names it."""


def records(files: Iterable[str], tally: Tally) -> Iterator[dict[str, Any]]:
    """The audit lines of the files (``-`` for standard input), one after the other. Raises CannotRead."""
    for file in files:
        try:
            if file == "-":
                yield from _records(file, sys.stdin.buffer, tally)
            else:
                with Path(file).open("rb") as stream:
                    yield from _records(file, stream, tally)
        except OSError as error:
            raise CannotRead(f"{file}: {error.strerror or error}") from None


def _records(file: str, stream: IO[bytes], tally: Tally) -> Iterator[dict[str, Any]]:
    number = 0
    loads = orjson.loads
    for lines in _lines(file, stream, tally):
        for line in lines:
            number += 1
            try:
                record = loads(line)
            except orjson.JSONDecodeError:
                record = _behind_a_prefix(line)
            if type(record) is not dict:
                if line.strip():
                    _broken(tally, file, number)
                continue
            tally.lines += 1
            if "webhook" in record and "findings" in record:
                yield record
            else:
                tally.other += 1


def _behind_a_prefix(line: bytes) -> Any:
    """Container logs begin each line with a time and a stream: ``2026-12-01T08:00:00Z stdout F {...}``."""
    start = line.find(b"{")
    if start <= 0:
        return None
    try:
        return orjson.loads(line[start:])
    except orjson.JSONDecodeError:
        return None


def _broken(tally: Tally, file: str, number: int) -> None:
    tally.broken += 1
    tally.broken_at = tally.broken_at or f"{file}:{number}"


def _lines(file: str, stream: IO[bytes], tally: Tally) -> Iterator[list[bytes]]:
    """Some lines at a time; one that is too long as what is no JSON."""
    rest = b""
    skipping = False
    for piece in _pieces(file, stream, tally):
        lines = piece.split(b"\n")
        if len(lines) > 1:
            lines[0] = _TOO_LONG if skipping else rest + lines[0]
            rest, skipping = lines.pop(), False
            yield lines
        else:
            rest += piece
        if len(rest) > LONGEST:
            rest, skipping = b"", True
    if rest or skipping:
        yield [_TOO_LONG if skipping else rest]


def _pieces(file: str, stream: IO[bytes], tally: Tally) -> Iterator[bytes]:
    """Some of the text at a time, unpacked where it is gzip."""
    first = stream.read(_PIECE)
    if not first.startswith(_GZIP):
        piece = first
        while piece:
            yield piece
            piece = stream.read(_PIECE)
        return
    unpacked = gzip.GzipFile(fileobj=cast(IO[bytes], _Again(first, stream)), mode="rb")
    try:
        while piece := unpacked.read(_PIECE):
            yield piece
    except (EOFError, gzip.BadGzipFile, zlib.error):
        _broken(tally, file, 0)


class _Again:
    """A stream with what was read of it already in front."""

    def __init__(self, first: bytes, stream: IO[bytes]) -> None:
        self._first = first
        self._stream = stream

    def read(self, size: int = -1) -> bytes:
        if not self._first:
            return self._stream.read(size)
        found = self._first if size < 0 else self._first[:size]
        self._first = self._first[len(found) :]
        return found + self._stream.read() if size < 0 else found
