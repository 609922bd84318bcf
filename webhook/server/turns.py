"""A queue in which callers take turns: one who sends much waits for itself, not others for him."""

from __future__ import annotations

from collections import deque
from typing import Generic, TypeVar

Item = TypeVar("Item")


class Turns(Generic[Item]):
    """Items by caller. ``pop`` takes one of each caller in turn, and of one caller the oldest."""

    def __init__(self) -> None:
        self._by_caller: dict[str, deque[Item]] = {}
        self._order: deque[str] = deque()
        self._count = 0

    def push(self, caller: str, item: Item) -> None:
        """Put an item behind the others of its caller."""
        waiting = self._by_caller.get(caller)
        if waiting is None:
            self._by_caller[caller] = deque((item,))
            self._order.append(caller)
        else:
            waiting.append(item)
        self._count += 1

    def pop(self) -> Item:
        """The next item. Raises IndexError where there is none."""
        caller = self._order.popleft()
        waiting = self._by_caller[caller]
        item = waiting.popleft()
        if waiting:
            self._order.append(caller)
        else:
            del self._by_caller[caller]
        self._count -= 1
        return item

    def __len__(self) -> int:
        return self._count
