"""A map of bounded size."""

from __future__ import annotations

from typing import Any


class Bounded:
    """A map that forgets what was asked for longest ago. Threads may share it: each step is one of dict's own."""

    __slots__ = ("_items", "_most", "_weight", "_weights")

    def __init__(self, most: int) -> None:
        self._most = most
        self._items: dict[Any, Any] = {}
        self._weights: dict[Any, int] = {}
        self._weight = 0

    def get(self, key: Any) -> Any:
        found = self._items.get(key)
        if found is not None:
            # Younger again: dict keeps the order of insertion.
            self._items.pop(key, None)
            self._items[key] = found
        return found

    def put(self, key: Any, value: Any, weight: int = 1) -> None:
        if key not in self._items:
            self._weights[key] = weight
            self._weight += weight
        self._items[key] = value
        while self._weight > self._most and len(self._items) > 1:
            try:
                oldest = next(iter(self._items))
            except (StopIteration, RuntimeError):
                return
            if self._items.pop(oldest, None) is not None:
                self._weight -= self._weights.pop(oldest, 0)

    def clear(self) -> None:
        self._items.clear()
        self._weights.clear()
        self._weight = 0

    def __len__(self) -> int:
        return len(self._items)
