"""A map of bounded size."""

from __future__ import annotations

from typing import Any


class Bounded:
    """A map that forgets what was not asked for lately. Threads may share it: each step is one of dict's own.

    What was asked for since it last was the oldest goes to the end instead (CLOCK): so a hit costs one look-up, where
    the exact order of use would cost three.
    """

    __slots__ = ("_items", "_most", "_weight")

    def __init__(self, most: int) -> None:
        self._most = most
        self._items: dict[Any, list[Any]] = {}
        """key -> [value, whether it was asked for, weight]"""
        self._weight = 0

    def get(self, key: Any) -> Any:
        found = self._items.get(key)
        if found is None:
            return None
        found[1] = True
        return found[0]

    def put(self, key: Any, value: Any, weight: int = 1) -> None:
        if weight > self._most:  # it alone is too much
            if (gone := self._items.pop(key, None)) is not None:
                self._weight -= gone[2]
            return
        before = self._items.get(key)
        self._items[key] = [value, True, weight]
        self._weight += weight if before is None else weight - before[2]
        while self._weight > self._most and len(self._items) > 1:
            try:
                oldest = next(iter(self._items))
            except (StopIteration, RuntimeError):
                return
            item = self._items.pop(oldest, None)
            if item is None:
                continue
            if item[1]:
                item[1] = False
                self._items[oldest] = item
            else:
                self._weight -= item[2]

    def grow(self, key: Any, weight: int) -> None:
        """What is kept under the key weighs so much more by now."""
        item = self._items.get(key)
        if item is not None:
            self.put(key, item[0], item[2] + weight)

    def clear(self) -> None:
        self._items.clear()
        self._weight = 0

    def __len__(self) -> int:
        return len(self._items)
