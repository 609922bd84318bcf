"""What the commands on a run do. Each step is said before it is taken, so that an interruption finds its state said.

Everything that changes the cluster goes through ``suspend`` (a patch to a value) and so may be done twice.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Final

from msgspec import Struct

from webhook.model.names import PREFIX
from webhook.model.pod import EMPTY, Raw
from webhook.model.policy import Policy
from webhook.runs.api import Unreachable
from webhook.runs.aside import aside_command, parse_outcome, plan_aside, undo_command
from webhook.runs.clock import Waiting
from webhook.runs.helper import inside, run_helper
from webhook.runs.kube import Kube
from webhook.runs.layouts import Found, Saved
from webhook.runs.listing import ASIDE
from webhook.runs.reader import Look, NobodyToAsk, look
from webhook.runs.run import (
    MERGE,
    TRAINJOBS,
    CannotDo,
    Directory,
    Run,
    again,
    directory_at,
    find_directory,
    find_run,
    is_running,
    others_on,
    pods_of_job,
)
from webhook.runs.verdicts import LogVerdict, read_log
from webhook.runs.words import duration, named

LAST_DRILL: Final = PREFIX + "last-drill"
_KUEUE: Final = "/apis/kueue.x-k8s.io/v1beta1"
_POLL: Final = 0.5


class Options(Struct, frozen=True):
    """What the flags say. ``timeout`` in seconds, for each wait; ``helper``: a helper pod may be made."""

    timeout: float = 600.0
    directory: str | None = None
    image: str | None = None
    helper: bool = True


class Session:
    """One command on one run.

    ``live`` shows what is going on now (it may be called often), ``say`` a line that stays. ``state`` is what an
    interruption leaves behind, and how to go on.
    """

    def __init__(
        self,
        kube: Kube,
        namespace: str,
        name: str,
        policy: Policy,
        options: Options,
        say: Callable[[str], None],
        live: Callable[[str], None],
    ) -> None:
        self.kube = kube
        self.namespace = namespace
        self.name = name
        self.policy = policy
        self.options = options
        self.say = say
        self.live = live
        self.state = f'run "{name}" was not changed'

    def find(self) -> Run:
        """The run. Raises CannotDo."""
        return find_run(self.kube, self.namespace, self.name)

    def directory(self, run: Run) -> Directory:
        """Its checkpoint directory; says which other runs share it. Raises CannotDo."""
        if self.options.directory is not None:
            return directory_at(self.kube, run, self.options.directory.rstrip("/") or "/", self.policy)
        return find_directory(self.kube, run, self.policy)

    def warn_shared(self, run: Run, directory: Directory) -> list[str]:
        """Other runs with the same directory, which are said."""
        try:
            others = others_on(self.kube, run, directory, self.policy)
        except Exception:  # a courtesy: what it needs may not be readable
            return []
        if others:
            names = ", ".join(f'"{other}"' for other in others[:3])
            more = f" and {len(others) - 3} more" if len(others) > 3 else ""
            self.say(
                f"warning: {names}{more} keep{'s' if len(others) == 1 else ''} checkpoints in the same directory "
                f'"{directory.on_claim}" of claim "{directory.claim}": a step may be another run\'s'
            )
        return others

    def waiting(self) -> Waiting:
        return Waiting(self.kube.clock, self.options.timeout)

    def command(self, verb: str) -> str:
        """A command to paste."""
        scope = f" -n {self.namespace}" if self.namespace != "default" else ""
        return f"ckptguard {verb} {self.name}{scope}"


class Resumed(Struct, frozen=True):
    """How a resume went. ``result``: ``resumed``, ``afresh`` or ``failed``; ``before`` is the newest known before."""

    result: str
    step: int | None = None
    pod: str = ""
    line: str = ""
    before: int | None = None
    seconds: float = 0.0
    why: str = ""

    @property
    def good(self) -> bool:
        return self.result == "resumed"


class Stopped(Struct, frozen=True):
    """How a stop went. ``newest`` is what was known last while the pods still ran; ``at_risk`` in seconds."""

    newest: Saved | None
    at_risk: float | None
    steps_at_risk: int | None
    seconds: float
    note: str = ""


# -- suspend and resume ---------------------------------------------------------------------------------------------


def suspend(session: Session, run: Run, value: bool) -> None:
    """Set ``spec.suspend``; under Kueue, whose word that is, the Workload is set active or not instead."""
    kube = session.kube
    if run.queue is not None and (workload := _workload(kube, run)) is not None:
        path = f"{_KUEUE}/namespaces/{run.namespace}/workloads/{workload}"
        answer = kube.request("PATCH", path, None, {"spec": {"active": not value}}, MERGE)
        if answer.ok:
            return
        raise CannotDo(
            f'queue "{run.queue}" decides when "{run.name}" runs, and its Workload "{workload}" cannot be '
            f"{'deactivated' if value else 'activated'}: {answer.message}"
        )
    path = f"{TRAINJOBS}/namespaces/{run.namespace}/trainjobs/{run.name}"
    answer = kube.request("PATCH", path, {"fieldManager": "ckptguard"}, {"spec": {"suspend": value}}, MERGE)
    if not answer.ok:
        right = f" (kubectl auth can-i patch trainjobs -n {run.namespace})" if answer.code == 403 else ""
        raise CannotDo(f'"{run.name}" cannot be {"suspended" if value else "resumed"}{right}: {answer.message}')


def _workload(kube: Kube, run: Run) -> str | None:
    answer = kube.request("GET", f"{_KUEUE}/namespaces/{run.namespace}/workloads")
    for one in (answer.body.get("items") or ()) if answer.ok else ():
        for owner in one["metadata"].get("ownerReferences") or ():
            if owner.get("uid") == run.uid:
                return str(one["metadata"]["name"])
    return None


def stop(session: Session) -> Stopped:
    """Suspend the run and wait until its pods are gone. Raises CannotDo."""
    run = session.find()
    if run.over is not None:
        raise CannotDo(f'run "{run.name}" {run.state()}: there is nothing to stop')
    directory, before, note = _look_while_running(session, run)
    if run.suspended and not run.pods:
        session.say(f'run "{run.name}" is suspended already, and has no pods')
        return Stopped(before.found.newest_complete() if before else None, None, None, 0.0, note)
    started = session.kube.clock.monotonic()
    asked_at = session.kube.clock.now()
    session.state = f'run "{run.name}" is being suspended; go on with: {session.command("resume")}'
    suspend(session, run, True)
    last = _wait_gone(session, run, directory, before)
    session.state = f'run "{run.name}" is suspended; go on with: {session.command("resume")}'
    newest = last.found.newest_complete() if last is not None else None
    risk, steps = at_risk(last, asked_at)
    return Stopped(newest, risk, steps, session.kube.clock.monotonic() - started, note)


def _look_while_running(session: Session, run: Run) -> tuple[Directory | None, Look | None, str]:
    """What the directory holds, as far as a pod of the run tells it: a stop does not wait for more than that."""
    try:
        directory = session.directory(run)
        session.warn_shared(run, directory)
        if directory.claim is None and not session.options.directory:
            session.say(f'warning: "{directory.path}" lies on {directory.volume}: it goes with the pods')
        return directory, look(session.kube, run, directory, helper=False), ""
    except CannotDo as error:
        return None, None, str(error)


def _wait_gone(session: Session, run: Run, directory: Directory | None, last: Look | None) -> Look | None:
    """Until no pod of the run is left; looks into the directory while a pod can still be asked, for the flush."""
    wait = session.waiting()
    looked = 0.0
    while True:
        now = again(session.kube, run)
        if not now.pods:
            return last
        if wait.over():
            nodes = sorted({str((pod.get("spec") or EMPTY).get("nodeName")) for pod in now.pods})
            raise CannotDo(
                f'{len(now.pods)} pods of "{run.name}" are still there after {session.options.timeout:.0f} s, on '
                f"{', '.join(nodes)}: a node that is out of reach keeps them until it is back or removed"
            )
        if not now.suspended and run.queue is None:
            raise CannotDo(f'"{run.name}" was resumed by somebody else meanwhile')
        session.live(f"waiting for {len(now.pods)} pods to end ({wait.passed():.0f} s)")
        # A look takes a moment, and must not keep the command from seeing that the last pod is gone.
        if directory is not None and last is not None and wait.passed() - looked >= 1.0:
            looked = wait.passed()
            try:
                last = look(session.kube, now, directory, helper=False, seconds=2.0)
            except (CannotDo, Unreachable):
                directory = None
        wait.pause(_POLL)


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


def resume(session: Session, from_step: int | None = None, undo: bool = False) -> Resumed:
    """Go on with a suspended run and say from where it went on. Raises CannotDo."""
    run = session.find()
    if run.over is not None:
        condition = run.condition(run.over) or EMPTY
        raise CannotDo(
            f'run "{run.name}" {run.state()} ({condition.get("reason") or "no reason given"}), and Trainer starts no '
            "such run again. Its data stays; the same name goes on from it:\n"
            f"  kubectl get trainjob {run.name} -n {run.namespace} -o yaml > run.yaml\n"
            f"  {session.command('delete')}\n"
            "  kubectl create -f run.yaml    # without uid, resourceVersion and status"
        )
    if not run.suspended and not _held_by_queue(session, run):
        if from_step is not None or undo:
            raise CannotDo(
                f'run "{run.name}" {run.state()}: its program writes the directory now; first {session.command("stop")}'
            )
        raise CannotDo(f'run "{run.name}" {run.state()}: there is nothing to resume')
    if run.pods:
        session.say(f'{len(run.pods)} pods of "{run.name}" are still ending')
        _wait_gone(session, run, None, None)
        run = again(session.kube, run)
    before: Found | None = None
    expected: int | None = None
    if undo:
        _undo(session, run)
    if from_step is not None:
        before, expected = _set_aside(session, run, from_step)
    return start(session, run, before, expected)


def _held_by_queue(session: Session, run: Run) -> bool:
    if run.queue is None or (workload := _workload(session.kube, run)) is None:
        return False
    path = f"{_KUEUE}/namespaces/{run.namespace}/workloads/{workload}"
    return (session.kube.request("GET", path).body.get("spec") or EMPTY).get("active") is False


def start(session: Session, run: Run, before: Found | None, expected: int | None = None) -> Resumed:
    """Unsuspend, wait for the new pod, and read from where it went on. Raises CannotDo."""
    started = session.kube.clock.monotonic()
    old = {str(pod["metadata"]["uid"]) for pod in run.pods}
    session.state = (
        f'run "{run.name}" was resumed and goes on by itself; whether it did so from its checkpoint was not seen: '
        f"{session.command('checkpoints')}"
    )
    suspend(session, run, False)
    pod, job, container = _wait_new_pod(session, run, old)
    session.say(f"new pod {pod} on node {job}")
    return _verdict(session, run, pod, container, before, expected, started)


def _wait_new_pod(session: Session, run: Run, old: set[str]) -> tuple[str, str, str]:
    """The first training pod that is new and has started: its name, node and training container."""
    wait = session.waiting()
    directory: Directory | None = None
    while True:
        now = again(session.kube, run)
        if directory is None:
            directory = _any_directory(session, now)
        fresh = [
            pod
            for pod in (pods_of_job(now.pods, directory.job) if directory is not None else now.pods)
            if str(pod["metadata"]["uid"]) not in old and not pod["metadata"].get("deletionTimestamp")
        ]
        for pod in fresh:
            container = directory.container if directory is not None else str(pod["spec"]["containers"][0]["name"])
            if is_running(pod, container) or _has_run(pod, container):
                return str(pod["metadata"]["name"]), str(pod["spec"].get("nodeName") or "?"), container
        if now.over is not None:
            raise CannotDo(f'run "{run.name}" {now.state()} before a pod of it ran: kubectl describe jobset {run.name}')
        why = _pending(session, now, fresh)
        if wait.over():
            raise CannotDo(
                f'no new pod of "{run.name}" runs after {session.options.timeout:.0f} s: {why}; '
                f"the run is not suspended and waits on; to give up: {session.command('stop')}"
            )
        session.live(f"waiting for the new pod ({wait.passed():.0f} s): {why}")
        wait.pause(_POLL)


def _any_directory(session: Session, run: Run) -> Directory | None:
    try:
        return session.directory(run)
    except CannotDo:
        return None


def _has_run(pod: Raw, container: str) -> bool:
    for status in (pod.get("status") or EMPTY).get("containerStatuses") or ():
        if status.get("name") == container:
            ended = (status.get("state") or EMPTY).get("terminated") or (status.get("lastState") or EMPTY).get(
                "terminated"
            )
            return ended is not None
    return False


def _pending(session: Session, run: Run, fresh: list[Raw]) -> str:
    """Why there is no running pod, in the words of whoever holds it up."""
    for pod in fresh:
        status = pod.get("status") or EMPTY
        for condition in status.get("conditions") or ():
            if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
                return f"not scheduled: {str(condition.get('message') or condition.get('reason'))[:200]}"
        for one in (*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())):
            waiting = (one.get("state") or EMPTY).get("waiting") or EMPTY
            if waiting.get("reason") not in (None, "ContainerCreating", "PodInitializing"):
                return f"{waiting.get('reason')}: {str(waiting.get('message') or '')[:200]}"
        told = _events(session, run.namespace, str(pod["metadata"]["name"]))
        return told or f"pod {pod['metadata']['name']} is starting"
    if run.queue is not None and run.suspended:
        return f'queue "{run.queue}" has not let it in yet'
    for name in (f"{run.name}",) if run.jobset is None else ():
        return _events(session, run.namespace, name) or "there is no JobSet yet"
    return _events(session, run.namespace, run.name) or "JobSet has made no pod yet"


def _events(session: Session, namespace: str, name: str) -> str:
    answer = session.kube.request(
        "GET", f"/api/v1/namespaces/{namespace}/events", {"fieldSelector": f"involvedObject.name={name},type=Warning"}
    )
    items: list[Any] = list(answer.body.get("items") or ()) if answer.ok else []
    items.sort(key=lambda one: str(one.get("lastTimestamp") or one.get("eventTime") or ""))
    return str(items[-1].get("message") or "")[:240] if items else ""


def _verdict(
    session: Session,
    run: Run,
    pod: str,
    container: str,
    before: Found | None,
    expected: int | None,
    started: float,
) -> Resumed:
    """From the new pod's log, held against the directory; where it is silent, from the next checkpoint.

    The first look comes early, before the program can have written anything.
    """
    kube = session.kube
    path = f"/api/v1/namespaces/{run.namespace}/pods/{pod}/log"
    wait = session.waiting()
    seen_at = kube.clock.now()
    looked = -5.0
    denied = ""
    while True:
        code, text = kube.text(path, {"container": container, "limitBytes": str(1 << 20)})
        said = read_log(text) if code == 200 else None
        if code == 403:
            denied = f"the pod's log cannot be read (kubectl auth can-i get pods --subresource=log -n {run.namespace})"
        first: Saved | None = None
        if before is None or (said is None and wait.passed() - looked >= 5.0):
            looked = wait.passed()
            found = _look_again(session, run)
            if before is None and found is not None:
                before = Found(tuple(one for one in found.saved if one.mtime <= seen_at))
            first = _first_since(found, seen_at)
        known = expected if expected is not None else _newest_step(before)
        seconds = kube.clock.monotonic() - started
        if said is not None:
            return _judge(said, pod, known, expected, seconds)
        if first is not None:
            # The look took a moment: the log has the first word if it has one by now.
            code, text = kube.text(path, {"container": container, "limitBytes": str(1 << 20)})
            if code == 200 and (said := read_log(text)) is not None:
                return _judge(said, pod, known, expected, seconds)
            return _judge_checkpoint(first, pod, known, seconds)
        if (failed := _failed(session, run, pod, container, text if code == 200 else "")) is not None:
            return Resumed("failed", None, pod, "", known, seconds, failed)
        if wait.over():
            why = denied or "neither its log nor a new checkpoint says from where it went on"
            raise CannotDo(
                f'whether "{run.name}" resumed is not known after {session.options.timeout:.0f} s: {why}; it goes on '
                f"by itself: {session.command('checkpoints')}"
            )
        session.live(f"reading the first lines of {pod} ({wait.passed():.0f} s)")
        wait.pause(_POLL)


def _judge(said: LogVerdict, pod: str, known: int | None, expected: int | None, seconds: float) -> Resumed:
    if not said.resumed:
        return Resumed("afresh", None, pod, said.line, known, seconds, "its log says so")
    step = said.step
    # Programs say the step that they saved, or the one that they go on with.
    if expected is not None and step is not None and step not in (expected, expected + 1):
        return Resumed("failed", step, pod, said.line, known, seconds, f"{expected} was asked for")
    if known is not None and step is not None and step < known:
        return Resumed("failed", step, pod, said.line, known, seconds, f"{known} was there and complete")
    return Resumed("resumed", step, pod, said.line, known, seconds)


def _judge_checkpoint(first: Saved, pod: str, known: int | None, seconds: float) -> Resumed:
    if known is None or first.step is None:
        why = f"its log is silent, and its first checkpoint is {first.step}, with none known before"
        return Resumed("afresh", None, pod, "", known, seconds, why)
    if first.step > known:
        why = f"its log is silent, and its next checkpoint is {first.step}, after {known}"
        return Resumed("resumed", known, pod, "", known, seconds, why)
    why = f"its log is silent, and its next checkpoint is {first.step}, not after {known}"
    return Resumed("afresh", None, pod, "", known, seconds, why)


def _newest_step(found: Found | None) -> int | None:
    """The number to hold a log's step against; an epoch's or a save's own number is none."""
    newest = None if found is None else found.newest_complete()
    return newest.step if newest is not None and newest.unit == "step" else None


