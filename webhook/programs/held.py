"""What the review under way has read: each text once, however many rules look at it and however many there are."""

from __future__ import annotations

import gc
from typing import Any

_held: dict[Any, Any] | None = None
"""What was read in the review that is under way, however much: as much as its budget lets it read."""
_collects = False
"""Whether Python looked for cycles before the review that is under way."""


def begin() -> None:
    """A review begins: what it reads is held until ``end``, so that no rule reads a program anew.

    Until then Python looks for no cycles: a tree has none, and to look through it while it grows takes as long again.
    """
    global _held, _collects
    if _held is None:
        _collects = gc.isenabled()
        gc.disable()
    _held = {}


def end() -> None:
    """The review is over, and what was read for it is let go."""
    global _held
    _held = None
    if _collects:
        gc.enable()


def held(key: Any) -> Any:
    """What the review under way has read under this key; None where it has not, or where none is under way."""
    return None if _held is None else _held.get(key)


def hold(key: Any, value: Any) -> None:
    """Keeps what was read for the rest of the review."""
    if _held is not None:
        _held[key] = value
