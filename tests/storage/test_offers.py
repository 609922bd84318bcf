"""What the cluster has for a claim that is missing: one that is there, the only class, the size that was said."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pytest

from tests.work.shapes import API
from webhook.bootstrap import NothingKnown
from webhook.cluster.file_view import FileView
from webhook.cluster.live import LiveView
from webhook.cluster.store import Store
from webhook.decision import review_object
from webhook.model.cluster import SOME_CLAIMS, SOME_CLASSES, ClusterView, Gap
from webhook.model.policy import Policy
from webhook.model.release import Release
from webhook.model.request import Request

Object = dict[str, Any]


def claim(name: str, mode: str = "ReadWriteMany", cls: str = "shared", **more: Any) -> Object:
    meta = {"name": name, "namespace": more.pop("namespace", "team"), **more.pop("metadata", {})}
    spec = {"accessModes": [mode], "storageClassName": cls, **more.pop("spec", {})}
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": meta, "spec": spec, **more}


def storage_class(name: str, provisioner: str = "nfs.csi.k8s.io", default: bool = False) -> Object:
    marks = {"storageclass.kubernetes.io/is-default-class": "true"} if default else {}
    return {"kind": "StorageClass", "metadata": {"name": name, "annotations": marks}, "provisioner": provisioner}


def runtime(nodes: int = 1, **volume: Any) -> Object:
    container = {
        "name": "node",
        "image": "train",
        "env": [{"name": "CKPT_DIR", "value": "/ckpt/run"}],
        "volumeMounts": [{"name": "ckpt", "mountPath": "/ckpt"}],
    }
    source = volume or {"persistentVolumeClaim": {"claimName": "trian-runs"}}
    pod = {"containers": [container], "volumes": [{"name": "ckpt", **source}]}
    job = {
        "name": "node",
        "template": {
            "metadata": {"labels": {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}},
            "spec": {"template": {"spec": pod}},
        },
    }
    return {
        "apiVersion": API,
        "kind": "TrainingRuntime",
        "metadata": {"name": "torch", "namespace": "team"},
        "spec": {"mlPolicy": {"numNodes": nodes, "torch": {}}, "template": {"spec": {"replicatedJobs": [job]}}},
    }


class Files(FileView):
    """What is given is all there is, in namespace ``team``."""

    def __init__(self, objects: Iterable[Object]) -> None:
        super().__init__(())
        self.store = Store()
        self._looked_in.add("team")
        for one in objects:
            self.store.put(one["kind"], one)


def fix(rule: str, view: ClusterView, annotations: Mapping[str, str] | None = None) -> str:
    spec = {"runtimeRef": {"apiGroup": "trainer.kubeflow.org", "kind": "TrainingRuntime", "name": "torch"}}
    meta = {"name": "run", "namespace": "team", "annotations": dict(annotations or {})}
    job = {"apiVersion": API, "kind": "TrainJob", "metadata": meta, "spec": spec}
    decision = review_object(Request("CREATE", "TrainJob", "team", "run", job), view, Policy(), Release.V2_3)
    return next(finding.fix for finding in decision.findings if finding.rule == rule)


def missing(*objects: Object, nodes: int = 1, **annotations: str) -> str:
    return fix(
        "missing-claim",
        Files([runtime(nodes), *objects]),
        {f"checkpoint-guard.io/{name.replace('_', '-')}": value for name, value in annotations.items()},
    )


def test_the_claim_with_the_nearest_name_is_named() -> None:
    found = missing(storage_class("shared"), claim("data"), claim("train-runs"), claim("zeta"))
    assert "claimName: train-runs" in found
    assert "kind: PersistentVolumeClaim" not in found


@pytest.mark.parametrize(
    "other",
    [
        claim("train-runs", namespace="storage"),
        claim("train-runs", metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"}),
        claim("train-runs", "ReadOnlyMany"),
        claim("train-runs", spec={"volumeMode": "Block"}),
        claim("train-runs", cls="gone"),
        claim("train-runs", status={"phase": "Lost"}),
        claim("train-runs", cls="local"),
    ],
    ids=["elsewhere", "terminating", "read-only", "block", "no such class", "lost", "node-local"],
)
def test_one_that_does_not_fit_is_not_named(other: Object) -> None:
    found = missing(storage_class("shared"), storage_class("local", "rancher.io/local-path"), other)
    assert "name: trian-runs" in found
    assert "claimName" not in found


def test_one_for_one_node_does_not_do_for_two() -> None:
    assert "claimName" in missing(storage_class("shared"), claim("train-runs", "ReadWriteOnce"))
    assert "claimName" not in missing(storage_class("shared"), claim("train-runs", "ReadWriteOnce"), nodes=2)


def test_a_new_claim_has_the_only_class_and_a_size() -> None:
    found = missing(storage_class("shared"))
    assert "storageClassName: shared" in found
    assert "100Gi is a guess" in found
    assert "<" not in found


def test_of_several_classes_the_default_is_named() -> None:
    classes = storage_class("shared"), storage_class("other")
    assert "storageClassName: <class>" in missing(*classes)
    assert "storageClassName: usual" in missing(*classes, storage_class("usual", default=True))


@pytest.mark.parametrize("provisioner", ["rancher.io/local-path", "kubernetes.io/no-provisioner", "ebs.csi.aws.com"])
def test_a_class_that_would_not_do_is_not_named(provisioner: str) -> None:
    assert "storageClassName: <class>" in missing(storage_class("shared", provisioner), nodes=2)


def test_the_size_is_that_of_two_checkpoints_where_one_is_said() -> None:
    assert "60Gi" in missing(storage_class("shared"), checkpoint_size="30Gi")
    assert "160Gi" in missing(storage_class("shared"), model_params="7B")


def test_a_claim_that_is_there_goes_in_the_place_of_an_empty_dir() -> None:
    view = Files([runtime(emptyDir={}), storage_class("shared"), claim("runs")])
    found = fix("ephemeral-checkpoint", view)
    assert "claimName: runs" in found
    assert "kind: PersistentVolumeClaim" not in found


def test_of_many_claims_a_few_are_looked_through_once_a_review() -> None:
    asked: list[str] = []

    class Asked(Files):
        def some_claims(self, namespace: str) -> Any:
            asked.append(namespace)
            return super().some_claims(namespace)

    raw = runtime()
    pod = raw["spec"]["template"]["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    pod["volumes"] += [{"name": f"v{n}", "persistentVolumeClaim": {"claimName": f"none-{n}"}} for n in range(50)]
    view = Asked([raw, storage_class("shared"), *(claim(f"c{n}", "ReadOnlyMany") for n in range(10_000))])
    assert "name: trian-runs" in fix("missing-claim", view)
    assert asked == ["team"]
    found = view.store.some_claims("team")
    assert len(found) == SOME_CLAIMS


def test_what_nobody_knows_stays_unknown() -> None:
    empty = FileView(())
    for view in (NothingKnown(), LiveView(None, {}), empty):
        assert view.some_claims("team") is Gap.UNKNOWN
        assert view.some_classes() is Gap.UNKNOWN


def test_the_tiered_layout_is_offered_a_claim_that_is_there() -> None:
    space = {"kind": "Namespace", "metadata": {"name": "team"}}
    view = Files([runtime(emptyDir={}), storage_class("shared"), claim("runs"), space])
    pods = view.store.runtime("TrainingRuntime", "team", "torch").raw  # type: ignore[union-attr]
    node = pods["spec"]["template"]["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    del node["containers"][0]["env"]
    assert "checkpoint-guard.io/claim: runs" in fix(
        "undeclared-checkpoint", view, {"checkpoint-guard.io/layout": "tiered"}
    )


def test_of_several_classes_the_one_that_is_known_to_fit_is_named() -> None:
    disks = storage_class("disks", "ebs.csi.aws.com", default=True)
    found = missing(disks, storage_class("files"), nodes=2)
    assert "storageClassName: files" in found
    assert "<class>" not in found
    several = missing(disks, storage_class("files"), storage_class("other"), nodes=2)
    assert "# <class>: files or other; ask whoever runs the cluster which" in several


def test_where_no_class_fits_it_says_whom_to_ask() -> None:
    found = missing(storage_class("disks", "ebs.csi.aws.com", default=True), nodes=2)
    assert "none here is known for it: ask whoever runs the cluster" in found
    unknown = fix("missing-claim", LookedIn([runtime(2)]))
    assert "see kubectl get storageclass, or ask whoever runs the cluster" in unknown


class LookedIn(Files):
    """Classes are not known."""

    def some_classes(self) -> Gap:
        return Gap.UNKNOWN


def test_the_default_comes_first_and_some_are_enough() -> None:
    store = Store()
    for n in range(SOME_CLASSES):
        store.put("StorageClass", storage_class(f"c{n}"))
    store.put("StorageClass", storage_class("usual", default=True))
    found = store.some_classes()
    assert isinstance(found, tuple)
    assert (found[0].name, len(found)) == ("usual", SOME_CLASSES)


@pytest.mark.parametrize("rule", ["unusable-claim", "unbindable-claim"])
def test_a_claim_that_will_not_do_is_made_anew_of_a_class_that_does(rule: str) -> None:
    state = (
        {"cls": "gone"}
        if rule == "unbindable-claim"
        else {"status": {"phase": "Lost"}, "cls": "local", "mode": "ReadWriteMany"}
    )
    objects = (
        runtime(2),
        claim("trian-runs", **state),
        storage_class("local", "rancher.io/local-path"),
        storage_class("files"),
    )
    found = fix(rule, Files(objects))
    assert "storageClassName: files" in found
    assert "<" not in found.replace("<size>", "")


def test_of_two_zones_the_class_that_follows_the_pod_is_named() -> None:
    def volume(zone: str) -> Object:
        terms = [{"matchExpressions": [{"key": "topology.kubernetes.io/zone", "operator": "In", "values": [zone]}]}]
        spec = {"csi": {"driver": "ebs.csi.aws.com"}, "nodeAffinity": {"required": {"nodeSelectorTerms": terms}}}
        return {
            "kind": "PersistentVolume",
            "metadata": {"name": f"pv-{zone}"},
            "spec": spec,
            "status": {"phase": "Bound"},
        }

    raw = runtime()
    pod = raw["spec"]["template"]["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    pod["volumes"].append({"name": "data", "persistentVolumeClaim": {"claimName": "data"}})
    claims = [
        claim(name, "ReadWriteOnce", "ebs", spec={"volumeName": f"pv-{zone}"}, status={"phase": "Bound"})
        for name, zone in (("trian-runs", "a"), ("data", "b"))
    ]
    objects = [raw, *claims, volume("a"), volume("b")]
    follows = {**storage_class("follows", "ebs.csi.aws.com"), "volumeBindingMode": "WaitForFirstConsumer"}
    ebs = storage_class("ebs", "ebs.csi.aws.com", default=True)
    assert "storageClassName: follows" in fix("zone-split", Files([*objects, ebs, follows]))
    assert "whoever runs the cluster" in fix("zone-split", Files([*objects, ebs]))
