"""Every volume source of core/v1 has a kind, and read-only is found on every level."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from tests.golden import crds
from tests.storage.views import View
from webhook.model.pod import Storage, StorageKind
from webhook.model.policy import Policy, StoragePolicy
from webhook.storage import SOURCES, classify, source_of

# k8s.io/api/core/v1 VolumeSource, v1.36: the inlined fields of Volume besides name.
KINDS = {
    "awsElasticBlockStore": "one-node",
    "azureDisk": "one-node",
    "azureFile": "many-nodes",
    "cephfs": "many-nodes",
    "cinder": "one-node",
    "configMap": "read-only",
    "csi": "ephemeral",
    "downwardAPI": "read-only",
    "emptyDir": "ephemeral",
    "ephemeral": "ephemeral",
    "fc": "one-node",
    "flexVolume": "unknown",
    "flocker": "one-node",
    "gcePersistentDisk": "one-node",
    "gitRepo": "read-only",
    "glusterfs": "many-nodes",
    "hostPath": "node-local",
    "image": "read-only",
    "iscsi": "one-node",
    "nfs": "many-nodes",
    "persistentVolumeClaim": "unknown",
    "photonPersistentDisk": "one-node",
    "portworxVolume": "unknown",
    "projected": "read-only",
    "quobyte": "many-nodes",
    "rbd": "one-node",
    "scaleIO": "one-node",
    "secret": "read-only",
    "storageos": "one-node",
    "vsphereVolume": "one-node",
}
MOUNT = {"name": "ckpt", "mountPath": "/mnt/ckpt"}


def judge(volume: dict[str, Any] | None, mount: dict[str, Any] | None = MOUNT, policy: Policy | None = None) -> Storage:
    return classify(volume, mount, None, "team", View(), policy or Policy(), False)


def test_the_table_holds_every_source() -> None:
    assert set(SOURCES) == set(KINDS)


def test_the_table_holds_every_source_that_trainers_crds_know() -> None:
    found = 0
    for text in crds():
        for names in volume_schemas(yaml.load(text, yaml.CSafeLoader)):
            found += 1
            assert names - {"name"} <= set(SOURCES)
    assert found > 8


def volume_schemas(node: Any) -> list[set[str]]:
    """The property names of every ``volumes`` list in a schema."""
    found: list[set[str]] = []
    if isinstance(node, dict):
        volumes = node.get("volumes")
        if isinstance(volumes, dict) and "emptyDir" in volumes.get("items", {}).get("properties", {}):
            found.append(set(volumes["items"]["properties"]))
        for value in node.values():
            found += volume_schemas(value)
    elif isinstance(node, list):
        for value in node:
            found += volume_schemas(value)
    return found


@pytest.mark.parametrize(("source", "kind"), KINDS.items())
def test_kind_of_a_source(source: str, kind: str) -> None:
    judged = judge({"name": "ckpt", source: {}})
    assert judged.kind.value == kind
    assert judged.source == source
    assert source in judged.fact or judged.claim_name is not None


@pytest.mark.parametrize("source", sorted(set(KINDS) - {"emptyDir", "ephemeral", "hostPath", "csi"}))
@pytest.mark.parametrize("level", ["mount", "source"])
def test_read_only_outweighs_what_is_durable(source: str, level: str) -> None:
    judged = judge({"name": "ckpt", source: {"readOnly": level == "source"}}, {**MOUNT, "readOnly": level == "mount"})
    assert judged.kind is StorageKind.READ_ONLY
    assert judged.read_only


@pytest.mark.parametrize("source", ["emptyDir", "ephemeral", "hostPath"])
def test_what_is_lost_with_pod_or_node_stays_so_when_read_only(source: str) -> None:
    judged = judge({"name": "ckpt", source: {}}, {**MOUNT, "readOnly": True})
    assert judged.kind.value == KINDS[source]
    assert judged.read_only == "readOnly in the mount"


def test_no_mount_is_the_containers_own_file_system() -> None:
    judged = judge(None, None)
    assert (judged.kind, judged.source) == (StorageKind.EPHEMERAL, "")


def test_a_mount_without_its_volume_is_unknown() -> None:
    assert judge(None).kind is StorageKind.UNKNOWN


def test_a_volume_with_a_name_only_becomes_an_empty_dir() -> None:
    assert source_of({"name": "ckpt"}) == "emptyDir"
    assert source_of({"name": "ckpt", "emptyDir": None}) == "emptyDir"
    assert judge({"name": "ckpt"}).kind is StorageKind.EPHEMERAL


def test_two_sources_are_worth_nothing() -> None:
    judged = judge({"name": "ckpt", "emptyDir": {}, "persistentVolumeClaim": {"claimName": "data"}})
    assert (judged.kind, judged.source, judged.claim_name) == (StorageKind.UNKNOWN, "", None)


def test_a_source_of_the_future_is_unknown() -> None:
    assert judge({"name": "ckpt", "holographic": {"readOnly": False}}).kind is StorageKind.UNKNOWN


@pytest.mark.parametrize(
    ("driver", "added", "kind", "warn_only"),
    [
        ("gcsfuse.csi.storage.gke.io", {}, "object-store", False),
        ("multitier-checkpoint.csi.storage.gke.io", {}, "many-nodes", False),
        ("phase1-checkpoint.csi.storage.gke.io", {}, "many-nodes", False),
        ("secrets.example", {}, "ephemeral", True),
        ("buckets.example", {"buckets.example": "many-nodes"}, "many-nodes", False),
        ("a.disks.example", {"*.disks.example": "one-node"}, "one-node", False),
        ("gcsfuse.csi.storage.gke.io", {"*.storage.gke.io": "node-local"}, "node-local", False),
    ],
)
def test_inline_csi_by_its_driver(driver: str, added: dict[str, Any], kind: str, warn_only: bool) -> None:
    policy = Policy(storage=StoragePolicy(inline_drivers=added))
    judged = judge({"name": "ckpt", "csi": {"driver": driver}}, policy=policy)
    assert (judged.kind.value, judged.warn_only) == (kind, warn_only)


def test_a_source_that_is_null_does_not_raise() -> None:
    for source in KINDS:
        judge({"name": "ckpt", source: None})
