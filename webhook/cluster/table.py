"""What every table of a kind's objects can do."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

import orjson
from msgspec import Raw

Key = tuple[str, str]
"""Namespace (empty where there is none) and name."""


class Table(Protocol):
    """The objects of one kind."""

    def put(self, raw: Raw | bytes) -> Key | None:
        """Takes in an object as JSON, new or changed; its key, or None where it has no name or cannot be read."""
        ...

    def remove(self, key: Key) -> None:
        """Forgets an object."""
        ...

    def all_keys(self) -> Iterator[Key]: ...

    def __len__(self) -> int: ...


def load(raw: Raw | bytes) -> dict[str, Any] | None:
    """An object from its JSON; None where it is none."""
    try:
        found = orjson.loads(memoryview(raw))
    except orjson.JSONDecodeError:
        return None
    return found if isinstance(found, dict) else None
