"""The processes of a start: in groups of their own, stopped and ended together with all that they started."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Final

import psutil

MARK: Final = "CKPTGUARD_REHEARSAL"
"""A variable that all processes of a rehearsal have: what leaves its group is found by it."""
_STANDS: Final = 10.0
"""Seconds in which a process that was told to stop does so, also where it waits for a disk."""
_TAIL: Final = 64 << 10
_LONGEST: Final = 4096


class CannotStart(Exception):  # noqa: N818
    """The command cannot be started; the text says why."""


class Output:
    """What a process prints: the end of it, and its first part, for the lines that tell where it goes on."""

    def __init__(self) -> None:
        self.head = b""
        self.tail = b""

    def add(self, data: bytes) -> None:
        """Keep what is worth keeping."""
        if len(self.head) < _TAIL:
            self.head += data[: _TAIL - len(self.head)]
        self.tail = (self.tail + data)[-_TAIL:]

    def lines(self, most: int = 5) -> list[str]:
        """The last lines that say something."""
        found = [line.strip()[:_LONGEST] for line in self.tail.decode("utf-8", "replace").splitlines()]
        return [line for line in found if line][-most:]


class Processes:
    """One command, once or as several ranks. Ends all of it in ``kill``, whatever happened before."""

    def __init__(self, command: Sequence[str], environments: Sequence[Mapping[str, str]], cwd: Path) -> None:
        self.mark = environments[0][MARK]
        self.output = Output()
        self.running: list[subprocess.Popen[bytes]] = []
        self.stopped: set[int] = set()
        """Who was told to stop beside the groups."""
        self.began = time.monotonic()
        try:
            for environment in environments:
                process = subprocess.Popen(  # noqa: S603 - the user's own command
                    command,
                    env=dict(environment),
                    cwd=cwd,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
                self.running.append(process)
                if process.stdout is not None:
                    os.set_blocking(process.stdout.fileno(), False)
        except (OSError, ValueError) as error:
            self.kill()
            why = getattr(error, "strerror", None) or str(error)
            raise CannotStart(f'"{command[0]}" cannot be started: {why}') from None

    def streams(self) -> list[IO[bytes]]:
        """What to wait for, to read on."""
        return [one.stdout for one in self.running if one.stdout is not None and not one.stdout.closed]

    def read(self) -> None:
        """Take what was printed, so that nobody waits for a full pipe."""
        for stream in self.streams():
            with contextlib.suppress(BlockingIOError):
                data = os.read(stream.fileno(), 1 << 16)
                if data:
                    self.output.add(data)
                else:
                    stream.close()

    def ended(self) -> bool:
        """Whether every process that was started here has ended; what it started may still run."""
        return None not in [one.poll() for one in self.running]

    def codes(self) -> list[int]:
        """Exit codes, as ``subprocess`` has them, of those that have ended."""
        return [one.returncode for one in self.running if one.poll() is not None]

    def failed(self) -> int | None:
        """The exit code of one that failed; None where none did."""
        return next((code for code in self.codes() if code != 0), None)

    def terminate(self) -> None:
        """SIGTERM to the first process of each, as the kubelet sends it to process 1 of each container."""
        for one in self.running:
            if one.poll() is None:
                one.send_signal(signal.SIGTERM)

    def pause(self) -> None:
        """SIGSTOP for all of them, the first ones at once; comes back when they stand.

        A signal is no more than asked for: a call that waits for a disk is finished first, and a file with it.
        """
        for one in self.running:
            self._group(one.pid, signal.SIGSTOP)
        if not Path("/proc/self/task").is_dir():
            time.sleep(0.002)
            return
        until = time.monotonic() + _STANDS
        while time.monotonic() < until:
            members = _members({one.pid for one in self.running if one.poll() is None})
            if not (moving := [pid for pid in members if not _stands(pid)]):
                break
            for pid in moving:  # torchrun gives each of its workers a group of its own
                if pid not in self.stopped:
                    self.stopped.add(pid)
                    self._one(pid, signal.SIGSTOP)
            time.sleep(0.001)

    def resume(self) -> None:
        """SIGCONT for all of them."""
        stopped, self.stopped = self.stopped, set()
        for pid in stopped & set(_members({one.pid for one in self.running})):
            self._one(pid, signal.SIGCONT)
        for one in self.running:
            self._group(one.pid, signal.SIGCONT)

    def kill(self) -> list[int]:
        """SIGKILL for all of them and all that they left, also outside their groups. What lives on is given back."""
        for one in self.running:
            self._group(one.pid, signal.SIGKILL)
        for one in self.running:
            with contextlib.suppress(subprocess.TimeoutExpired):
                one.wait(5)
        left = []
        for _ in range(5):
            left = marked(self.mark)
            if not left:
                break
            for process in left:
                with contextlib.suppress(psutil.Error):
                    process.kill()
            psutil.wait_procs(left, timeout=1)
        self.read()
        for one in self.running:
            if one.stdout is not None:
                one.stdout.close()
        return [process.pid for process in left]

    def _one(self, pid: int, number: int) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)

    def _group(self, pid: int, number: int) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(pid, number)


def _members(leaders: set[int]) -> list[int]:
    """Processes of these groups, and all that descend from their leaders, by /proc."""
    parents: dict[int, int] = {}
    found: list[int] = []
    for one in os.scandir("/proc"):
        if one.name.isdecimal():
            fields = _stat(f"/proc/{one.name}/stat")
            if len(fields) > 2 and fields[2].isdigit():
                parents[int(one.name)] = int(fields[1])
                if int(fields[2]) in leaders:
                    found.append(int(one.name))
    below: dict[int, list[int]] = {}
    for pid, parent in parents.items():
        below.setdefault(parent, []).append(pid)
    known = set(found)
    for pid in found:  # grows as it goes
        found += [child for child in below.get(pid, ()) if child not in known]
        known.update(below.get(pid, ()))
    return found


def _stands(pid: int) -> bool:
    """Whether no thread of a process runs any more."""
    try:
        threads = list(Path(f"/proc/{pid}/task").iterdir())
    except OSError:
        return True
    return all((_stat(f"{one}/stat") or ["X"])[0] in ("T", "t", "Z", "X") for one in threads)


def _stat(path: str) -> list[str]:
    """State, parent, group and what follows the name in a stat file; nothing where the process is gone."""
    try:
        return Path(path).read_text("utf-8", "replace").rpartition(")")[2].split()
    except OSError:
        return []


def marked(mark: str) -> list[psutil.Process]:
    """Living processes of this user that have the mark in their variables."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get(MARK) == mark and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except (psutil.Error, OSError):
            continue
    return found
