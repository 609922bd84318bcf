"""Which of the names that exist was probably meant."""

from __future__ import annotations

from collections.abc import Iterable


def nearest(name: str, known: Iterable[str]) -> list[str]:
    """The known names, the most similar first (begun so, then by edit distance, then by spelling)."""
    short = name[:64]
    return sorted(set(known), key=lambda other: (not other.startswith(short), distance(short, other[:64]), other))


def distance(one: str, two: str) -> int:
    """Letters to insert, to leave out or to exchange."""
    row = list(range(len(two) + 1))
    for at, letter in enumerate(one, 1):
        before, row[0] = row[0], at
        for index, other in enumerate(two, 1):
            before, row[index] = (
                row[index],
                min(row[index] + 1, row[index - 1] + 1, before + (letter != other)),
            )
    return row[-1]
