"""How much is let in at once: requests in flight, bytes of bodies held, look-ups running."""

from __future__ import annotations

import asyncio
from typing import Final

BUFFER_LIMIT: Final = 64 * 1024 * 1024
"""Bytes of bodies that come in, and on the fast lane until they are answered: keeps a flood of large ones out."""
RETRY_SECONDS: Final = 1


class Gate:
    """Counts requests from their first byte to their answer.

    ``in_flight`` requests may wait for the cluster at a time, ``waiting`` more may stand behind them or still be
    arriving; whoever comes on top is turned away (503) at once instead of being kept until its caller gives up.
    """

    def __init__(self, in_flight: int = 256, waiting: int = 256) -> None:
        self.turn = asyncio.Semaphore(in_flight)
        self.inside = 0
        self._limit = in_flight + waiting
        self._held = 0

    def enter(self) -> bool:
        """Let one more request in, if there is room; each True needs one ``leave``."""
        if self.inside >= self._limit:
            return False
        self.inside += 1
        return True

    def leave(self) -> None:
        self.inside -= 1

    def hold(self, size: int) -> bool:
        """Take room for ``size`` bytes of a body; each True needs one ``drop`` of the same size."""
        if self._held + size > BUFFER_LIMIT:
            return False
        self._held += size
        return True

    def drop(self, size: int) -> None:
        self._held -= size
