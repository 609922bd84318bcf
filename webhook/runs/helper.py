"""A short-lived pod that mounts a run's claim, for when no pod of the run can be asked.

It passes Pod Security ``restricted`` wherever the run itself does, runs as the run's own user, and is gone afterwards:
deleted when the command is done, ended by the kubelet after five minutes, removed with the TrainJob at last.
"""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Iterator, Sequence
from typing import Any, Final, Protocol

from webhook.cluster.access import Unreachable
from webhook.model.names import API_VERSION
from webhook.model.pod import EMPTY, Raw
from webhook.runs.api import Answer
from webhook.runs.clock import Waiting
from webhook.runs.kube import Kube
from webhook.runs.lost import lost_pods, lost_words
from webhook.runs.run import CannotDo, Directory, Run, is_running


class Watch(Protocol):
    """Goes along with a command that works for long."""

    def told(self, text: str) -> bool:
        """What it has printed so far; True where it has come to its end."""

    def check(self) -> None:
        """Raises CannotDo where it has to be ended."""


MOUNT: Final = "/checkpoints"
LABEL: Final = "checkpoint-guard.io/helper-of"
FAILED: Final = "FAILED "
_SECONDS: Final = 300
_GRACE: Final = 5
"""Seconds for a command that works for long, to end what it is about."""
_OTHER_USER: Final = 65532
_POD_FIELDS: Final = (
    "runAsUser",
    "runAsGroup",
    "fsGroup",
    "fsGroupChangePolicy",
    "supplementalGroups",
    "seLinuxOptions",
)


def manifest(
    run: Run,
    directory: Directory,
    image: str,
    command: Sequence[str],
    *,
    write: bool,
    node: str | None,
    root: bool,
    deadline: int = _SECONDS,
) -> dict[str, Any]:
    """The pod. ``node`` holds it to one node; ``root``: as root where the run says no user."""
    pod = directory.pod
    kind = str(run.trainjob.get("kind") or "TrainJob")  # a rehearsal has a pod before there is a TrainJob
    context = _context(directory, root)
    mount: dict[str, Any] = {"name": "claim", "mountPath": MOUNT, "readOnly": not write}
    spec: dict[str, Any] = {
        "restartPolicy": "Never",
        "activeDeadlineSeconds": deadline,
        "terminationGracePeriodSeconds": 1,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": context,
        "tolerations": list(pod.get("tolerations") or ()),
        "volumes": [{"name": "claim", **_source(directory, write)}],
        "containers": [
            {
                "name": "helper",
                "image": image,
                "imagePullPolicy": "IfNotPresent",
                "command": list(command),
                "securityContext": {
                    "allowPrivilegeEscalation": False,
                    "readOnlyRootFilesystem": True,
                    "capabilities": {"drop": ["ALL"]},
                    "privileged": False,
                },
                # A quota asks for all four.
                "resources": {
                    "requests": {"cpu": "50m", "memory": "64Mi"},
                    "limits": {"cpu": "500m", "memory": "256Mi"},
                },
                "volumeMounts": [mount],
            }
        ],
    }
    if pod.get("imagePullSecrets"):
        spec["imagePullSecrets"] = pod["imagePullSecrets"]
    if node is not None:
        spec["affinity"] = {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [
                        {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
                    ]
                }
            }
        }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"{run.name[:40]}-ckptguard-{secrets.token_hex(4)}",
            "namespace": run.namespace,
            "labels": {LABEL: run.name[:63], "app.kubernetes.io/managed-by": "ckptguard"},
            "annotations": {"sidecar.istio.io/inject": "false"},
            "ownerReferences": [
                {"apiVersion": API_VERSION, "kind": kind, "name": run.name, "uid": run.uid, "controller": False}
            ],
        },
        "spec": spec,
    }


def _source(directory: Directory, write: bool) -> dict[str, Any]:
    if directory.claim is None:
        return dict(directory.source or {})
    return {"persistentVolumeClaim": {"claimName": directory.claim, "readOnly": not write}}


def _context(directory: Directory, root: bool) -> dict[str, Any]:
    """The run's own user and groups, and what ``restricted`` wants besides."""
    pod = directory.pod.get("securityContext") or EMPTY
    own: Raw = EMPTY
    for container in directory.pod.get("containers") or ():
        if container.get("name") == directory.container:
            own = container.get("securityContext") or EMPTY
    context: dict[str, Any] = {key: pod[key] for key in _POD_FIELDS if pod.get(key) is not None}
    for key in ("runAsUser", "runAsGroup"):
        if own.get(key) is not None:
            context[key] = own[key]
    must = own.get("runAsNonRoot") if own.get("runAsNonRoot") is not None else pod.get("runAsNonRoot")
    if context.get("runAsUser") is None:
        # Nobody knows the image's user. Root reads everything; where it is not allowed, the run was none either.
        context["runAsUser"] = 0 if root and not must else _OTHER_USER
    context["runAsNonRoot"] = context["runAsUser"] != 0
    context["seccompProfile"] = {"type": "RuntimeDefault"}
    return context


