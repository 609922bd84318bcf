"""Provisioner names match whole or by suffix, and the policy's own entries win."""

from __future__ import annotations

import pytest

from webhook.model.policy import BUILT_IN_PROVISIONERS, Policy, Reach, StoragePolicy
from webhook.storage import provisioner_reach


@pytest.mark.parametrize(
    ("name", "reach"),
    [
        ("rancher.io/local-path", "node-local"),
        ("rook-ceph.rbd.csi.ceph.com", "one-node"),
        ("a.b.cephfs.csi.ceph.com", "many-nodes"),
        ("rbd.csi.ceph.com", "one-node"),
        ("notrbd.csi.ceph.com", None),
        ("rook-ceph.rbd.csi.ceph.com.example", None),
        ("lvm.local.csi.openebs.io", "node-local"),
        ("example.com/unheard-of", None),
        ("", None),
    ],
)
def test_built_in(name: str, reach: Reach | None) -> None:
    assert provisioner_reach(name, Policy()) == reach


def test_every_built_in_name_is_found() -> None:
    for name, reach in BUILT_IN_PROVISIONERS.items():
        assert provisioner_reach(name.replace("*", "x"), Policy()) == reach


def test_policy_wins() -> None:
    added: dict[str, Reach] = {"*.csi.ceph.com": "node-local", "ebs.csi.aws.com": "many-nodes"}
    policy = Policy(storage=StoragePolicy(provisioners=added))
    assert provisioner_reach("x.rbd.csi.ceph.com", policy) == "node-local"
    assert provisioner_reach("ebs.csi.aws.com", policy) == "many-nodes"
    assert provisioner_reach("disk.csi.azure.com", policy) == "one-node"


def test_the_longest_suffix_wins() -> None:
    policy = Policy(storage=StoragePolicy(provisioners={"*.example": "node-local", "*.shared.example": "many-nodes"}))
    assert provisioner_reach("a.shared.example", policy) == "many-nodes"
