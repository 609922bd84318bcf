"""Objects of a YAML or JSON file changed in their text: comments, order, quotes, block scalars and line ends stay.

Needs ruamel.yaml (extra ``fix``). A change that cannot be written without touching anything else is refused.
"""

from __future__ import annotations

import difflib
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

Raw = Mapping[str, Any]
_SQUARE: Final = 9_000_000
"""Pairs of lines that are compared: 3,000 lines with 3,000."""


class NotWritten(Exception):  # noqa: N818 - what happened, not an error of ours
    """The text cannot be changed so that nothing else in it changes; the message is the reason."""


class Edited:
    """The text of one file, and its objects in order as they may be changed."""

    def __init__(self, text: str) -> None:
        self._bom = text.startswith("\ufeff")
        text = text.removeprefix("\ufeff")
        self._crlf = text.count("\r\n")
        if self._crlf and self._crlf != text.count("\n"):
            raise NotWritten("its lines end in two ways")
        self._parts = _split(text.replace("\r\n", "\n"))

    def change(self, before: Raw, after: Raw) -> None:
        """Replaces the first object that equals ``before``. Raises ``NotWritten``."""
        for at, (opening, body) in enumerate(self._parts):
            tree = _load(body)
            for where in _objects(tree):
                if _plain(_at(tree, where)) == before:
                    changed = _change(body, tree, where, before, after)
                    if "\t" in changed and "\t" not in body:
                        raise NotWritten("tabs would be written")
                    self._parts[at] = (opening, changed)
                    return
        raise NotWritten("the object is not found in its file")

    def text(self) -> str:
        whole = "".join(opening + body for opening, body in self._parts)
        whole = whole.replace("\n", "\r\n") if self._crlf else whole
        return "\ufeff" + whole if self._bom else whole


def _split(text: str) -> list[tuple[str, str]]:
    """The documents, each with the ``---`` that opens it."""
    parts: list[tuple[str, str]] = [("", "")]
    for line in text.splitlines(keepends=True):
        bare = line.rstrip()
        if bare == "---" or (bare.startswith("--- ") and bare[4:].lstrip().startswith("#")) or bare == "...":
            parts.append((line, ""))
        else:
            opening, body = parts[-1]
            parts[-1] = (opening, body + line)
    return parts


def _yaml(body: str) -> Any:
    from ruamel.yaml import YAML

    made = YAML()
    made.preserve_quotes = True
    made.width = 1_000_000
    step, dash = _indents(body)
    made.indent(mapping=step, sequence=dash + 2, offset=dash)
    return made


def _indents(body: str) -> tuple[int, int]:
    """How far a map is indented, and the dash of a list below its key."""
    step, dash = 2, 0
    before: tuple[int, str] = (0, "")
    for line in body.split("\n"):
        bare = line.strip()
        if not bare or bare.startswith("#"):
            continue
        at = len(line) - len(line.lstrip())
        if before[1].endswith(":") and not before[1].startswith("- "):
            if bare.startswith("- "):
                return step, max(0, at - before[0])
            if at > before[0]:
                step = at - before[0]
        before = (at, bare.partition(" #")[0].rstrip())
    return step, dash


def _load(body: str) -> Any:
    if not body.strip():
        return None
    if body.lstrip()[:1] in "{[":
        try:
            return json.loads(body)
        except ValueError:
            pass
    try:
        return _yaml(body).load(body)
    except Exception as error:
        raise NotWritten(f"it cannot be read: {type(error).__name__}") from None


def _objects(tree: Any) -> list[tuple[str | int, ...]]:
    if not isinstance(tree, Mapping):
        return []
    items = tree.get("items")
    if str(tree.get("kind", "")).endswith("List") and isinstance(items, Sequence):
        return [("items", at) for at in range(len(items))]
    return [()]


def _at(tree: Any, where: tuple[str | int, ...]) -> Any:
    for step in where:
        tree = tree[step]
    return tree


def _plain(value: Any) -> Any:
    """The same without what ruamel.yaml keeps beside it."""
    if isinstance(value, Mapping):
        return {str(key) if isinstance(key, str) else key: _plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    if isinstance(value, str):
        return str(value)
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, int):
        return int(value)
    return float(value) if isinstance(value, float) else value


def _change(body: str, tree: Any, where: tuple[str | int, ...], before: Raw, after: Raw) -> str:
    dump = _json_dump if type(tree) is dict else _dump
    unchanged = dump(tree, body)
    expected = _plain(tree)
    _sync(_at(expected, where), before, after)
    _sync(_at(tree, where), before, after)
    if _plain(tree) != expected:
        raise NotWritten("an anchor is shared with another part")
    changed = dump(tree, body)
    if unchanged != body:
        changed = _onto(body, unchanged, changed)
    if _plain(_load(changed)) != expected:
        raise NotWritten("its form cannot be kept")
    return changed


def _dump(tree: Any, body: str) -> str:
    stream = io.StringIO()
    _yaml(body).dump(tree, stream)
    return stream.getvalue()


def _json_dump(tree: Any, body: str) -> str:
    second = body.partition("\n")[2].partition("\n")[0]
    indent = len(second) - len(second.lstrip()) or None
    separators = None if indent or ", " in body else (",", ":")
    text = json.dumps(tree, indent=indent, ensure_ascii=body.isascii(), separators=separators)
    return text + body[len(body.rstrip()) :]


