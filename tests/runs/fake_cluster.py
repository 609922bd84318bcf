"""A cluster with one run, in memory: Trainer, JobSet and the kubelet as far as the commands see them.

Its clock moves when somebody sleeps. What would run in a container runs here, on a folder that stands for the claim.
"""

from __future__ import annotations

import copy
import json
import subprocess
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from webhook.cluster.access import Unreachable
from webhook.model.policy import Policy
from webhook.runs.api import Answer
from webhook.runs.clock import Clock
from webhook.runs.helper import LABEL, MOUNT
from webhook.runs.kube import Kube
from webhook.runs.session import Options, Session

Object = dict[str, Any]
NAMESPACE = "team"
FIELD = "metadata.labels['jobset.sigs.k8s.io/jobset-name']"


def jobset(name: str = "run", **pod: Any) -> Object:
    """What Trainer makes of a run whose directory is `/mnt/ckpt/<name>` on claim "mine"."""
    container = {
        "name": "node",
        "image": "train:1",
        "env": [
            {"name": "TRAINJOB_NAME", "valueFrom": {"fieldRef": {"fieldPath": FIELD}}},
            {"name": "CKPT_DIR", "value": "/mnt/ckpt/$(TRAINJOB_NAME)"},
        ],
        "volumeMounts": [{"name": "v", "mountPath": "/mnt/ckpt"}],
    }
    spec = {
        "containers": [container],
        "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "mine"}}],
        **pod,
    }
    labels = {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}
    job = {"name": "node", "template": {"metadata": {"labels": labels}, "spec": {"template": {"spec": spec}}}}
    owner = {"kind": "TrainJob", "name": name, "uid": f"uid-{name}"}
    metadata = {"name": name, "namespace": NAMESPACE, "uid": f"jobset-{name}", "ownerReferences": [owner]}
    return {"metadata": metadata, "spec": {"replicatedJobs": [job]}, "status": {"restarts": 0}}


