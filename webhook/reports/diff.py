"""A unified diff of an object as YAML, before and after a patch.

The two objects share most of their parts (the patch copies what it changes), so the trees are walked side by side and
equal parts are printed once; that is far cheaper than dumping both and comparing lines.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from webhook.model.printable import printable

CONTEXT = 3
"""Unchanged lines around a change, as in ``diff -u``."""

_LETTERS = r"[A-Za-z0-9_./$()\-+=@%,\[\]{}'\"<>!&*|?]+"
_WORD = rf"{_LETTERS}(?::{_LETTERS})*"
_PLAIN = re.compile(rf"(?=[A-Za-z_/$(]){_WORD}(?: {_WORD})*")
_WORDS_WITH_A_MEANING = frozenset({"true", "false", "yes", "no", "on", "off", "null", "y", "n"})

_KEYS = ("name", "manager", "mountPath", "targetJobs")
"""What names an item of the lists that are patched."""

Line = tuple[str, str]
"""A marker (`` ``, ``-`` or ``+``) and the text without it."""


def unified(before: Any, after: Any, old: str, new: str, context: int = CONTEXT) -> list[str]:
    """The lines of ``diff -u``; ``old`` and ``new`` name the two sides. Empty where nothing differs."""
    if before is after or before == after:
        return []
    lines: list[Line] = []
    _compare(before, after, 0, lines)
    return [f"--- {old}", f"+++ {new}", *_hunks(lines, context)]


def to_yaml(value: Any) -> str:
    """A JSON value as block YAML that reads back as the same value; keys keep their order."""
    return "\n".join(_lines(value, 0)) + "\n"


def _lines(value: Any, indent: int) -> Iterator[str]:
    pad = " " * indent
    if isinstance(value, dict) and value:
        for key, entry in value.items():
            yield from _entry(key, entry, indent)
    elif isinstance(value, list | tuple) and value:
        for item in value:
            yield from _item(item, indent)
    else:
        yield pad + _scalar(value, indent)


def _entry(key: object, value: Any, indent: int) -> Iterator[str]:
    name = " " * indent + _scalar(key, indent) + ":"
    if isinstance(value, dict) and value:
        yield name
        yield from _lines(value, indent + 2)
    elif isinstance(value, list | tuple) and value:
        yield name
        yield from _lines(value, indent)
    else:
        yield from f"{name} {_scalar(value, indent + 2, block=True)}".split("\n")


def _item(value: Any, indent: int) -> Iterator[str]:
    if isinstance(value, dict | list | tuple) and value:
        lines = _lines(value, indent + 2)
        yield _dashed(next(lines), indent)
        yield from lines
    else:
        yield from f"{' ' * indent}- {_scalar(value, indent + 2, block=True)}".split("\n")


def _scalar(value: object, indent: int, block: bool = False) -> str:
    if isinstance(value, str):
        return _text(value, indent, block)
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        text = repr(value)
        if text in ("inf", "-inf", "nan"):
            return text.replace("inf", ".inf").replace("nan", ".nan")
        return text if "e" not in text or "." in text else text.replace("e", ".0e")
    if isinstance(value, dict):
        return "{}"
    if isinstance(value, list | tuple):
        return "[]"
    return _text(str(value), indent, block)


def _text(text: str, indent: int, block: bool) -> str:
    if _PLAIN.fullmatch(text) and text.lower() not in _WORDS_WITH_A_MEANING:
        return text
    if block and "\n" in text and text[0] not in " \t\n" and not text.endswith("\n\n") and text != "\n":
        content = text.removesuffix("\n").split("\n")
        if all(line.replace("\t", "").isprintable() for line in content) and content[-1].strip():
            pad = " " * indent
            return "\n".join(["|" if text.endswith("\n") else "|-", *(pad + line if line else "" for line in content)])
    if ('"' in text or "\\" in text) and text.isprintable():
        return "'" + text.replace("'", "''") + "'"
    return '"' + printable(text.replace("\\", "\\\\").replace('"', '\\"')) + '"'


def _compare(before: Any, after: Any, indent: int, out: list[Line]) -> None:
    """The lines of both sides of two values that differ and stand at the same place."""
    if isinstance(before, dict) and isinstance(after, dict) and before and after:
        _compare_mappings(before, after, indent, out)
    elif isinstance(before, list | tuple) and isinstance(after, list | tuple) and before and after:
        _compare_lists(before, after, indent, out)
    else:
        out.extend(("-", line) for line in _lines(before, indent))
        out.extend(("+", line) for line in _lines(after, indent))


def _compare_mappings(before: Mapping[str, Any], after: Mapping[str, Any], indent: int, out: list[Line]) -> None:
    for key, old in before.items():
        if key not in after:
            out.extend(("-", line) for line in _entry(key, old, indent))
            continue
        new = after[key]
        if new is old or new == old:
            out.extend((" ", line) for line in _entry(key, old, indent))
        elif old and new and isinstance(old, dict) and isinstance(new, dict):
            out.append((" ", " " * indent + _scalar(key, indent) + ":"))
            _compare_mappings(old, new, indent + 2, out)
        elif old and new and isinstance(old, list | tuple) and isinstance(new, list | tuple):
            out.append((" ", " " * indent + _scalar(key, indent) + ":"))
            _compare_lists(old, new, indent, out)
        else:
            out.extend(("-", line) for line in _entry(key, old, indent))
            out.extend(("+", line) for line in _entry(key, new, indent))
    for key, new in after.items():
        if key not in before:
            out.extend(("+", line) for line in _entry(key, new, indent))


def _compare_lists(before: Sequence[Any], after: Sequence[Any], indent: int, out: list[Line]) -> None:
    head = 0
    while head < min(len(before), len(after)) and before[head] == after[head]:
        head += 1
    tail = 0
    while tail < min(len(before), len(after)) - head and before[-1 - tail] == after[-1 - tail]:
        tail += 1
    for item in before[:head]:
        out.extend((" ", line) for line in _item(item, indent))
    old, new = before[head : len(before) - tail], after[head : len(after) - tail]
    at = 0
    for item in old:
        partner = next((index for index in range(at, len(new)) if _pairs(item, new[index])), None)
        if partner is None:
            out.extend(("-", line) for line in _item(item, indent))
            continue
        for added in new[at:partner]:
            out.extend(("+", line) for line in _item(added, indent))
        if item == new[partner]:
            out.extend((" ", line) for line in _item(item, indent))
        else:
            inner: list[Line] = []
            _compare(item, new[partner], indent + 2, inner)
            _dash_both(inner, indent)
            out.extend(inner)
        at = partner + 1
    for added in new[at:]:
        out.extend(("+", line) for line in _item(added, indent))
    for item in before[len(before) - tail :]:
        out.extend((" ", line) for line in _item(item, indent))


def _pairs(old: object, new: object) -> bool:
    """Whether the two items are one item before and after: equal, or of one name (entries without a name: by place)."""
    if isinstance(old, dict) and isinstance(new, dict) and old and new:
        return all(old.get(key) == new.get(key) for key in _KEYS)
    return old == new


def _dashed(line: str, indent: int) -> str:
    return f"{line[:indent]}- {line[indent + 2 :]}"


def _dash_both(lines: list[Line], indent: int) -> None:
    """Give the first line of either side the dash of its list item."""
    for side in "-+":
        for index, (marker, text) in enumerate(lines):
            if marker in (side, " "):
                if text[indent : indent + 2] == "  ":
                    lines[index] = (marker, _dashed(text, indent))
                break


def _hunks(lines: Sequence[Line], context: int) -> Iterator[str]:
    changed = [index for index, (marker, _) in enumerate(lines) if marker != " "]
    old = new = 1
    at = 0
    while changed:
        start = max(changed[0] - context, 0)
        end = changed.pop(0) + 1
        while changed and changed[0] - end <= 2 * context:
            end = changed.pop(0) + 1
        end = min(end + context, len(lines))
        skipped = start - at
        old, new = old + skipped, new + skipped
        part = lines[start:end]
        olds = sum(marker != "+" for marker, _ in part)
        news = sum(marker != "-" for marker, _ in part)
        yield f"@@ -{old},{olds} +{new},{news} @@"
        for marker, text in part:
            yield printable(marker + text.replace("\t", "  "))
        old, new, at = old + olds, new + news, end
