"""The volume sources of core/v1, none forgotten, and what each is worth."""

from __future__ import annotations

from typing import Final

from webhook.model.pod import Raw, StorageKind

CLAIM: Final = "persistentVolumeClaim"
CSI: Final = "csi"

SOURCES: Final[dict[str, StorageKind]] = {
    "awsElasticBlockStore": StorageKind.ONE_NODE,
    "azureDisk": StorageKind.ONE_NODE,
    "azureFile": StorageKind.MANY_NODES,
    "cephfs": StorageKind.MANY_NODES,
    "cinder": StorageKind.ONE_NODE,
    "configMap": StorageKind.READ_ONLY,
    # Decided by its driver.
    CSI: StorageKind.UNKNOWN,
    "downwardAPI": StorageKind.READ_ONLY,
    "emptyDir": StorageKind.EPHEMERAL,
    "ephemeral": StorageKind.EPHEMERAL,
    "fc": StorageKind.ONE_NODE,
    # Durable or not, shared or not: that is the plug-in's own affair.
    "flexVolume": StorageKind.UNKNOWN,
    "flocker": StorageKind.ONE_NODE,
    "gcePersistentDisk": StorageKind.ONE_NODE,
    "gitRepo": StorageKind.READ_ONLY,
    "glusterfs": StorageKind.MANY_NODES,
    "hostPath": StorageKind.NODE_LOCAL,
    "image": StorageKind.READ_ONLY,
    "iscsi": StorageKind.ONE_NODE,
    "nfs": StorageKind.MANY_NODES,
    # Decided by the claim, its volume and its class.
    CLAIM: StorageKind.UNKNOWN,
    "photonPersistentDisk": StorageKind.ONE_NODE,
    # Shared or not is a property of the Portworx volume, which no Kubernetes object shows.
    "portworxVolume": StorageKind.UNKNOWN,
    "projected": StorageKind.READ_ONLY,
    "quobyte": StorageKind.MANY_NODES,
    "rbd": StorageKind.ONE_NODE,
    "scaleIO": StorageKind.ONE_NODE,
    "secret": StorageKind.READ_ONLY,
    "storageos": StorageKind.ONE_NODE,
    "vsphereVolume": StorageKind.ONE_NODE,
}


def sources_of(volume: Raw) -> list[str]:
    """The field names of all sources that the volume has; more than one is refused by the Job API."""
    return [key for key, value in volume.items() if key in SOURCES and value is not None]


def source_of(volume: Raw) -> str:
    """The field name of the volume's source; a volume that names none is made an emptyDir by the API server.

    A source that this table does not know yet is returned as it is written.
    """
    other = ""
    for key, value in volume.items():
        if value is None:
            continue
        if key in SOURCES:
            return key
        if key != "name" and isinstance(value, dict):
            other = key
    return other or "emptyDir"
