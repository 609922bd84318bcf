"""Which of the names that exist was probably meant."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from typing import Final

_LONGEST: Final = 64
"""Letters of a name that are compared."""
_MOST: Final = 64
"""Names that are compared with one; of more, those that begin most like it."""
_RANKED: Final = 32
"""Wrong names whose neighbours are put in order; nobody reads more, and each costs a comparison with all."""


def nearest(name: str, known: Iterable[str]) -> list[str]:
    """The known names, the most similar first (begun so, then by edit distance, then by spelling)."""
    short = name[:_LONGEST]
    places = _places(short)
    return sorted(
        set(known), key=lambda other: (not other.startswith(short), _distance(short, places, other[:_LONGEST]), other)
    )


class Names:
    """Names that exist, to be asked for each of many that do not: however many there are, one answer costs little."""

    def __init__(self, known: Iterable[str]) -> None:
        self._known = {*known}
        self._sorted: list[str] | None = None
        self._left = _RANKED

    def __len__(self) -> int:
        return len(self._known)

    def __contains__(self, name: object) -> bool:
        return name in self._known

    def nearest(self, name: str) -> list[str]:
        """Some of the known names, the most similar first."""
        if self._sorted is None:
            self._sorted = sorted(self._known)
        at = max(bisect_left(self._sorted, name) - _MOST // 2, 0)
        some = self._sorted[at : at + _MOST]
        if not self._left:
            return some
        self._left -= 1
        return nearest(name, some)


def near(name: str, known: Iterable[str]) -> str:
    """The known name that was probably meant: begun so, or a slip or two away. Empty where none is near."""
    ordered = nearest(name, known)
    if not ordered or len(name) < 2:
        return ""
    slips = 1 if len(name) < 5 else 2 if len(name) < 9 else 3
    best = ordered[0]
    return best if best.startswith(name) or distance(name[:64].lower(), best[:64].lower()) <= slips else ""


def distance(one: str, two: str) -> int:
    """Letters to insert, to leave out or to exchange (Myers 1999, as Hyyro wrote it for whole texts)."""
    return _distance(one, _places(one), two)


def _places(text: str) -> dict[str, int]:
    """Letter -> a bit for each place where it stands."""
    places: dict[str, int] = {}
    for at, letter in enumerate(text):
        places[letter] = places.get(letter, 0) | 1 << at
    return places


def _distance(one: str, places: dict[str, int], two: str) -> int:
    if not one:
        return len(two)
    every, last = (1 << len(one)) - 1, 1 << (len(one) - 1)
    more, less, score = every, 0, len(one)
    for letter in two:
        equal = places.get(letter, 0)
        across = (((equal & more) + more) ^ more) | equal | less
        up = (less | ~(across | more)) & every
        down = more & across
        if up & last:
            score += 1
        elif down & last:
            score -= 1
        up = (up << 1 | 1) & every
        down = down << 1 & every
        vertical = equal | less
        more = (down | ~(vertical | up)) & every
        less = up & vertical
    return score