def _look_again(session: Session, run: Run) -> Found | None:
    try:
        now = again(session.kube, run)
        return look(session.kube, now, session.directory(now), helper=False, seconds=10.0).found
    except (CannotDo, Unreachable):
        return None


def _first_since(found: Found | None, since: float) -> Saved | None:
    """The checkpoint of the lowest number that was written since."""
    fresh = [
        one
        for one in (found.saved if found is not None else ())
        if one.mtime > since and one.step is not None and not one.temporary and one.complete is not False
    ]
    return min(fresh, key=lambda one: one.step or 0) if fresh else None


def _failed(session: Session, run: Run, pod: str, container: str, log: str) -> str | None:
    """Why the new pod ended without a word; None while it runs. One restart of the container is waited for."""
    answer = session.kube.request("GET", f"/api/v1/namespaces/{run.namespace}/pods/{pod}")
    if answer.code == 404:
        return "the new pod was deleted"
    for status in (answer.body.get("status") or EMPTY).get("containerStatuses") or ():
        ended = (status.get("state") or EMPTY).get("terminated")
        if status.get("name") == container and ended is not None:
            if ended.get("exitCode") == 0:
                return "the new pod ended at once, with exit code 0"
            lines = [line.strip() for line in log.splitlines() if line.strip()]
            return f"the new pod ended with exit code {ended.get('exitCode')}: {(lines or ['no output'])[-1][:200]}"
    return None


