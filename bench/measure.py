"""Rows of the table, and how time, processor time and memory of a process are read."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple


class Row(NamedTuple):
    """One figure beside its goal."""

    what: str
    ours: str
    against: str
    ratio: float | None
    goal: str
    """``<= 1.2`` or ``>= 0.7``; empty where there is none."""
    spread: str = ""

    def met(self) -> str:
        """``yes``, ``NO`` or nothing."""
        if self.ratio is None or not self.goal:
            return ""
        sign, _, bound = self.goal.partition(" ")
        return "yes" if (self.ratio <= float(bound) if sign == "<=" else self.ratio >= float(bound)) else "NO"


def table(rows: Sequence[Row]) -> str:
    """The rows as aligned text."""
    lines = [("figure", "ours", "against", "ratio", "rounds", "goal", "met")]
    lines += [
        (
            row.what,
            row.ours,
            row.against,
            "-" if row.ratio is None else f"{row.ratio:.2f}",
            row.spread,
            row.goal,
            row.met(),
        )
        for row in rows
    ]
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines
    )


def compare(
    what: str, ours: Sequence[float], against: Sequence[float], goal: str, show: Callable[[float], str], name: str
) -> Row:
    """The median of the rounds' ratios; ``ours`` and ``against`` hold one value a round."""
    ratios = [one / other for one, other in zip(ours, against, strict=True)]
    return Row(
        what,
        show(statistics.median(ours)),
        f"{show(statistics.median(against))} {name}",
        statistics.median(ratios),
        goal,
        f"{min(ratios):.2f}-{max(ratios):.2f}",
    )


def microseconds(seconds: float) -> str:
    return f"{seconds * 1e6:.1f} us"


def milliseconds(seconds: float) -> str:
    return f"{seconds * 1e3:.1f} ms"


def cpu_seconds(pid: int) -> float:
    """Processor time that all threads of a process have had so far."""
    try:
        return sum(int(path.read_text().split()[0]) for path in Path(f"/proc/{pid}/task").glob("*/schedstat")) / 1e9
    except (OSError, ValueError, IndexError):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def resident_mebibytes(pid: int) -> float:
    """Resident memory of a process."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    raise RuntimeError(f"process {pid} says nothing of its memory")


def per_call(function: Callable[[], object], seconds: float = 0.2) -> float:
    """Processor seconds of one call: the best of several batches, since whatever disturbs only adds."""
    function()
    count = 1
    while (spent := _batch(function, count)) < 0.01:
        count *= 2
    best = spent / count
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        best = min(best, _batch(function, count) / count)
    return best


def _batch(function: Callable[[], object], count: int) -> float:
    started = time.thread_time()
    for _ in range(count):
        function()
    return time.thread_time() - started
