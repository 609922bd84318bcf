"""Suspends and unsuspends a run, and waits until its pods are gone.

It is a patch to a value, so it may be done twice.
"""

from __future__ import annotations

from typing import Final

from webhook.model.pod import EMPTY
from webhook.runs.api import Unreachable
from webhook.runs.kube import Kube
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
    if run.queue is None or (workload := workload_of(session.kube, run)) is None:
        return False
    return (session.kube.request("GET", workload).body.get("spec") or EMPTY).get("active") is False


def wait_gone(session: Session, run: Run, directory: Directory | None, last: Look | None) -> Look | None:
    """Until no pod of the run is left; looks into the directory while a pod can still be asked, for the flush."""
    wait = session.waiting()
    looked = 0.0
    while True:
        now = again(session.kube, run)
        if not now.pods:
            return last
        if wait.over():
            nodes = sorted({str((pod.get("spec") or EMPTY).get("nodeName")) for pod in now.pods})
            count = len(now.pods)
            raise CannotDo(
                f'{pods(count)} of "{run.name}" {still(count)} there after {session.options.timeout:.0f} s, on '
                f"{', '.join(nodes)}: a node that is out of reach keeps them until it is back or removed"
            )
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