# -- from an earlier step -------------------------------------------------------------------------------------------


def _set_aside(session: Session, run: Run, step: int) -> tuple[Found, int]:
    directory = _on_a_claim(session, run)
    session.live("reading the checkpoint directory")
    seen = look(session.kube, run, directory, image=session.options.image, seconds=session.options.timeout)
    chosen = seen.found.at_step(step)
    if chosen is None:
        there = [one.step for one in seen.found.saved if one.step is not None and not one.temporary]
        known = ", ".join(str(one) for one in sorted(set(there))[-10:]) or "none at all"
        raise CannotDo(f'there is no checkpoint of step {step} in "{directory.path}": there are {known}')
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


def _undo(session: Session, run: Run) -> None:
    directory = _on_a_claim(session, run)
    session.live("putting back what was set aside")
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
            f'"{directory.on_claim}" of claim "{directory.claim}" is not this run\'s alone: '
            "renaming in it would pull checkpoints away under another run"
        )
    if directory.read_only:
        raise CannotDo(f'"{directory.path}" is mounted read-only')
    return directory


# -- drill ----------------------------------------------------------------------------------------------------------


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
        if run.over is not None or run.suspended:
            raise CannotDo(f'run "{run.name}" {run.state()}: a drill takes a run that is under way')
        directory = session.directory(run)
        session.warn_shared(run, directory)
        passed(f'"{directory.path}" on {_where(directory)}')
        run, seen = _wait_checkpoint(session, run, directory)
        newest = seen.found.newest_complete()
        assert newest is not None  # noqa: S101 - it was waited for
        done.newest = newest
        passed(f"newest is {named(newest)}, complete: {'yes' if newest.complete else 'unknown'}")
        session.state = f'run "{run.name}" is being suspended for the drill; go on with: {session.command("resume")}'
        suspend(session, run, True)
        last = _wait_gone(session, run, directory, seen)
        session.state = f'run "{run.name}" is suspended for the drill; go on with: {session.command("resume")}'
        if last is not None:
            seen = last
        passed(f"suspended, {len(run.pods)} pods gone; newest {named(seen.found.newest_complete() or newest)}")
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
        session.say(f"[{done.steps[at].name}] {error}")
    return done


