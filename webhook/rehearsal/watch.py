"""What happens to files under some directories: by inotify on Linux, by looking again and again elsewhere.

inotify-simple is the thin binding: watchdog holds events back for half a second, and watchfiles does not tell of reads.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from msgspec import Struct

_MOST_FOLDERS: Final = 4000
_LEFT_OUT: Final = frozenset({".git", ".venv", "venv", "node_modules", "__pycache__", ".mypy_cache", ".cache", ".tox"})


class Event(Struct, frozen=True):
    """One thing that happened. ``kind``: ``made``, ``write``, ``closed`` (after writing), ``read`` (closed after
    reading), ``moved`` (from ``old``, which is empty where it came from elsewhere), ``gone``."""

    at: float
    kind: str
    path: str
    old: str = ""
    folder: bool = False


class Place(Struct, frozen=True):
    """A directory to watch. ``reads``: whether reads in it matter."""

    path: str
    reads: bool = False


class Watcher:
    """Events of all files below some directories, new folders included. What was given first is watched first."""

    reads_seen = True

    def __init__(self, places: Iterable[Place]) -> None:
        from inotify_simple import INotify, flags  # type: ignore[import-untyped]

        self._flags = flags
        self._inotify = INotify(nonblocking=True)
        self._paths: dict[int, Place] = {}
        self._given: set[str] = set()
        self._held: list[Event] = []
        self.missed: list[str] = []
        self.overflowed = False
        for place in places:
            self._add(place, tell=False)
            self._given.add(place.path)

    def fileno(self) -> int:
        """What becomes readable when something happened."""
        return int(self._inotify.fileno())

    def read(self) -> list[Event]:
        """What happened since the last call, in order."""
        found: list[Event] = self._held
        self._held = []
        from_: dict[int, str] = {}
        flags = self._flags
        for wd, mask, cookie, name in self._inotify.read(timeout=0):
            if mask & flags.Q_OVERFLOW:
                self.overflowed = True
                continue
            place = self._paths.get(wd)
            if place is None:
                continue
            if mask & flags.IGNORED:
                self._paths.pop(wd, None)
                continue
            if not name:
                continue
            path, folder, now = f"{place.path}/{name}", bool(mask & flags.ISDIR), time.monotonic()
            if mask & flags.MOVED_FROM:
                from_[cookie] = path
            elif mask & flags.MOVED_TO:
                old = from_.pop(cookie, "")
                found.append(Event(now, "moved", path, old, folder))
                if folder:
                    self._rename(old, path) if old else self._add(Place(path, place.reads), tell=True)
            elif mask & flags.CREATE:
                found.append(Event(now, "made", path, "", folder))
                if folder:
                    self._add(Place(path, place.reads), tell=True)
                    found += self._held
                    self._held = []
            elif mask & flags.DELETE:
                found.append(Event(now, "gone", path, "", folder))
            elif not folder and (kind := self._kind(mask)):
                found.append(Event(now, kind, path))
        found += [Event(time.monotonic(), "gone", path) for path in from_.values()]
        return found

    def close(self) -> None:
        """Watch no more."""
        self._inotify.close()

    def _kind(self, mask: int) -> str:
        flags = self._flags
        if mask & flags.MODIFY:
            return "write"
        if mask & flags.CLOSE_WRITE:
            return "closed"
        return "read" if mask & flags.CLOSE_NOWRITE else ""

    def _add(self, place: Place, tell: bool) -> None:
        """Watch a folder and those below it. ``tell``: what is there already came before the watch, and is told."""
        flags = self._flags
        mask: Any = flags.CREATE | flags.MODIFY | flags.CLOSE_WRITE | flags.MOVED_FROM | flags.MOVED_TO | flags.DELETE
        if place.reads:
            mask |= flags.CLOSE_NOWRITE
        stack = [place.path]
        while stack:
            path = stack.pop()
            if path in self._given:
                continue  # watched already, with what it asks for
            if len(self._paths) >= _MOST_FOLDERS:
                self.missed.append(path)
                return
            try:
                self._paths[self._inotify.add_watch(path, mask | flags.ONLYDIR)] = Place(path, place.reads)
                with os.scandir(path) as found:
                    # What was written before the watch is told in the order in which it was written.
                    entries = sorted(found, key=_written) if tell else list(found)
                    for entry in entries:
                        folder = entry.is_dir(follow_symlinks=False)
                        if folder and (place.reads or entry.name not in _LEFT_OUT):
                            stack.append(entry.path)
                        if tell:
                            now = time.monotonic()
                            self._held.append(Event(now, "made", entry.path, "", folder))
                            if not folder:
                                self._held.append(Event(now, "write", entry.path))
                                self._held.append(Event(now, "closed", entry.path))
            except OSError as error:
                if Path(path).is_dir():
                    self.missed.append(f"{path} ({error.strerror})")

    def _rename(self, old: str, new: str) -> None:
        for wd, place in list(self._paths.items()):
            if place.path == old or place.path.startswith(old + "/"):
                self._paths[wd] = Place(new + place.path[len(old) :], place.reads)


def _written(entry: os.DirEntry[str]) -> int:
    try:
        return entry.stat(follow_symlinks=False).st_mtime_ns
    except OSError:
        return 0


class Poller:
    """The same by looking: what changed since the last time, no reads, and no order within one look."""

    reads_seen = False
    overflowed = False

    def __init__(self, places: Iterable[Place]) -> None:
        self._places = list(places)
        self.missed: list[str] = []
        self._known = self._look()
        self._open: set[str] = set()

    def fileno(self) -> int:
        """Nothing to wait for."""
        return -1

    def read(self) -> list[Event]:
        """What changed since the last call."""
        now, seen, found = time.monotonic(), self._look(), []
        by_inode = {inode: path for path, (_, _, inode) in self._known.items() if path not in seen}
        for path, state in seen.items():
            before = self._known.get(path)
            if before is None and (old := by_inode.pop(state[2], None)) is not None:
                found.append(Event(now, "moved", path, old))
                self._known.pop(old, None)
                self._open.discard(old)
            elif before != state:
                found += [Event(now, "made", path)] if before is None else []
                found.append(Event(now, "write", path))
                self._open.add(path)
            elif path in self._open:
                self._open.discard(path)
                found.append(Event(now, "closed", path))
        found += [Event(now, "gone", path) for path in self._known if path not in seen]
        self._known = seen
        return found

    def close(self) -> None:
        """Nothing is held."""

    def _look(self) -> dict[str, tuple[int, int, int]]:
        seen: dict[str, tuple[int, int, int]] = {}
        for place in self._places:
            stack = [place.path]
            while stack and len(seen) < 20 * _MOST_FOLDERS:
                try:
                    with os.scandir(stack.pop()) as entries:
                        for entry in entries:
                            if entry.is_dir(follow_symlinks=False):
                                if entry.name not in _LEFT_OUT:
                                    stack.append(entry.path)
                                continue
                            one = entry.stat(follow_symlinks=False)
                            seen[entry.path] = (one.st_size, one.st_mtime_ns, one.st_ino)
                except OSError:
                    continue
        return seen


def watcher(places: Iterable[Place]) -> Watcher | Poller:
    """inotify where there is some, and a watch left for this user; polling elsewhere."""
    places = list(places)
    try:
        return Watcher(places)
    except (ImportError, OSError, AttributeError, TypeError):
        return Poller(places)
