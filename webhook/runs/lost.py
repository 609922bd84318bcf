"""Pods whose node does not answer: what a run then waits for, and the ways out.

A node that is silent for 40 s is NotReady, and its pods are deleted when their toleration ends; but nobody hears from
the kubelet that they have ended. Until the node is back, its object is deleted, or it carries the taint
``node.kubernetes.io/out-of-service``, such a pod stays Terminating, its Job (``backoffLimit: 0``) stays at
``FailureTarget``, and JobSet, which waits for ``Failed``, makes no new pod (seen on real nodes, Kubernetes 1.36).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Final

from msgspec import Struct

from webhook.model.pod import EMPTY, Raw
from webhook.runs.api import Answer
from webhook.runs.kube import Kube
from webhook.runs.words import duration

OUT_OF_SERVICE: Final = "node.kubernetes.io/out-of-service"
_KEEP: Final = 5.0
"""Seconds for which what is known of a node is not asked again."""
_OVERDUE: Final = 60.0
"""Seconds after the end of its grace period from which a pod on a node that may not be read counts as lost."""


class Lost(Struct, frozen=True):
    """A pod whose node does not answer.

    ``since`` is when the node became NotReady (RFC 3339), None where that is not known. ``how`` is ``not-ready``,
    ``gone`` (there is no such Node any more) or ``overdue`` (the Node may not be read, and the pod should have ended).
    ``evicted``: the pod is Terminating.
    """

    pod: str
    node: str
    since: str | None
    how: str
    evicted: bool

    @property
    def where(self) -> str:
        """The pod, the node, and since when, for a sentence that ends with it."""
        if self.how == "gone":
            return f"pod {self.pod} was on node {self.node}, which does not exist any more"
        if self.how == "overdue":
            return f"pod {self.pod} on node {self.node} should have ended by {self.since}: the node seems out of reach"
        since = f" since {self.since}" if self.since else ""
        return f"pod {self.pod} is on node {self.node}, which is NotReady{since}"


def lost_pods(kube: Kube, pods: Sequence[Raw]) -> tuple[Lost, ...]:
    """Those of the pods whose node does not answer. Raises Unreachable.

    Nodes are asked about only for pods that are not Ready or are being deleted: the node controller marks the pods of
    a silent node as not Ready.
    """
    return tuple(found for pod in pods if _suspect(pod) and (found := _lost(kube, pod)) is not None)


def without_lost(pods: Sequence[Raw], lost: Sequence[Lost]) -> list[Raw]:
    """The pods that can be asked."""
    names = {one.pod for one in lost}
    return [pod for pod in pods if str(pod["metadata"]["name"]) not in names]


def waited_for(pods: Sequence[Raw], lost: Sequence[Lost]) -> tuple[Lost, ...]:
    """Lost pods in whose place no other pod has come, so that the run waits for them."""
    names = {one.pod for one in lost}
    filled = {
        _place(pod)
        for pod in pods
        if str(pod["metadata"]["name"]) not in names and not pod["metadata"].get("deletionTimestamp")
    }
    places = {str(pod["metadata"]["name"]): _place(pod) for pod in pods}
    return tuple(one for one in lost if places.get(one.pod) not in filled)


def ways_out(lost: Sequence[Lost], namespace: str) -> Iterator[str]:
    """What helps, as lines with commands to paste; the first that is true of the machine is the right one."""
    nodes = sorted({one.node for one in lost if one.how != "gone"})
    yield "ways out:"
    if not nodes:
        yield "  none is needed: the control plane removes pods of a deleted node within a minute"
        return
    name = " ".join(nodes)
    yield f"  the machine comes back: nothing is to be done ({name})"
    yield f"  it is off for good:     kubectl delete node {name}"
    yield f"  it is off for a while:  kubectl taint node {name} {OUT_OF_SERVICE}=nodeshutdown:NoExecute"
    yield f"           and when back:  kubectl taint node {name} {OUT_OF_SERVICE}-"
    pods = " ".join(one.pod for one in lost[:4]) + (" ..." if len(lost) > 4 else "")
    yield (
        "  no right to nodes, and it is off for certain (else two pods write one directory): "
        f"kubectl delete pod {pods} -n {namespace} --force --grace-period=0"
    )


def waits_lines(lost: Sequence[Lost], namespace: str, now: float) -> Iterator[str]:
    """What a run waits for, and what helps. ``lost`` is not empty."""
    then = (
        "no pod takes its place before it is gone"
        if any(one.evicted for one in lost)
        else "it is evicted when its toleration ends, and no pod takes its place before it is gone"
    )
    yield f"waits for a node: {lost_words(lost, now)}; {then}"
    yield from ways_out(lost, namespace)


def lost_words(lost: Sequence[Lost], now: float) -> str:
    """One line: the first pod, its node, since when, and how many more there are."""
    first = lost[0]
    ago = _ago(first, now)
    more = f" (and {len(lost) - 1} more)" if len(lost) > 1 else ""
    return f"{first.where}{f', {ago} ago' if ago else ''}{more}"


def _ago(lost: Lost, now: float) -> str:
    since = _time(lost.since or "")
    return duration(now - since) if since is not None and lost.how == "not-ready" else ""


def _suspect(pod: Raw) -> bool:
    if not (pod.get("spec") or EMPTY).get("nodeName"):
        return False
    if pod["metadata"].get("deletionTimestamp"):
        return True
    for one in (pod.get("status") or EMPTY).get("conditions") or ():
        if one.get("type") == "Ready":
            return bool(one.get("status") != "True")
    return False


def _lost(kube: Kube, pod: Raw) -> Lost | None:
    name, node = str(pod["metadata"]["name"]), str(pod["spec"]["nodeName"])
    deleted = pod["metadata"].get("deletionTimestamp")
    ready, since = node_state(kube, node)
    if ready == "True":
        return None
    if ready == "":
        # deletionTimestamp is the end of the grace period.
        end = _time(str(deleted or ""))
        if end is None or kube.clock.now() - end < _OVERDUE:
            return None
        return Lost(name, node, str(deleted), "overdue", True)
    return Lost(name, node, since, "gone" if ready == "gone" else "not-ready", bool(deleted))


def node_state(kube: Kube, name: str) -> tuple[str, str | None]:
    """Condition Ready of a node, ``gone`` where there is no such node, empty where it may not be read; and since when.

    Raises Unreachable.
    """
    answer = _node(kube, name)
    if answer.code == 404 and answer.body.get("details"):
        return "gone", None
    for one in ((answer.body.get("status") or EMPTY).get("conditions") or ()) if answer.ok else ():
        if one.get("type") == "Ready":
            return str(one.get("status")), one.get("lastTransitionTime")
    return "", None


def _node(kube: Kube, name: str) -> Answer:
    known = kube.nodes.get(name)
    now = kube.clock.monotonic()
    if known is None or now - known[0] > _KEEP:
        known = kube.nodes[name] = now, kube.request("GET", f"/api/v1/nodes/{name}")
    return known[1]


def _place(pod: Raw) -> tuple[str, str]:
    labels = pod["metadata"].get("labels") or EMPTY
    return (
        str(labels.get("batch.kubernetes.io/job-name") or labels.get("jobset.sigs.k8s.io/replicatedjob-name") or ""),
        str(labels.get("batch.kubernetes.io/job-completion-index") or 0),
    )


def _time(text: str) -> float | None:
    """Seconds since 1970."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return None
    return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()
