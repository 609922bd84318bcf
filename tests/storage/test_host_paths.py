"""What policy says of directories that every node mounts: `storage.hostPaths`."""

from __future__ import annotations

import orjson
import pytest

from tests.storage.views import View
from webhook.cluster.objects import parse_volume
from webhook.cluster.policy_file import check_policy
from webhook.cluster.storage_tables import VolumeTable
from webhook.model.cluster import Claim
from webhook.model.pod import StorageKind
from webhook.storage.claims import judge_claim
from webhook.storage.kinds import inline_kind

HEAD = "apiVersion: checkpoint-guard.io/v1\nkind: Policy\n"


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/fsx/team-a/ckpt", StorageKind.MANY_NODES),
        ("/lustre", StorageKind.MANY_NODES),
        ("/lustre/x", StorageKind.NODE_LOCAL),
        ("/fsx", StorageKind.NODE_LOCAL),
        ("/fsx/../var/lib", StorageKind.NODE_LOCAL),
        ("/mnt/nvme", StorageKind.NODE_LOCAL),
        (None, StorageKind.NODE_LOCAL),
        (7, StorageKind.NODE_LOCAL),
    ],
)
def test_a_directory_that_all_nodes_mount(path: object, kind: StorageKind) -> None:
    policy = check_policy(f"{HEAD}storage: {{hostPaths: ['/fsx/*', /lustre]}}\n".encode(), "p").used()
    volume = {"name": "ckpt", "hostPath": {"path": path}}
    assert inline_kind(volume, "hostPath", policy) is kind
    plain = check_policy(HEAD.encode(), "p").used()
    assert inline_kind(volume, "hostPath", plain) is StorageKind.NODE_LOCAL


@pytest.mark.parametrize(
    ("pattern", "words"),
    [
        ("fsx/*", "is no directory of a node"),
        ("", "is no directory of a node"),
        ("/fsx/../x", "is no directory of a node"),
        ("/*", "is every directory of a node"),
        ("^/fsx/.*$", "looks like a regular expression"),
    ],
)
def test_what_names_none_is_refused(pattern: str, words: str) -> None:
    checked = check_policy(f"{HEAD}storage: {{hostPaths: ['{pattern}']}}\n".encode(), "p")
    (fault,) = checked.faults
    assert fault.field == "storage.hostPaths[0]"
    assert words in fault.message


def _claim(modes: tuple[str, ...]) -> Claim:
    return Claim("team", "ckpt", modes, volume_name="shared", phase="Bound")


def _volume(path: str, **spec: object) -> dict[str, object]:
    return {"metadata": {"name": "shared"}, "spec": {"hostPath": {"path": path}, **spec}, "status": {"phase": "Bound"}}


PINNED = {
    "required": {
        "nodeSelectorTerms": [
            {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": ["node-1"]}]}
        ]
    }
}


@pytest.mark.parametrize(
    ("volume", "modes", "kind"),
    [
        (_volume("/fsx/ckpt"), ("ReadWriteMany",), StorageKind.MANY_NODES),
        (_volume("/fsx/ckpt"), ("ReadWriteOnce",), StorageKind.ONE_NODE),
        (_volume("/fsx/ckpt"), ("ReadOnlyMany",), StorageKind.READ_ONLY),
        (_volume("/mnt/nvme"), ("ReadWriteMany",), StorageKind.NODE_LOCAL),
        (_volume("/fsx/../var"), ("ReadWriteMany",), StorageKind.NODE_LOCAL),
        (_volume("/fsx/ckpt", nodeAffinity=PINNED), ("ReadWriteMany",), StorageKind.NODE_LOCAL),
        ({**_volume(""), "spec": {"local": {"path": "/fsx/ckpt"}}}, ("ReadWriteMany",), StorageKind.NODE_LOCAL),
    ],
)
def test_a_volume_of_a_directory_that_all_nodes_mount(
    volume: dict[str, object], modes: tuple[str, ...], kind: StorageKind
) -> None:
    policy = check_policy(f"{HEAD}storage: {{hostPaths: ['/fsx/*']}}\n".encode(), "p").used()
    table = VolumeTable()
    table.put(orjson.dumps(volume))
    cached = table.get("shared")
    assert cached == parse_volume(volume)
    assert cached is not None
    view = View(cached)
    storage = judge_claim(_claim(modes), view, policy)
    assert storage.kind is kind
    assert "/fsx" not in storage.fact
    without = judge_claim(_claim(modes), view, check_policy(HEAD.encode(), "p").used())
    assert without.kind is StorageKind.NODE_LOCAL