def run_helper(
    kube: Kube,
    run: Run,
    directory: Directory,
    image: str | None,
    command: Sequence[str],
    *,
    write: bool,
    seconds: float,
    deadline: int = _SECONDS,
    watch: Watch | None = None,
) -> str:
    """What the command printed in such a pod. Raises CannotDo, which says who holds the claim where that is why.

    ``watch`` goes along while it works; once it runs, ``deadline`` is its end then and not ``seconds``.
    """
    _mountable(directory)
    node = None if directory.claim is None else _holding_node(kube, run, directory)
    chosen = image or _image_of(directory)
    if chosen is None:
        raise CannotDo("no image is known for a helper pod: say --helper-image")
    path = f"/api/v1/namespaces/{run.namespace}/pods"
    answer = Answer(0)
    try:
        for root in (True, False):
            body = manifest(run, directory, chosen, command, write=write, node=node, root=root, deadline=deadline)
            answer = kube.create(path, body)
            if answer.ok or answer.code != 403 or "PodSecurity" not in answer.message:
                break
        if not answer.ok:
            raise CannotDo(_refused(answer, run.namespace))
        path = f"{path}/{answer.body['metadata']['name']}"
        try:
            return _output(kube, run, directory, path, seconds, watch)
        except (CannotDo, KeyboardInterrupt):
            if watch is not None:
                _last_words(kube, path, watch)
            raise
    finally:
        kube.clean()


def _last_words(kube: Kube, path: str, watch: Watch) -> None:
    """End the pod by SIGTERM, and hear what it says until it is gone."""
    with contextlib.suppress(Unreachable):
        if not kube.request("DELETE", path, {"gracePeriodSeconds": str(_GRACE)}).ok:
            return
        wait = Waiting(kube.clock, _GRACE + 1.0)
        while not wait.over():
            code, text = kube.text(f"{path}/log", {"limitBytes": str(64 << 20)})
            if code != 200 or watch.told(text):
                return
            wait.pause(0.2)


def _output(kube: Kube, run: Run, directory: Directory, path: str, seconds: float, watch: Watch | None = None) -> str:
    wait = Waiting(kube.clock, seconds)
    while True:
        answer = kube.request("GET", path)
        if answer.code == 404:
            raise CannotDo("the helper pod was deleted by somebody else")
        status = answer.body.get("status") or EMPTY
        phase = status.get("phase")
        if phase in ("Succeeded", "Failed"):
            code, text = kube.text(f"{path}/log", {"limitBytes": str(64 << 20)})
            if code != 200:
                raise CannotDo(f"the helper pod's output cannot be read (pods/log): {text}")
            if phase == "Failed":
                last = text.strip().splitlines()[-1:] or [str(status.get("message") or status.get("reason") or "")]
                if last[0].startswith(FAILED):
                    return text  # our own script, which says why
                raise CannotDo(f"the helper pod failed: {last[0][:300]}")
            return text
        if watch is not None and phase == "Running":
            code, text = kube.text(f"{path}/log", {"limitBytes": str(64 << 20)})
            if code == 200:
                watch.told(text)
            watch.check()
            kube.clock.sleep(0.5)
            continue
        stuck = _stuck(status)
        if stuck:
            raise CannotDo(f"the helper pod cannot start: {stuck}; another image: --helper-image")
        if wait.over():
            raise CannotDo(f"the helper pod does not start within {seconds:.0f} s: {_why(kube, run, path, directory)}")
        wait.pause(0.3)


def _stuck(status: Raw) -> str:
    for one in status.get("containerStatuses") or ():
        waiting = (one.get("state") or EMPTY).get("waiting") or EMPTY
        reason = waiting.get("reason")
        if reason in (
            "ErrImagePull",
            "ImagePullBackOff",
            "InvalidImageName",
            "ErrImageNeverPull",
            "CreateContainerError",
        ):
            return f"{reason}: {str(waiting.get('message') or '')[:200]}"
        if reason == "CreateContainerConfigError":
            return str(waiting.get("message") or reason)[:200]
    return ""


