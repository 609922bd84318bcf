"""What one review may cost. The numbers stand here and in docs/operations.md; nothing below takes the time.

They are counts of the object's own parts, so the same object is cut at the same place on every machine and whatever is
cached. What is cut of jobs, volumes, mounts or claims is said by rule ``judged-in-part``, a program that is cut by
``program-not-read``. No manifest that we know of comes near a tenth of one of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from msgspec import Struct

NODES: Final = 15_000
"""Entries of the pods' lists (containers, variables, volumes, mounts, ports, ...) that are looked at."""
MERGED: Final = 120_000
"""Entries that overrides are merged with: each override of a job goes through the pod as it is by then."""
LOOKUPS: Final = 1_000
"""Claims, volumes and classes that are looked up in the cluster; the checkpoint's own come first."""
MAPS: Final = 4
"""ConfigMaps that hold a program and are looked up, each once."""
FINDINGS: Final = 500
"""Findings of one rule that are collected; an answer holds some hundred."""
PROGRAM_BYTES: Final = 384 * 1024
"""Characters of program text that are parsed."""
TREE_NODES: Final = 90_000
"""Nodes of syntax trees that are visited, as a cheap scan foretells them: one parse cannot be stopped."""

CUT: Final = "cut"
"""Key of a review's memo under which the rules stand whose findings were not all collected."""

_MARKS: Final = b".,([{=+-*/<>;|&$:%^@~!\n\r"
"""What stands between the nodes of a program's tree, whatever its language."""
_TWICE: Final = b"([{\n\r"
"""Those that begin what is more than one node: a call, an item, a piece of a text, a statement."""
_LETTERS: Final = bytes(set(range(256)).difference(_MARKS))
"""All else. What is left of a text without them is short, so to count that is one pass over the text."""


_SHORT: Final = 4096
"""Characters of a text whose marks are not counted, but foretold as one in four."""


def marks_in(text: str) -> int:
    """About as many as its tree has nodes, whatever its language."""
    marks = text.encode("utf-8", "surrogatepass").translate(None, _LETTERS)
    return 2 * len(marks) - len(marks.translate(None, _TWICE))


_WORTH: Final = 8
"""Bytes of plain JSON that take as long to judge as one node of a program's tree."""
_PLAIN: Final = 8 * 1024
"""Bytes of a text that is worth what it weighs: densely written it has half as many nodes."""
_PLAIN_LETTERS: Final = _LETTERS.replace(b"\\", b"")
"""All but the marks as JSON has them: a line break is written with a backslash."""


def worth(text: bytes) -> int:
    """A JSON text in bytes of plain JSON, of which one mark in ten letters is usual: more where it may be a program.

    It tells what is judged elsewhere, by what it may cost and before anything of it is read.
    """
    size = len(text)
    if size <= _PLAIN:
        return size
    return max(size, _WORTH * len(text.translate(None, _PLAIN_LETTERS)))


_MERGES: Final = 32
"""Overrides that take as long to merge into a runtime as the runtime takes to judge; 40 to 120 were measured."""


def worth_of_merging(overrides: int, runtime: int) -> int:
    """What so many overrides add to a runtime that is worth so much: each goes through its pods as they are by then."""
    return overrides * runtime // _MERGES


class Cut(Struct, frozen=True):
    """A part of an object that was not judged: of what, how many there are, and how many were looked at."""

    what: str
    found: int
    kept: int


class Reading:
    """How much program text a review may still parse."""

    __slots__ = ("_bytes", "_nodes")

    def __init__(self) -> None:
        self._bytes = PROGRAM_BYTES
        self._nodes = TREE_NODES

    def takes(self, texts: Sequence[Any], longest: int, more: tuple[int, int] = (0, 0)) -> bool:
        """Whether there is room for a program of these texts, of which none above ``longest`` is read; takes it.

        ``more`` are the characters and nodes of what it reads besides.
        """
        size, nodes = more
        for text in texts:
            if isinstance(text, str) and len(text) <= longest:
                size += len(text)
                nodes += marks_in(text) if len(text) > _SHORT else len(text) // 4
        self._bytes -= size
        self._nodes -= nodes
        return self._bytes >= 0 and self._nodes >= 0
