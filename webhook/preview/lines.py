"""Audit logs, line by line, however large: plain or gzip, from files or standard input.

What is read at a time is bounded, and so is a line: one that is longer is passed over and counted as broken, so that
memory stays level whatever a file holds.
"""

from __future__ import annotations

import gzip
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator
from itertools import count
from pathlib import Path
from typing import IO, Any, Final, cast

import msgspec
import orjson
from msgspec import Raw, Struct

LONGEST: Final = 4 * 1024 * 1024
"""Bytes of a line: 200 findings with texts of 1,024 characters each stay below."""
_PIECE: Final = 1024 * 1024
_TOO_LONG: Final = b"..."
_KEPT: Final = 16 * 1024 * 1024
"""Bytes of the findings that are remembered."""
_NUMBERS: Final = count(1)
_LONG: Final = 16 * 1024
"""Bytes of one line's findings above which they are not: hardly any other line has the same."""
_GZIP: Final = b"\x1f\x8b"
_NO_JSON: Final = (ValueError, msgspec.MsgspecError, RecursionError)
"""What the decoders raise."""
_NO_OBJECTS: Final = frozenset({list, str, int, float, bool})


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


class Findings(list[dict[str, Any]]):
    """The findings of all lines that have the same ones; nobody changes them."""

    __slots__ = ("number",)

    def __init__(self, found: Iterable[dict[str, Any]], number: int) -> None:
        super().__init__(found)
        self.number = number
        """No others have it, as long as the process lives."""


class Line(Struct, rename="camel", gc=False):
    """What decides whether a line's request would be refused, and what is told of it; None where it is not there."""

    time: Any = None
    webhook: Any = None
    dry_run: Any = None
    user: Any = None
    operation: Any = None
    kind: Any = None
    namespace: Any = None
    name: Any = None
    generate_name: Any = None
    runtime: Any = None
    verdict: Any = None
    would_be: Any = None
    mode: Any = None
    findings: Any = None


class _Wire(Line, rename="camel", gc=False):
    findings: Raw = Raw(b"null")


class Verdicts:
    """Reads of a line what a preview needs. Most lines have the findings of one before, and these are read once.

    Call it with a line. Raises what the decoders raise: MsgspecError, ValueError, RecursionError.
    """

    def __init__(self) -> None:
        self._decode = msgspec.json.Decoder(_Wire).decode
        self._known: dict[bytes, Findings] = {}
        self._bytes = 0

    def __call__(self, text: bytes) -> Line:
        line: Line = self._decode(text)
        found = bytes(line.findings)
        line.findings = self._known.get(found) or self._read(found)
        return line

    def _read(self, text: bytes) -> Any:
        found = orjson.loads(text)
        if type(found) is not list or len(text) > _LONG:
            return found
        self._bytes += 16 * len(text) + 1024  # as objects they take more
        if self._bytes > _KEPT:
            self._known.clear()
            self._bytes = 0
        made = self._known[text] = Findings(found, next(_NUMBERS))
        return made


def records(files: Iterable[str], tally: Tally) -> Iterator[dict[str, Any]]:
    """The audit lines of the files (``-`` for standard input), whole, one after the other. Raises CannotRead."""
    for record in _parsed(files, tally, orjson.loads):
        if "webhook" in record and "findings" in record:
            yield record
        else:
            tally.other += 1


def verdicts(files: Iterable[str], tally: Tally) -> Iterator[Line]:
    """The same, and of each what a preview needs."""
    for line in _parsed(files, tally, Verdicts()):
        if line.webhook is not None and line.findings is not None:
            yield line
        else:
            tally.other += 1


def _parsed(files: Iterable[str], tally: Tally, read: Callable[[bytes], Any]) -> Iterator[Any]:
    for file in files:
        try:
            if file == "-":
                yield from _objects(file, sys.stdin.buffer, tally, read)
            else:
                with Path(file).open("rb") as stream:
                    yield from _objects(file, stream, tally, read)
        except OSError as error:
            raise CannotRead(f"{file}: {error.strerror or error}") from None


def _objects(file: str, stream: IO[bytes], tally: Tally, read: Callable[[bytes], Any]) -> Iterator[Any]:
    number = 0
    for lines in _lines(file, stream, tally):
        for line in lines:
            number += 1
            try:
                record = read(line)
            except _NO_JSON:
                record = _behind_a_prefix(line, read)
            if record is not None and type(record) not in _NO_OBJECTS:
                tally.lines += 1
                yield record
            elif line.strip():
                _broken(tally, file, number)


def _behind_a_prefix(line: bytes, read: Callable[[bytes], Any]) -> Any:
    """Container logs begin each line with a time and a stream: ``2026-12-01T08:00:00Z stdout F {...}``."""
    start = line.find(b"{")
    if start <= 0:
        return None
    try:
        return read(line[start:])
    except _NO_JSON:
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
