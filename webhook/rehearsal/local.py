"""The rehearsal on this machine: three starts in one directory, and what else is needed to name a cause.

1. To a first complete checkpoint, then SIGTERM and the grace period. 2. To a further save: SIGSTOP at its first write,
then SIGKILL, so that it is torn; a save that is too quick is cut as such a kill would have left it, where it is written
in place. 3. To the next save. Then, on copies: which of two checkpoints is taken, and which parts of it.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from webhook.rehearsal import contents
from webhook.rehearsal.judge import Seen, apart, judge
from webhook.rehearsal.model import CannotRehearse, Report, Save, Settings, Start
from webhook.rehearsal.recorded import read_record
from webhook.rehearsal.saves import key, look, newest
from webhook.rehearsal.stage import Elsewhere, Scratch, Stage, TimedOut, holds
from webhook.rehearsal.trouble import known_trouble
from webhook.runs.layouts import Saved

_ONLY_AT_ITS_END: Final = "it saved only when it ended: an interruption before loses everything"
_MORE_SAVES: Final = "give it more steps, or save more often, so that it saves at least four times"
_NUMBER: Final = re.compile(r"\d")
_TRIES: Final = 2
"""Saves of which one has to be slow enough to be stopped in its middle."""


class Rehearsal:
    """One rehearsal; ``run`` does all of it. ``live`` tells what is waited for, ``say`` what is left behind."""

    def __init__(self, settings: Settings, live: Callable[[str], None], say: Callable[[str], None]) -> None:
        self.settings, self.live, self.say = settings, live, say
        self.starts: list[Start] = []
        self.notes: list[str] = []
        self.steps: dict[tuple[str, float, int], int | None] = {}
        self.left: list[int] = []
        self.interpreter: str | None = None

    def run(self) -> Report:
        """The report. KeyboardInterrupt and all else passes after the end of processes and directories."""
        began = time.monotonic()
        with self.scratch() as scratch:
            report = self._run(scratch)
        report.seconds = time.monotonic() - began
        return report

    @contextmanager
    def scratch(self) -> Iterator[Scratch]:
        """A folder of its own, removed whatever happens."""
        try:
            root = Path(tempfile.mkdtemp(prefix="ckptguard-rehearsal-"))
        except OSError as error:
            raise CannotRehearse(f"no directory can be made in {tempfile.gettempdir()}: {error.strerror}") from None
        try:
            scratch = Scratch(root)
            self._fill(scratch)
            yield scratch
        finally:
            self._remove(root)

    def _fill(self, scratch: Scratch) -> None:
        given = self.settings.directory
        if given is None:
            return
        if not Path(given).is_dir():
            raise CannotRehearse(f'--directory "{given}": no such directory')
        size = sum(file.lstat().st_size for file in Path(given).rglob("*") if file.is_file() and not file.is_symlink())
        if size > scratch.free():
            raise CannotRehearse(
                f'--directory "{given}": its copy needs {size} bytes, {scratch.root} has {scratch.free()}',
                "set TMPDIR to a place with more room",
            )
        try:
            shutil.copytree(given, scratch.directory, symlinks=True, dirs_exist_ok=True)
        except (OSError, shutil.Error) as error:
            raise CannotRehearse(f'--directory "{given}" cannot be copied: {error}') from None

    def _remove(self, root: Path) -> None:
        for _ in range(3):
            shutil.rmtree(root, ignore_errors=True)
            if not root.exists():
                break
            time.sleep(0.1)
        if root.exists():
            self.say(f"left behind: {root} could not be removed")
        for pid in self.left:
            self.say(f"left behind: process {pid} could not be ended")

    def _run(self, scratch: Scratch) -> Report:
        command = self.settings.command
        try:
            self.starts.append(self._first(scratch))
            self._learn(scratch)
            self.starts.append(self._second(scratch))
            self._learn(scratch)
            self.starts.append(self._third(scratch))
        except Elsewhere as error:
            self.starts.append(error.start)
        except CannotRehearse as error:
            if isinstance(error, TimedOut) and error.start is not None:
                self.starts.append(error.start)
            if not self._tells():
                return Report(command, "not-rehearsable", self.starts, notes=self.notes, why=error.lines)
            self.notes.append(error.lines[0])
        seen = Seen(self.settings, self.starts, steps=self.steps)
        if len(self.starts) == 3 and self.starts[2].saves:
            from webhook.rehearsal.probe import look_closer

            look_closer(self, scratch, seen)
            if self.settings.compare:
                from webhook.rehearsal.compare import compare

                seen.compared = compare(self, scratch, seen)
        return judge(seen, self.notes)

    def _tells(self) -> bool:
        """Whether what was seen until something failed is a verdict: a restart that failed is one."""
        if any(start.number > 1 and start.code not in (None, 0) for start in self.starts):
            return True
        hangs = [start for start in self.starts[1:] if not start.saves and start.signal is None]
        return any(apart(start) for start in hangs)

    # --- the starts

    def stage(
        self, scratch: Scratch, name: str, directory: Path | None = None, more: Mapping[str, str] | None = None
    ) -> Stage:
        """A stage of this rehearsal."""
        self._last = Stage(
            scratch=scratch, settings=self.settings, name=name, live=self.live, directory=directory, more=more
        )
        return self._last

    def _first(self, scratch: Scratch) -> Start:
        start = Start(1)
        with self.stage(scratch, "start 1", more=self._more()) as stage:
            for count in range(self.settings.saves):
                save = self._wait(stage, start, f"checkpoint {count + 1}")
                if save is None:
                    raise self._ended(stage, start)
                start.saves.append(save)
                if stage.processes.ended():
                    raise self._ended(stage, start)
                if count + 1 < self.settings.saves:
                    stage.go_on()
            start.signal = "SIGTERM"
            start.ended, start.code = stage.terminate()
            stage.processes.kill()
            stage.pump(0)
            _, changed = stage.changed()
            flushed = [one for one in changed if one.complete is not False]
            if flushed:
                start.saves.append(stage.saved(max(flushed, key=lambda one: (one.mtime, one.step or 0))))
            start.heard = bool(flushed)
        return self._finish(stage, start)

    def _second(self, scratch: Scratch) -> Start:
        start = Start(2)
        with self._timed(start), self.stage(scratch, "start 2", more=self._more()) as stage:
            start.newest = self._newest(stage)
            shapes = self._shapes()
            for attempt in range(_TRIES):
                if not stage.wait_write(shapes, "a further save"):
                    break
                if stage.track.writing or self._unfinished(stage):
                    start.signal = "SIGKILL"
                    self._torn(stage, start)
                    break
                save = stage.wait_save("the end of a save", begun=True)
                if save is None:
                    break
                start.saves.append(save)
                if attempt + 1 == _TRIES:
                    start.signal = "SIGKILL"
                    stage.processes.kill()
                    self._cut(stage, start)
                    break
                stage.go_on()
            if start.signal is None:
                return self._restart_ended(stage, start)
        return self._finish(stage, start)

    def _third(self, scratch: Scratch) -> Start:
        start = Start(3)
        with self._timed(start), self.stage(scratch, "start 3", more=self._more()) as stage:
            start.newest = self._newest(stage, self.starts[1].torn)
            self._unmarked(stage, start)
            wanted = 1 if self.starts[0].heard else 2
            while len(start.saves) < wanted:
                save = self._wait(stage, start, "the next save")
                if save is None:
                    break
                start.saves.append(save)
                if stage.processes.ended():
                    break
                if len(start.saves) < wanted:
                    stage.go_on()
            if stage.processes.ended():
                return self._restart_ended(stage, start)
            start.signal = "SIGKILL"
        return self._finish(stage, start)

    def _unmarked(self, stage: Stage, start: Start) -> None:
        """What the killed start left and nobody can tell complete may be torn: the program need not take it."""
        second = self.starts[1]
        known = {save.path for one in self.starts for save in one.saves}
        if second.signal == "SIGKILL" and start.newest is not None and start.newest.path not in known:
            second.torn.append(start.newest.path)
            start.newest = self._newest(stage, second.torn)

    @contextmanager
    def _timed(self, start: Start) -> Iterator[None]:
        """A start that never saves again is told with the error: processes that read apart hang."""
        try:
            yield
        except TimedOut as error:
            error.start = self._finish(self._last, start)
            raise

    def _wait(self, stage: Stage, start: Start, waits: str) -> Save | None:
        try:
            return stage.wait_save(waits)
        except Elsewhere as error:
            stage.processes.kill()
            error.start = self._finish(stage, start)
            raise
        except TimedOut:
            if start.number > 1 and start.saves:
                return None
            raise

    def _restart_ended(self, stage: Stage, start: Start) -> Start:
        """A restart that ended by itself: a verdict where it failed, or where it saved; else nothing can be said."""
        stage.processes.kill()
        start.code = stage.processes.failed() or (stage.processes.codes() or [0])[0]
        self._finish(stage, start)
        if start.code == 0 and not start.saves:
            raise CannotRehearse(
                f"start {start.number} ended before it saved again",
                "give the program more steps, so that it saves at least four times",
            )
        if start.code and (known := known_trouble(start.lines)):
            raise CannotRehearse(*known)
        # A program that saves at its end alone may be caught between that save and its end, each time.
        if start.code == 0 and len(start.saves) == 1 and not start.read and not self.starts[0].heard:
            raise CannotRehearse(_ONLY_AT_ITS_END, _MORE_SAVES)
        if start.code and start.number == 2:
            self.starts.append(start)
            raise CannotRehearse(f"start {start.number} ended with exit code {start.code}")
        return start

    def _ended(self, stage: Stage, start: Start) -> CannotRehearse:
        """Why the first start came to its end before it could be interrupted."""
        stage.processes.kill()
        code = stage.processes.failed()
        lines = stage.processes.output.lines()
        self._finish(stage, start)
        self.starts.append(start)
        if code is not None:
            if known := known_trouble(lines):
                return CannotRehearse(*known)
            if code == 127 or code == 126:
                return CannotRehearse(f"the command could not be run (exit code {code})", *lines)
            return CannotRehearse(f"it ended {_how(code)} before it saved anything", *lines)
        more = _MORE_SAVES
        if start.saves:
            return CannotRehearse(_ONLY_AT_ITS_END, more)
        if start.outside:
            return CannotRehearse(f"it ended and saved nothing in the directory; it wrote {start.outside[0]}", more)
        return CannotRehearse(f"it ended after {start.seconds:.1f} s and saved nothing", *lines, more)

    def _more(self) -> dict[str, str]:
        return {"CKPTGUARD_STATES": "1"} if self.settings.compare else {}

    def _finish(self, stage: Stage, start: Start) -> Start:
        self.left += stage.left
        stage.finish(start)
        self.interpreter = self.interpreter or self._python(start)
        asked = {save.kept: save for save in start.saves if save.step is None and save.kept}
        if asked:
            for path, one in contents.steps(list(asked), self.interpreter).items():
                if path in asked and isinstance(one.get("step"), int):
                    asked[path].step = one["step"]
        for save in start.saves:
            self.steps[key(save.saved)] = save.step
        for path in stage.watcher.missed[:1]:
            note = f"{path} and more were not watched"
            if note not in self.notes:
                self.notes.append(note)
        if stage.watcher.overflowed:
            self.notes.append(f"start {start.number}: more happened than could be followed; some reads may be missing")
        return start

    @staticmethod
    def _python(start: Start) -> str | None:
        path = start.inside.executable
        return path if path and os.access(path, os.X_OK) else None

    def _newest(self, stage: Stage, torn: list[str] | None = None) -> Save | None:
        """What this start could go on from."""
        rest = [one for one in stage.before.saved if one.path not in (torn or [])]
        found = newest(type(stage.before)(tuple(rest)))
        return None if found is None else Save(found, self.step(found))

    def _learn(self, scratch: Scratch) -> None:
        """Between two starts: the step of what the last one left, where nobody could look at it before it ended."""
        found = newest(look(str(scratch.directory))[1])
        if found is None or found.step is not None or key(found) in self.steps:
            return
        path = str(scratch.directory / found.path) if found.path != "." else str(scratch.directory)
        told = contents.steps([path], self.interpreter).get(path, {}).get("step")
        self.steps[key(found)] = told if isinstance(told, int) else None

    def step(self, saved: Saved) -> int | None:
        """The number in its name, else what was read in it when it was written."""
        return saved.step if saved.step is not None else self.steps.get(key(saved))

    def _shapes(self) -> frozenset[str]:
        """What the files of the first saves are called, also before they are renamed."""
        return frozenset(one for save in self.starts[0].saves for one in save.shapes)

    # --- torn saves

    def _unfinished(self, stage: Stage) -> bool:
        _, found = look(stage.directory)
        return any((one.complete is False or one.temporary) and key(one) not in stage.known for one in found.saved)

    def _torn(self, stage: Stage, start: Start) -> None:
        paths, over = stage.track.in_place(stage.existed)
        begun = [path for path in paths if path in stage.track.writing]
        stage.processes.kill()
        stage.pump(0)
        start.torn_over = over
        start.cut = self._halve(stage, begun)
        # What is renamed file by file, into a folder that has its final name, is torn, too.
        _, found = look(stage.directory)
        lacking = [one.path for one in found.saved if one.complete is False and key(one) not in stage.known]
        start.torn = list(dict.fromkeys([*self._tops(stage, paths), *lacking]))
        start.order = "in place" if start.torn else "renamed"

    def _halve(self, stage: Stage, begun: list[str]) -> bool:
        """Whether a file was cut that was open when the kill came: all of it may be there, and be torn a moment before.

        Only what was opened to be written anew: in a file that is added to, or written here and there, a program finds
        what is whole, and half of it is nothing that a kill leaves.
        """
        anew = self._anew(stage)
        cut = False
        for path in begun:
            with suppress(OSError):
                if anew.get(path) and (size := Path(path).stat().st_size):
                    os.truncate(path, size // 2)
                    cut = True
        return cut

    @staticmethod
    def _anew(stage: Stage) -> dict[str, bool]:
        """File -> whether it began empty when it was last opened to be written, where the hook saw that."""
        return {one.path: one.anew for one in read_record(stage.home / "record").opened if one.how == "w"}

    def _cut(self, stage: Stage, start: Start) -> None:
        """Leave of the last save what a kill between its writes leaves: half of its first file, and none after it."""
        stage.pump(0)
        paths, _ = stage.track.in_place(stage.existed)
        # On a busy machine more than one save may have come: what is cut is the last one, and nothing else.
        paths = [path for path in paths if holds(start.saves[-1].saved, stage.track.relative(path) or "")]
        anew = self._anew(stage)
        paths = [path for path in paths if anew.get(path, True)]  # of one that is added to, half is no kill's work
        over = any(stage.track.relative(path) in stage.existed for path in paths)
        start.order = "in place" if paths else "renamed"
        if not paths:
            return
        first = paths[0]
        later = {path: stage.track.relative(path) or "" for path in stage.track.later(first)}
        if any(not holds(start.saves[-1].saved, name) and not _NUMBER.search(name) for name in later.values()):
            self.notes.append("no torn save was made: a file that names the newest checkpoint was written after it")
            return
        try:
            os.truncate(first, Path(first).stat().st_size // 2)
            for path, name in later.items():
                if name not in stage.existed:
                    Path(path).unlink(missing_ok=True)
        except OSError as error:
            self.notes.append(f"a torn save could not be made: {error.strerror}")
            return
        start.cut, start.torn_over = True, over
        start.torn = self._tops(stage, [first])
        torn = set(start.torn)
        start.saves = [save for save in start.saves if save.path not in torn]

    @staticmethod
    def _tops(stage: Stage, paths: list[str]) -> list[str]:
        """The checkpoints that files belong to; a file that belongs to none stands for itself."""
        _, found = look(stage.directory)
        below = [path for path in map(stage.track.relative, paths) if path is not None]
        tops = [next((one.path for one in found.saved if holds(one, path)), path) for path in below]
        return list(dict.fromkeys(tops))


def _how(code: int) -> str:
    return f"with exit code {code}" if code >= 0 else f"by signal {-code}"
