"""What files say of a cluster: known, absent, unknown."""

from __future__ import annotations

from typing import Any

import pytest

from webhook.cluster.documents import Document
from webhook.cluster.file_view import FileView
from webhook.cluster.files import load_text
from webhook.cluster.objects import parse_claim, parse_run, parse_storage_class, parse_volume
from webhook.cluster.store import Store
from webhook.model.cluster import Claim, ClusterView, Gap, PersistentVolume, Runtime, StorageClass
from webhook.model.release import Release

TEXT = """
{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: c, namespace: team}, spec: {storageClassName: ""}}
---
{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: d}}
---
{apiVersion: v1, kind: Namespace, metadata: {name: team, labels: {a: b}}}
---
apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainingRuntime
metadata: {name: r, namespace: team}
spec: {mlPolicy: {numNodes: 1}}
---
apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainJob
metadata: {name: j, namespace: team}
spec: {suspend: true, runtimeRef: {name: r, kind: TrainingRuntime}}
---
apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainJob
metadata: {name: over, namespace: team}
spec: {runtimeRef: {name: r, kind: TrainingRuntime}}
status: {conditions: [{type: Complete, status: "True"}]}
"""


def documents(text: str = TEXT) -> list[Document]:
    loaded = load_text(text.encode(), "f")
    assert not loaded.errors
    return loaded.documents


def test_one_that_is_not_among_the_files_is_absent_and_a_kind_without_any_is_unknown() -> None:
    view: ClusterView = FileView(documents(), Release.V2_2)
    claim = view.claim("team", "c")
    assert isinstance(claim, Claim)
    assert claim.storage_class == ""
    assert isinstance(view.claim("default", "d"), Claim)
    assert view.claim("default", "c") is Gap.ABSENT
    assert view.namespace("other") is Gap.ABSENT
    assert view.volume("x") is Gap.UNKNOWN
    assert view.available_volumes("") is Gap.UNKNOWN
    assert view.storage_class("x") is Gap.UNKNOWN
    assert view.default_storage_class() is Gap.UNKNOWN
    assert view.snapshot("team", "j") is Gap.UNKNOWN
    assert view.why_unknown("PersistentVolume") == "no PersistentVolume among the files"
    assert view.release() is Release.V2_2


def test_what_could_not_be_read_may_have_been_it() -> None:
    view = FileView(documents(), damaged={"PersistentVolumeClaim"})
    assert view.claim("default", "c") is Gap.UNKNOWN
    assert isinstance(view.claim("team", "c"), Claim)
    assert "could not be read" in view.why_unknown("PersistentVolumeClaim")


def test_runtimes_are_found_in_their_scope_and_can_be_replaced() -> None:
    view = FileView(documents())
    runtime = view.runtime("TrainingRuntime", "team", "r")
    assert isinstance(runtime, Runtime)
    assert view.runtime("TrainingRuntime", "default", "r") is Gap.ABSENT
    assert view.runtime("ClusterTrainingRuntime", "team", "r") is Gap.UNKNOWN
    defaulted = Runtime("TrainingRuntime", "team", "r", {"spec": {}}, {})
    view.put_runtime(defaulted)
    assert view.runtime("TrainingRuntime", "team", "r") is defaulted


def test_each_runtime_has_a_cache_of_its_own() -> None:
    first, second = FileView(documents()), FileView(documents())
    one, two = (view.runtime("TrainingRuntime", "team", "r") for view in (first, second))
    assert isinstance(one, Runtime)
    assert isinstance(two, Runtime)
    one.prepared["x"] = 1
    assert two.prepared == {}


def test_finished_runs_do_not_count() -> None:
    view = FileView(documents())
    runs = view.runs_of_runtime("TrainingRuntime", "team", "r")
    assert not isinstance(runs, Gap)
    assert [(run.name, run.suspended) for run in runs] == [("j", True)]
    assert view.runs_of_runtime("TrainingRuntime", "default", "r") == []
    assert FileView([]).runs_of_runtime("TrainingRuntime", "team", "r") is Gap.UNKNOWN


