"""What policy says of directories that every node mounts: `storage.hostPaths`."""

from __future__ import annotations

import pytest

from webhook.cluster.policy_file import check_policy
from webhook.model.pod import StorageKind
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
