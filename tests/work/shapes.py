"""Objects that make one list long, to see how work grows with it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from webhook.cluster.file_view import FileView
from webhook.decision import default_object, review_object
from webhook.model.cluster import Claim, Gap
from webhook.model.policy import Policy
from webhook.model.release import Release
from webhook.model.request import Request
from webhook.model.verdict import Decision, Defaulted

Object = dict[str, Any]
LABEL: Final = {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}
API: Final = "trainer.kubeflow.org/v1alpha1"
CLAIM: Final[Object] = {
    "apiVersion": "v1",
    "kind": "PersistentVolumeClaim",
    "metadata": {"name": "state", "namespace": "team"},
    "spec": {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Ti"}}},
}


def container(name: str = "node", mounts: Iterable[Object] = (), **more: Any) -> Object:
    """A container with the claim's volume mounted."""
    return {"name": name, "image": "r/t:1", **more, "volumeMounts": [{"name": "state", "mountPath": "/state"}, *mounts]}


def job(
    name: str = "node",
    containers: list[Object] | None = None,
    volumes: Iterable[Object] = (),
    labels: Mapping[str, str] = LABEL,
    **pod: Any,
) -> Object:
    """A replicatedJob that trains, with the claim among its volumes."""
    claim = {"name": "state", "persistentVolumeClaim": {"claimName": "state"}}
    spec = {"containers": containers or [container()], "volumes": [claim, *volumes], **pod}
    return {"name": name, "template": {"metadata": {"labels": dict(labels)}, "spec": {"template": {"spec": spec}}}}


def runtime(jobs: list[Object], **jobset: Any) -> Object:
    """A TrainingRuntime under torch."""
    return {
        "apiVersion": API,
        "kind": "TrainingRuntime",
        "metadata": {"name": "shaped", "namespace": "team"},
        "spec": {"mlPolicy": {"numNodes": 1, "torch": {}}, "template": {"spec": {**jobset, "replicatedJobs": jobs}}},
    }


def trainjob(directory: str | None = "/state/run", env: Iterable[Object] = (), **spec: Any) -> Object:
    """A TrainJob of that runtime which declares its directory."""
    declared = [] if directory is None else [{"name": "CKPT_DIR", "value": directory}]
    trainer = {"numNodes": 1, "env": [*declared, *env], **spec.pop("trainer", {})}
    reference = {"apiGroup": "trainer.kubeflow.org", "kind": "TrainingRuntime", "name": "shaped"}
    metadata = {"name": "run", "namespace": "team"}
    return {
        "apiVersion": API,
        "kind": "TrainJob",
        "metadata": metadata,
        "spec": {"runtimeRef": reference, "trainer": trainer, **spec},
    }


class Everything(FileView):
    """What was put in is all there is."""

    def claim(self, namespace: str, name: str) -> Claim | Gap:
        return self.store.claim(namespace, name)


def ask(
    objects: Iterable[Object], release: Release = Release.V2_3, policy: Policy | None = None, uid: str = "u"
) -> tuple[Defaulted, Decision]:
    """What both questions answer for the TrainJob (else the runtime) among the objects, which are all there is."""
    policy = policy or Policy()
    view = Everything((), policy=policy)
    view.store.unknown.clear()
    subject: Object = {}
    for one in objects:
        if one["kind"] == "TrainJob" or (one["kind"] == "TrainingRuntime" and not subject):
            subject = one
        if one["kind"] != "TrainJob":
            view.store.put(one["kind"], one)
    metadata = subject["metadata"]
    request = Request("CREATE", subject["kind"], metadata["namespace"], metadata["name"], subject, None, uid=uid)
    defaulted = default_object(request, view, policy, release)
    stored = Request("CREATE", request.kind, request.namespace, request.name, defaulted.object, None, uid=uid)
    return defaulted, review_object(stored, view, policy, release)
