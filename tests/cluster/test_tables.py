"""What is kept of a cluster says the same as the whole objects do, and no more of them stays."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from tests import fast_yaml, golden
from webhook.cluster.kinds import served_release
from webhook.cluster.objects import parse_claim, parse_volume
from webhook.cluster.run_table import RunTable
from webhook.cluster.storage_tables import ClaimTable, ClassTable, VolumeTable
from webhook.cluster.tables import NamedTable, RuntimeTable, keep_namespace
from webhook.model.cluster import Gap, Namespace
from webhook.model.release import Release

CLAIMS: list[dict[str, Any]] = [
    {"spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "", "volumeName": "pv"}},
    {"spec": {"accessModes": ["ReadWriteMany", "ReadOnlyMany"], "volumeMode": "Block"}, "status": {"phase": "Lost"}},
    {
        "spec": {"resources": {"requests": {"storage": "10Gi"}}, "storageClassName": "fast", "volumeName": "pv-2"},
        "status": {"phase": "Bound", "capacity": {"storage": "12Gi"}, "accessModes": ["ReadWriteOnce"]},
    },
    {"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["x"]}, "spec": {}},
    {"metadata": {"annotations": {"volume.beta.kubernetes.io/storage-class": "old", "other": "1"}}, "spec": {}},
    {},
    {"spec": {"volumeName": 3, "accessModes": "x"}},
]
AFFINITY = {
    "required": {
        "nodeSelectorTerms": [
            {"matchExpressions": [{"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["b", "a"]}]}
        ]
    }
}
VOLUMES: list[dict[str, Any]] = [
    {"spec": {"csi": {"driver": "efs.csi.aws.com", "volumeHandle": "fs-1", "readOnly": True}}},
    {"spec": {"nfs": {"server": "s", "path": "/"}, "mountOptions": ["ro"], "accessModes": ["ReadWriteMany"]}},
    {
        "spec": {
            "local": {"path": "/d"},
            "nodeAffinity": AFFINITY,
            "capacity": {"storage": "5Gi"},
            "volumeMode": "Block",
        }
    },
    {"spec": {"hostPath": {"path": "/x"}, "storageClassName": "manual"}, "status": {"phase": "Available"}},
    {"spec": {"claimRef": {"namespace": "team", "name": "ckpt", "uid": "1"}}, "status": {"phase": "Available"}},
    {"metadata": {"labels": {"topology.kubernetes.io/zone": "a__b", "x": "y"}}, "spec": {"awsElasticBlockStore": {}}},
    {"spec": {"futureSource": {"readOnly": True, "driver": "is no csi"}}},
    {"spec": {"csi": None}},
    {},
    {"spec": []},
]


def named(obj: dict[str, Any], name: str, namespace: str = "") -> bytes:
    metadata = {**obj.get("metadata", {}), "name": name, "uid": "u", "managedFields": [{"manager": "kubectl"}]}
    if namespace:
        metadata["namespace"] = namespace
    return json.dumps({**obj, "metadata": metadata}).encode()


@pytest.mark.parametrize("obj", CLAIMS)
def test_a_claim_reads_as_the_whole_object_does(obj: dict[str, Any]) -> None:
    table = ClaimTable()
    raw = named(obj, "ckpt", "team")
    assert table.put(raw) == ("team", "ckpt")
    assert table.get("team", "ckpt") == msgspec.structs.replace(parse_claim(json.loads(raw)), labels={})
    assert table.get("other", "ckpt") is None
    assert table.get("team", "other") is None


@pytest.mark.parametrize("obj", VOLUMES)
def test_a_volume_reads_as_the_whole_object_does(obj: dict[str, Any]) -> None:
    table = VolumeTable()
    raw = named(obj, "pv")
    assert table.put(raw) == ("", "pv")
    expected = parse_volume(json.loads(raw))
    if expected.phase not in ("", "Available", "Pending"):  # no claim selects it any more
        expected = msgspec.structs.replace(expected, labels={})
    assert table.get("pv") == expected


def test_claims_that_are_alike_share_what_is_alike() -> None:
    table = ClaimTable()
    for number in range(100):
        table.put(named(CLAIMS[2], f"c{number}", "team"))
    assert len(table) == 100
    assert len({id(row.shape) for row in table._rows["team"].values()}) == 1


def test_shapes_are_bounded() -> None:
    table = ClaimTable()
    for number in range(20_000):
        table.put(named({"spec": {"resources": {"requests": {"storage": str(number)}}}}, "c", "team"))
    assert len(table) == 1
    assert len(table._shapes) <= 8192
    claim = table.get("team", "c")
    assert claim is not None
    assert claim.request == 19_999


def test_a_claim_can_be_forgotten() -> None:
    table = ClaimTable()
    table.put(named({}, "c", "team"))
    table.remove(("team", "other"))
    table.remove(("other", "c"))
    assert list(table.all_keys()) == [("team", "c")]
    table.remove(("team", "c"))
    assert len(table) == 0
    assert table._rows == {}


def test_volumes_that_no_claim_holds() -> None:
    table = VolumeTable()

    def put(name: str, phase: str, storage_class: str = "manual", claim: str = "") -> None:
        spec: dict[str, Any] = {"storageClassName": storage_class, "nfs": {}}
        if claim:
            spec["claimRef"] = {"namespace": "team", "name": claim}
        table.put(named({"spec": spec, "status": {"phase": phase}}, name))

    def free(storage_class: str = "manual") -> list[tuple[str, tuple[str, str] | None]]:
        return [(volume.name, volume.claim_ref) for volume in table.available(storage_class)]

    put("a", "Available")
    put("b", "Bound", claim="x")
    put("c", "Pending", claim="y")
    put("d", "Available", "")
    assert free() == [("a", None), ("c", ("team", "y"))]
    assert free("") == [("d", None)]
    put("a", "Available", claim="z")
    assert free()[0] == ("a", ("team", "z"))
    put("a", "Bound", claim="z")
    assert free() == [("c", ("team", "y"))]
    put("b", "Available")
    table.remove(("", "c"))
    assert free() == [("b", None)]
    put("b", "Available", "other")
    assert (free(), free("other")) == ([], [("b", None)])
    table.remove(("", "b"))
    table.remove(("", "d"))
    assert table._free == {}


def test_the_default_class() -> None:
    table = ClassTable()
    assert table.default() is Gap.ABSENT

    def put(name: str, made: str, default: str = "true") -> None:
        annotations = {"storageclass.kubernetes.io/is-default-class": default}
        metadata = {"annotations": annotations, "creationTimestamp": made}
        table.put(named({"metadata": metadata, "provisioner": "p"}, name))

    def default() -> str | None:
        found = table.default()
        return None if isinstance(found, Gap) else found.name

    put("old", "2026-01-01T00:00:00Z")
    assert default() == "old"
    put("z", "2026-02-01T00:00:00Z")
    put("y", "2026-02-01T00:00:00Z")
    put("none", "2026-03-01T00:00:00Z", "false")
    assert default() == "y"
    table.remove(("", "y"))
    assert default() == "z"


def test_of_a_namespace_only_our_annotations_stay() -> None:
    table = NamedTable(keep_namespace)
    annotations = {"checkpoint-guard.io/default-claim": "c", "big": "x" * 1000}
    table.put(named({"metadata": {"labels": {"team": "a"}, "annotations": annotations}}, "team"))
    assert table.get("team") == Namespace("team", {"team": "a"}, {"checkpoint-guard.io/default-claim": "c"})


def runtime(version: str = "1", spec: Any = None) -> dict[str, Any]:
    annotations = {"kubectl.kubernetes.io/last-applied-configuration": "{}", "kept": "1"}
    return {"metadata": {"resourceVersion": version, "annotations": annotations}, "spec": spec or {"template": {}}}


def test_what_was_prepared_for_a_runtime_lives_until_it_changes() -> None:
    changed: list[tuple[str, str]] = []
    table = RuntimeTable("TrainingRuntime", changed.append)
    table.put(named(runtime(), "rt", "team"))
    first = table.get("team", "rt")
    assert first is not None
    assert (first.kind, first.raw["metadata"]["annotations"]) == ("TrainingRuntime", {"kept": "1"})
    assert "managedFields" not in first.raw["metadata"]
    first.prepared["x"] = 1
    table.put(named(runtime(), "rt", "team"))
    assert table.get("team", "rt") is first
    table.put(named(runtime("2"), "rt", "team"))
    second = table.get("team", "rt")
    assert second is not None
    assert second.prepared == {}
    assert changed == [("team", "rt")] * 2


def test_a_runtime_with_a_field_of_a_wrong_type_is_known_and_not_read() -> None:
    table = RuntimeTable("TrainingRuntime")
    table.put(named(runtime(spec={"template": []}), "rt", "team"))
    assert table.get("team", "rt") is None
    assert "spec.template" in table.faults["team", "rt"]
    assert len(table) == 1
    table.put(named(runtime("2"), "rt", "team"))
    assert (table.get("team", "rt") is not None, table.faults) == (True, {})


def job(generation: int = 1, suspend: bool = False, done: bool = False, **spec: Any) -> dict[str, Any]:
    conditions = [{"type": "Complete", "status": "True"}] if done else []
    return {
        "metadata": {"generation": generation},
        "spec": {"runtimeRef": {"kind": "TrainingRuntime", "name": "rt"}, "suspend": suspend, **spec},
        "status": {"conditions": conditions},
    }


def test_directories_of_unfinished_runs() -> None:
    asked: list[str] = []
    table = RunTable()

    def directories(trainjob: Any) -> list[tuple[str, str]]:
        asked.append(trainjob["metadata"]["name"])
        return [("ckpt", trainjob["spec"].get("path", "/a")), ("ckpt", trainjob["spec"].get("path", "/a"))]

    table.work_out_by(directories)
    table.put(named(job(), "two", "team"))
    table.put(named(job(), "one", "team"))
    table.put(named(job(path="/b"), "three", "team"))
    table.put(named(job(), "one", "other"))
    found = table.directories("team", "ckpt", "/a")
    assert [(entry.run.name, entry.path) for entry in found] == [("one", "/a"), ("two", "/a")]
    assert [entry.run.name for entry in table.directories("team", "ckpt", None)] == ["one", "three", "two"]
    assert table.directories("team", "other", None) == ()
    assert [run.name for run in table.of_runtime("TrainingRuntime", "team", "rt")] == ["two", "one", "three"]
    # A status that changes costs nothing; a spec that does is worked out again; a run that is over goes.
    before = len(asked)
    table.put(named(job(), "two", "team"))
    assert len(asked) == before
    table.put(named(job(2, suspend=True, path="/b"), "two", "team"))
    assert [entry.run.name for entry in table.directories("team", "ckpt", "/b")] == ["three", "two"]
    assert [run.suspended for run in table.of_runtime("TrainingRuntime", "team", "rt") if run.name == "two"] == [True]
    for name in ("one", "two", "three"):
        table.put(named(job(3, done=True), name, "team"))
    table.remove(("other", "one"))
    assert (len(table), table._by_claim, table._by_runtime, table._pending) == (0, {}, {}, {})


def test_a_run_waits_for_its_runtime() -> None:
    known: list[str] = []
    table = RunTable()
    table.work_out_by(lambda trainjob: [("ckpt", "/a")] if known else None)
    table.put(named(job(), "one", "team"))
    assert table.directories("team", "ckpt", "/a") == ()
    known.append("rt")
    table.runtime_came(("TrainingRuntime", "team", "other"))
    assert table.directories("team", "ckpt", "/a") == ()
    table.runtime_came(("TrainingRuntime", "team", "rt"))
    assert len(table.directories("team", "ckpt", "/a")) == 1
    assert table._pending == {}


def test_a_run_that_the_engine_cannot_read_is_left_out() -> None:
    table = RunTable()

    def broken(trainjob: Any) -> None:
        raise RuntimeError

    table.work_out_by(broken)
    assert table.put(named(job(), "one", "team")) == ("team", "one")
    assert len(table.of_runtime("TrainingRuntime", "team", "rt")) == 1


@pytest.mark.parametrize("release", list(Release))
def test_the_release_is_told_by_its_crd(release: Release) -> None:
    assert served_release(fast_yaml.safe_load(golden.crd(golden.TRAINERS[release.value], "trainjobs"))) is release


@pytest.mark.parametrize(
    "crd",
    [
        {},
        {"spec": None},
        {"spec": {"versions": [{"name": "v1alpha1", "served": True}]}},
        {"spec": {"versions": [{"name": "v1alpha1", "served": True, "schema": {"openAPIV3Schema": {}}}]}},
    ],
)
def test_another_crd_tells_none(crd: dict[str, Any]) -> None:
    assert served_release(crd) is None
