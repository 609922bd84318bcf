"""Days, times and durations as policy files and annotations write them. Knows no clock."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Final

DAY: Final = 86400.0
_DAY_ONLY: Final = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)
_RFC_3339: Final = re.compile(r"\d{4}-\d{2}-\d{2}[Tt ]\d{2}:\d{2}:\d{2}(\.\d{1,9})?([Zz]|[+-]\d{2}:\d{2})", re.ASCII)
_UNITS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def parse_moment(text: str) -> float | None:
    """A day (its first moment in UTC) or an RFC 3339 time -> Unix time; None where it is neither."""
    try:
        if _DAY_ONLY.fullmatch(text):
            return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()
        if _RFC_3339.fullmatch(text):
            return datetime.fromisoformat(text.upper()).timestamp()
    except (ValueError, OverflowError):
        pass
    return None


def parse_duration(text: str) -> int | None:
    """``90s``, ``30m``, ``2h``, ``7d`` -> seconds; None where it is none."""
    number, unit = text[:-1], text[-1:]
    if not (number.isascii() and number.isdigit() and len(number) < 10 and unit in _UNITS):
        return None
    return int(number) * _UNITS[unit]


def day_of(moment: float) -> str:
    """The day of a moment, or the moment where it is none that a day begins with."""
    when = datetime.fromtimestamp(moment, UTC)
    return when.strftime("%Y-%m-%d" if moment % DAY == 0 else "%Y-%m-%dT%H:%M:%SZ")
