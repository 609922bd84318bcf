"""Goes on with a suspended run, from its newest checkpoint or from an earlier one."""

from __future__ import annotations

from bisect import bisect
from datetime import UTC, datetime
from typing import Final

from webhook.model.pod import EMPTY
from webhook.runs.aside import aside_command, parse_outcome, plan_aside, undo_command
from webhook.runs.helper import inside, run_helper
from webhook.runs.layouts import Found
from webhook.runs.listing import ASIDE
from webhook.runs.reader import look
from webhook.runs.restart import Resumed, start
from webhook.runs.run import CannotDo, Directory, Run, again
from webhook.runs.session import Session
from webhook.runs.suspension import held_by_queue, queue_lines, wait_gone, waits_in_queue
from webhook.runs.words import named, pods, still

_NAMED: Final = 12
"""So many steps are named one by one."""


def resume(session: Session, from_step: int | None = None, undo: bool = False) -> Resumed:
    """Go on with a suspended run and say from where it went on. Raises CannotDo."""
    run = session.find()
    if run.over is not None:
        raise CannotDo(*ended_lines(session, run))
    if (waits := waits_in_queue(session, run)) is not None:
        raise CannotDo(*queue_lines(session, run, waits))
    if not run.suspended and not held_by_queue(session, run):
        if lost := session.lost(run):
            head, *ways = session.waits_lines(lost)
            raise CannotDo(f'run "{run.name}" is not suspended: there is nothing to resume, it {head}', *ways)
        if from_step is not None or undo:
            raise CannotDo(
                f'run "{run.name}" {run.state()}: its program writes the directory now; first {session.command("stop")}'
            )
        raise CannotDo(f'run "{run.name}" {run.state()}: there is nothing to resume')
    if run.pods:
        session.say(f'{pods(len(run.pods))} of "{run.name}" {still(len(run.pods))} ending')
        wait_gone(session, run, None, None)
        run = again(session.kube, run)
    before: Found | None = None
    expected: int | None = None
    if undo:
        _undo(session, run)
    if from_step is not None:
        before, expected = _set_aside(session, run, from_step)
    return start(session, run, before, expected)


def ended_lines(session: Session, run: Run) -> tuple[str, ...]:
    """That a run has ended, and how the same name goes on from its data."""
    condition = run.condition(run.over or "") or EMPTY
    return (
        f'run "{run.name}" {run.state()} ({condition.get("reason") or "no reason given"}), and Trainer starts no '
        "such run again. Its data stays; the same name goes on from it:",
        f"  kubectl get trainjob {run.name} -n {run.namespace} -o yaml > run.yaml",
        f"  {session.command('delete')}",
        "  kubectl create -f run.yaml",
    )


def _set_aside(session: Session, run: Run, step: int) -> tuple[Found, int]:
    directory = _on_a_claim(session, run)
    session.live("reading the checkpoint directory")
    seen = look(session.kube, run, directory, image=session.options.image, seconds=session.options.timeout)
    chosen = seen.found.at_step(step)
    if chosen is None:
        raise CannotDo(
            f'there is no checkpoint of step {step} in "{directory.path}": {_known(seen.found.steps(), step)}',
            *([f"  all of them: {session.command('checkpoints')}"] if len(seen.found.steps()) > _NAMED else []),
        )
    if chosen.complete is False:
        raise CannotDo(f"the checkpoint of {named(chosen)} is incomplete: {chosen.why}")
    plan = plan_aside(seen.found, seen.listing, chosen)
    if not plan.move:
        session.say(f"{named(chosen)} is the newest already: nothing is set aside")
        return seen.found, step
    time = datetime.fromtimestamp(session.kube.clock.now(), UTC).strftime("%Y%m%dT%H%M%SZ")
    session.say(f"setting {len(plan.move)} newer aside: {_some(list(plan.move))}")
    session.state = (
        f'run "{run.name}" is suspended; newer checkpoints may have been set aside under .set-aside/{time}: '
        f"put them back with: {session.command('resume')} --undo"
    )
    text = run_helper(
        session.kube,
        run,
        directory,
        session.options.image,
        aside_command(inside(directory), plan, time),
        write=True,
        seconds=session.options.timeout,
    )
    failed, _ = parse_outcome(text)
    if failed is not None:
        raise CannotDo(f"not all could be set aside: {failed}; put back what was: {session.command('resume')} --undo")
    session.say(f"set aside under {directory.path}/.set-aside/{time}; back with: {session.command('resume')} --undo")
    return seen.found, step


def _known(steps: list[int], wanted: int) -> str:
    """The steps that there are: all of a few, of many the first, the last and those around the wanted one."""
    if not steps:
        return "there are none at all"
    if len(steps) <= _NAMED:
        return f"there {'is' if len(steps) == 1 else 'are'} {', '.join(map(str, steps))}"
    at = bisect(steps, wanted)
    near = ", ".join(map(str, steps[max(0, at - 2) : at + 2]))
    return f"there are {len(steps)}, from {steps[0]} to {steps[-1]}; nearest: {near}"


def _undo(session: Session, run: Run) -> None:
    directory = _on_a_claim(session, run)
    session.live("putting back what was set aside")
    session.state = (
        f'run "{run.name}" is suspended; what was set aside may have been put back in part: '
        f"go on with: {session.command('resume')} --undo"
    )
    text = run_helper(
        session.kube,
        run,
        directory,
        session.options.image,
        undo_command(inside(directory)),
        write=True,
        seconds=session.options.timeout,
    )
    failed, moved = parse_outcome(text)
    if failed is not None:
        raise CannotDo(f"it cannot be put back: {failed}")
    back = [two for _, two in moved if not two.startswith(ASIDE)]
    new = [one for one, two in moved if two.startswith(ASIDE)]
    session.say(f"put back: {_some(back)}")
    if new:
        session.say(f"written since, and set aside in turn: {_some(new)}")


def _some(paths: list[str]) -> str:
    return f"{', '.join(paths[:6])}{' ...' if len(paths) > 6 else ''}" if paths else "nothing"


def _on_a_claim(session: Session, run: Run) -> Directory:
    directory = session.directory(run)
    others = session.warn_shared(run, directory)
    if others:
        raise CannotDo(
            f'"{directory.on_claim}" of {directory.where} is not this run\'s alone: '
            "renaming in it would pull checkpoints away under another run"
        )
    if directory.read_only:
        raise CannotDo(f'"{directory.path}" is mounted read-only')
    return directory
