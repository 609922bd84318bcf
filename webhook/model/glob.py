"""Globs over names: ``*`` for any letters, ``?`` for one. Looking a name up among many costs a few look-ups."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, Generic, TypeVar

_STARS: Final = re.compile(r"[*?]")
Value = TypeVar("Value")


def is_glob(text: str) -> bool:
    """Whether it stands for more than itself."""
    return "*" in text or "?" in text


def fits(pattern: str, name: str) -> bool:
    """Whether the whole name fits. At most their lengths multiplied, whatever the pattern."""
    head, starred, rest = pattern.partition("*")
    if "?" not in head:  # most have one star, at their end
        if not starred:
            return pattern == name
        if not name.startswith(head):
            return False
        if not rest:
            return True
    at = here = 0
    star, resume = -1, 0
    while here < len(name):
        if at < len(pattern) and pattern[at] == "*":
            star, resume = at, here
            at += 1
        elif at < len(pattern) and pattern[at] in ("?", name[here]):
            at += 1
            here += 1
        elif star >= 0:
            resume += 1
            at, here = star + 1, resume
        else:
            return False
    return all(letter == "*" for letter in pattern[at:])


class Globs(Generic[Value]):
    """Values by names and globs. A name is looked up once for itself and once for each length of a literal beginning.

    A value may come twice where two of its patterns fit, and some whose beginning alone fits: the caller asks
    ``fits`` again.
    """

    def __init__(self, entries: Iterable[tuple[str, Value]] = ()) -> None:
        self._whole: dict[str, tuple[Value, ...]] = {}
        self._begun: dict[str, tuple[Value, ...]] = {}
        self._lengths: list[int] = []
        for _ in self.filing(entries):
            pass

    def filing(self, entries: Iterable[tuple[str, Value]]) -> Iterator[None]:
        """File all of them, once, in steps: whoever makes it may do something else after each."""
        tables: tuple[dict[str, list[Value]], dict[str, list[Value]]] = ({}, {})
        for pattern, value in entries:
            begun = is_glob(pattern)
            tables[begun].setdefault(begins_with(pattern) if begun else pattern, []).append(value)
            yield
        for table, kept in zip(tables, (self._whole, self._begun), strict=True):
            for key, values in table.items():
                kept[key] = tuple(values)
                yield
        self._lengths = sorted({len(key) for key in self._begun})

    def __bool__(self) -> bool:
        return bool(self._whole or self._begun)

    def may_fit(self, name: str) -> Sequence[Value]:
        """The values whose pattern may fit."""
        found: Sequence[Value] = self._whole.get(name, ())
        begun, most = self._begun, len(name)
        for length in self._lengths:
            if length > most:
                break
            if some := begun.get(name[:length]):
                found = [*found, *some] if found else some
        return found


def begins_with(pattern: str) -> str:
    """The letters before the first star."""
    found = _STARS.search(pattern)
    return pattern if found is None else pattern[: found.start()]
