"""Starts on copies, after the three: which of two checkpoints is taken, and which parts of what is loaded."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Final

from webhook.rehearsal import contents
from webhook.rehearsal.judge import Seen
from webhook.rehearsal.model import CannotRehearse, Save, Start
from webhook.rehearsal.saves import look
from webhook.rehearsal.stage import Elsewhere, TimedOut
from webhook.runs.layouts import Saved

if TYPE_CHECKING:
    from webhook.rehearsal.local import Rehearsal
    from webhook.rehearsal.stage import Scratch

_WHOLE: Final = "*"


def look_closer(rehearsal: Rehearsal, scratch: Scratch, seen: Seen) -> None:
    """Fill ``held``, ``unread``, ``order`` of what was seen. Whatever fails here says nothing."""
    newest = _newest(scratch)
    if newest is None:
        return
    path = str(scratch.directory / newest.path) if newest.path != "." else str(scratch.directory)
    told = contents.steps([path], rehearsal.interpreter).get(path, {})
    keys = told.get("keys")
    seen.held = {str(part): [str(key) for key in some] for part, some in keys.items()} if keys else None
    renamed = _renamed(scratch, seen, newest)
    start = None
    if renamed is not None:
        folder, older, newer = renamed
        start = _probe(rehearsal, scratch, folder, "which of two checkpoints")
        if start is not None and start.read:
            if newer not in start.read and older in start.read:
                seen.order, seen.order_read = "text", older
            elif newer in start.read:
                seen.order = "newest"
    if seen.held and (start is None or not start.read or not start.inside.taken):
        plain = _copy(scratch, "parts")
        start = _probe(rehearsal, scratch, plain, "which parts are taken") if plain else None
    if start is not None and seen.held:
        seen.unread = unread(seen.held, start.inside.taken)


def unread(held: dict[str, list[str]], taken: set[str]) -> dict[str, list[str]]:
    """Part -> keys that were never taken, where others were, one by one."""
    tops = {key.split(".")[0] for key in taken}
    if not taken or _WHOLE in tops:
        return {}
    found: dict[str, list[str]] = {}
    known = {key for keys in held.values() for key in keys}
    if not tops & known:
        return {}
    for part, keys in held.items():
        missing = [key for key in keys if key not in tops]
        if missing and len(missing) == len(keys):
            found[part] = missing
    return found


def _newest(scratch: Scratch) -> Saved | None:
    _, found = look(str(scratch.directory))
    return found.newest_complete()


def _renamed(scratch: Scratch, seen: Seen, newest: Saved) -> tuple[Path, str, str] | None:
    """A copy with two checkpoints whose order as text is another than by number, and their names: older, newer.

    None where names have no number, zeros before it, or a file beside them says which is the newest.
    """
    _, found = look(str(scratch.directory))
    if newest.step is None or found.pointer is not None or newest.path == "." or seen.starts[1].torn_over:
        return None
    name = _with_step(newest.path, newest.step, newest.step)
    if name is None:
        return None
    shape = re.sub(r"\d+", "#", newest.path)
    same = [one for one in found.saved if re.sub(r"\d+", "#", one.path) == shape and one.complete is not False]
    torn = {path for start in seen.starts for path in start.torn}
    rest = sorted((one for one in same if one.path != newest.path and one.path not in torn), key=lambda one: one.mtime)
    if rest and _parts(scratch.directory / newest.path) != _parts(scratch.directory / rest[-1].path):
        return None  # the last start was killed: what it wrote last may lack the program's own mark of a whole one
    digits = len(str(newest.step))
    older = _with_step(newest.path, newest.step, int("9" * digits))
    newer = _with_step(newest.path, newest.step, 10**digits)
    folder = _copy(scratch, "order")
    if older is None or newer is None or folder is None or older in [one.path for one in same]:
        return None
    try:
        second = rest[-1].path if rest else newest.path
        _copy_one(folder / second, folder / older)
        (folder / newest.path).replace(folder / newer)
        for one in same:
            if one.path != newest.path:
                _remove(folder / one.path)
        os.utime(folder / older, (newest.mtime - 60, newest.mtime - 60))
    except OSError:
        return None
    return folder, older, newer


def _parts(saved: Path) -> set[str]:
    """The files that a checkpoint consists of, whatever step their names hold."""
    if not saved.is_dir():
        return set()
    return {re.sub(r"\d+", "#", str(file.relative_to(saved))) for file in saved.rglob("*")}


def _with_step(path: str, step: int, other: int) -> str | None:
    above, _, name = path.rpartition("/")
    for match in reversed(list(re.finditer(r"\d+", name))):
        if match[0] == str(step):
            made = f"{name[: match.start()]}{other}{name[match.end() :]}"
            return f"{above}/{made}" if above else made
    return None


def _copy(scratch: Scratch, name: str) -> Path | None:
    target = scratch.root / name / "checkpoints"
    try:
        shutil.copytree(scratch.directory, target, symlinks=True)
    except (OSError, shutil.Error):
        return None
    return target


def _copy_one(source: Path, target: Path) -> None:
    if source.is_dir():
        shutil.copytree(source, target, symlinks=True)
    else:
        shutil.copy2(source, target)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def _probe(rehearsal: Rehearsal, scratch: Scratch, folder: Path, waits: str) -> Start | None:
    """A start on a copy, to its first write; only what it read counts."""
    start = Start(4)
    try:
        with rehearsal.stage(scratch, f"probe {folder.parent.name}", folder, {"CKPTGUARD_KEYS": "1"}) as stage:
            found = stage.before.newest_complete()
            start.newest = Save(found, found.step) if found is not None else None
            stage.wait_write(frozenset(), waits)
        rehearsal.left += stage.left
        return stage.finish(start)
    except (CannotRehearse, TimedOut, Elsewhere):
        return None
