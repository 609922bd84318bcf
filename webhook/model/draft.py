"""An object under edit: every edit goes into a copy and into an RFC 6902 patch at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

Path = Sequence[str | int]
"""Keys of maps and indexes of lists from the object down: ``("spec", "trainer", "env", 0)``."""


class Draft:
    """A copy on write of one raw object, and the patch that leads to it.

    ``object`` is what the edits have made so far; later readers see earlier edits. The original is never changed, and
    what no edit touches is shared with it. ``patch`` holds one operation for each edit, with the parents that were
    missing or null in its value and pointers escaped as RFC 6901 says; applied to the original it gives ``object``.

    A path that leads through a value of another type raises ``TypeError``, an index that is not there ``IndexError``;
    nothing is edited then.
    """

    __slots__ = ("_copied", "_edits", "_original", "object", "patch")

    def __init__(self, original: Mapping[str, Any]) -> None:
        self.object: Mapping[str, Any] = original
        self.patch: list[Mapping[str, Any]] = []
        self._original = original
        self._edits: list[tuple[Path, Any, int | None, bool]] = []
        # The containers that are copies of ours, by id. Holding them keeps their ids from being given to others.
        self._copied: dict[int, Any] = {}

    def get(self, path: Path) -> Any:
        """The value at ``path``, or None where it or a parent is absent or null."""
        found: Any = self.object
        for part in path:
            if type(found) is dict:
                found = found.get(part)
            elif type(found) is list and type(part) is int and 0 <= part < len(found):
                found = found[part]
            else:
                return None
        return found

    def set(self, path: Path, value: Any) -> None:
        """Write a member of a map or replace an item of a list; missing and null parents become maps."""
        last = len(path) - 1
        here, depth = self._reach(path[:last])
        if depth < last:
            self._put(here, path, depth, value)
        elif type(here) is dict:
            self._put(here, path, last, value)
        else:
            index = _index(here, path, last)
            here[index] = value
            self.patch.append({"op": "replace", "path": pointer(path), "value": value})
        self._edits.append((path, value, None, False))

    def insert(self, path: Path, value: Any, index: int | None = None) -> None:
        """Put an item into the list at ``path``: before item ``index``, or at the end where that is None or past it.

        A missing or null list is made, with its parents.
        """
        here, depth = self._reach(path)
        if depth < len(path):
            self._put(here, path, depth, [value])
        elif type(here) is not list:
            raise TypeError(f"no list at {pointer(path)}")
        elif index is None or index >= len(here):
            here.append(value)
            self.patch.append({"op": "add", "path": pointer(path) + "/-", "value": value})
        else:
            here.insert(index, value)
            self.patch.append({"op": "add", "path": f"{pointer(path)}/{index}", "value": value})
        self._edits.append((path, value, index, True))

    def mark(self) -> int:
        """A point to go back to with ``undo``."""
        return len(self._edits)

    def undo(self, mark: int) -> None:
        """Forget every edit since ``mark``."""
        edits = self._edits[:mark]
        self.object, self.patch, self._edits, self._copied = self._original, [], [], {}
        for path, value, index, inserted in edits:
            if inserted:
                self.insert(path, value, index)
            else:
                self.set(path, value)

    def _reach(self, path: Path) -> tuple[Any, int]:
        """The deepest map or list on the way to ``path`` that is there, as a copy that may be changed, and its depth.

        The whole way down to it is copied.
        """
        copied = self._copied
        here: Any = self.object
        if id(here) not in copied:
            here = self.object = dict(here)
            copied[id(here)] = here
        for depth, part in enumerate(path):
            if type(here) is dict:
                if type(part) is not str:
                    raise TypeError(f"no list above {pointer(path[: depth + 1])}")
                below = here.get(part)
                if below is None:
                    return here, depth
            else:
                part = _index(here, path, depth)
                below = here[part]
                if below is None:
                    raise TypeError(f"neither a map nor a list at {pointer(path[: depth + 1])}")
            if id(below) not in copied:
                if type(below) is dict:
                    below = dict(below)
                elif type(below) is list:
                    below = list(below)
                else:
                    raise TypeError(f"neither a map nor a list at {pointer(path[: depth + 1])}")
                copied[id(below)] = below
                here[part] = below
            here = below
        return here, len(path)

    def _put(self, here: dict[str, Any], path: Path, depth: int, value: Any) -> None:
        """Write the member ``path[depth]`` of ``here``, with what of the path lies below it around the value."""
        for part in reversed(path[depth + 1 :]):
            if type(part) is not str:
                raise IndexError(f"no item at {pointer(path)}")
            value = {part: value}
        member = path[depth]
        if type(member) is not str:
            raise TypeError(f"no list above {pointer(path[: depth + 1])}")
        op = "replace" if member in here else "add"
        here[member] = value
        self.patch.append({"op": op, "path": pointer(path[: depth + 1]), "value": value})


def _index(items: list[Any], path: Path, depth: int) -> int:
    index = path[depth]
    if type(index) is not int:
        raise TypeError(f"no map above {pointer(path[: depth + 1])}")
    if not 0 <= index < len(items):
        raise IndexError(f"no item at {pointer(path[: depth + 1])}")
    return index


def pointer(path: Path) -> str:
    """``("metadata", "labels", "a/b~c", 0)`` -> ``/metadata/labels/a~1b~0c/0`` (RFC 6901)."""
    text = ""
    for part in path:
        if type(part) is str and ("~" in part or "/" in part):
            part = part.replace("~", "~0").replace("/", "~1")
        text += f"/{part}"
    return text