def test_directories_are_worked_out_once_and_by_claim() -> None:
    asked: list[str] = []

    def directories_of(view: FileView, trainjob: Any) -> list[tuple[str, str]]:
        asked.append(trainjob["metadata"]["name"])
        assert view.directories("team", "c") == ()
        return [("c", "/runs/a"), ("other", "/")]

    view = FileView(documents(), directories_of=directories_of)
    assert asked == []
    found = view.directories("team", "c")
    assert not isinstance(found, Gap)
    assert [(entry.run.name, entry.path) for entry in found] == [("j", "/runs/a")]
    assert view.directories("team", "c", "/runs/a") == found
    assert view.directories("team", "c", "/runs/b") == ()
    assert view.directories("default", "c") == ()
    assert asked == ["j"]
    assert FileView([]).directories("team", "c") is Gap.UNKNOWN


def test_snapshots_of_trainer_are_read_from_their_config_map() -> None:
    view = FileView(
        documents(
            "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: j-runtime-snapshot, namespace: team}\n"
            "data:\n  runtime: |\n    kind: ClusterTrainingRuntime\n    metadata: {name: r}\n    spec: {}\n"
        )
    )
    found = view.snapshot("team", "j")
    assert isinstance(found, Runtime)
    assert found.label == "ClusterTrainingRuntime/r"
    assert view.snapshot("team", "k") is Gap.ABSENT


def storage_class(name: str, created: str, key: str = "storageclass.kubernetes.io/is-default-class") -> dict[str, Any]:
    metadata = {"name": name, "creationTimestamp": created, "annotations": {key: "true"}}
    return {"metadata": metadata, "provisioner": "example.com/x"}


def test_of_several_default_classes_the_newest_counts_then_the_first_by_name() -> None:
    store = Store()
    assert store.default_storage_class() is Gap.ABSENT
    store.put("StorageClass", {"metadata": {"name": "plain"}, "provisioner": "p"})
    assert store.default_storage_class() is Gap.ABSENT
    store.put("StorageClass", storage_class("b", "2024-01-01T00:00:00Z"))
    store.put(
        "StorageClass", storage_class("c", "2025-01-01T00:00:00Z", "storageclass.beta.kubernetes.io/is-default-class")
    )
    store.put("StorageClass", storage_class("a", "2025-01-01T00:00:00Z"))
    found = store.default_storage_class()
    assert isinstance(found, StorageClass)
    assert found.name == "a"


def test_volumes_that_are_bound_are_not_available() -> None:
    store = Store()
    for name, spec, phase in (
        ("free", {"storageClassName": "x"}, "Available"),
        ("named", {"storageClassName": "x", "claimRef": {"namespace": "n", "name": "c"}}, ""),
        ("bound", {"storageClassName": "x"}, "Bound"),
        ("released", {"storageClassName": "x"}, "Released"),
        ("none", {}, "Available"),
    ):
        store.put("PersistentVolume", {"metadata": {"name": name}, "spec": spec, "status": {"phase": phase}})
    found = store.available_volumes("x")
    assert not isinstance(found, Gap)
    assert [volume.name for volume in found] == ["free", "named"]
    assert [volume.name for volume in store.available_volumes("") or ()] == ["none"]  # type: ignore[union-attr]
    assert store.available_volumes("y") == ()


def test_claims_are_read_whole() -> None:
    claim = parse_claim(
        {
            "metadata": {
                "name": "c",
                "deletionTimestamp": "2025-01-01T00:00:00Z",
                "annotations": {"volume.beta.kubernetes.io/storage-class": "old"},
                "labels": {"a": "b", "bad": 5},
            },
            "spec": {
                "accessModes": ["ReadWriteOnce", 5],
                "storageClassName": "new",
                "volumeName": "pv",
                "volumeMode": "Block",
                "resources": {"requests": {"storage": "1.5Gi"}},
            },
            "status": {"phase": "Bound", "capacity": {"storage": "2Gi"}},
        }
    )
    assert claim == Claim(
        "default", "c", ("ReadWriteOnce",), "old", "pv", "Block", "Bound", 3 * 2**29, 2 * 2**30, True, {"a": "b"}
    )  # fmt: skip
    assert parse_claim({}).storage_class is None


