"""One start of the program: begun, watched, stopped where it is asked for, and ended with all that it left."""

from __future__ import annotations

import errno
import os
import select
import shutil
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from webhook.rehearsal.model import CannotRehearse, Inside, Save, Settings, Start
from webhook.rehearsal.processes import MARK, CannotStart, Processes
from webhook.rehearsal.recorded import read_record
from webhook.rehearsal.saves import Track, is_state, key, look, named_state, reached, shape, step_in
from webhook.rehearsal.watch import Event, Place, watcher
from webhook.runs.layouts import Found, Saved

_SETTLE: Final = 0.02
"""Seconds without a write after which a save may be over."""
_FOLDER: Final = 0.3
"""The same for a folder that nobody can tell complete, where a program cannot tell that the next save begins."""
_GATED: Final = 2.0
"""The same where it can (``hook``): a machine with much else to do lets a program stand for long amid a save."""
_AGAIN: Final = 0.5
"""Seconds until the directory is looked at again where the save was not over."""
_POLL: Final = 0.05
_TOGETHER: Final = 0.005
"""Seconds of which the events are taken at once: each that somebody waits for costs the program that it is about."""
_HOOK: Final = Path(__file__).with_name("inside") / "hook.py"


class Scratch:
    """The places of a rehearsal: all below one folder, which is removed in the end."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.directory = root / "checkpoints"
        self.hook = root / "hook"
        for path in (self.directory, self.hook):
            path.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(_HOOK, self.hook / "sitecustomize.py")

    def start(self, name: str) -> Path:
        """A folder for one start: the hook's record and the program's own temporary files."""
        path = self.root / name
        for one in ("record", "tmp", "kept"):
            (path / one).mkdir(parents=True, exist_ok=True)
        return path

    def free(self) -> int:
        """Bytes that are left."""
        return shutil.disk_usage(self.root).free


class Stage:
    """A context: the program runs within it, and nothing of it is left afterwards."""

    def __init__(
        self,
        scratch: Scratch,
        settings: Settings,
        name: str,
        live: Callable[[str], None],
        directory: Path | None = None,
        more: Mapping[str, str] | None = None,
    ) -> None:
        self.scratch, self.settings, self.name, self.live = scratch, settings, name, live
        self.directory = str(directory or scratch.directory)
        self.home = scratch.start(name)
        self.track = Track(self.directory)
        self.outside: dict[str, int] = {}
        self.left: list[int] = []
        self.stood = time.monotonic()
        self.paused = False
        self._more = dict(more or {})
        _, found = look(self.directory)
        self.before = found
        self.known = {key(one) for one in found.saved}
        self.existed = [str(path.relative_to(self.directory)) for path in Path(self.directory).rglob("*")]

    def __enter__(self) -> Stage:
        cwd = Path.cwd()
        tmp = str(self.home / "tmp")
        self.watcher = watcher([Place(self.directory, reads=True), Place(tmp), Place(str(cwd))])
        try:
            self.processes = Processes(self._command(), self._environments(), cwd)
        except CannotStart as error:
            self.watcher.close()
            raise CannotRehearse(str(error), "give a command that runs here, after --") from None
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self.left = self.processes.kill()
            self.pump(0)
        finally:
            self.watcher.close()

    def _command(self) -> list[str]:
        """The command, with the directory put in for what stands for it."""
        made = []
        for word in self.settings.command:
            for name in ("CKPT_DIR", "CHECKPOINT_DIR"):
                for form in (f"$({name})", f"${{{name}}}", f"${name}"):
                    word = word.replace(form, self.directory)
            made.append(word)
        return made

    def _environments(self) -> list[dict[str, str]]:
        own = {
            **os.environ,
            "CKPT_DIR": self.directory,
            "CHECKPOINT_DIR": self.directory,
            "TMPDIR": str(self.home / "tmp"),
            "PYTHONPATH": os.pathsep.join(
                part for part in (str(self.scratch.hook), os.environ.get("PYTHONPATH", "")) if part
            ),
            "PYTHONUNBUFFERED": os.environ.get("PYTHONUNBUFFERED", "1"),
            MARK: str(self.home),
            "CKPTGUARD_DIRECTORY": self.directory,
            **self._more,
        }
        count = self.settings.processes
        if count == 1:
            return [own]
        shared = {
            "WORLD_SIZE": str(count),
            "LOCAL_WORLD_SIZE": str(count),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(_free_port()),
        }
        return [{**own, **shared, "RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(count)]

    # --- waiting

    def pump(self, timeout: float, together: bool = False) -> list[Event]:
        """Wait until something happens, at most so long; the writes of saves are given back.

        ``together``: nothing depends on the first of many events, so they may come late. inotify makes one of the
        writes of one file that nobody has read, and wakes nobody.
        """
        fd = self.watcher.fileno()
        waits: list[Any] = [*self.processes.streams(), *([fd] if fd >= 0 else [])]
        if fd < 0:
            timeout = min(timeout, _POLL)
        if waits:
            try:
                select.select(waits, [], [], timeout)
            except (ValueError, OSError) as error:
                if getattr(error, "errno", None) not in (None, errno.EBADF):
                    raise
        elif timeout:
            time.sleep(min(timeout, 0.02))
        if together:
            time.sleep(_TOGETHER)
        self.processes.read()
        events = self.watcher.read()
        self._outside(events)
        return self.track.add(events, self.paused)

    def held(self) -> list[Path]:
        """Who waits at the gate: a save is over, and the next one begins."""
        gate = self.home / "gate"
        return list(gate.iterdir()) if gate.is_dir() else []

    @contextmanager
    def gate(self) -> Iterator[None]:
        """While a save is waited for. Afterwards nobody is held: who stands at it is let go on by whoever goes on."""
        gate = self.home / "gate"
        gate.mkdir(exist_ok=True)
        try:
            yield
        finally:
            gate.rename(self.home / f"gate-{time.monotonic_ns()}")

    def open_gate(self) -> None:
        """Let them go on."""
        for one in self.held():
            one.unlink(missing_ok=True)

    def _outside(self, events: list[Event]) -> None:
        tmp = str(self.home / "tmp") + "/"
        for event in events:
            if event.kind not in ("closed", "moved") or event.path.startswith((tmp, str(self.scratch.root) + "/")):
                continue
            if is_state(event.path) and (len(self.outside) < 200 or event.path in self.outside):
                self.outside[event.path] = self.outside.get(event.path, 0) + 1

    def pause(self) -> None:
        """Stop the processes where they are, and take what happened until then."""
        self.processes.pause()
        self.pump(0)
        self.paused = True
        self.stood = time.monotonic()

    def go_on(self) -> None:
        """Let them run again. What was read in between was read by us."""
        self.pump(0)
        self.paused = False
        self.processes.resume()
        self.open_gate()

    def changed(self) -> tuple[Found, list[Saved]]:
        """What lies there now, and the checkpoints among it that this start wrote and that have their final name."""
        _, found = look(self.directory)
        return found, [one for one in found.saved if key(one) not in self.known and not one.temporary]

    def wait_save(self, waits: str, begun: bool = False) -> Save | None:
        """Wait for the next complete checkpoint. The processes are stopped then. None: they ended before.

        ``begun``: the save is under way, and the processes are stopped in it. Raises CannotRehearse after the timeout.
        """
        if begun:
            if (one := self._stop_if_saved()) is not None:
                return one
        else:
            self.track.begin()
        with self.gate():
            return self._wait_save(waits)

    def _wait_save(self, waits: str) -> Save | None:
        seconds = self.settings.timeout
        began, next_look, next_record = time.monotonic(), 0.0, 0.0
        while True:
            self.pump(0.02, together=True)
            now = time.monotonic()
            if self.held():
                if not self.track.order:
                    self.open_gate()
                elif (one := self._stop_if_saved()) is not None:
                    return one
                continue
            ended = self.processes.ended()
            quiet = now - self.track.last >= (4 * _POLL if not self.watcher.reads_seen else _SETTLE)
            ready = self.track.order and now >= next_look and ((quiet and not self.track.writing) or ended)
            # A program that writes all the time is never quiet: what it finished is there all the same.
            busy = self.track.order and now >= next_look and now - self.track.order[0].at > 1.0
            if ready or busy:
                if (one := self._stop_if_saved()) is not None:
                    return one
                next_look = time.monotonic() + (_AGAIN if busy else 0.1)
            if ended:
                return self._stop_if_saved()
            if now - began > seconds:
                raise TimedOut(self._why_none(waits, seconds))
            if not self.track.order and now >= next_record:
                next_record = now + 2 * _AGAIN
                self._raise_if_elsewhere()
            self.check_disk()
            self.live(f"[{self.name}] waiting for {waits} ({now - began:.0f} s): {self._state()}")

    def _raise_if_elsewhere(self) -> None:
        """A name that is written twice, numbers apart, outside the directory, and nothing within.

        By what the hook saw: other programs may write into the working directory.
        """
        counts: dict[str, int] = {}
        for path in (written := self._written_outside(read_record(self.home / "record"))):
            counts[shape(path)] = counts.get(shape(path), 0) + 1
        for path in written:
            if counts[shape(path)] > 1:
                raise Elsewhere(f"it saves outside the directory: {path}")

    def _written_outside(self, record: Inside) -> list[str]:
        written = [one.path for one in record.opened if one.how == "w"]
        own = (self.directory + "/", str(self.scratch.root) + "/")
        paths = [*written, *(new for _, _, new in record.moved)]
        return [path for path in paths if named_state(path) and not path.startswith(own)]

    def _state(self) -> str:
        if self.track.writing:
            path = self.track.relative(next(iter(self.track.writing))) or ""
            return f"{path} is being written"
        last = self.processes.output.lines(1)
        return f"the last line is: {last[0][:120]}" if last else "nothing was printed yet"

    def _why_none(self, waits: str, seconds: float) -> str:
        return f"no {waits} within {seconds:.0f} s: {self._state()}"

    def check_disk(self) -> None:
        """Raises CannotRehearse where the scratch disk has no room left."""
        if self.scratch.free() < 1 << 20:
            raise CannotRehearse(
                f"the disk of {self.scratch.root} is full", "set TMPDIR to a place with more room, or save less"
            )

    def _stop_if_saved(self) -> Save | None:
        self.pause()
        gate = bool(self.held())
        if self.track.writing and not gate and not self.processes.ended() and self._only_writing():
            self.go_on()
            return None
        _, changed = self.changed()
        whole = [one for one in changed if one.complete is not False and not self._is_open(one)]
        if not self.processes.ended():
            over = gate and self.settings.processes == 1
            whole = [one for one in whole if over or one.complete or one.layout == "file" or self._rests(one)]
        if not whole:
            self.go_on()
            return None
        newest = max(whole, key=lambda one: (one.mtime, one.step or 0))
        return self.saved(newest)

    def _only_writing(self) -> bool:
        return not any(event.kind in ("closed", "moved") for event in self.track.order)

    def _rests(self, saved: Saved) -> bool:
        """Whether nothing was written into it for a while: a folder that nobody can tell complete."""
        path = f"{self.directory}/{saved.path}"
        last = max((at for one, at in self.track.touched.items() if one.startswith(path)), default=0.0)
        gated = self.settings.processes == 1 and any((self.home / "record").iterdir())
        return time.monotonic() - last >= (_GATED if gated else _FOLDER)

    def _is_open(self, saved: Saved) -> bool:
        path = f"{self.directory}/{saved.path}" if saved.path != "." else self.directory
        return any(one == path or one.startswith(path + "/") for one in self.track.writing)

    def saved(self, one: Saved) -> Save:
        """A checkpoint of now, with the times of its writes; it is known from now on."""
        times = [event.at for event in self.track.order] or [time.monotonic()]
        save = Save(one, one.step, times[0], times[-1], shapes=self._shapes(), stood=self.stood)
        if one.step is None or self.settings.compare:
            save.kept = self.keep(one)
        _, found = look(self.directory)
        self.known |= {key(other) for other in found.saved}
        return save

    def wait_step(
        self, path: str, step: int, numbered: bool, steps: Callable[[list[str]], dict[str, int]]
    ) -> Save | None:
        """Wait for the checkpoint of one step, by its name, else by what copies of it say. None: it was never saved."""
        with self.gate():
            return self._wait_step(path, step, numbered, steps)

    def _wait_step(
        self, path: str, step: int, numbered: bool, steps: Callable[[list[str]], dict[str, int]]
    ) -> Save | None:
        began, copies = time.monotonic(), dict[str, Save]()
        waits_rest: Saved | None = None
        while True:
            self.track.begin()
            while waits_rest or not any(event.kind in ("closed", "moved") for event in self.track.order):
                if (waits_rest and self._rests(waits_rest)) or (self.held() and self.track.order):
                    break
                if self.held():
                    self.open_gate()
                self.pump(0.02)
                if self.processes.ended():
                    break
                if time.monotonic() - began > self.settings.timeout:
                    raise TimedOut(self._why_none(f"step {step}", self.settings.timeout))
            self.pause()
            ended = self.processes.ended()
            _, found = look(self.directory)
            one = next((one for one in found.saved if one.path == path), None)
            over = ended or (bool(self.held()) and self.settings.processes == 1)
            unsure = one is not None and not (one.complete or one.layout == "file" or over or self._rests(one))
            waits_rest = one if unsure else None
            if one is not None and not unsure and one.complete is not False and not self._is_open(one):
                save = self.saved(one)
                if numbered:
                    return save
                copies[save.kept or ""] = save
            if copies and (ended or len(copies) >= 20 or time.monotonic() - began > 2):
                told = steps(list(copies))
                if (right := next((copies[path] for path, at in told.items() if at == step), None)) is not None:
                    right.step = step
                    return right
                if ended or min(told.values(), default=step) > step:
                    return None
                copies, began = {}, time.monotonic()
            if ended:
                return None
            self.check_disk()
            self.live(f"[{self.name}] waiting for step {step}: {self._state()}")
            self.go_on()

    def _shapes(self) -> tuple[str, ...]:
        paths = [path for event in self.track.order for path in (event.path, event.old) if path]
        return tuple({shape(below): None for path in paths if (below := self.track.relative(path)) is not None})

    def keep(self, one: Saved) -> str:
        """A copy beside the directory: where a name has no number, the next save writes over it."""
        source = Path(self.directory) / one.path
        target = self.home / "kept" / f"{len(list((self.home / 'kept').iterdir()))}" / Path(one.path).name
        try:
            target.parent.mkdir(parents=True)
            if source.is_dir():
                shutil.copytree(source, target, symlinks=True, ignore=shutil.ignore_patterns("kept"))
            else:
                shutil.copy2(source, target)
        except OSError as error:
            if error.errno == errno.ENOSPC:
                raise CannotRehearse(f"the disk of {self.scratch.root} is full while a checkpoint is copied") from None
            return ""
        return str(target)

    def wait_write(self, shapes: frozenset[str], waits: str) -> bool:
        """Wait for the first write of the next save, and stop there. False: they ended before.

        ``shapes``: the names of earlier saves; other names count, too, where there are none.
        """
        self.track.begin()
        began = time.monotonic()
        while True:
            for event in self.pump(0.02):
                path = self.track.relative(event.path) or ""
                if not shapes or shape(path) in shapes:
                    self.pause()
                    return True
            now = time.monotonic()
            if self.processes.ended():
                return False
            if now - began > self.settings.timeout:
                raise TimedOut(self._why_none(waits, self.settings.timeout))
            self.check_disk()
            self.live(f"[{self.name}] waiting for {waits} ({now - began:.0f} s): {self._state()}")

    def terminate(self) -> tuple[str, int | None]:
        """SIGTERM, then at most the grace period: ``exited``, ``died`` or ``killed``, and the exit code."""
        self.processes.terminate()
        if self.paused:
            self.go_on()
        began = time.monotonic()
        while not self.processes.ended():
            self.pump(0.02, together=True)
            passed = time.monotonic() - began
            if passed > self.settings.grace:
                return "killed", None
            self.check_disk()
            self.live(f"[{self.name}] waiting for its end after SIGTERM ({passed:.0f} s of {self.settings.grace:g} s)")
        self.pump(0.01)
        codes = self.processes.codes()
        died = any(code == -signal.SIGTERM for code in codes)
        return ("died" if died else "exited"), codes[0] if codes else None

    def finish(self, start: Start) -> Start:
        """After the end of the processes: what the hook noted, what was read, what was printed."""
        start.inside = read_record(self.home / "record")
        start.before = self.before.saved
        start.reads_seen = self.watcher.reads_seen
        start.seconds = time.monotonic() - self.processes.began
        start.lines = self.processes.output.lines()
        start.head = self.processes.output.head.decode("utf-8", "replace")
        seen = self._written_outside(start.inside) if start.inside.pids else list(filter(named_state, self.outside))
        start.outside = list(dict.fromkeys(seen))
        start.reached = reached(self.processes.output.tail.decode("utf-8", "replace"))
        start.read = self._read(start)
        named = [self.track.relative(new) for _, _, new in start.inside.moved]
        start.tried = [step for path in named if path and (step := step_in(path)) is not None]
        start.wrote = self.track.relative(next(iter(self.track.touched), "")) or ""
        return start

    def _read(self, start: Start) -> list[str]:
        """Checkpoints that were opened before anything was saved, in order, each at its last time."""
        written = [one.at for one in start.inside.opened if one.how == "w" and self._is_own_state(one.path)]
        until = min([self.track.first_write or float("inf"), *written])
        opened = [(one.at, one.path) for one in start.inside.opened if one.how == "r" and one.at < until]
        # What is read without Python, by a library of C++, inotify alone sees. Its times are ours, which may be late:
        # the order of its own events says what came before the first write.
        opened += [(min(one.at, until), one.path) for one in self.track.reads_before]
        paths: dict[str, None] = {}
        for _, path in sorted(opened):
            below = self.track.relative(path)
            if below is None:
                continue
            saved = next((one for one in self.before.saved if holds(one, below)), None)
            if saved is not None and not saved.temporary:  # what is looked at to be removed is not loaded
                files = start.files.setdefault(saved.path, set())
                if below not in files:
                    files.add(below)
                    paths.pop(saved.path, None)
                paths[saved.path] = None
        return list(paths)

    def _is_own_state(self, path: str) -> bool:
        below = self.track.relative(path)
        return below is not None and is_state(below)


def holds(saved: Saved, path: str) -> bool:
    """Whether a file belongs to a checkpoint."""
    return saved.path == "." or path == saved.path or path.startswith(saved.path + "/")


class Elsewhere(CannotRehearse):
    """It saves, and not in the directory. ``start`` is filled by whoever ends the stage."""

    start: Start


class TimedOut(CannotRehearse):
    """Nothing was saved in time. ``start`` is filled by whoever ends the stage."""

    start: Start | None = None


def _free_port() -> int:
    import socket

    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])
