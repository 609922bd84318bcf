"""An object under edit: every edit goes into a copy and into an RFC 6902 patch at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

Path = Sequence[str | int]
"""Keys of maps and indexes of lists from the object down: ``("spec", "trainer", "env", 0)``."""

_NOTHING: Final = object()


class Draft:
    """A copy on write of one raw object, and the patch that leads to it.

    ``object`` is what the edits have made so far; later readers see earlier edits. The original is never changed, and
    what no edit touches is shared with it. ``patch`` holds one operation for each edit and one for each parent that was
    missing or null, with pointers escaped as RFC 6901 says; applied to the original it gives ``object``.

    A path that leads through a value of another type raises ``TypeError``, an index that is not there ``IndexError``;
    nothing is edited then.
    """

    __slots__ = ("_copied", "object", "patch")

    def __init__(self, original: Mapping[str, Any]) -> None:
        self.object: Mapping[str, Any] = original
        self.patch: list[Mapping[str, Any]] = []
        # The containers that are copies of ours, by id. Holding them keeps their ids from being given to others.
        self._copied: dict[int, Any] = {}

    def get(self, path: Path) -> Any:
        """The value at ``path``, or None where it or a parent is absent or null."""
        found: Any = self.object
        for part in path:
            if isinstance(part, str):
                found = found.get(part) if isinstance(found, Mapping) else None
            else:
                found = found[part] if isinstance(found, list) and part < len(found) else None
            if found is None:
                return None
        return found

    def set(self, path: Path, value: Any) -> None:
        """Write a member of a map or replace an item of a list; missing and null parents become maps."""
        *parents, last = path
        if isinstance(last, int):
            items = self._list(parents)
            if items is None or not 0 <= last < len(items):
                raise IndexError(f"no item {last} at {pointer(parents)}")
            self._own(parents)[last] = value
            self.patch.append({"op": "replace", "path": pointer(path), "value": value})
            return
        target = self._own(parents)
        op = "replace" if last in target else "add"
        target[last] = value
        self.patch.append({"op": op, "path": pointer(path), "value": value})

    def insert(self, path: Path, value: Any, index: int | None = None) -> None:
        """Put an item into the list at ``path``: before item ``index``, or at the end where that is None or past it.

        A missing or null list is made first, with its parents.
        """
        items = self._list(path)
        if items is None:
            self.set(path, [])
        target = self._own(path)
        if index is None or index >= len(target):
            target.append(value)
            self.patch.append({"op": "add", "path": f"{pointer(path)}/-", "value": value})
        else:
            target.insert(index, value)
            self.patch.append({"op": "add", "path": f"{pointer(path)}/{index}", "value": value})

    def mark(self) -> tuple[Mapping[str, Any], int]:
        """A point to go back to with ``undo``."""
        # What was copied so far belongs to the mark, so the next edit copies again.
        self._copied = {}
        return self.object, len(self.patch)

    def undo(self, mark: tuple[Mapping[str, Any], int]) -> None:
        """Forget every edit since ``mark``."""
        self.object = mark[0]
        del self.patch[mark[1] :]
        self._copied = {}

    def _list(self, path: Path) -> list[Any] | None:
        found = self.get(path)
        if found is not None and not isinstance(found, list):
            raise TypeError(f"no list at {pointer(path)}")
        return found

    def _own(self, path: Path) -> Any:
        """The map or list at ``path`` as a copy that may be changed; the whole way down to it is copied.

        Missing and null maps on the way are made, each with an operation of its own.
        """
        # Look first: an edit that cannot be made leaves nothing behind.
        found: Any = self.object
        missing = len(path)
        for depth, part in enumerate(path):
            below = _child(found, part, path[: depth + 1])
            if below is None:
                if isinstance(part, int):
                    raise IndexError(f"no item at {pointer(path[: depth + 1])}")
                missing = depth
                break
            found = below
        for part in path[missing:]:
            if not isinstance(part, str):
                raise IndexError(f"no item at {pointer(path)}")
        if not isinstance(found, Mapping | list) or (missing < len(path) and not isinstance(found, Mapping)):
            raise TypeError(f"neither a map nor a list at {pointer(path[:missing])}")

        here: Any = self._copy(self.object)
        self.object = here
        for depth, part in enumerate(path):
            if depth < missing:
                below = self._copy(here[part])
            else:
                below = self._copy({})
                op = "replace" if part in here else "add"
                self.patch.append({"op": op, "path": pointer(path[: depth + 1]), "value": {}})
            here[part] = below
            here = below
        return here

    def _copy(self, value: Any) -> Any:
        if id(value) in self._copied:
            return value
        copied: Any = dict(value) if isinstance(value, Mapping) else list(value)
        self._copied[id(copied)] = copied
        return copied


def _child(parent: Any, part: str | int, path: Path) -> Any:
    """The child, or None where it is absent or null."""
    if isinstance(part, str):
        if not isinstance(parent, Mapping):
            raise TypeError(f"no map above {pointer(path)}")
        return parent.get(part)
    if not isinstance(parent, list):
        raise TypeError(f"no list above {pointer(path)}")
    return parent[part] if 0 <= part < len(parent) else None


def pointer(path: Path) -> str:
    """``("metadata", "labels", "a/b~c", 0)`` -> ``/metadata/labels/a~1b~0c/0`` (RFC 6901)."""
    text = ""
    for part in path:
        if isinstance(part, str):
            if "~" in part or "/" in part:
                part = part.replace("~", "~0").replace("/", "~1")
            text += "/" + part
        else:
            text += f"/{part}"
    return text