def _why(kube: Kube, run: Run, path: str, directory: Directory) -> str:
    """The events of the pod, and who has the claim mounted."""
    name = path.rpartition("/")[2]
    answer = kube.request(
        "GET", f"/api/v1/namespaces/{run.namespace}/events", {"fieldSelector": f"involvedObject.name={name}"}
    )
    told = [
        str(event.get("message") or "")
        for event in answer.body.get("items") or ()
        if event.get("type") == "Warning" and event.get("message")
    ]
    holders = [
        f"{pod['metadata']['name']} on node {pod['spec'].get('nodeName')}"
        for pod in (holding(kube, run, directory) if directory.claim is not None else ())
    ]
    held = f'; claim "{directory.claim}" is mounted by {", ".join(holders)}' if holders else ""
    return (told[-1][:300] if told else "it was not scheduled") + held


def holding(kube: Kube, run: Run, directory: Directory) -> list[Raw]:
    """Pods of the namespace that have the claim mounted now."""
    answer = kube.request("GET", f"/api/v1/namespaces/{run.namespace}/pods")
    found: list[Raw] = []
    for pod in answer.body.get("items") or ():
        if not is_running(pod) or LABEL in (pod["metadata"].get("labels") or EMPTY):
            continue
        for volume in (pod.get("spec") or EMPTY).get("volumes") or ():
            if (volume.get("persistentVolumeClaim") or EMPTY).get("claimName") == directory.claim:
                found.append(pod)
                break
    return found


def _holding_node(kube: Kube, run: Run, directory: Directory) -> str | None:
    """The node that a claim of one node is mounted on; another pod can mount it there alone.

    Raises CannotDo where one pod alone may have it, or it cannot be mounted at all.
    """
    answer = kube.request("GET", f"/api/v1/namespaces/{run.namespace}/persistentvolumeclaims/{directory.claim}")
    if answer.code == 404:
        raise CannotDo(f'claim "{directory.claim}" does not exist')
    if not answer.ok:
        return None
    claim = answer.body
    if claim["metadata"].get("deletionTimestamp"):
        raise CannotDo(f'claim "{directory.claim}" is being deleted, so no pod can mount it any more')
    status = claim.get("status") or EMPTY
    if status.get("phase") == "Lost":
        raise CannotDo(f'claim "{directory.claim}" has lost its volume')
    modes = set(status.get("accessModes") or (claim.get("spec") or EMPTY).get("accessModes") or ())
    if not modes or "ReadWriteMany" in modes or "ReadOnlyMany" in modes:
        return None
    holders = holding(kube, run, directory)
    if not holders:
        return None
    first = holders[0]
    node = (first.get("spec") or EMPTY).get("nodeName")
    if lost := lost_pods(kube, [first]):
        raise CannotDo(
            f'claim "{directory.claim}" can be mounted on one node alone, and is still attached to that of a pod that '
            f"nobody hears from: {lost_words(lost, kube.clock.now())}"
        )
    if "ReadWriteOncePod" in modes:
        raise CannotDo(
            f'claim "{directory.claim}" is ReadWriteOncePod and pod "{first["metadata"]["name"]}" on node "{node}" '
            "has it: nobody else can mount it until that pod is gone"
        )
    return None if node is None else str(node)


def _image_of(directory: Directory) -> str | None:
    """The run's own image: the one that is known to be pulled here, and to have the run's user."""
    for container in directory.pod.get("containers") or ():
        if container.get("name") == directory.container and container.get("image"):
            return str(container["image"])
    return None


def _refused(answer: Answer, namespace: str) -> str:
    if "PodSecurity" in answer.message:
        return f"the helper pod is refused by Pod Security: {answer.message}"
    if answer.code == 403 and "quota" in answer.message:
        return f"the helper pod does not fit into the namespace's quota: {answer.message}"
    if answer.code in (401, 403):
        return (
            f"no right to create pods in namespace {namespace}, which reading the claim takes while no pod of the run "
            f"can be asked (kubectl auth can-i create pods -n {namespace}): {answer.message}"
        )
    return f"the helper pod is refused: {answer.message}"


def _mountable(directory: Directory) -> None:
    """Raises CannotDo where no other pod can have what lies under the directory."""
    if directory.claim is not None or directory.source is not None:
        return
    left = (
        "look while a pod of the run runs, which may be asked by exec"
        if directory.lasting
        else "nothing of it is left when the run's pod is gone"
    )
    raise CannotDo(f'directory "{directory.path}" lies on {directory.volume}, which no other pod can look into: {left}')


def parts(directory: Directory) -> Iterator[str]:
    """The directory inside the helper pod."""
    yield MOUNT
    _mountable(directory)
    if directory.on_claim is None:
        raise CannotDo(f'where "{directory.path}" lies on {directory.where} only the pod knows')
    if directory.on_claim.strip("/"):
        yield directory.on_claim.strip("/")


def inside(directory: Directory) -> str:
    """Its path there."""
    return "/".join(parts(directory))
