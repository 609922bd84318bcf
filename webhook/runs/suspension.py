"""Suspends and unsuspends a run, and waits until its pods are gone.

It is a patch to a value, so it may be done twice.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from webhook.cluster.access import Unreachable
from webhook.model.pod import EMPTY
from webhook.runs.kube import Kube
from webhook.runs.lost import Lost, lost_pods, lost_words, node_state, ways_out
from webhook.runs.reader import Look, look
from webhook.runs.run import MERGE, TRAINJOBS, CannotDo, Directory, Run, again
from webhook.runs.session import POLL, Session
from webhook.runs.words import pods, still

KUEUE: Final = "/apis/kueue.x-k8s.io"


def suspend(session: Session, run: Run, value: bool, state: str) -> None:
    """Set ``spec.suspend``; under Kueue, whose word that is, the Workload is set active or not instead.

    ``state`` is what an interruption leaves behind from now on.
    """
    kube = session.kube
    if run.queue is not None and (workload := workload_of(kube, run)) is not None:
        answer = session.change(
            state, lambda: kube.request("PATCH", workload, None, {"spec": {"active": not value}}, MERGE)
        )
        if answer.ok:
            return
        name, what = workload.rpartition("/")[2], "deactivated" if value else "activated"
        raise CannotDo(
            f'queue "{run.queue}" decides when "{run.name}" runs, and its Workload "{name}" cannot be {what}: '
            f"{answer.message}"
        )
    path = f"{TRAINJOBS}/namespaces/{run.namespace}/trainjobs/{run.name}"
    answer = session.change(
        state, lambda: kube.request("PATCH", path, {"fieldManager": "ckptguard"}, {"spec": {"suspend": value}}, MERGE)
    )
    if not answer.ok:
        right = f" (kubectl auth can-i patch trainjobs -n {run.namespace})" if answer.code == 403 else ""
        raise CannotDo(f'"{run.name}" cannot be {"suspended" if value else "resumed"}{right}: {answer.message}')


def workload_of(kube: Kube, run: Run) -> str | None:
    """The path of the run's Workload; None where Kueue has none, or is not there."""
    for version in ("v1beta2", "v1beta1"):
        path = f"{KUEUE}/{version}/namespaces/{run.namespace}/workloads"
        answer = kube.request("GET", path)
        for one in (answer.body.get("items") or ()) if answer.ok else ():
            for owner in one["metadata"].get("ownerReferences") or ():
                if owner.get("uid") == run.uid:
                    return f"{path}/{one['metadata']['name']}"
        if answer.ok:
            break
    return None


def held_by_queue(session: Session, run: Run) -> bool:
    """Whether somebody set the run's Workload inactive, as ``stop`` does."""
    if run.queue is None or (workload := workload_of(session.kube, run)) is None:
        return False
    return (session.kube.request("GET", workload).body.get("spec") or EMPTY).get("active") is False


def waits_in_queue(session: Session, run: Run) -> str | None:
    """Why Kueue has not let the run in (again), in one line; None where it is not Kueue that keeps it.

    A run that was preempted looks as one that somebody stopped: ``spec.suspend`` is true. Its Workload tells: it is
    active, and Kueue starts the run when there is room, whoever asks for it.
    """
    if not run.suspended or run.queue is None or (path := workload_of(session.kube, run)) is None:
        return None
    workload = session.kube.request("GET", path).body
    if (workload.get("spec") or EMPTY).get("active") is False:
        return None
    conditions = (workload.get("status") or EMPTY).get("conditions") or ()
    said = ""
    for kind, status in (("Preempted", "True"), ("Evicted", "True"), ("QuotaReserved", "False"), ("Admitted", "False")):
        for one in conditions:
            if not said and one.get("type") == kind and one.get("status") == status:
                at = f" ({kind.lower()} {one.get('lastTransitionTime')})" if status == "True" else ""
                said = f"{at}: {one.get('message') or one.get('reason') or 'no reason given'}"
    return f'waits in queue "{run.queue}"{said}'


def queue_lines(session: Session, run: Run, waits: str) -> tuple[str, ...]:
    """The same for whoever would resume or drill it, with the command that tells more."""
    workload = (workload_of(session.kube, run) or "").rpartition("/")[2]
    return (
        f'run "{run.name}" {waits}',
        "  Kueue starts it by itself when there is room; nothing is to be resumed, and what it has saved stays",
        f"  kubectl describe workload {workload} -n {run.namespace}    # what it waits for",
        f"  {session.command('stop')}    # to take it out of the queue",
    )


def wait_gone(session: Session, run: Run, directory: Directory | None, last: Look | None) -> Look | None:
    """Until no pod of the run is left; looks into the directory while a pod can still be asked, for the flush."""
    wait = session.waiting()
    looked = 0.0
    told = False
    while True:
        now = again(session.kube, run)
        if not now.pods:
            return last
        lost = lost_pods(session.kube, now.pods)
        if lost and not told:
            told = True
            session.say(f"{lost_words(lost, session.kube.clock.now())}; it stays until its kubelet says that it ended")
        if wait.over():
            raise CannotDo(*_late(session, now, lost))
        if not now.suspended and run.queue is None:
            raise CannotDo(f'"{run.name}" was resumed by somebody else meanwhile')
        session.live(f"waiting for {pods(len(now.pods))} to end ({wait.passed():.0f} s)")
        # A look takes a moment, and must not keep the command from seeing that the last pod is gone.
        if directory is not None and last is not None and wait.passed() - looked >= 1.0:
            looked = wait.passed()
            try:
                last = look(session.kube, now, directory, helper=False, seconds=2.0)
            except (CannotDo, Unreachable):
                directory = None
        wait.pause(POLL)


def _late(session: Session, run: Run, lost: Sequence[Lost]) -> Iterator[str]:
    """Which pods have not ended in time, why, and what helps."""
    nodes = sorted({str((pod.get("spec") or EMPTY).get("nodeName")) for pod in run.pods})
    still_there = (
        f'{pods(len(run.pods))} of "{run.name}" {still(len(run.pods))} there after {session.options.timeout:.0f} s, on '
        f"{', '.join(nodes)}"
    )
    if lost:
        yield f"{still_there}: {lost_words(lost, session.kube.clock.now())}"
        yield from ways_out(lost, run.namespace)
        return
    grace = max((int(pod["metadata"].get("deletionGracePeriodSeconds") or 0) for pod in run.pods), default=0)
    if grace > session.options.timeout:
        yield f"{still_there}: they have {grace} s to save and end (terminationGracePeriodSeconds)"
        yield f"  wait for it: {session.command('stop')} --timeout {grace + 60}s"
    elif all(node_state(session.kube, node)[0] == "True" for node in nodes):
        names = " ".join(str(pod["metadata"]["name"]) for pod in run.pods[:4])
        yield f"{still_there}, which answers: the kubelet has not ended them"
        yield f"  kubectl describe pod {names} -n {run.namespace}"
    else:
        yield f"{still_there}: a node that is out of reach keeps them until it is back or removed"
        yield f"  kubectl get node {' '.join(nodes)}"