def stamp(seconds: float) -> str:
    """A time as the API writes it."""
    return datetime.fromtimestamp(int(seconds), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def trainjob(name: str = "run") -> Object:
    metadata = {"name": name, "namespace": NAMESPACE, "uid": f"uid-{name}"}
    return {"metadata": metadata, "spec": {"suspend": False, "runtimeRef": {"name": "rt"}}, "status": {}}


class FakeCluster:
    """`folder` is the claim's root; `log` gives the log of the n-th pod of the run (from 0)."""

    def __init__(self, folder: Path, log: Callable[[int], str] = lambda _: "") -> None:
        self.folder = folder
        self.log = log
        self.time = 1000.0
        self.trainjobs = {"run": trainjob()}
        self.jobsets = {"run": jobset()}
        self.pods: dict[str, Object] = {}
        self.claims: dict[str, Object] = {
            "mine": {"metadata": {"name": "mine"}, "status": {"phase": "Bound", "accessModes": ["ReadWriteMany"]}}
        }
        ready = {"type": "Ready", "status": "True"}
        self.nodes: dict[str, Object] = {
            name: {"metadata": {"name": name}, "status": {"conditions": [ready]}} for name in ("node1", "node2")
        }
        self.silent: set[str] = set()
        """Nodes that do not answer."""
        self.made = 0
        self.helpers: list[Object] = []
        self.calls: list[tuple[str, str]] = []
        self.exec_refused = ""
        self.refuse: Callable[[str, str, Any], Answer | None] = lambda *_: None
        self.down_until = 0.0
        self.seen: dict[tuple[str, ...], tuple[int, str, str]] = {}
        """What commands printed that changed nothing, for folders that look the same: each takes two processes."""
        self.on_pod_end: Callable[[], None] = lambda: None
        self.on_pod_start: Callable[[], None] = lambda: None
        self._due: list[tuple[float, Callable[[], object]]] = []
        self.start_pod()

    # -- time -------------------------------------------------------------------------------------------------------

    def sleep(self, seconds: float) -> None:
        self.time += max(seconds, 0.01)
        for at, act in [one for one in self._due if one[0] <= self.time]:
            self._due.remove((at, act))
            act()

    def after(self, seconds: float, act: Callable[[], object]) -> None:
        self._due.append((self.time + seconds, act))

    def session(self, said: list[str], timeout: float = 60.0, **options: Any) -> Session:
        clock = Clock(lambda: self.time, self.sleep, lambda: self.time)
        kube = Kube(self, clock, said.append, patience=20.0)
        return Session(
            kube, NAMESPACE, "run", Policy(), Options(timeout=timeout, **options), said.append, lambda _: None
        )

    # -- the run ----------------------------------------------------------------------------------------------------

    def start_pod(self) -> None:
        name = f"run-node-0-0-{self.made}"
        labels = {
            "jobset.sigs.k8s.io/jobset-name": "run",
            "jobset.sigs.k8s.io/replicatedjob-name": "node",
            "batch.kubernetes.io/job-completion-index": "0",
        }
        spec = self.jobsets["run"]["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
        self.pods[name] = {
            "metadata": {"name": name, "namespace": NAMESPACE, "uid": f"pod-{self.made}", "labels": labels},
            "spec": {**copy.deepcopy(spec), "nodeName": "node1"},
            "status": {
                "phase": "Running",
                "startTime": stamp(self.time),
                "containerStatuses": [{"name": "node", "state": {"running": {}}}],
            },
        }
        self.made += 1
        self.on_pod_start()

    def _end_pods(self) -> None:
        self.on_pod_end()
        self.pods = {
            name: pod
            for name, pod in self.pods.items()
            if LABEL in pod["metadata"]["labels"]
            or "deletionTimestamp" not in pod["metadata"]
            or pod["spec"].get("nodeName") in self.silent
        }

    def _suspend(self, value: bool) -> None:
        if value:
            for pod in self.pods.values():
                pod["metadata"]["deletionTimestamp"] = "now"
            self.after(3.0, self._end_pods)
        else:
            self.after(1.5, self.start_pod)

    def _delete_trainjob(self, name: str, options: Object, params: Mapping[str, str]) -> Answer:
        """As Trainer and the garbage collector do it: in the foreground the TrainJob outlives its JobSet, and gets a
        new one, whose pods train on."""
        found = self.trainjobs[name]
        wanted = (options.get("preconditions") or {}).get("uid")
        if wanted not in (None, found["metadata"]["uid"]):
            return Answer(409, {"message": "the UID in the precondition does not match"})
        policy = options.get("propagationPolicy") or params.get("propagationPolicy")
        if policy == "Foreground":
            found["metadata"] |= {"deletionTimestamp": "now", "finalizers": ["foregroundDeletion"]}
            return Answer(200, copy.deepcopy(found))
        if [one for one in found["metadata"].get("finalizers") or () if one != "foregroundDeletion"]:
            found["metadata"]["deletionTimestamp"] = "now"
            return Answer(200, copy.deepcopy(found))
        del self.trainjobs[name]
        self.after(0.7, lambda: self.collect(name))
        return Answer(200, {"status": "Success"})

    def collect(self, name: str) -> None:
        """The garbage collector: the JobSet at once, its pods when they have ended."""
        if self.jobsets.pop(name, None) is not None:
            for pod in self.pods.values():
                pod["metadata"]["deletionTimestamp"] = stamp(self.time)
            self.after(3.0, self._end_pods)

    def lose_node(self, name: str = "node1", evicted: bool = True) -> None:
        """The power of a node is cut: nobody hears from it, and its pods never end."""
        self.nodes[name]["status"]["conditions"] = [
            {"type": "Ready", "status": "Unknown", "lastTransitionTime": stamp(self.time - 60)}
        ]
        self.silent.add(name)
        for pod in self.pods.values():
            if pod["spec"].get("nodeName") == name:
                pod["status"]["conditions"] = [{"type": "Ready", "status": "False"}]
                if evicted:
                    pod["metadata"]["deletionTimestamp"] = stamp(self.time - 20)

    # -- the API ----------------------------------------------------------------------------------------------------

    def request(
        self,
        method: str,
        path: str,
        params: Mapping[str, str] | None = None,
        body: Any = None,
        content_type: str = "application/json",
    ) -> Answer:
        self._reachable()
        self.calls.append((method, path))
        if (refused := self.refuse(method, path, body)) is not None:
            return refused
        if path.startswith("/api/v1/nodes/"):
            node = self.nodes.get(path.rpartition("/")[2])
            missing = {"message": "no such node", "details": {"kind": "nodes"}}
            return Answer(200, copy.deepcopy(node)) if node is not None else Answer(404, missing)
        kind, _, name = path.removeprefix("/").partition("/namespaces/team/")[2].partition("/")
        known = {
            "trainjobs": self.trainjobs,
            "jobsets": self.jobsets,
            "pods": self.pods,
            "persistentvolumeclaims": self.claims,
        }.get(kind)
        if known is None:
            return Answer(200, {"items": []}) if kind == "events" else Answer(404, {"message": f"no {path}"})
        if method == "POST":
            return self._helper(body)
        if not name:
            items = list(known.values())
            if params and "labelSelector" in params:
                key, mark, value = params["labelSelector"].partition("=")
                labels = [(one, one["metadata"].get("labels", {})) for one in items]
                items = [one for one, has in labels if key in has and (not mark or has[key] == value)]
            return Answer(200, {"items": copy.deepcopy(items)})
        found = known.get(name)
        if found is None:
            return Answer(404, {"message": f'"{name}" not found', "details": {"name": name}})
        if method == "PATCH":
            suspend = (body.get("spec") or {}).get("suspend")
            if suspend is not None and suspend != found["spec"]["suspend"]:
                found["spec"]["suspend"] = suspend
                self._suspend(suspend)
            found["metadata"].setdefault("annotations", {}).update(
                (body.get("metadata") or {}).get("annotations") or {}
            )
        elif method == "DELETE" and kind == "trainjobs":
            return self._delete_trainjob(name, body or {}, params or {})
        elif method == "DELETE":
            del known[name]
        return Answer(200, copy.deepcopy(found))

    def text(self, path: str, params: Mapping[str, str] | None = None) -> tuple[int, str]:
        self._reachable()
        self.calls.append(("GET", path))
        if (refused := self.refuse("GET", path, None)) is not None:
            return refused.code, refused.message
        name = path.split("/pods/")[1].removesuffix("/log")
        pod = self.pods.get(name)
        if pod is None:
            return 404, "not found"
        return 200, str(pod["log"]) if "log" in pod else self.log(int(name.rpartition("-")[2]))

    def execute(
        self, namespace: str, pod: str, container: str, command: Sequence[str], seconds: float = 60.0
    ) -> tuple[int | None, str, str]:
        self._reachable()
        self.calls.append(("EXEC", pod))
        if self.exec_refused:
            return None, "", self.exec_refused
        if self.pods[pod]["spec"].get("nodeName") in self.silent:
            return None, "", "error dialing backend: dial tcp 10.0.0.1:10250: i/o timeout"
        return self._run([word.replace("/mnt/ckpt", str(self.folder)) for word in command])

    def _helper(self, body: Object) -> Answer:
        pod = copy.deepcopy(body)
        name = pod["metadata"]["name"]
        self.helpers.append(pod)
        words = [word.replace(MOUNT, str(self.folder)) for word in pod["spec"]["containers"][0]["command"]]
        code, out, _ = self._run(words)
        pod["status"] = {"phase": "Succeeded" if code == 0 else "Failed"}
        pod["log"] = out
        self.pods[name] = pod
        return Answer(201, pod)

    def _run(self, words: Sequence[str]) -> tuple[int, str, str]:
        folder = str(self.folder)
        tree = self._tree()
        key = (*(word.replace(folder, "FOLDER") for word in words), *tree)
        if key not in self.seen:
            done = subprocess.run(list(words), capture_output=True, text=True, check=False, timeout=60)
            if self._tree() != tree:
                return done.returncode, done.stdout, done.stderr
            self.seen[key] = done.returncode, done.stdout.replace(folder, "FOLDER"), done.stderr
        code, out, errors = self.seen[key]
        return code, out.replace("FOLDER", folder), errors

    def _tree(self) -> tuple[str, ...]:
        return tuple(
            f"{path.relative_to(self.folder)} {path.is_dir() or path.lstat()}"
            for path in sorted(self.folder.rglob("*"))
        )

    def _reachable(self) -> None:
        if self.time < self.down_until:
            raise Unreachable("the API server cannot be reached: connection refused")


def kinds(value: Any) -> str:
    """For a look at an object in a failing test."""
    return json.dumps(value, indent=1)