def _where(directory: Directory) -> str:
    return f'claim "{directory.claim}"' if directory.claim is not None else directory.volume


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
            why = str(error)
            if "no right" in why or "no shell" in why:
                seen = look(session.kube, now, directory, image=session.options.image, seconds=wait.seconds)
                if seen.found.newest_complete() is not None:
                    return now, seen
        if wait.over():
            raise CannotDo(f"no complete checkpoint after {session.options.timeout:.0f} s: {why}")
        session.live(f"waiting for a first checkpoint ({wait.passed():.0f} s): {why}")
        wait.pause(2.0)


def resumed_words(result: Resumed) -> str:
    """One line for a person."""
    why = f": {result.why}" if result.why else ""
    if result.result == "resumed":
        at = f"step {result.step}" if result.step is not None else "its checkpoint"
        return f"resumed from {at}{why}"
    if result.result == "afresh":
        return f"did not resume, it started afresh{why}"
    at = f" from step {result.step}" if result.step is not None else ""
    return f"did not resume{at}{why}"


def record(session: Session, run: Run, result: Resumed) -> None:
    """Write the verdict to the TrainJob; a run that may not be annotated is no failed drill."""
    at = datetime.fromtimestamp(session.kube.clock.now(), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    step = "unknown" if result.step is None else str(result.step)
    path = f"{TRAINJOBS}/namespaces/{run.namespace}/trainjobs/{run.name}"
    body = {"metadata": {"annotations": {LAST_DRILL: f"{result.result};step={step};at={at}"}}}
    try:
        answer = session.kube.request("PATCH", path, {"fieldManager": "ckptguard"}, body, MERGE)
    except Unreachable as error:
        session.say(f"warning: the verdict was not recorded: {error}")
        return
    if not answer.ok:
        session.say(f"warning: the verdict was not recorded: {answer.message}")


# -- delete ---------------------------------------------------------------------------------------------------------


class Deleted(Struct, frozen=True):
    """What a deletion leaves: ``directory`` None where none is known; ``lost`` are claims that went with the run."""

    directory: Directory | None
    lost: tuple[str, ...] = ()
    seconds: float = 0.0


def delete(session: Session, with_data: bool) -> Deleted:
    """Delete the TrainJob and wait until its pods are gone. Raises CannotDo."""
    run = session.find()
    started = session.kube.clock.monotonic()
    directory = _any_directory(session, run)
    lost = claims_that_go(run)
    if directory is not None and directory.claim is not None:
        answer = session.kube.request(
            "GET", f"/api/v1/namespaces/{run.namespace}/persistentvolumeclaims/{directory.claim}"
        )
        owners = {one.get("uid") for one in (answer.body.get("metadata") or EMPTY).get("ownerReferences") or ()}
        jobset = str(((run.jobset or EMPTY).get("metadata") or EMPTY).get("uid") or "")
        if directory.claim not in lost and not owners.isdisjoint({run.uid, jobset}):
            lost = (*lost, directory.claim)
    if lost and not with_data:
        names = ", ".join(f'"{name}"' for name in lost)
        raise CannotDo(
            f"claim {names} belongs to the run (volumeClaimPolicies, whenDeleted: Delete) and goes with it, with every "
            f"checkpoint on it: copy them first, or say --with-data"
        )
    session.state = f'run "{run.name}" is being deleted'
    path = f"{TRAINJOBS}/namespaces/{run.namespace}/trainjobs/{run.name}"
    answer = session.kube.request("DELETE", path, {"propagationPolicy": "Foreground"})
    if not answer.ok and answer.code != 404:
        raise CannotDo(f'"{run.name}" cannot be deleted: {answer.message}')
    wait = session.waiting()
    while True:
        answer = session.kube.request("GET", path)
        if answer.code == 404 or str((answer.body.get("metadata") or EMPTY).get("uid")) != run.uid:
            break
        if wait.over():
            raise CannotDo(f'"{run.name}" is still being deleted after {session.options.timeout:.0f} s')
        session.live(f"waiting until it is gone ({wait.passed():.0f} s)")
        wait.pause(_POLL)
    session.state = f'run "{run.name}" is deleted'
    return Deleted(directory, tuple(lost), session.kube.clock.monotonic() - started)


def claims_that_go(run: Run) -> tuple[str, ...]:
    """Claims that JobSet made for the run and deletes with it."""
    found: list[str] = []
    for policy in ((run.jobset or EMPTY).get("spec") or EMPTY).get("volumeClaimPolicies") or ():
        if ((policy.get("retentionPolicy") or EMPTY).get("whenDeleted") or "Delete") == "Delete":
            templates = policy.get("templates") or ()
            found += [f"{(template.get('metadata') or EMPTY).get('name')}-{run.name}" for template in templates]
    return tuple(found)
