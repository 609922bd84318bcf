"""``--compare``: is the resumed run the same run? Held, part by part, against one that nobody interrupted.

A first uninterrupted run to the same step is enough where it agrees. Where it does not, a second one gives the noise.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from webhook.rehearsal import contents
from webhook.rehearsal.judge import Seen
from webhook.rehearsal.model import CannotRehearse, Compared, Save, Start
from webhook.rehearsal.saves import shape

if TYPE_CHECKING:
    from webhook.rehearsal.local import Rehearsal
    from webhook.rehearsal.stage import Scratch


def compare(rehearsal: Rehearsal, scratch: Scratch, seen: Seen) -> Compared:
    """The comparison, or why there is none."""
    third = seen.starts[2]
    resumed = next((save for save in third.saves if save.step is not None and save.kept), None)
    if resumed is None or resumed.step is None:
        return Compared(why="the resumed run's checkpoints tell no step")
    first = _uninterrupted(rehearsal, scratch, "reference 1", resumed)
    if isinstance(first, str):
        return Compared(why=first)
    reference, start = first
    if _files(reference) != _files(resumed):
        return Compared(resumed.step, why=f"step {resumed.step} has other files in an uninterrupted run; run it again")
    parts, why = contents.compare(str(reference.kept), str(resumed.kept), None, rehearsal.interpreter)
    if why:
        return Compared(resumed.step, why=why)
    second_start: Start | None = None
    if any(not part.same for part in parts):
        second = _uninterrupted(rehearsal, scratch, "reference 2", resumed)
        if isinstance(second, str):
            return Compared(resumed.step, why=second)
        again, second_start = second
        parts, why = contents.compare(str(reference.kept), str(resumed.kept), str(again.kept), rehearsal.interpreter)
        if why:
            return Compared(resumed.step, why=why)
    generators = _generators(start, reference, second_start, third, resumed)
    return Compared(resumed.step, tuple(parts), "", _batches(start, second_start, third), generators)


def _files(save: Save) -> set[str]:
    """What a checkpoint consists of, numbers and random names apart: a half copy is no other run."""
    kept = Path(save.kept or "")
    return {shape(str(file.relative_to(kept))) for file in kept.rglob("*")} if kept.is_dir() else set()


def _uninterrupted(rehearsal: Rehearsal, scratch: Scratch, name: str, wanted: Save) -> tuple[Save, Start] | str:
    """A run to the checkpoint of that step; a text where it never writes one."""
    folder = scratch.root / name.replace(" ", "-") / "checkpoints"
    folder.mkdir(parents=True)
    if rehearsal.settings.directory is not None:
        shutil.copytree(rehearsal.settings.directory, folder, symlinks=True, dirs_exist_ok=True)
    start = Start(0)
    numbered = wanted.saved.step is not None

    def steps(paths: list[str]) -> dict[str, int]:
        told = contents.steps(paths, rehearsal.interpreter)
        return {path: one["step"] for path, one in told.items() if isinstance(one.get("step"), int)}

    try:
        with rehearsal.stage(scratch, name, folder, {"CKPTGUARD_STATES": "1"}) as stage:
            found = stage.wait_step(wanted.path, wanted.step or 0, numbered, steps)
        rehearsal.left += stage.left
        stage.finish(start)
    except CannotRehearse as error:
        return f"the uninterrupted run: {error}"
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if found is None or not found.kept:
        return f"an uninterrupted run saves nothing at step {wanted.step}"
    start.saves.append(found)
    return found, start


def _generators(first: Start, save: Save, second: Start | None, third: Start, resumed: Save) -> tuple[str, ...]:
    """Generators that stood the same in both uninterrupted runs when they saved that step, and elsewhere here."""
    here, there = _states(third, resumed), _states(first, save)
    again = there
    if second is not None and second.saves:
        last = next((one for one in reversed(second.saves) if one.step == save.step), second.saves[-1])
        again = _states(second, last)
    return tuple(
        sorted(name for name, state in there.items() if again.get(name) == state and here.get(name, state) != state)
    )


def _states(start: Start, save: Save) -> dict[str, str]:
    """What the hook noted when that save began."""
    # Noted when a file is opened: after the opening, and before the next one, whatever the clock says meanwhile.
    opened = [one.at for one in start.inside.opened if one.how == "w"]
    until = min((at for at in opened if at > save.stood), default=float("inf"))
    before = [states for at, states in start.inside.states if at < until]
    return before[-1] if before else {}


def _batches(first: Start, second: Start | None, third: Start) -> str:
    """Whether the batches after the restart are those of the uninterrupted run at that place."""
    told = ""
    for rank, seen in third.inside.batches.items():
        whole = first.inside.batches.get(rank, [])
        other = second.inside.batches.get(rank, []) if second is not None else whole
        count = min(len(whole), len(other))
        if whole[:count] != other[:count]:
            return ""  # the order is another in every run
        head = seen[:3]
        if len(head) < 2 or len(whole) < 4 or len(set(whole[:8])) < 2:
            return ""
        if whole[: len(head)] == head:
            return "repeated"
        places = [at for at in range(len(whole)) if whole[at : at + len(head)] == head]
        told = "same" if places else "other"
        if told == "other":
            return told
    return told
