"""The drill: a run is interrupted once, and has to go on from its checkpoint."""

from __future__ import annotations

from msgspec import Struct

from webhook.cluster.access import Unreachable
from webhook.runs.layouts import Saved
from webhook.runs.reader import Look, NobodyToAsk, look
from webhook.runs.restart import Resumed, record, resumed_words, start
from webhook.runs.resume import ended_lines
from webhook.runs.run import CannotDo, Directory, Run, again
from webhook.runs.session import Session
from webhook.runs.suspension import queue_lines, suspend, wait_gone, waits_in_queue
from webhook.runs.words import duration, named, pods


class Step(Struct):
    """One step of a drill: how it went and how long it took. ``outcome``: ``passed``, ``failed``, ``error``, ``-``."""

    name: str
    outcome: str = "-"
    words: str = ""
    seconds: float = 0.0


class Drill(Struct):
    """A drill, step by step."""

    steps: list[Step]
    resumed: Resumed | None = None
    newest: Saved | None = None

    @property
    def code(self) -> int:
        """0 it resumed, 1 it did not, 2 it could not be tried."""
        if any(step.outcome == "error" for step in self.steps):
            return 2
        return 0 if self.resumed is not None and self.resumed.good else 1


def drill(session: Session) -> Drill:
    """Wait for a checkpoint, interrupt the run once, and see whether it goes on from there."""
    done = Drill([Step(name) for name in ("find", "checkpoint", "interrupt", "resume", "verdict")])
    at, since = 0, session.kube.clock.monotonic()

    def passed(words: str) -> None:
        nonlocal at, since
        now = session.kube.clock.monotonic()
        done.steps[at].outcome, done.steps[at].words = "passed", words
        done.steps[at].seconds = now - since
        session.say(f"[{done.steps[at].name}] {words} ({duration(now - since)})")
        since, at = now, at + 1

    try:
        run = session.find()
        _under_way(session, run)
        directory = session.directory(run)
        session.warn_shared(run, directory)
        passed(f'"{directory.path}" on {directory.where}')
        run, seen = _wait_checkpoint(session, run, directory)
        newest = seen.found.newest_complete()
        assert newest is not None  # noqa: S101 - it was waited for
        done.newest = newest
        passed(f"newest is {named(newest)}, complete: {'yes' if newest.complete else 'unknown'}")
        state = f'run "{run.name}" is being suspended for the drill; go on with: {session.command("resume")}'
        suspend(session, run, True, state)
        last = wait_gone(session, run, directory, seen)
        session.state = f'run "{run.name}" is suspended for the drill; go on with: {session.command("resume")}'
        if last is not None:
            seen = last
        passed(f"suspended, {pods(len(run.pods))} gone; newest {named(seen.found.newest_complete() or newest)}")
        run = again(session.kube, run)
        result = start(session, run, seen.found)
        passed(f"pod {result.pod} has started")
        done.resumed = result
        step = done.steps[at]
        step.seconds = session.kube.clock.monotonic() - since
        step.outcome = "passed" if result.good else "failed"
        step.words = resumed_words(result)
        session.say(f"[verdict] {step.words}")
        record(session, run, result)
        session.state = f'run "{run.name}" goes on by itself'
    except (CannotDo, Unreachable) as error:
        done.steps[at].outcome, done.steps[at].words = "error", str(error)
        done.steps[at].seconds = session.kube.clock.monotonic() - since
        first, *others = error.lines if isinstance(error, CannotDo) else (str(error),)
        session.say(f"[{done.steps[at].name}] {first}")
        for line in others:
            session.say(line)
    return done


def _under_way(session: Session, run: Run) -> None:
    """Raises CannotDo, with the way on, where there is nothing to interrupt."""
    if run.over is not None:
        head, *ways = ended_lines(session, run)
        raise CannotDo(f"a drill takes a run that is under way: {head}", *ways)
    if (waits := waits_in_queue(session, run)) is not None:
        head, *ways = queue_lines(session, run, waits)
        raise CannotDo(f"a drill takes a run that is under way: {head}", *ways)
    if run.suspended:
        raise CannotDo(
            f'run "{run.name}" {run.state()}: a drill takes a run that is under way; first {session.command("resume")}'
        )
    if lost := session.lost(run):
        head, *ways = session.waits_lines(lost)
        raise CannotDo(f'a drill takes a run that is under way: run "{run.name}" {head}', *ways)


def _wait_checkpoint(session: Session, run: Run, directory: Directory) -> tuple[Run, Look]:
    wait = session.waiting()
    why = ""
    while True:
        now = again(session.kube, run)
        if now.over is not None:
            raise CannotDo(f'run "{run.name}" {now.state()} before it was interrupted')
        try:
            seen = look(session.kube, now, directory, helper=False)
            if seen.found.newest_complete() is not None:
                return now, seen
            why = f"{len(seen.found.saved)} checkpoints, none complete" if seen.found.saved else "no checkpoint yet"
        except NobodyToAsk as error:
            why = error.lines[0]
            if "no right" in why or "no shell" in why:
                seen = look(session.kube, now, directory, image=session.options.image, seconds=wait.seconds)
                if seen.found.newest_complete() is not None:
                    return now, seen
        if wait.over():
            raise CannotDo(
                f"no complete checkpoint after {session.options.timeout:.0f} s: {why}",
                *session.waits_lines(session.lost(now)),
            )
        session.live(f"waiting for a first checkpoint ({wait.passed():.0f} s): {why}")
        wait.pause(2.0)
