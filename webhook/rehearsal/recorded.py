"""Reads what the hook noted in a start. It was written by the user's processes: whatever is odd in it is left out."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import msgspec

from webhook.rehearsal.model import Inside, Opened

_MOST_BYTES: Final = 32 << 20


def read_record(folder: Path) -> Inside:
    """All processes of a start, in the order of time."""
    found = Inside()
    pids: list[int] = []
    lines: list[tuple[float, int, int | None, dict[str, Any]]] = []
    for file in sorted(folder.glob("*.jsonl")):
        pid = int(file.stem) if file.stem.isdecimal() else 0
        rank: int | None = None
        for one in _lines(file):
            if one["is"] == "start":
                rank = one.get("rank") if isinstance(one.get("rank"), int) else None
                pids.append(pid)
                found.executable = found.executable or _text(one, "executable") or None
            at = one.get("at")
            lines.append((float(at) if isinstance(at, int | float) else 0.0, pid, rank, one))
    for at, pid, rank, one in sorted(lines, key=lambda line: line[0]):
        _take(found, at, pid, rank, one)
    found.pids = tuple(pids)
    return found


def _lines(file: Path) -> Iterator[dict[str, Any]]:
    try:
        with file.open("rb") as stream:
            data = stream.read(_MOST_BYTES)
    except OSError:
        return
    for line in data.splitlines():
        try:
            one = msgspec.json.decode(line)
        except msgspec.DecodeError:
            continue
        if isinstance(one, dict) and isinstance(one.get("is"), str):
            yield one


def _text(one: dict[str, Any], name: str) -> str:
    value = one.get(name)
    return value if isinstance(value, str) else ""


def _take(found: Inside, at: float, pid: int, rank: int | None, one: dict[str, Any]) -> None:
    what = one["is"]
    if what == "open":
        how = "w" if one.get("how") == "w" else "r"
        found.opened.append(
            Opened(at=at, path=_text(one, "path"), how=how, rank=rank, pid=pid, anew=one.get("anew") is True)
        )
    elif what == "look":
        found.opened.append(Opened(at, _text(one, "path"), "look", rank, pid))
    elif what == "move":
        found.moved.append((at, _text(one, "old"), _text(one, "path")))
    elif what == "load":
        found.loads.setdefault(_text(one, "kind"), []).append(_text(one, "name"))
    elif what == "rng":
        found.generators_set.add(_text(one, "which"))
    elif what == "epoch" and isinstance(one.get("epoch"), int):
        found.epochs.append(one["epoch"])
    elif what == "first":
        found.first.append(one)
    elif what == "batch" and isinstance(one.get("seen"), list):
        found.batches.setdefault(rank or 0, []).append(str(one["seen"][-1]) if one["seen"] else "")
    elif what == "generators" and isinstance(one.get("states"), dict):
        if not rank:
            found.states.append((at, {str(name): str(state) for name, state in one["states"].items()}))
    elif what == "read":
        found.taken.add(_text(one, "key"))
    elif what == "sigterm":
        found.sigterm = True
