"""The caches of the process and what each may hold, in bytes: whoever keeps something keeps it under one of these.

Weights are estimates that are rather too large. docs/operations.md has the same table, and a test sums it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final, TypeVar

from webhook.model.bounded import Bounded

MIB: Final = 1024 * 1024
ALL: Final = 64 * MIB
"""What all of them together may hold."""
_LONGEST: Final = 256
"""Characters of a text that is kept as a key of ``kept_texts``."""
_ENTRY: Final = 4 * _LONGEST + 1024
"""Bytes of one of its entries at most."""

CEILINGS: Final[dict[str, int]] = {
    "pods": 5 * MIB,
    "programs": 2 * MIB,
    "syntax trees": 40 * MIB,
    "copies": 1 * MIB,
    "remarks": 4 * MIB,
    "digests": 2 * MIB,
    "directories": 1 * MIB,
    "mentions": 1 * MIB,
    "claims": 2 * MIB,
    "resources": 1 * MIB,
    "texts": 4 * MIB,
    "rules": 1 * MIB,
}
"""Cache -> bytes."""
TEXTS: Final[dict[str, int]] = {}
"""Function -> entries: the parts of the cache "texts"."""

_Answer = TypeVar("_Answer")


def cache(name: str) -> Bounded:
    """The cache of that name, which forgets what is too much."""
    return Bounded(CEILINGS[name])


def kept_texts(most: int) -> Callable[[Callable[[str], _Answer]], Callable[[str], _Answer]]:
    """What a function says of a short text is kept, for the ``most`` last ones; of a long one it is worked out anew."""

    def decorate(function: Callable[[str], _Answer]) -> Callable[[str], _Answer]:
        known = lru_cache(maxsize=most)(function)
        TEXTS[f"{function.__module__}.{function.__name__}"] = most

        def answer(text: str) -> _Answer:
            return known(text) if len(text) <= _LONGEST else function(text)

        answer.__doc__ = function.__doc__
        return answer

    return decorate


def bytes_of_texts() -> int:
    """What the cache "texts" holds at most."""
    return sum(TEXTS.values()) * _ENTRY


def weight_of(value: Any) -> int:
    """The bytes of a text or of a collection of texts, roughly."""
    if isinstance(value, str):
        return 64 + (len(value) if value.isascii() else 4 * len(value))
    if isinstance(value, dict):
        return 64 + sum(weight_of(key) + weight_of(item) for key, item in value.items())
    if isinstance(value, tuple | list | frozenset | set):
        return 64 + sum(map(weight_of, value))
    return 64
