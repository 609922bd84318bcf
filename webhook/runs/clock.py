"""Time as a value, so that what waits can be tested without waiting."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct


class Clock(Struct, frozen=True):
    """``monotonic`` counts seconds and never goes back, ``sleep`` waits, ``now`` is the seconds since 1970."""

    monotonic: Callable[[], float]
    sleep: Callable[[float], None]
    now: Callable[[], float]


class Waiting:
    """One wait with an end."""

    __slots__ = ("_clock", "_start", "seconds")

    def __init__(self, clock: Clock, seconds: float) -> None:
        self._clock = clock
        self._start = clock.monotonic()
        self.seconds = seconds

    def passed(self) -> float:
        return self._clock.monotonic() - self._start

    def over(self) -> bool:
        return self.passed() >= self.seconds

    def pause(self, seconds: float) -> None:
        """Wait, but not past the end."""
        self._clock.sleep(max(0.0, min(seconds, self.seconds - self.passed())))
