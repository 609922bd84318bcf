"""A small cluster, a runtime and a TrainJob to fill in, and what becomes of them."""

from __future__ import annotations

import copy
import json
from collections.abc import Sequence
from typing import Any

import jsonpatch

from webhook import defaults
from webhook.cluster.file_view import FileView
from webhook.cluster.files import load_text
from webhook.decision.proposal import by_rules
from webhook.model.cluster import ClusterView
from webhook.model.names import INJECTED
from webhook.model.policy import Policy
from webhook.model.release import Release
from webhook.model.request import Request
from webhook.model.verdict import Defaulted

Object = dict[str, Any]
NAMESPACE = "team-a"
SHAPE_RELEASES = (Release.V2_0, Release.V2_1, Release.V2_3)
TRAINJOB_NAME = {
    "name": "TRAINJOB_NAME",
    "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['jobset.sigs.k8s.io/jobset-name']"}},
}


def default(asked: Request, view: ClusterView, policy: Policy, release: Release) -> Defaulted:
    """The defaults of one request, with the rules to judge what they propose."""
    return defaults.default(asked, view, policy, release, by_rules(asked, view, policy, release))


def container(name: str = "node", **fields: Any) -> Object:
    """A container with an image."""
    return {"name": name, "image": "train:1", **fields}


def job(name: str = "node", *, label: bool = True, pod: Object | None = None, **spec: Any) -> Object:
    """A replicatedJob; ``pod`` defaults to one container "node", ``spec`` is that of the Job."""
    template: Object = {"spec": {**spec, "template": {"spec": pod or {"containers": [container()]}}}}
    if label:
        template["metadata"] = {"labels": {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}}
    return {"name": name, "template": template}


def runtime(*jobs: Object, kind: str = "TrainingRuntime", policy: Object | None = None, **jobset: Any) -> Object:
    """A runtime "rt" of the jobs; ``policy`` is its mlPolicy."""
    metadata: Object = {"name": "rt"}
    if kind == "TrainingRuntime":
        metadata["namespace"] = NAMESPACE
    spec: Object = {"template": {"spec": {**jobset, "replicatedJobs": list(jobs or (job(),))}}}
    if policy is not None:
        spec["mlPolicy"] = policy
    return {"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": kind, "metadata": metadata, "spec": spec}


def mpi_runtime(launcher: Object | None = None, node: Object | None = None, **policy: Any) -> Object:
    """A runtime whose launcher carries the label, and whose workers are job "node"."""
    return runtime(
        job("launcher", pod=launcher), job("node", label=False, pod=node), policy={"numNodes": 2, "mpi": dict(policy)}
    )


def trainjob(*, annotations: Object | None = None, trainer: Object | None = {}, **spec: Any) -> Object:  # noqa: B006
    """A TrainJob "run" of runtime "rt"; with ``trainer`` None it has no ``spec.trainer``."""
    metadata: Object = {"name": "run", "namespace": NAMESPACE}
    if annotations:
        metadata["annotations"] = annotations
    body: Object = {"runtimeRef": {"kind": "TrainingRuntime", "name": "rt"}, **spec}
    if trainer is not None:
        body["trainer"] = copy.deepcopy(trainer)
    return {"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob", "metadata": metadata, "spec": body}


def claim(name: str = "train-ckpt", *modes: str, **status: Any) -> Object:
    """A bound claim of a volume on nfs, which ``volume`` gives."""
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "namespace": NAMESPACE, **status.pop("metadata", {})},
        "spec": {"accessModes": list(modes or ("ReadWriteMany",)), "volumeName": "pv", **status.pop("spec", {})},
        "status": {"phase": "Bound", **status},
    }


def volume(source: str = "nfs", *modes: str) -> Object:
    """The volume that ``claim`` is bound to; ``modes`` are what it offers."""
    body = {"path": "/x", "server": "s"} if source == "nfs" else {"path": "/x"}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": "pv"},
        "spec": {"accessModes": list(modes or ("ReadWriteMany",)), source: body},
    }


def mounting(claim_name: str = "mine", path: str = "/data", **mount: Any) -> Object:
    """A pod whose container "node" mounts a claim."""
    return {
        "containers": [container(volumeMounts=[{"name": "v", "mountPath": path, **mount}])],
        "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": claim_name}}],
    }


def cluster(*objects: Object) -> FileView:
    """A view of the objects; kinds of which none is given are unknown."""
    text = "\n---\n".join(json.dumps(obj) for obj in objects).encode()
    loaded = load_text(text, "world")
    assert not loaded.errors, loaded.errors
    return FileView(loaded.documents)


def request(obj: Object, old: Object | None = None) -> Request:
    """CREATE of the object, or UPDATE where there is an old one."""
    metadata = obj["metadata"]
    return Request(
        "CREATE" if old is None else "UPDATE",
        obj["kind"],
        metadata.get("namespace") or "",
        metadata.get("name") or metadata.get("generateName") or "",
        obj,
        old,
    )


def fill(
    obj: Object,
    *state: Object,
    old: Object | None = None,
    release: Release = Release.V2_3,
    policy: Policy | None = None,
) -> Defaulted:
    """What ``default`` does; it holds for every answer that the patch leads to the object, that nothing given was
    changed, and that the second patch is empty and brings no finding that the first did not."""
    given = copy.deepcopy((obj, old))
    view = cluster(*state)
    asked = request(obj, old)
    done = default(asked, view, policy or Policy(), release)
    assert (obj, old) == given, "the request was changed"
    assert done.broken == ()
    assert applied(obj, done.patch) == done.object
    again = default(request(dict(done.object), old), view, policy or Policy(), release)
    assert again.patch == (), "the second patch is not empty"
    assert [one for one in again.findings if one not in done.findings] == []
    assert default(asked, cluster(*state), policy or Policy(), release).patch == done.patch
    return done


def applied(obj: Object, patch: Sequence[Any]) -> Any:
    """The object after the patch, by an implementation of RFC 6902 that is not ours."""
    return jsonpatch.apply_patch(json.loads(json.dumps(obj)), json.loads(json.dumps(list(patch))))


def pods(obj: Any, release: Release = Release.V2_3) -> dict[str, Object]:
    """The PodSpec that the TrainJob's overrides write, by job; the last one where several do."""
    spec = obj["spec"]
    found: dict[str, Object] = {}
    if release in (Release.V2_0, Release.V2_1):
        for entry in spec.get(release.override_field) or ():
            for target in entry["targetJobs"]:
                found[target["name"]] = entry if release is Release.V2_0 else entry["spec"]
        return found
    for entry in spec.get("runtimePatches") or ():
        for patched in entry["trainingRuntimeSpec"]["template"]["spec"].get("replicatedJobs") or ():
            found[patched["name"]] = patched["template"]["spec"]["template"]["spec"]
    return found


def env(obj: Any) -> list[Object]:
    """``spec.trainer.env``."""
    return (obj["spec"].get("trainer") or {}).get("env") or []


def injected(obj: Any) -> Any:
    """The record of what was added, or None."""
    text = (obj["metadata"].get("annotations") or {}).get(INJECTED)
    return None if text is None else json.loads(text)
