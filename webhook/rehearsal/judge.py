"""What was seen becomes findings and a verdict. Pure.

Only what was seen is said: where neither the hook nor inotify could see reads, nothing is said about reads. Ids are
those of the rules that find the same fault in a program's text, where there is one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from msgspec import Struct

from webhook.rehearsal.model import Compared, Finding, Report, Save, Settings, Start
from webhook.rehearsal.texts import TEXTS
from webhook.runs.verdicts import LogVerdict, read_log

_WARN: Final = "warn"
_AUDIT: Final = "audit"


class Seen(Struct):
    """All of a rehearsal. ``order``: which of two checkpoints was taken, ``newest`` or ``text``; ``unread``: part ->
    keys that are in the checkpoint and were never taken; ``held``: the parts that it holds."""

    settings: Settings
    starts: list[Start]
    steps: dict[tuple[str, float, int], int | None] = {}
    order: str = ""
    order_read: str = ""
    unread: dict[str, list[str]] = {}
    held: dict[str, list[str]] | None = None
    compared: Compared | None = None


def judge(seen: Seen, notes: Sequence[str] = ()) -> Report:
    """The report, but for its time."""
    findings: dict[str, Finding] = {}
    for check in _CHECKS:
        for finding in check(seen):
            findings.setdefault(finding.rule, finding)
    for rule, others in _HIDDEN.items():
        if rule in findings:
            for other in others:
                findings.pop(other, None)
    if not any(one.severity == _WARN for one in findings.values()):
        for finding in _differs(seen):
            findings.setdefault(finding.rule, finding)
    bad = any(one.severity == _WARN for one in findings.values())
    report = Report(seen.settings.command, "not-resumed" if bad else "resumed", seen.starts, list(findings.values()))
    report.lost = lost_steps(seen, bad)
    report.compared = seen.compared
    report.notes = [*notes, *_notes(seen)]
    return report


def _found(rule: str, problem: str, severity: str = _WARN, fix: str | None = None) -> Finding:
    why, usual = TEXTS[rule]
    return Finding(rule, severity, problem, why, fix or usual)


def went_on_from(start: Start) -> int | None:
    """The step that a start went on from; 0 where it began anew, None where that cannot be said."""
    first = next((save.step for save in start.saves if save.step is not None), None)
    base = start.newest.step if start.newest is not None else None
    if start.newest is None:
        return 0
    if not start.read and _reads_visible(start):
        return 0
    if start.read and start.newest.path not in start.read:
        return _step_of(start, start.read[-1])
    if first is not None and base is not None and _behind(first, base, start):
        return 0
    said = _said(start)
    if said is not None and said.resumed and said.step is not None:
        return said.step
    return base


def _said(start: Start) -> LogVerdict | None:
    return read_log(start.head)


def _step_of(start: Start, path: str) -> int | None:
    return next((one.step for one in start.before if one.path == path), None)


def _reads_visible(start: Start) -> bool:
    return start.reads_seen or bool(start.inside.pids)


def _behind(first: int, base: int, start: Start) -> bool:
    """Whether the first new save is no further than what it had. A half epoch is saved again when it ends."""
    unit = start.newest.saved.unit if start.newest is not None else "step"
    return first < base if unit == "epoch" else first <= base


def lost_steps(seen: Seen, bad: bool) -> int | None:
    """Steps between where SIGTERM came and where the next start went on; all of them where it began anew."""
    if len(seen.starts) < 2:
        return None
    first, second = seen.starts[:2]
    done = max([step for step in (first.reached, *first.steps()) if step is not None], default=None)
    if done is None:
        return None
    from_ = went_on_from(second) if second.code in (None, 0) else 0
    if from_ is None:
        return None
    return max(done - from_, 0)


# --- what each start read, and where it went on


def _elsewhere(seen: Seen) -> Iterator[Finding]:
    first = seen.starts[0]
    if first.outside and not first.saves:
        yield _found("directory-not-used", f"it saves to {first.outside[0]}, and nothing into the checkpoint directory")


def _restarts(seen: Seen) -> Iterator[Start]:
    yield from (start for start in seen.starts if start.number > 1 and start.newest is not None)


def _failed(start: Start) -> bool:
    return start.code not in (None, 0) and not start.saves


def _never(seen: Seen) -> Iterator[Finding]:
    for start in _restarts(seen):
        newest = start.newest
        if newest is None or start.read or not _reads_visible(start) or _failed(start) or _ahead(start):
            continue
        if start.number == 3 and seen.starts[1].torn:
            continue  # what a torn checkpoint does to it is a fault of its own
        folder = _new_folder(start, newest)
        if folder is not None:
            did = "saved" if start.saves else "wrote"
            yield _found(
                "timestamped-directory",
                f"start {start.number} {did} into {folder}, and {newest.path} of the start before was never opened",
            )
            continue
        where = _looked_elsewhere(start)
        looked = f"; it looked in {where}" if where else ""
        yield _found(
            "never-resumed",
            f"start {start.number} opened no checkpoint{looked}: {_named(newest)} was there and complete",
        )


def _ahead(start: Start) -> bool:
    steps = start.steps()
    base = start.newest.step if start.newest is not None else None
    return bool(steps) and base is not None and base > 0 and steps[0] > base and not _new_folder_of(start)


def _new_folder_of(start: Start) -> bool:
    return start.newest is not None and _new_folder(start, start.newest) is not None


def _new_folder(start: Start, newest: Save) -> str | None:
    """The folder that a start saved into, where it is another than the one that the checkpoint lies in."""
    written = start.saves[0].path if start.saves else start.wrote
    if "/" not in newest.path or "/" not in written:
        return None
    old, new = newest.path.partition("/")[0], written.partition("/")[0]
    known = {one.path.partition("/")[0] for one in start.before}
    return new if new != old and new not in known else None


def _looked_elsewhere(start: Start) -> str | None:
    for one in start.inside.opened:
        if one.how == "look" and any(word in one.path.lower() for word in ("ckpt", "checkpoint", "out", "run")):
            inside = any(one.path.endswith(known.path.partition("/")[0]) for known in start.before)
            if not inside and "ckptguard-rehearsal-" not in one.path:
                return one.path
    return None


def _named(save: Save) -> str:
    return save.path if save.step is None else f"{save.path} (step {save.step})"


def _wrong(seen: Seen) -> Iterator[Finding]:
    for start in _restarts(seen):
        newest = start.newest
        if newest is None or not start.read or _failed(start):
            continue
        if newest.path in start.read and not _only_asked(start, newest.path):
            continue
        if start.number == 3 and (seen.starts[1].torn_over or set(start.read) & set(seen.starts[1].torn)):
            continue
        taken = start.read[-1]
        if _as_new(seen, start, newest, taken) or (start.number == 3 and _was_the_last(seen, start, newest, taken)):
            continue
        names = [one.path for one in start.before]
        if taken == max(names) and newest.path != max(names):
            yield _found(
                "text-order-resume", f"start {start.number} took {taken}, where {_named(newest)} is the newest"
            )
        else:
            yield _found(
                "fixed-resume-path", f"start {start.number} took {taken}, and never opened {_named(newest)}, the newest"
            )
    if seen.order == "text":
        yield _found(
            "text-order-resume",
            f"of two checkpoints it took {seen.order_read}, which comes last as text and is the older one",
        )


def _as_new(seen: Seen, start: Start, newest: Save, taken: str) -> bool:
    """Whether what was taken holds the newest step under another name: many write a copy called ``last``."""
    one = next((one for one in start.before if one.path == taken), None)
    if one is None:
        return False
    step = one.step if one.step is not None else seen.steps.get((one.path, one.mtime, one.size))
    if step is not None and newest.step is not None:
        return step >= newest.step
    return one.step is None and one.mtime >= newest.saved.mtime


def _was_the_last(seen: Seen, start: Start, newest: Save, taken: str) -> bool:
    """Whether the newest is the save at whose end the second start was killed, and the one before was taken.

    The kill may have come before the program's own mark of a whole one (a file that names it): then it is right.
    """
    second = seen.starts[1]
    if second.signal != "SIGKILL" or not second.saves or second.saves[-1].path != newest.path:
        return False
    rest = [one for one in start.before if one.path != newest.path and one.complete is not False and not one.temporary]
    return bool(rest) and taken == max(rest, key=lambda one: (one.step or 0, one.mtime)).path


def _only_asked(start: Start, path: str) -> bool:
    """Whether the last one that was opened was opened in full, and this one no further than to ask what it is."""
    last = start.read[-1]
    here, there = ({file[len(one) :] for file in start.files.get(one, set())} for one in (path, last))
    return last != path and here < there


def _step(seen: Seen) -> Iterator[Finding]:
    for start in _restarts(seen):
        newest = start.newest
        if newest is None or (step := _saved_behind(start)) is None or newest.path in _constant(seen):
            continue
        if start.number == 3 and set(start.read[-1:]) & set(seen.starts[1].torn):
            continue
        yield _found(
            "step-not-restored",
            f"start {start.number} read {_named(newest)} and saved step {step} next: the loop began anew",
        )


def _constant(seen: Seen) -> set[str]:
    """Names that one start saved twice, with a number in them that is no step."""
    named = [[save.path for save in start.saves if save.saved.step is not None] for start in seen.starts]
    return {path for paths in named for path in paths if paths.count(path) > 1}


def _saved_behind(start: Start) -> int | None:
    """The step that it saved, or failed to save, where that is one behind the checkpoint that it had read."""
    newest, steps = start.newest, start.steps() or start.tried
    if newest is None or newest.step is None or not steps or newest.path not in start.read:
        return None
    return steps[0] if _behind(steps[0], newest.step, start) else None


def _crashed(seen: Seen) -> Iterator[Finding]:
    second = next((start for start in seen.starts if start.number == 2), None)
    if second is not None and _failed(second) and _saved_behind(second) is None:
        last = second.lines[-1] if second.lines else "it printed nothing"
        yield _found("restart-failed", f"start 2 ended with exit code {second.code} before it saved again: {last}")


def _torn(seen: Seen) -> Iterator[Finding]:
    if len(seen.starts) < 3:
        return
    second, third = seen.starts[1:3]
    if _failed(third) and _saved_behind(third) is not None:
        return  # it had read a whole one, and failed when it saved what was there already
    if not second.torn:
        if _failed(third):
            last = third.lines[-1] if third.lines else "it printed nothing"
            yield _found("restart-failed", f"start 3 ended with exit code {third.code}: {last}")
        return
    torn = second.torn[0]
    how = "was cut as a kill between its writes leaves it" if second.cut else "was being written when it was killed"
    over = second.torn_over and third.newest is None
    rule = "overwritten-checkpoint" if second.torn_over else "torn-newest"
    if _failed(third):
        last = third.lines[-1] if third.lines else "it printed nothing"
        yield _found(rule, f"{torn} {how}, and start 3 ended with exit code {third.code}: {last}")
        return
    if second.newest is not None and went_on_from(second) == 0:
        return  # it begins anew each time, torn or not
    steps = third.steps()
    newest = third.newest
    if over and steps and _first_step(seen) is not None and steps[0] <= (_first_step(seen) or 0):
        yield _found(rule, f"{torn} {how}: nothing else was there, and start 3 began anew")
    elif second.read and second.newest is not None and second.newest.path not in second.read:
        return  # it takes another than the newest each time, torn or not: that is told as the wrong choice
    elif newest is not None and newest.step is not None and steps and _behind(steps[0], newest.step, third):
        yield _found(rule, f"{torn} {how}; start 3 began anew, although {_named(newest)} was whole")
    elif (
        newest is not None
        and newest.step is not None
        and third.read
        and newest.path not in third.read
        and not set(second.torn) & set(third.read)
    ):
        yield _found(rule, f"{torn} {how}; start 3 took {third.read[-1]}, although {_named(newest)} was whole")


def _first_step(seen: Seen) -> int | None:
    steps = [step for start in seen.starts[:2] for step in start.steps()]
    return max(steps, default=None)


def _sigterm(seen: Seen) -> Iterator[Finding]:
    """Unheard, and the next save comes later than the grace period ends."""
    first = seen.starts[0]
    if first.signal != "SIGTERM" or first.heard or first.heard is None:
        return
    interval = save_interval(seen)
    if interval is None or interval <= seen.settings.grace:
        return
    how = {
        "died": "it died of SIGTERM",
        "killed": "it went on after SIGTERM until it was killed",
        "exited": "it ended on SIGTERM",
    }.get(first.ended, "")
    yield _found(
        "no-flush-on-sigterm",
        f"{how} and saved nothing; the next save is {interval:.1f} s after the last, the grace period is "
        f"{seen.settings.grace:g} s",
        _AUDIT,
    )


def save_interval(seen: Seen) -> float | None:
    """Seconds between two saves of one start."""
    found = [
        later.done - earlier.done
        for start in seen.starts[1:]
        for earlier, later in zip(start.saves, start.saves[1:], strict=False)
    ]
    return min(found, default=None)


# --- several processes


def _ranks(seen: Seen) -> Iterator[Finding]:
    if seen.settings.processes == 1 and not any(_rank_count(start) > 1 for start in seen.starts):
        return
    for start in seen.starts:
        paths = {save.path for one in seen.starts for save in one.saves}
        writers: dict[str, set[int]] = {}
        for one in start.inside.opened:
            if one.rank is None:
                continue
            below = one.path.partition("/checkpoints/")[2]
            if one.how == "w" and _is_part(below, paths, start):
                writers.setdefault(below, set()).add(one.rank)
        shared = sorted(path for path, ranks in writers.items() if len(ranks) > 1)
        if shared:
            ranks = ", ".join(str(rank) for rank in sorted(writers[shared[0]]))
            yield _found("unguarded-rank-write", f"ranks {ranks} all wrote {shared[0]}")
        if words := apart(start):
            yield _found("ranks-resume-apart", words)


def apart(start: Start) -> str:
    """Which rank took which checkpoint, where they are of different steps; empty where they are not."""
    limit = min((save.began for save in start.saves), default=float("inf"))
    readers: dict[int, str] = {}
    for one in start.inside.opened:
        below = one.path.partition("/checkpoints/")[2]
        if one.rank is not None and one.how == "r" and one.at < limit and (top := _top(below, start)) is not None:
            readers[one.rank] = top
    # Each may have a file of its own: what matters is the step, where the name has one.
    steps = {step if (step := _step_of(start, path)) is not None else path for path in readers.values()}
    if len(steps) < 2:
        return ""
    return ", ".join(f"rank {rank} took {path}" for rank, path in sorted(readers.items()))


def _rank_count(start: Start) -> int:
    return len({one.rank for one in start.inside.opened if one.rank is not None})


def _is_part(path: str, saves: set[str], start: Start) -> bool:
    final = {new.partition("/checkpoints/")[2] for _, old, new in start.inside.moved if old.endswith("/" + path)}
    return any(one == save or one.startswith(save + "/") for save in saves for one in (path, *final) if one)


def _top(path: str, start: Start) -> str | None:
    return next((one.path for one in start.before if path == one.path or path.startswith(one.path + "/")), None)


# --- what was taken from the checkpoint


def _loads(seen: Seen) -> Iterator[Finding]:
    """torch: an optimizer that has a state after a step, and none at the first step after a restart."""
    first = seen.starts[0]
    fills = any(one.get("step") == 2 and one.get("filled") for one in first.inside.first)
    counts = any(one.get("step") == 2 and any(_ints(one.get("schedulers"))) for one in first.inside.first)
    for start in _restarts(seen):
        began = [one for one in start.inside.first if one.get("step") == 1]
        if not began or not start.read or _failed(start):
            continue
        if start.number == 3 and set(start.read[-1:]) & set(seen.starts[1].torn):
            continue
        # To make room for what is loaded, DCP steps once with no learning rate: a load afterwards counts, too.
        if fills and not any(one.get("filled") for one in began) and "optimizer" not in start.inside.loads:
            if seen.held is not None and not seen.held.get("optimizer"):
                yield _found(
                    "weights-only-checkpoint",
                    f"{_path(start)} holds no optimizer's state, and {began[0].get('name')} has one",
                )
            else:
                yield _found(
                    "optimizer-not-restored",
                    f"optimizer: in the checkpoint, load_state_dict of {began[0].get('name')} never called; its state "
                    f"was empty at the first step of start {start.number}",
                )
        if counts and began[0].get("schedulers") and not any(_ints(began[0].get("schedulers"))):
            yield _found(
                "scheduler-not-restored", f"the scheduler stood at 0 at the first step of start {start.number}"
            )
    loads = seen.starts[-1].inside.loads
    if (
        seen.held is not None
        and seen.held.get("scheduler")
        and "optimizer" in loads
        and "scheduler" not in loads
        and first.inside.first
        and any(one.get("schedulers") for one in first.inside.first)
        and "scheduler" in seen.unread
    ):
        yield _found("scheduler-not-restored", "scheduler: in the checkpoint, load_state_dict never called")


def _ints(value: object) -> list[int]:
    return [one for one in value if isinstance(one, int)] if isinstance(value, list) else []


def _path(start: Start) -> str:
    return start.read[-1] if start.read else "the checkpoint"


_UNREAD: Final = {
    "optimizer": "optimizer-not-restored",
    "scheduler": "scheduler-not-restored",
    "rng": "rng-not-restored",
    "data": "data-repeated",
    "step": "step-not-restored",
    "weights": "weights-not-restored",
}


def _unread(seen: Seen) -> Iterator[Finding]:
    """Parts that are in the checkpoint and that the restart never takes."""
    differs = seen.compared is not None and not seen.compared.same
    for part, keys in seen.unread.items():
        rule = _UNREAD.get(part)
        # A step may stand in the name as well, and a seed or a learning rate beside a state is a note.
        if rule is None or (part in ("step", "data", "weights") and not differs):
            continue
        words = ", ".join(f'"{key}"' for key in keys[:3])
        yield _found(rule, f"{words}: in the checkpoint, never taken from it after it was loaded")


# --- the same run?

_APART: Final = {
    "rng": "rng-not-restored",
    "data": "data-repeated",
    "step": "step-not-restored",
    "scheduler": "scheduler-not-restored",
}
"""Kinds of state that go their way whatever the weights are: where one is elsewhere, it is a cause itself."""


def _compared(seen: Seen) -> Iterator[Finding]:
    compared = seen.compared
    if compared is None or compared.why or compared.same:
        return
    at = f"at step {compared.step}"
    for part in compared.parts:
        if not part.same and (rule := _APART.get(part.name)) is not None:
            yield _found(rule, f'{at} "{part.leaves[0]}" is another than in an uninterrupted run')
    kept = any(part.name == "rng" for part in compared.parts)
    if compared.generators and not kept:
        yield _found(
            "rng-not-restored",
            f"{at} generators stand elsewhere than in an uninterrupted run: {', '.join(compared.generators)}",
        )
    if compared.batches in ("repeated", "other"):
        words = "the first batches again" if compared.batches == "repeated" else "other batches than"
        tail = "" if compared.batches == "repeated" else " an uninterrupted run"
        yield _found("data-repeated", f"after the restart it trained on {words}{tail}")


def _differs(seen: Seen) -> Iterator[Finding]:
    """Nothing else is known: by what the checkpoint lacks, else without a cause."""
    compared = seen.compared
    if compared is None or compared.same or compared.why:
        return
    worst = [part for part in compared.parts if not part.same]
    words = ", ".join(f"{part.name} ({part.leaves[0]})" for part in worst[:3])
    if not worst:
        return
    held = seen.held or {}
    if held and not held.get("optimizer") and all(part.name in ("weights", "other") for part in worst):
        yield _found(
            "weights-only-checkpoint",
            f"at step {compared.step} the weights are others than in an uninterrupted run, and the checkpoint holds "
            "nothing but weights",
        )
        return
    yield _found("resume-differs", f"at step {compared.step} {words}: differs, cause not known")


def _notes(seen: Seen) -> Iterator[str]:
    if not any(start.inside.pids for start in seen.starts):
        yield "no Python process was seen from within: what was restored is judged by files alone"
    if not all(start.reads_seen for start in seen.starts):
        yield "files were watched by looking again and again: reads were not seen"
    second = next((start for start in seen.starts if start.number == 2), None)
    if second is not None and second.signal == "SIGKILL" and second.order:
        if second.cut:
            yield "the save was too quick to be stopped: its first file was cut as a kill between its writes leaves it"
        elif not second.torn and second.order == "renamed":
            yield "the save was too quick to be stopped, or left no file: it renames, so it is there as a whole or not"
    if seen.compared is not None and seen.compared.why:
        yield f"not compared: {seen.compared.why}"
    outside = list(dict.fromkeys(path for start in seen.starts for path in start.outside))
    if outside and seen.starts[0].saves:
        yield f"it also wrote outside the directory: {', '.join(outside[:3])}"
    if seen.starts and seen.starts[0].ended == "killed":
        yield f"it did not end within {seen.settings.grace:g} s after SIGTERM, and was killed"


_HIDDEN: Final = {
    "timestamped-directory": ("never-resumed",),
    "fixed-resume-path": ("text-order-resume",),
    "never-resumed": ("text-order-resume", "step-not-restored"),
}
"""Where the first is known, the others are the same fault seen from elsewhere."""

_CHECKS: Final = (
    _elsewhere,
    _crashed,
    _never,
    _wrong,
    _step,
    _torn,
    _ranks,
    _loads,
    _compared,
    _unread,
    _sigterm,
)