def _onto(body: str, unchanged: str, changed: str) -> str:
    """What differs between two dumps, done to the text itself: it is written in another way than a dump writes it."""
    own, dumped, new = body.splitlines(), unchanged.splitlines(), changed.splitlines()
    place: dict[int, int] = {}
    for tag, first, last, start, _ in _opcodes([_bare(one) for one in dumped], [_bare(one) for one in own]):
        if tag == "equal":
            place.update({first + at: start + at for at in range(last - first)})
    out: list[str] = []
    done = 0
    for tag, first, last, start, end in _opcodes(dumped, new):
        if tag == "equal":
            continue
        if any(at not in place for at in range(first, last)):
            raise NotWritten("its form cannot be kept")
        near = first if first in place and last > first else first - 1
        if near >= 0 and near not in place:
            raise NotWritten("its form cannot be kept")
        begin = place[first] if last > first else (place[near] + 1 if near >= 0 else 0)
        finish = place[last - 1] + 1 if last > first else begin
        if begin < done:
            raise NotWritten("its form cannot be kept")
        shift = _indent(own[place[near]]) - _indent(dumped[near]) if near >= 0 else 0
        out += own[done:begin]
        out += [_shifted(line, shift) for line in new[start:end]]
        done = finish
    out += own[done:]
    return "\n".join(out) + ("\n" if body.endswith("\n") else "")


def _opcodes(one: list[str], two: list[str]) -> Iterator[tuple[str, int, int, int, int]]:
    """As ``SequenceMatcher.get_opcodes``, whose cost is the square of lines that recur: only between the equal ends."""
    most = min(len(one), len(two))
    begin = next((at for at in range(most) if one[at] != two[at]), most)
    end = next((at for at in range(most - begin) if one[-1 - at] != two[-1 - at]), most - begin)
    middle, other = one[begin : len(one) - end], two[begin : len(two) - end]
    if len(middle) * len(other) > _SQUARE:
        raise NotWritten(
            "its form cannot be kept: too much of the file is written in another way than a dump writes it"
        )
    if begin:
        yield "equal", 0, begin, 0, begin
    for tag, first, last, start, stop in difflib.SequenceMatcher(None, middle, other, autojunk=False).get_opcodes():
        yield tag, first + begin, last + begin, start + begin, stop + begin
    if end:
        yield "equal", len(one) - end, len(one), len(two) - end, len(two)


def _bare(line: str) -> str:
    return line.strip().replace('"', "'")


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def _shifted(line: str, by: int) -> str:
    return " " * by + line if by >= 0 else line[-by:] if not line[:-by].strip() else line


def _sync(node: Any, before: Any, after: Any) -> None:
    """Makes of ``node``, which is ``before``, ``after``, and touches nothing that is the same in both."""
    if isinstance(after, Mapping):
        gone, come = [one for one in before if one not in after], [one for one in after if one not in before]
        if len(gone) == len(come) == 1 and before[gone[0]] == after[come[0]]:
            _rename(node, gone[0], come[0])
            before = {come[0] if key == gone[0] else key: value for key, value in before.items()}
        else:
            for key in gone:
                del node[key]
        for at, (key, value) in enumerate(after.items()):
            if key not in before:
                if hasattr(node, "insert") and at < len(node):
                    node.insert(at, key, _made(value))
                else:
                    node[key] = _made(value)
            elif value != before[key] or type(value) is not type(before[key]):
                if _same_kind(value, before[key]):
                    _sync(node[key], before[key], value)
                else:
                    node[key] = _like(node[key], value)
        return
    matcher = difflib.SequenceMatcher(None, [_key(one) for one in before], [_key(one) for one in after], autojunk=False)
    for tag, first, last, start, end in reversed(matcher.get_opcodes()):
        if tag == "equal":
            continue
        if tag == "replace" and last - first == end - start:
            for at in range(last - first):
                one, two = before[first + at], after[start + at]
                if _same_kind(two, one):
                    _sync(node[first + at], one, two)
                else:
                    node[first + at] = _like(node[first + at], two)
            continue
        for at in range(last - 1, first - 1, -1):
            del node[at]
        for at, value in enumerate(after[start:end]):
            node.insert(first + at, _made(value))


def _rename(node: Any, old: str, new: str) -> None:
    """Another name for a key, with its place and the remark behind it."""
    items = list(node.items())
    remark = node.ca.items.pop(old, None) if hasattr(node, "ca") else None
    if hasattr(node, "insert"):
        at, value = list(node).index(old), node[old]
        del node[old]
        node.insert(at, new, value)
    else:
        node.clear()
        node.update((new if key == old else key, value) for key, value in items)
    if remark is not None:
        node.ca.items[new] = remark


def _same_kind(one: Any, two: Any) -> bool:
    both_maps = isinstance(one, Mapping) and isinstance(two, Mapping)
    return both_maps or (isinstance(one, list) and isinstance(two, list))


def _key(value: Any) -> str:
    return json.dumps(value, sort_keys=True, default=str)


def _like(old: Any, value: Any) -> Any:
    """A text in the style of the one in whose place it stands."""
    if isinstance(value, str) and isinstance(old, str) and type(old) is not str:
        anchor = getattr(old, "anchor", None)
        if anchor is not None and anchor.value:
            raise NotWritten("an anchor is shared with another part")
        return type(old)(value)
    return _made(value)


def _made(value: Any) -> Any:
    if isinstance(value, Mapping):
        from ruamel.yaml.comments import CommentedMap

        return CommentedMap((key, _made(one)) for key, one in value.items())
    if isinstance(value, list):
        from ruamel.yaml.comments import CommentedSeq

        return CommentedSeq(_made(one) for one in value)
    return value