def test_volumes_are_read_whole() -> None:
    def term(*values: str, key: str = "topology.kubernetes.io/zone") -> dict[str, Any]:
        return {"matchExpressions": [{"key": key, "operator": "In", "values": list(values)}]}

    def volume(spec: dict[str, Any], **labels: str) -> PersistentVolume:
        return parse_volume({"metadata": {"name": "v", "labels": labels}, "spec": spec})

    def affinity(*terms: dict[str, Any]) -> dict[str, Any]:
        return {"nodeAffinity": {"required": {"nodeSelectorTerms": list(terms)}}}

    csi = volume({"capacity": {"storage": "1Gi"}, "csi": {"driver": "d", "readOnly": True}, "mountOptions": ["ro"]})
    assert (csi.source, csi.driver, csi.read_only, csi.mount_options, csi.capacity) == (
        "csi",
        "d",
        True,
        ("ro",),
        2**30,
    )
    assert volume({"nodeAffinity": {}, "local": {"path": "/x"}}).source == "local"
    assert volume(affinity(term("a"), term("b"))).zones == {"a", "b"}
    # one alternative that names no zone leaves all open
    assert volume(affinity(term("a"), term("n", key="kubernetes.io/hostname"))).zones == set()
    assert volume(affinity(term("a", key="failure-domain.beta.kubernetes.io/zone"))).zones == {"a"}
    assert volume({}, **{"topology.kubernetes.io/zone": "a__b"}).zones == {"a", "b"}
    assert volume({"claimRef": {"namespace": "n", "name": "c"}}).claim_ref == ("n", "c")


@pytest.mark.parametrize(
    ("written", "options"),
    [
        (["hard", "ro"], ("hard", "ro")),
        (["hard,ro"], ("hard", "ro")),
        (["nfsvers=4.1, ro,"], ("nfsvers=4.1", "ro")),
        (["errors=remount-ro"], ("errors=remount-ro",)),
        ([], ()),
        (None, ()),
    ],
)
def test_one_item_may_hold_several_mount_options(written: list[str] | None, options: tuple[str, ...]) -> None:
    assert parse_volume({"metadata": {"name": "v"}, "spec": {"mountOptions": written}}).mount_options == options
    assert parse_storage_class({"metadata": {"name": "c"}, "mountOptions": written}).mount_options == options


def test_classes_name_the_zones_that_they_allow() -> None:
    found = parse_storage_class(
        {
            "metadata": {"name": "x"},
            "provisioner": "p",
            "volumeBindingMode": "WaitForFirstConsumer",
            "allowedTopologies": [
                {"matchLabelExpressions": [{"key": "topology.kubernetes.io/zone", "values": ["a", "b"]}]}
            ],
        }
    )
    assert (found.binding_mode, found.zones, found.default) == ("WaitForFirstConsumer", frozenset({"a", "b"}), False)


@pytest.mark.parametrize("odd", [None, 5, "x", [], [5], {"name": 5}, {"x": {"y": []}}])
@pytest.mark.parametrize("kind", ["PersistentVolumeClaim", "PersistentVolume", "StorageClass", "Namespace", "TrainJob",
                                  "TrainingRuntime", "ConfigMap"])  # fmt: skip
def test_odd_objects_never_raise(kind: str, odd: object) -> None:
    store = Store()
    for field in ("metadata", "spec", "status", "data", "allowedTopologies", "parameters"):
        store.put(kind, {"kind": kind, field: odd})
    for _ in store.unfinished():
        pass


def test_a_run_names_its_runtime() -> None:
    run = parse_run({"metadata": {"generateName": "x-"}, "spec": {"runtimeRef": {"name": "r"}}})
    assert (run.name, run.namespace, run.runtime_kind, run.runtime_name) == (
        "x-",
        "default",
        "ClusterTrainingRuntime",
        "r",
    )
