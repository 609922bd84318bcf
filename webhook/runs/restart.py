"""Starts a suspended run, and tells from where it went on.

By the new pod's log, held against the checkpoint directory; where the log is silent, by the next checkpoint.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Final

from msgspec import Struct

from webhook.cluster.access import Unreachable
from webhook.model.names import PREFIX
from webhook.model.pod import EMPTY, Raw
from webhook.runs.layouts import Found, Saved
from webhook.runs.lost import lost_pods, lost_words, ways_out
from webhook.runs.reader import look
from webhook.runs.run import MERGE, TRAINJOBS, CannotDo, Directory, Run, again, is_running, pods_of_job
from webhook.runs.session import POLL, Session, any_directory
from webhook.runs.suspension import suspend
from webhook.runs.verdicts import LogVerdict, read_log

LAST_DRILL: Final = PREFIX + "last-drill"


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


def start(session: Session, run: Run, before: Found | None, expected: int | None = None) -> Resumed:
    """Unsuspend, wait for the new pod, and read from where it went on. Raises CannotDo."""
    started = session.kube.clock.monotonic()
    old = {str(pod["metadata"]["uid"]) for pod in run.pods}
    state = f'run "{run.name}" is being resumed; where it stays suspended, again: {session.command("resume")}'
    suspend(session, run, False, state)
    session.state = (
        f'run "{run.name}" was resumed and goes on by itself; whether it did so from its checkpoint was not seen: '
        f"{session.command('checkpoints')}"
    )
    pod, container, directory = _wait_new_pod(session, run, old)
    name = str(pod["metadata"]["name"])
    session.say(f"new pod {name} on node {pod['spec'].get('nodeName') or '?'}")
    own = directory.path if directory is not None else None
    began = _began(pod) or session.kube.clock.now()
    return _verdict(session, run, name, container, own, before, expected, started, began)


def _began(pod: Raw) -> float | None:
    """When the kubelet took the pod up, as seconds since 1970: nothing that it wrote is older."""
    try:
        return datetime.fromisoformat(str((pod.get("status") or EMPTY).get("startTime"))).timestamp()
    except ValueError:
        return None


def _wait_new_pod(session: Session, run: Run, old: set[str]) -> tuple[Raw, str, Directory | None]:
    """The first training pod that is new and has started, the name of its training container, and its directory."""
    wait = session.waiting()
    directory: Directory | None = None
    while True:
        now = again(session.kube, run)
        if directory is None:
            directory = any_directory(session, now)
        fresh = [
            pod
            for pod in (pods_of_job(now.pods, directory.job) if directory is not None else now.pods)
            if str(pod["metadata"]["uid"]) not in old and not pod["metadata"].get("deletionTimestamp")
        ]
        for pod in fresh:
            container = directory.container if directory is not None else str(pod["spec"]["containers"][0]["name"])
            if is_running(pod, container) or _has_run(pod, container):
                return pod, container, directory
        if now.over is not None:
            raise CannotDo(
                f'run "{run.name}" {now.state()} before a pod of it ran: '
                f"kubectl describe jobset {run.name} -n {run.namespace}"
            )
        lost = lost_pods(session.kube, now.pods)
        why = lost_words(lost, session.kube.clock.now()) if lost else pending(session, now, fresh)
        if wait.over():
            waits = "waits in its queue" if now.suspended else "is not suspended and waits on"
            raise CannotDo(
                f'no new pod of "{run.name}" runs after {session.options.timeout:.0f} s: {why}; '
                f"the run {waits}; to give up: {session.command('stop')}",
                *(ways_out(lost, run.namespace) if lost else ()),
            )
        session.live(f"waiting for the new pod ({wait.passed():.0f} s): {why}")
        wait.pause(POLL)


def _has_run(pod: Raw, container: str) -> bool:
    for status in (pod.get("status") or EMPTY).get("containerStatuses") or ():
        if status.get("name") == container:
            ended = (status.get("state") or EMPTY).get("terminated") or (status.get("lastState") or EMPTY).get(
                "terminated"
            )
            return ended is not None
    return False


def pending(session: Session, run: Run, fresh: Sequence[Raw]) -> str:
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
    own: str | None,
    before: Found | None,
    expected: int | None,
    started: float,
    began: float,
) -> Resumed:
    """From the new pod's log, held against the directory; where it is silent, from the next checkpoint.

    ``own`` is the path of the run's directory. ``began``: what is younger was written by the new pod, which a look from
    outside may be too late to be ahead of.
    """
    kube = session.kube
    path = f"/api/v1/namespaces/{run.namespace}/pods/{pod}/log"
    wait = session.waiting()
    looked = -5.0
    denied = ""
    while True:
        code, text = kube.text(path, {"container": container, "limitBytes": str(1 << 20)})
        said = read_log(text, own) if code == 200 else None
        if code == 403:
            denied = f"the pod's log cannot be read (kubectl auth can-i get pods --subresource=log -n {run.namespace})"
        first: Saved | None = None
        if before is None or (said is None and wait.passed() - looked >= 5.0):
            looked = wait.passed()
            found = _look_again(session, run)
            if before is None and found is not None:
                before = Found(tuple(one for one in found.saved if one.mtime <= began))
            first = _first_since(found, began)
        known = expected if expected is not None else _newest_step(before)
        seconds = kube.clock.monotonic() - started
        if said is not None:
            return _judge(said, pod, known, expected, seconds)
        if first is not None:
            # The look took a moment: the log has the first word if it has one by now.
            code, text = kube.text(path, {"container": container, "limitBytes": str(1 << 20)})
            if code == 200 and (said := read_log(text, own)) is not None:
                return _judge(said, pod, known, expected, seconds)
            return _judge_checkpoint(first, pod, known, seconds)
        if (failed := _failed(session, run, pod, container, text if code == 200 else "")) is not None:
            return Resumed(result="failed", step=None, pod=pod, line="", before=known, seconds=seconds, why=failed)
        if wait.over():
            why = denied or "neither its log nor a new checkpoint says from where it went on"
            raise CannotDo(
                f'whether "{run.name}" resumed is not known after {session.options.timeout:.0f} s: {why}; it goes on '
                f"by itself: {session.command('checkpoints')}",
                *session.waits_lines(session.lost(again(kube, run))),
            )
        session.live(f"reading the first lines of {pod} ({wait.passed():.0f} s)")
        wait.pause(POLL)


def _judge(said: LogVerdict, pod: str, known: int | None, expected: int | None, seconds: float) -> Resumed:
    if not said.resumed:
        return Resumed(
            result="afresh", step=None, pod=pod, line=said.line, before=known, seconds=seconds, why="its log says so"
        )
    step, why = said.step, ""
    # Programs say the step that they saved, or the one that they go on with.
    if expected is not None and step is not None and step not in (expected, expected + 1):
        why = f"{expected} was asked for"
    elif known is not None and step is not None and step < known:
        why = f"{known} was there and complete"
    return Resumed(
        result="failed" if why else "resumed",
        step=step,
        pod=pod,
        line=said.line,
        before=known,
        seconds=seconds,
        why=why,
    )


def _judge_checkpoint(first: Saved, pod: str, known: int | None, seconds: float) -> Resumed:
    if known is None or first.step is None:
        why = f"its log is silent, and its first checkpoint is {first.step}, with none known before"
        return Resumed(result="afresh", step=None, pod=pod, line="", before=known, seconds=seconds, why=why)
    if first.step > known:
        why = f"its log is silent, and its next checkpoint is {first.step}, after {known}"
        return Resumed(result="resumed", step=known, pod=pod, line="", before=known, seconds=seconds, why=why)
    why = f"its log is silent, and its next checkpoint is {first.step}, not after {known}"
    return Resumed(result="afresh", step=None, pod=pod, line="", before=known, seconds=seconds, why=why)


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
