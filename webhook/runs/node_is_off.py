"""Pods of a run that stand Terminating on a machine that is off: deleted by force, where that is certain.

Nobody hears from the kubelet that such a pod has ended, so its Job keeps waiting (``lost``). A pod that is deleted by
force on a machine that only lost its network goes on writing beside the new one: a node that is Ready is never touched.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from msgspec import Struct

from webhook.model.pod import EMPTY, Raw
from webhook.runs.lost import OUT_OF_SERVICE, node_state
from webhook.runs.overview import seconds_of
from webhook.runs.run import CannotDo, Run, again
from webhook.runs.session import POLL, Session
from webhook.runs.words import duration, pods


class Stuck(Struct, frozen=True):
    """A Terminating pod and its node. ``since`` is when the node became NotReady (RFC 3339); None where there is no
    such node any more, or nobody knows."""

    pod: str
    uid: str
    node: str
    gone: bool
    since: str | None

    def words(self, now: float) -> str:
        """Node, pod and since when."""
        if self.gone:
            return f"pod {self.pod} is Terminating on node {self.node}, which does not exist any more"
        when = seconds_of(self.since)
        ago = f" since {self.since}, {duration(now - when)} ago" if when is not None else ""
        return f"pod {self.pod} is Terminating on node {self.node}, which is NotReady{ago}"


class Freed(Struct, frozen=True):
    """A pod, what was done about it, and whether it is gone."""

    stuck: Stuck
    action: str
    done: bool


Agree = Callable[[Sequence[Stuck]], bool]


def free_from_nodes(session: Session, dry_run: bool, agree: Agree) -> tuple[list[Freed], list[str]]:
    """Delete by force what stands Terminating on nodes that are off; each pod, and what became of the run.

    Raises CannotDo (no such pod, a node that is Ready or cannot be read, a missing right) and Unreachable.
    """
    run = session.find()
    stuck = find_stuck(session, run)
    _may_force(session, run, stuck)
    if dry_run:
        return [Freed(one, "would be deleted by force", False) for one in stuck], []
    if not agree(stuck):
        return [Freed(one, "none", False) for one in stuck], ["nothing was changed"]
    done: list[Freed] = []
    for at, one in enumerate(stuck):
        session.kube.nodes.pop(one.node, None)  # as it is now, not as it was when somebody was asked
        if node_state(session.kube, one.node)[0] == "True":
            done += [Freed(left, f"none: node {one.node} is Ready again", False) for left in stuck[at:]]
            break
        done.append(_force(session, run, one))
    return done, _goes_on(session, run, done)


def find_stuck(session: Session, run: Run) -> list[Stuck]:
    """The pods to delete. Raises CannotDo where there is none, and says why."""
    found: list[Stuck] = []
    ready: list[str] = []
    unread: set[str] = set()
    for pod in run.pods:
        node = (pod.get("spec") or EMPTY).get("nodeName")
        if not pod["metadata"].get("deletionTimestamp") or not node:
            continue
        state, since = node_state(session.kube, str(node))
        name = str(pod["metadata"]["name"])
        if state == "True":
            ready.append(f"node {node} is Ready (again): its kubelet ends pod {name}, and nothing is forced")
        elif state == "":
            unread.add(str(node))
        else:
            found.append(Stuck(name, str(pod["metadata"].get("uid") or ""), str(node), state == "gone", since))
    if found:
        return found
    if unread:
        nodes = " ".join(sorted(unread))
        raise CannotDo(
            f"you may not read node {nodes}, so whether it is off is not known (kubectl auth can-i get nodes)",
            *_taint(sorted(unread)),
        )
    if ready:
        raise CannotDo(*ready)
    waits = session.lost(run)
    if waits:
        raise CannotDo(
            f'no pod of "{run.name}" is Terminating yet: {waits[0].where}; it is evicted when its toleration ends'
        )
    raise CannotDo(f'no pod of "{run.name}" is Terminating: it {run.state()}')


def _taint(nodes: Sequence[str]) -> list[str]:
    named = " ".join(nodes)
    return [
        "whoever may change nodes does it for all pods of the node, once it is off for certain:",
        f"  kubectl taint node {named} {OUT_OF_SERVICE}=nodeshutdown:NoExecute    # when back: {OUT_OF_SERVICE}-",
    ]


def _path(run: Run, pod: str) -> str:
    return f"/api/v1/namespaces/{run.namespace}/pods/{pod}"


def _options(one: Stuck) -> dict[str, Any]:
    wanted = {"uid": one.uid} if one.uid else {}
    return {"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0, "preconditions": wanted}


def _may_force(session: Session, run: Run, stuck: Sequence[Stuck]) -> None:
    one = stuck[0]
    options = {**_options(one), "dryRun": ["All"]}
    answer = session.kube.request("DELETE", _path(run, one.pod), {"dryRun": "All"}, options)
    if answer.code in (401, 403):
        raise CannotDo(
            f"you may not delete its pods, so nothing was done: {answer.message} "
            f"(kubectl auth can-i delete pods -n {run.namespace})",
            *_taint(sorted({each.node for each in stuck if not each.gone})),
        )


def _force(session: Session, run: Run, one: Stuck) -> Freed:
    answer = session.change(
        f'pods of "{run.name}" are being deleted by force; again: {session.command("rescue")} --node-is-off',
        lambda: session.kube.request("DELETE", _path(run, one.pod), None, _options(one)),
    )
    if answer.ok:
        return Freed(one, "deleted by force", True)
    if answer.code in (404, 409):
        return Freed(one, "none: it went by itself", True)
    return Freed(one, f"none: {answer.message}", False)


def _goes_on(session: Session, run: Run, done: Sequence[Freed]) -> list[str]:
    """Until a pod has taken the place of one that is gone, or for so long."""
    if not any(freed.done for freed in done):
        return []
    before = {str(pod["metadata"].get("uid")) for pod in run.pods}
    wait = session.waiting()
    while True:
        now = again(session.kube, run)
        fresh = [pod for pod in now.pods if str(pod["metadata"].get("uid")) not in before]
        if fresh:
            session.state = f'"{run.name}" has new pods'
            return [f"{_names(fresh)} took the place: the run {now.state()}"]
        if now.over is not None or now.suspended or wait.over():
            return [f"no pod has taken the place yet: the run {now.state()}"]
        session.live(f"waiting for a new pod ({wait.passed():.0f} s)")
        wait.pause(POLL)


def _names(found: Sequence[Raw]) -> str:
    names = [str(pod["metadata"]["name"]) for pod in found]
    return f"pod {names[0]}" if len(names) == 1 else f"{pods(len(names))} ({', '.join(names[:3])}, ...)"
