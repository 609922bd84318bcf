"""From what happens to files to saves: which are being written, and which checkpoints are there."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from webhook.rehearsal.watch import Event
from webhook.runs.layouts import Found, Saved, find_saved
from webhook.runs.listing import PYTHON, Listing, parse

_NO_STATE: Final = re.compile(
    r"(^|/)(events\.out\.tfevents[^/]*|wandb|mlruns|\.git|__pycache__)(/|$)"
    r"|\.(log|out|err|lock|jsonl|csv|tsv|md|png|html|pyc|yaml|yml|py)$|(^|/)(metrics|log_history|README)[^/]*$",
    re.IGNORECASE,
)
"""What programs keep beside their checkpoints."""
_FALLBACK: Final = re.compile(r"\.(pt|pth|ckpt|bin|safetensors|npz|npy|json|pkl|pickle|ubj|h5|msgpack|model|state|db)$")
_WORDS: Final = re.compile(r"step|iter|epoch|checkpoint|ckpt|model|weight|optim|save|state|last|latest", re.IGNORECASE)
_PRINTED: Final = re.compile(r"\b(?:global_?step|step|iteration|iter|round)\b\W{0,3}(\d{1,12})\b", re.IGNORECASE)
_NUMBER: Final = re.compile(r"\d+")
_RANDOM: Final = re.compile(r"(?<![a-z0-9])(tmp[a-z0-9_]{8}|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|[0-9a-f]{32})")


def is_state(path: str) -> bool:
    """Whether a file below the directory may be part of a checkpoint."""
    return _NO_STATE.search(path) is None


def named_state(path: str) -> bool:
    """Whether a file anywhere is called as checkpoints are."""
    return is_state(path) and bool(_FALLBACK.search(path)) and bool(_WORDS.search(path.rpartition("/")[2]))


def reached(text: str) -> int | None:
    """The last step that a program printed."""
    found = _PRINTED.findall(text)
    return int(found[-1]) if found else None


def shape(path: str) -> str:
    """The path without what changes from save to save."""
    return _NUMBER.sub("#", _RANDOM.sub("*", path))


def look(directory: str) -> tuple[Listing, Found]:
    """What lies there, as the commands on a run see it; where no layout is known, every file that may hold a state."""
    answer = subprocess.run(  # noqa: S603 - our own script
        [sys.executable, "-E", "-S", "-c", PYTHON, directory], capture_output=True, check=False, timeout=60
    )
    listing = parse(answer.stdout.decode("utf-8", "replace"))
    found = find_saved(listing)
    if not found.saved:
        plain = tuple(_plain(listing))
        found = Found(plain, plain[-1] if plain else None)
    return listing, found


def _plain(listing: Listing) -> list[Saved]:
    made = [
        Saved(
            path=one.path,
            layout="file",
            step=step_in(one.path),
            size=one.size,
            mtime=one.mtime,
            complete=False if one.whole is False else None,
        )
        for one in listing.entries
        if one.kind == "f" and one.size and is_state(one.path) and _FALLBACK.search(one.path)
    ]
    return sorted(made, key=lambda one: (one.step or 0, one.mtime))


def step_in(path: str) -> int | None:
    """The last number of a name, where it may be a step."""
    numbers = _NUMBER.findall(path.rpartition("/")[2])
    return int(numbers[-1]) if numbers and len(numbers[-1]) < 15 else None


def newest(found: Found) -> Saved | None:
    """The newest complete one, or the newest that may be."""
    return found.newest_complete()


def key(saved: Saved) -> tuple[str, float, int]:
    """What changes when a checkpoint is written again."""
    return saved.path, saved.mtime, saved.size


class Track:
    """Follows the events of one directory: what is open for writing, what a save has written so far."""

    def __init__(self, directory: str) -> None:
        self.directory = directory.rstrip("/")
        self.writing: dict[str, float] = {}
        self.order: list[Event] = []
        """Writes, renames and removals of the present save, in order."""
        self.reads_before: list[Event] = []
        """Reads before anything was written, in order."""
        self.last = 0.0
        self.touched: dict[str, float] = {}
        """When each file was last written."""
        self.first_write: float | None = None
        """Of the start: reads before it are what a restart reads."""
        self.existed: set[str] = set()

    def begin(self) -> None:
        """The next save begins."""
        self.order = []

    def relative(self, path: str) -> str | None:
        """The path below the directory; None outside."""
        return path[len(self.directory) + 1 :] if path.startswith(self.directory + "/") else None

    def add(self, events: Iterable[Event], paused: bool = False) -> list[Event]:
        """Take events; those that begin or go on with a save are given back. ``paused``: reads are our own."""
        taken: list[Event] = []
        for event in events:
            path = self.relative(event.path)
            if path is None or (event.folder and event.kind not in ("moved",)):
                continue
            if event.kind == "read":
                if not paused and self.first_write is None:
                    self.reads_before.append(event)
                continue
            if not is_state(path):
                continue
            self._follow(event)
            if event.kind == "closed" and not self.order:
                continue
            self.last = self.touched[event.path] = event.at
            if event.kind != "gone" or self.order:
                self.order.append(event)
            if event.kind in ("made", "write", "moved"):
                taken.append(event)
                if self.first_write is None:
                    self.first_write = event.at
        return taken

    def _follow(self, event: Event) -> None:
        if event.kind in ("made", "write"):
            self.writing.setdefault(event.path, event.at)
        elif event.kind in ("closed", "gone"):
            self.writing.pop(event.path, None)
            for path in [one for one in self.writing if one.startswith(event.path + "/")]:
                self.writing.pop(path, None)
        elif event.kind == "moved":
            for path in [one for one in self.writing if one == event.old or one.startswith(event.old + "/")]:
                self.writing[event.path + path[len(event.old) :]] = self.writing.pop(path)

    def in_place(self, existed: Sequence[str]) -> tuple[list[str], bool]:
        """Files of this save that were written under their final name, in order, and whether one was there before."""
        renamed = {event.old for event in self.order if event.kind == "moved"}
        above = tuple(f"{path}/" for path in renamed)
        written: dict[str, None] = {}
        for event in self.order:
            if event.kind == "write" and event.path not in renamed and not event.path.startswith(above):
                written[event.path] = None
        # A marker that is written when the others are there is no more than a name.
        paths = [path for path in written if Path(path).is_file()]
        return paths, any(self.relative(path) in existed for path in paths)

    def later(self, first: str) -> list[str]:
        """Files that were written or got their name after the first write of one, in order."""
        found: dict[str, None] = {}
        begun = False
        for event in self.order:
            if begun and event.kind in ("write", "moved") and event.path != first:
                found[event.path] = None
            begun = begun or (event.kind == "write" and event.path == first)
        return [path for path in found if Path(path).is_file()]
