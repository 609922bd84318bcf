"""Python texts that were parsed before: a bounded store by text, since parsing is what reading costs."""

from __future__ import annotations

from typing import Any, Final

from webhook.script.python import LONGEST, Source
from webhook.script.shell import NotRead

WEIGHT: Final = 262144
"""Characters of all texts that are kept parsed; a tree takes some 60 bytes for each."""


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


_SOURCES: Final = Bounded(WEIGHT)


def python_source(text: str) -> Source:
    """The parsed text. Raises ``NotRead``; that a text is not read is remembered too."""
    if len(text) > LONGEST:
        raise NotRead(f"it is longer than {LONGEST // 1024} KiB")
    found = _SOURCES.get(text)
    if found is None:
        try:
            found = Source(text)
        except NotRead as reason:
            found = str(reason)
        _SOURCES.put(text, found, len(text) + 64)
    if isinstance(found, str):
        raise NotRead(found)
    return found  # type: ignore[no-any-return]


def dedented(text: str) -> str:
    """The text moved to the left edge (the SDK indents it), every line keeping its number."""
    text = text.replace("\r\n", "\n")
    first = next((line for line in text.split("\n") if line.strip() and not line.lstrip().startswith("#")), "")
    if first[:1] not in (" ", "\t"):
        return text
    from textwrap import dedent

    return dedent(text)


def clear() -> None:
    _SOURCES.clear()
