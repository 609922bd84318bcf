"""How much is let in at once: requests that are worked on, bytes of bodies held, look-ups running."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

BUFFER_LIMIT: Final = 32 * 1024 * 1024
"""Bytes of bodies that are held, arriving or worked on: keeps a flood of large ones out."""
RETRY_SECONDS: Final = 1


class Held:
    """The bytes that one request has received. ``cut`` ends it while its body still arrives."""

    __slots__ = ("arriving", "caller", "cut", "size")

    def __init__(self, caller: str, cut: Callable[[], None]) -> None:
        self.caller = caller
        self.cut = cut
        self.size = 0
        self.arriving = True


class Gate:
    """Counts requests from the last byte of their body to their answer, and bytes as they are received.

    ``in_flight`` requests may wait for the cluster at a time, ``waiting`` more may stand behind them; whoever comes on
    top is turned away (503) at once instead of being kept until its caller gives up. A body that still arrives takes
    no place, only room for the bytes that came; where there is no room, the caller that holds most loses a body.
    """

    def __init__(self, in_flight: int = 256, waiting: int = 256) -> None:
        self.turn = asyncio.Semaphore(in_flight)
        self.inside = 0
        self.held = 0
        self._limit = in_flight + waiting
        self._arriving: dict[Held, None] = {}

    def enter(self) -> bool:
        """Let one more request in, if there is room; each True needs one ``leave``."""
        if self.inside >= self._limit:
            return False
        self.inside += 1
        return True

    def leave(self) -> None:
        self.inside -= 1

    def hold(self, held: Held, size: int) -> bool:
        """Take room for ``size`` more bytes of a body; ``drop`` gives all of them back."""
        held.size += size
        self.held += size
        if held.arriving:
            self._arriving[held] = None
        while self.held > BUFFER_LIMIT:
            victim = self._largest()
            if victim is None or victim is held:
                return False
            victim.cut()
            if victim in self._arriving:  # it did not let go by itself
                self.drop(victim)
        return True

    def arrived(self, held: Held) -> None:
        """The body is complete: it is not cut any more."""
        held.arriving = False
        self._arriving.pop(held, None)

    def drop(self, held: Held) -> None:
        """Give back what a request held."""
        self._arriving.pop(held, None)
        self.held -= held.size
        held.size = 0

    def _largest(self) -> Held | None:
        """Of the caller whose arriving bodies hold most bytes the largest one."""
        sums: dict[str, int] = {}
        for held in self._arriving:
            sums[held.caller] = sums.get(held.caller, 0) + held.size
        if not sums:
            return None
        caller = max(sums, key=lambda name: sums[name])
        return max((held for held in self._arriving if held.caller == caller), key=lambda held: held.size)
