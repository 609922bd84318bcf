"""Stops a run: suspended, its pods gone, and how much work that puts at risk."""

from __future__ import annotations

from msgspec import Struct

from webhook.runs.layouts import Saved
from webhook.runs.reader import Look, look
from webhook.runs.run import CannotDo, Directory, Run
from webhook.runs.session import Session
from webhook.runs.suspension import suspend, wait_gone, waits_in_queue


class Stopped(Struct, frozen=True):
    """How a stop went. ``newest`` is what was known last while the pods still ran; ``at_risk`` in seconds."""

    newest: Saved | None
    at_risk: float | None
    steps_at_risk: int | None
    seconds: float
    note: str = ""


def stop(session: Session) -> Stopped:
    """Suspend the run and wait until its pods are gone. Raises CannotDo."""
    run = session.find()
    if run.over is not None:
        raise CannotDo(f'run "{run.name}" {run.state()}: there is nothing to stop')
    directory, before, note = _look_while_running(session, run)
    if run.suspended and not run.pods and waits_in_queue(session, run) is None:
        session.say(f'run "{run.name}" is suspended already, and has no pods')
        return Stopped(before.found.newest_complete() if before else None, None, None, 0.0, note)
    started = session.kube.clock.monotonic()
    asked_at = session.kube.clock.now()
    state = f'run "{run.name}" is being suspended; go on with: {session.command("resume")}'
    suspend(session, run, True, state)
    last = wait_gone(session, run, directory, before)
    session.state = f'run "{run.name}" is suspended; go on with: {session.command("resume")}'
    newest = last.found.newest_complete() if last is not None else None
    risk, steps = at_risk(last, asked_at)
    return Stopped(newest, risk, steps, session.kube.clock.monotonic() - started, note)


def _look_while_running(session: Session, run: Run) -> tuple[Directory | None, Look | None, str]:
    """What the directory holds, as far as a pod of the run tells it: a stop does not wait for more than that."""
    try:
        directory = session.directory(run)
        session.warn_shared(run, directory)
        if directory.claim is None and not directory.lasting and not session.options.directory:
            session.say(f'warning: "{directory.path}" lies on {directory.volume}: it goes with the pods')
        return directory, look(session.kube, run, directory, helper=False), ""
    except CannotDo as error:
        return None, None, str(error)


def at_risk(seen: Look | None, asked_at: float) -> tuple[float | None, int | None]:
    """Seconds of work since the newest complete checkpoint, and steps by the pace of the last two."""
    if seen is None:
        return None, None
    newest = seen.found.newest_complete()
    if newest is None:
        return None, None
    seconds = max(min(seen.listing.now, asked_at) - newest.mtime, 0.0) if seen.listing.now else None
    if seconds is None:
        return None, None
    earlier = [
        one
        for one in seen.found.saved
        if one.layout == newest.layout and one.step is not None and newest.step is not None and one.step < newest.step
    ]
    if not earlier or newest.step is None or newest.unit != "step":
        return seconds, None
    other = max(earlier, key=lambda one: one.step or 0)
    pace = (newest.mtime - other.mtime) / max(newest.step - (other.step or 0), 1)
    return seconds, round(seconds / pace) if pace > 0 else None
