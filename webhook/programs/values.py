"""Values as far as a text settles them. What is not settled is ``Unknown``, and nothing is ever found about it.

A value is a Python literal (``str``, ``int``, ``float``, ``bool``, ``None``), a tuple of values (a list too), a dict
with ``str`` keys, a ``Text`` (a string with unknown pieces) or ``Unknown``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from msgspec import Struct

Value = Any

LONGEST: Final = 32768
"""Characters of a text that is followed."""
MOST: Final = 256
"""Pieces of a text that are told apart: beyond them it is unknown. A text that doubles itself ends here."""


class Unknown(Struct, frozen=True):
    """A value or a piece of a text that only the running program knows.

    ``kind``: ``fresh`` differs at every start (time, random, process id, uuid), ``host`` is the host's name, ``rank``
    the process's number, ``local-rank`` its number in the pod, ``loop`` changes while the program runs (a step, an
    epoch), ``""`` nothing is known. ``source`` is the expression as written, at most 80 characters.
    """

    kind: str = ""
    source: str = ""


UNKNOWN: Final = Unknown()


class Text(Struct, frozen=True):
    """A string of which some pieces are unknown; no two ``str`` pieces are neighbours."""

    parts: tuple[str | Unknown, ...]


def join(parts: Iterable[Value]) -> Value:
    """The texts one after another: a ``str`` where all is known, else a ``Text``."""
    out: list[str | Unknown] = []
    size = 0
    for part in parts:
        for piece in pieces(part):
            if isinstance(piece, str):
                size += len(piece)
                if size > LONGEST:
                    return UNKNOWN
                if out and isinstance(out[-1], str):
                    out[-1] += piece
                    continue
            out.append(piece)
        if len(out) > MOST:
            return UNKNOWN
    if not out:
        return ""
    if len(out) == 1:
        return out[0]
    return Text(tuple(out))


def pieces(value: Value) -> tuple[str | Unknown, ...]:
    """The value as the pieces of a text."""
    if isinstance(value, str):
        return (value,) if value else ()
    if isinstance(value, Text):
        return value.parts
    if isinstance(value, Unknown):
        return (value,)
    if isinstance(value, int | float) or value is None:
        return (str(value),)
    return (UNKNOWN,)


def is_known(value: Value) -> bool:
    """Nothing in it is unknown (the items of a list and of a map are not looked at)."""
    return not isinstance(value, Unknown | Text)


def is_text(value: Value) -> bool:
    return isinstance(value, str | Text)


def kinds(value: Value) -> frozenset[str]:
    """The kinds of what is unknown in it; ``{""}`` for what is merely unknown."""
    if isinstance(value, Unknown):
        return frozenset((value.kind,))
    if isinstance(value, Text):
        return frozenset(piece.kind for piece in value.parts if isinstance(piece, Unknown))
    return frozenset()


def head(value: Value) -> str:
    """The known beginning of a text."""
    first = pieces(value)[:1]
    return first[0] if first and isinstance(first[0], str) else ""


def tail(value: Value) -> str:
    """The known end of a text."""
    last = pieces(value)[-1:]
    return last[0] if last and isinstance(last[0], str) else ""


def join_path(parts: Iterable[Value]) -> Value:
    """``os.path.join``: an absolute part starts anew."""
    out: list[Value] = []
    for part in parts:
        beginning = head(part)
        if beginning.startswith("/"):
            out = [part]
            continue
        if out and not tail(out[-1]).endswith("/"):
            out.append("/")
        out.append(part)
    return join(out)


def after_mark(word: Value) -> Value:
    """The value of a word ``name=value``."""
    if isinstance(word, str):
        return word.partition("=")[2]
    if isinstance(word, Text):
        first = word.parts[0]
        rest = first.partition("=")[2] if isinstance(first, str) else ""
        parts = ((rest,) if rest else ()) + word.parts[1:]
        return parts[0] if len(parts) == 1 else Text(parts)
    return UNKNOWN


def split_fields(value: Value) -> list[Value]:
    """The words that a shell makes of a variable without quotes: cut at blanks."""
    if not is_text(value):
        return [value]
    out: list[Value] = []
    open_word = False
    for piece in pieces(value):
        if isinstance(piece, str):
            words = piece.split()
            if open_word and words and not piece[0].isspace():
                out[-1] = join((out[-1], words.pop(0)))
            out += words
            open_word = bool(piece) and not piece[-1].isspace()
        else:
            if open_word:
                out[-1] = join((out[-1], piece))
            else:
                out.append(piece)
            open_word = True
    return out


def is_true(value: Value) -> bool | None:
    """The truth of a literal, words of YAML and of command lines too; None where it is not known."""
    if isinstance(value, Unknown | Text):
        return None
    if isinstance(value, str):
        word = value.strip().lower()
        if word in ("true", "yes", "on", "1"):
            return True
        if word in ("false", "no", "off", "0", "", "none", "null"):
            return False
        return None
    if isinstance(value, Mapping | tuple):
        return bool(value)
    return bool(value)


def as_number(value: Value) -> float | None:
    """A number, also one that is written as a text; None for anything else, and for what no program counts to."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    if isinstance(value, str):
        if len(value) >= 32:
            return None
        value = value.replace("_", "")
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if -1e18 < number < 1e18 else None


def shown(text: str, longest: int = 80) -> str:
    """One line of the program for a message: at most 80 characters, and a mark where it was cut."""
    line = " ".join(text.split())
    return line if len(line) <= longest else line[: longest - 1].rstrip() + "…"


def said(text: str, longest: int = 80) -> str:
    """The same between the double quotes of a message: its own become single ones."""
    return shown(text, longest).replace('"', "'")
