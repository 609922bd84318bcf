"""Where a provisioner's or driver's volumes can be mounted: the built-in tables and the administrator's own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from webhook.model.cluster import ClusterView, CsiDriver, PersistentVolume, StorageClass
from webhook.model.glob import fits
from webhook.model.pod import Storage
from webhook.model.policy import BUILT_IN_INLINE_DRIVERS, BUILT_IN_PROVISIONERS, Policy, Reach


def provisioner_reach(name: str, policy: Policy) -> Reach | None:
    """The reach of a provisioner or CSI driver; None where neither table knows it. The policy's own entries win."""
    return _look_up(name, policy.storage.provisioners) or _look_up(name, BUILT_IN_PROVISIONERS)


def inline_reach(driver: str, policy: Policy) -> Reach | None:
    """The reach of a CSI driver that a pod uses inline; None where it is not known to keep anything."""
    return _look_up(driver, policy.storage.inline_drivers) or _look_up(driver, BUILT_IN_INLINE_DRIVERS)


def on_every_node(path: str, policy: Policy) -> bool:
    """Whether policy says that every node mounts this directory. The API server lets no ``..`` into a hostPath."""
    globs = policy.storage.host_paths
    return bool(globs) and ".." not in path.split("/") and any(fits(glob, path) for glob in globs)


BUCKETS: Final = frozenset(("gcsfuse.csi.storage.gke.io", "s3.csi.aws.com"))
"""Drivers that mount a bucket of an object store."""
_MOUNTPOINT: Final = "s3.csi.aws.com"
"""Mountpoint for Amazon S3, which has no rename and no append (its SEMANTICS.md), and overwrites and deletes where its
mount options ``allow-overwrite`` and ``allow-delete`` say so. Cloud Storage FUSE does all of it."""
_NOT_ATTACHED: Final = frozenset(
    (
        "nfs.csi.k8s.io",
        "efs.csi.aws.com",
        "fsx.csi.aws.com",
        "filestore.csi.storage.gke.io",
        "file.csi.azure.com",
        "csi.juicefs.com",
    )
)
"""Drivers whose CSIDriver says ``attachRequired: false``, for where it is not known."""
_GROUPS_BY_FILE: Final = frozenset(("nfs.csi.k8s.io", "cephfs.csi.ceph.com"))
"""Drivers whose CSIDriver says ``fsGroupPolicy: File``, for where it is not known."""
_FILE_SERVERS: Final = frozenset(("nfs", "cephfs", "glusterfs", "azureFile"))
"""Volume sources that the kubelet mounts without attaching anything."""


def driver_of(storage: Storage) -> str:
    """The CSI driver of a claim's volume, or the one that its class would have make it; ``""`` where there is none."""
    if isinstance(storage.volume, PersistentVolume):
        return storage.volume.driver if storage.volume.source == "csi" else ""
    return storage.storage_class.provisioner if isinstance(storage.storage_class, StorageClass) else ""


def cannot_do(storage: Storage) -> tuple[str, ...]:
    """What a program cannot do on a bucket's mount: ``rename``, ``append``, ``overwrite``, ``delete``; of other storage
    nothing."""
    if driver_of(storage) != _MOUNTPOINT:
        return ()
    volume = storage.volume
    options = volume.mount_options if isinstance(volume, PersistentVolume) else ()
    refused = ("overwrite", "delete")
    return ("rename", "append", *(word for word in refused if f"allow-{word}" not in options))


def is_attached(storage: Storage, cluster: ClusterView, policy: Policy) -> bool:
    """Whether a node has to attach a claim's volume first, so that Kubernetes lets one node alone have it.

    Where the driver's CSIDriver is not known, a table says so of those that are known not to; what is known to serve
    one node alone (policy's table) counts as attached.
    """
    volume = storage.volume
    if isinstance(volume, PersistentVolume) and volume.source in _FILE_SERVERS:
        return False
    name = driver_of(storage)
    if not name or provisioner_reach(name, policy) in ("one-node", "node-local"):
        return True
    driver = cluster.csi_driver(name)
    return driver.attach_required if isinstance(driver, CsiDriver) else name not in _NOT_ATTACHED


def applies_group(storage: Storage, modes: Sequence[str], cluster: ClusterView) -> bool:
    """Whether the kubelet makes a claim's files those of the pod's ``fsGroup``.

    By its CSIDriver's ``fsGroupPolicy``; where that is the default or not known, for ReadWriteOnce volumes alone.
    """
    name = driver_of(storage)
    driver = cluster.csi_driver(name) if name else None
    if isinstance(driver, CsiDriver) and driver.fs_group_policy != "ReadWriteOnceWithFSType":
        return driver.fs_group_policy == "File"
    if not isinstance(driver, CsiDriver) and any(name == one or name.endswith("." + one) for one in _GROUPS_BY_FILE):
        return True
    return not {"ReadWriteMany", "ReadOnlyMany"} & set(modes)


def _look_up(name: str, table: Mapping[str, Reach]) -> Reach | None:
    """The whole name first, then the longest ``*.suffix``; ``*.rbd.csi.ceph.com`` covers the bare name as well, since
    the prefix only tells one installation of a driver from another."""
    if not table or not name:
        return None
    if (reach := table.get(name)) is not None:
        return reach
    rest = name
    while True:
        if (reach := table.get("*." + rest)) is not None:
            return reach
        _, dot, rest = rest.partition(".")
        if not dot:
            return None
