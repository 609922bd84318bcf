"""What somebody edits in a runtime, a kind of edit each: some reach the pods of its runs and some do not."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

from tests.e2e.controlplane.cluster import Object


def _jobs(runtime: Object) -> list[Object]:
    found: list[Object] = runtime["spec"]["template"]["spec"]["replicatedJobs"]
    return found


def _last(runtime: Object) -> Object:
    """The template of the last job, which trains or is a node of MPI."""
    template: Object = _jobs(runtime)[-1]["template"]
    return template


def _pod(runtime: Object) -> Object:
    pod: Object = _last(runtime)["spec"]["template"]["spec"]
    return pod


def _image(runtime: Object) -> None:
    _pod(runtime)["containers"][0]["image"] = "registry.example/train:2"


def _variable(runtime: Object) -> None:
    container = _pod(runtime)["containers"][0]
    container["env"] = [*container.get("env", ()), {"name": "NCCL_DEBUG", "value": "WARN"}]


def _volume(runtime: Object) -> None:
    pod = _pod(runtime)
    pod["volumes"] = [*pod.get("volumes", ()), {"name": "shm", "emptyDir": {"medium": "Memory"}}]
    container = pod["containers"][0]
    container["volumeMounts"] = [*container.get("volumeMounts", ()), {"name": "shm", "mountPath": "/dev/shm"}]


def _sidecar(runtime: Object) -> None:
    _pod(runtime)["containers"].append({"name": "metrics", "image": "registry.example/metrics:1"})


def _grace(runtime: Object) -> None:
    _pod(runtime)["terminationGracePeriodSeconds"] = 90


def _place(runtime: Object) -> None:
    _pod(runtime)["nodeSelector"] = {"pool": "new"}
    _pod(runtime)["tolerations"] = [{"key": "new", "operator": "Exists"}]


def _pod_label(runtime: Object) -> None:
    _last(runtime)["spec"]["template"]["metadata"] = {"labels": {"tier": "new"}}


def _job_label(runtime: Object) -> None:
    labels = _last(runtime).setdefault("metadata", {}).get("labels", {})
    _last(runtime)["metadata"]["labels"] = {**labels, "tier": "new"}


def _nodes(runtime: Object) -> None:
    runtime["spec"]["mlPolicy"]["numNodes"] = 4


def _retries(runtime: Object) -> None:
    _last(runtime)["spec"]["backoffLimit"] = 5


def _restarts(runtime: Object) -> None:
    runtime["spec"]["template"]["spec"]["failurePolicy"] = {"maxRestarts": 2}


def _label(runtime: Object) -> None:
    labels = runtime["metadata"].get("labels", {})
    runtime["metadata"]["labels"] = {**labels, "team": "earth"}


EDITS: dict[str, Callable[[Object], None]] = {
    "image": _image,
    "variable": _variable,
    "volume": _volume,
    "sidecar": _sidecar,
    "grace": _grace,
    "place": _place,
    "pod label": _pod_label,
    "job label": _job_label,
    "nodes": _nodes,
    "retries": _retries,
    "restarts": _restarts,
    "label": _label,
}


def edited(runtime: Object, at: int) -> tuple[str, Object]:
    """The runtime after the edit of that number, and what that is."""
    name, edit = list(EDITS.items())[at % len(EDITS)]
    new: dict[str, Any] = copy.deepcopy(runtime)
    edit(new)
    return name, new
