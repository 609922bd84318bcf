"""A bound claim is judged by its volume, an unbound one by its class and the volumes that may bind."""

from __future__ import annotations

from typing import Any

import pytest

from tests.storage.views import View
from webhook.model.cluster import Claim, Gap, PersistentVolume, StorageClass
from webhook.model.pod import Storage, StorageKind
from webhook.model.policy import Policy
from webhook.storage import binding_candidates, classify

RWO, RWX, ROX, RWOP = ("ReadWriteOnce",), ("ReadWriteMany",), ("ReadOnlyMany",), ("ReadWriteOncePod",)
HOST = {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": ["secret-node"]}]}
ZONE = {"matchExpressions": [{"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["secret-zone"]}]}


def claim(modes: tuple[str, ...] = RWO, **more: Any) -> Claim:
    if more.get("volume_name"):
        more.setdefault("phase", "Bound")
    return Claim("team", "data", modes, **more)


def volume(source: str, **more: Any) -> PersistentVolume:
    return PersistentVolume("pv-1", more.pop("access_modes", RWX), source=source, **more)


def judge(*objects: Any, unknown: tuple[str, ...] = (), elsewhere: bool = False, namespace: str = "team") -> Storage:
    source = {"name": "ckpt", "persistentVolumeClaim": {"claimName": "data"}}
    mount = {"name": "ckpt", "mountPath": "/mnt/ckpt"}
    return classify(source, mount, None, namespace, View(*objects, unknown=unknown), Policy(), elsewhere)


BOUND = [
    (volume("local", node_affinity=(HOST,)), RWO, "node-local", False),
    (volume("hostPath"), RWO, "node-local", False),
    (volume("hostPath"), RWX, "node-local", True),
    (volume("hostPath", node_affinity=(HOST,)), RWX, "node-local", False),
    (volume("csi", driver="csi.example", node_affinity=(HOST,)), RWO, "node-local", False),
    (volume("csi", driver="csi.example", node_affinity=(ZONE,)), RWO, "one-node", False),
    (volume("csi", driver="csi.example", node_affinity=(HOST, ZONE)), RWO, "one-node", False),
    (volume("csi", driver="zfs.csi.openebs.io"), RWO, "node-local", False),
    (volume("csi", driver="ebs.csi.aws.com"), RWO, "one-node", False),
    (volume("csi", driver="x.cephfs.csi.ceph.com"), RWX, "many-nodes", False),
    (volume("nfs"), RWX, "many-nodes", False),
    (volume("nfs"), RWO, "one-node", False),
    (volume("nfs"), RWOP, "one-node", False),
    (volume("nfs"), ROX, "read-only", False),
    (volume("nfs", read_only=True), RWX, "read-only", False),
    (volume("nfs", mount_options=("nfsvers=4.1", "ro")), RWX, "read-only", False),
    (volume("nfs", mount_options=("rw", "errors=remount-ro")), RWX, "many-nodes", False),
]


@pytest.mark.parametrize(("bound_to", "modes", "kind", "warn_only"), BOUND)
def test_bound(bound_to: PersistentVolume, modes: tuple[str, ...], kind: str, warn_only: bool) -> None:
    # The class would say node-local; a bound claim's class is ignored.
    local = StorageClass("lp", "rancher.io/local-path")
    judged = judge(claim(modes, volume_name="pv-1", storage_class="lp"), bound_to, local)
    assert (judged.kind.value, judged.warn_only) == (kind, warn_only)
    assert "secret" not in judged.fact
    assert "pv-1" not in judged.fact
    assert (judged.read_only != "") == (kind == "read-only")


def test_a_volume_on_several_named_nodes_is_likely_pinned() -> None:
    both = {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": ["a", "b"]}]}
    judged = judge(claim(volume_name="pv-1"), volume("csi", driver="csi.example", node_affinity=(both,)))
    assert (judged.kind, judged.warn_only) == (StorageKind.NODE_LOCAL, True)


@pytest.mark.parametrize(
    ("provisioner", "modes", "kind"),
    [
        ("rancher.io/local-path", RWO, "node-local"),
        ("rancher.io/local-path", RWX, "node-local"),
        ("kubernetes.io/no-provisioner", RWO, "node-local"),
        ("ebs.csi.aws.com", RWO, "one-node"),
        ("rook-ceph.rbd.csi.ceph.com", RWX, "one-node"),
        ("efs.csi.aws.com", RWX, "many-nodes"),
        ("efs.csi.aws.com", RWO, "one-node"),
        ("csi.example", RWX, "many-nodes"),
        ("csi.example", RWO, "one-node"),
        ("csi.example", ROX, "read-only"),
    ],
)
@pytest.mark.parametrize("named", [True, False])
def test_unbound_by_class(provisioner: str, modes: tuple[str, ...], kind: str, named: bool) -> None:
    found = StorageClass("c", provisioner, default=not named, binding_mode="WaitForFirstConsumer")
    judged = judge(claim(modes, storage_class="c" if named else None, phase="Pending"), found)
    assert judged.kind.value == kind
    assert judged.storage_class is found


def test_mount_option_of_the_class() -> None:
    judged = judge(claim(RWX, storage_class="c"), StorageClass("c", "efs.csi.aws.com", mount_options=("ro",)))
    assert judged.kind is StorageKind.READ_ONLY


@pytest.mark.parametrize(
    ("available", "kind", "warn_only"),
    [
        ([volume("local", storage_class="c", node_affinity=(HOST,))], "node-local", False),
        ([volume("nfs", storage_class="c")], "many-nodes", False),
        ([volume("nfs", storage_class="c"), volume("local", storage_class="c")], "node-local", True),
        ([volume("nfs", storage_class="c", read_only=True)], "read-only", False),
        ([volume("nfs", storage_class="other")], "node-local", False),
        ([volume("nfs", storage_class="c", phase="Bound")], "node-local", False),
        ([volume("nfs", storage_class="c", claim_ref=("team", "another"))], "node-local", False),
    ],
)
def test_volumes_that_may_bind_speak_for_a_class_without_provisioner(
    available: list[PersistentVolume], kind: str, warn_only: bool
) -> None:
    static = StorageClass("c", "kubernetes.io/no-provisioner")
    judged = judge(claim(RWX, storage_class="c"), static, *available)
    assert (judged.kind.value, judged.warn_only) == (kind, warn_only)


def test_no_class_at_all() -> None:
    assert judge(claim(RWX, storage_class=""), volume("nfs")).kind is StorageKind.MANY_NODES
    assert judge(claim(RWX, storage_class=""), volume("hostPath")).kind is StorageKind.NODE_LOCAL
    assert judge(claim(RWX, storage_class="")).kind is StorageKind.UNKNOWN
    assert judge(claim(RWX), volume("nfs")).kind is StorageKind.MANY_NODES


UNKNOWN = [
    ((), ("PersistentVolumeClaim",)),
    ((claim(volume_name="pv-1"),), ("PersistentVolume",)),
    ((claim(volume_name="pv-1"),), ()),
    ((claim(storage_class="c"),), ("StorageClass",)),
    ((claim(),), ("StorageClass",)),
    ((claim(storage_class=""),), ("PersistentVolume",)),
    ((claim(storage_class="gone"),), ("PersistentVolume",)),
]


@pytest.mark.parametrize(("objects", "unknown"), UNKNOWN)
def test_what_cannot_be_looked_up_is_unknown_and_says_why(objects: tuple[Claim, ...], unknown: tuple[str, ...]) -> None:
    judged = judge(*objects, unknown=unknown)
    assert judged.kind is StorageKind.UNKNOWN
    assert judged.claim_name == "data"
    assert all(f"no {kind} among the files" in judged.fact for kind in unknown)


def test_an_absent_claim() -> None:
    judged = judge()
    assert (judged.kind, judged.claim) == (StorageKind.UNKNOWN, Gap.ABSENT)


@pytest.mark.parametrize(("elsewhere", "namespace"), [(True, "team"), (False, ""), (True, "")])
def test_claims_elsewhere_are_not_read(elsewhere: bool, namespace: str) -> None:
    judged = judge(claim(ROX), elsewhere=elsewhere, namespace=namespace)
    assert (judged.kind, judged.claim, judged.claim_name) == (StorageKind.UNKNOWN, None, "data")


@pytest.mark.parametrize(
    ("spec", "kind"),
    [
        ({"accessModes": ["ReadWriteMany"], "storageClassName": "net"}, "by-template"),
        ({"accessModes": ["ReadWriteOnce"]}, "by-template"),
        ({"accessModes": ["ReadWriteOnce"], "storageClassName": "lp"}, "node-local"),
        ({"accessModes": ["ReadOnlyMany"], "storageClassName": "net"}, "read-only"),
        ({}, "by-template"),
    ],
)
def test_by_template(spec: dict[str, Any], kind: str) -> None:
    found = {"template": {"metadata": {"name": "ckpt"}, "spec": spec}, "policy": {}}
    view = View(StorageClass("lp", "rancher.io/local-path"), StorageClass("net", "csi.example"))
    mount = {"name": "ckpt", "mountPath": "/mnt/ckpt"}
    judged = classify(None, mount, found, "team", view, Policy(), False, "run")
    assert judged.kind.value == kind
    assert judged.claim_name == "ckpt-run"
    assert isinstance(judged.claim, Claim)
    assert classify(None, mount, found, "team", view, Policy(), True, "run").kind is StorageKind.BY_TEMPLATE


def test_candidates_are_matched_by_modes_mode_size_and_name() -> None:
    want = claim(RWX, storage_class="c", request=100)
    fits = volume("nfs", storage_class="c", capacity=100)
    named = volume("nfs", storage_class="c", claim_ref=("team", "data"), capacity=1)
    others = [
        volume("nfs", storage_class="c", capacity=99),
        volume("nfs", storage_class="c", access_modes=RWO),
        volume("nfs", storage_class="c", volume_mode="Block"),
        volume("nfs", storage_class="c", claim_ref=("team", "another")),
    ]
    assert binding_candidates(want, View(fits, named, *others)) == [fits, named]
