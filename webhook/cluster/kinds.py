"""What is read from a cluster: where each kind is found, which of its fields are kept, and what with.

What stays in memory of each kind, and for whom; nothing else of an object does:

PersistentVolumeClaim       modes, class, volumeName, selector, volumeMode, request, capacity, phase, terminating: all
                            claim rules
PersistentVolume            modes, class, source with its driver and readOnly, mount options, node affinity, zone,
                            volumeMode, capacity, phase, claimRef and labels while no claim holds it: storage kinds,
                            unbindable-claim, zone-split, claim-too-small
StorageClass                provisioner, default or not, binding mode, mount options, zones: storage kinds, zone-split
CSIDriver                   attachRequired, fsGroupPolicy: claim-not-shared, unwritable-claim
Namespace                   labels, annotations of ours: mode, require, default-claim, the policy's selectors
TrainingRuntime and         the object without managedFields and last-applied: everything
ClusterTrainingRuntime
TrainJob, unfinished        name, uid, runtime, suspended, checkpoint directories: shared-directory, wedging-update
CheckpointException         what it excuses, for whom and until when: every finding that counts
CustomResourceDefinition    of trainjobs: the Trainer release whose fields it serves
"""

from __future__ import annotations

from typing import Any, Final

import msgspec
from msgspec import Raw, Struct, field

from webhook.model.names import EXCEPTION, EXCEPTION_VERSION, GROUP
from webhook.model.release import Release

CLAIM: Final = "PersistentVolumeClaim"
VOLUME: Final = "PersistentVolume"
CLASS: Final = "StorageClass"
CSI_DRIVER: Final = "CSIDriver"
NAMESPACE: Final = "Namespace"
RUNTIME: Final = "TrainingRuntime"
CLUSTER_RUNTIME: Final = "ClusterTrainingRuntime"
TRAINJOB: Final = "TrainJob"
CRD: Final = "CustomResourceDefinition"
CONFIG_MAP: Final = "ConfigMap"

TRAINJOB_CRD: Final = f"trainjobs.{GROUP}"
SNAPSHOT_SUFFIX: Final = "-runtime-snapshot"


class Kind(Struct, frozen=True):
    """Where objects of a kind are found. ``page`` is the number of objects of one LIST request."""

    name: str
    base: str
    resource: str
    namespaced: bool = True
    watched: bool = True
    only: str = ""
    """The one object of the kind that is looked at."""
    page: int = 500
    optional: bool = False
    """Whether a cluster may well lack it: discovery is asked first, and nothing is said where it is not served."""
    needed: bool = True
    """Whether the server waits for it before it is ready. What only makes a denial milder may come later."""

    @property
    def collection(self) -> str:
        """The path of all objects of the kind."""
        return f"{self.base}/{self.resource}"

    def path(self, namespace: str, name: str) -> str:
        """The path of one object."""
        scope = f"/namespaces/{namespace}" if self.namespaced else ""
        return f"{self.base}{scope}/{self.resource}/{name}"


_TRAINER: Final = f"/apis/{GROUP}/v1alpha1"
KINDS: Final = {
    kind.name: kind
    for kind in (
        # In this order they are waited for: a TrainJob's directory is worked out with the runtimes at hand.
        Kind(CRD, "/apis/apiextensions.k8s.io/v1", "customresourcedefinitions", False, only=TRAINJOB_CRD),
        Kind(NAMESPACE, "/api/v1", "namespaces", False),
        Kind(CLASS, "/apis/storage.k8s.io/v1", "storageclasses", False),
        Kind(CSI_DRIVER, "/apis/storage.k8s.io/v1", "csidrivers", False, needed=False),
        Kind(VOLUME, "/api/v1", "persistentvolumes", False),
        Kind(CLAIM, "/api/v1", "persistentvolumeclaims"),
        Kind(CLUSTER_RUNTIME, _TRAINER, "clustertrainingruntimes", False, page=100),
        Kind(RUNTIME, _TRAINER, "trainingruntimes", page=100),
        Kind(TRAINJOB, _TRAINER, "trainjobs", page=50),
        Kind(EXCEPTION, f"/apis/{EXCEPTION_VERSION}", "checkpointexceptions", page=200, optional=True, needed=False),
        Kind(CONFIG_MAP, "/api/v1", "configmaps", watched=False),
    )
}
WATCHED: Final = tuple(kind for kind in KINDS.values() if kind.watched)


class Lean(Struct, rename="camel", gc=False):
    """Fields as the API has them; everything else of an object is skipped."""


class ListMeta(Lean):
    resource_version: str = ""
    continue_: str = field(default="", name="continue")
    remaining_item_count: int | None = None


class Page(Lean):
    """One page of a LIST: objects as bytes, to be read one by one."""

    metadata: ListMeta
    items: list[Raw] | None = None


class Event(Lean):
    """One line of a watch."""

    type: str
    object: Raw


class Status(Lean):
    code: int = 0
    message: str = ""


class Marked(Lean):
    """What every watch event carries of its object."""

    metadata: VersionMeta


class VersionMeta(Lean):
    name: str = ""
    namespace: str = ""
    resource_version: str = ""


class BetaClass(Lean):
    value: Raw = field(default=Raw(), name="volume.beta.kubernetes.io/storage-class")


class Zones(Lean):
    zone: str = field(default="", name="topology.kubernetes.io/zone")
    old: str = field(default="", name="failure-domain.beta.kubernetes.io/zone")


class StorageMeta(Lean):
    name: str
    namespace: str = ""
    deletion_timestamp: str | None = None
    annotations: BetaClass | None = None
    labels: Zones | None = None


class ClaimSpec(Lean):
    access_modes: Raw = Raw()
    storage_class_name: Raw = Raw()
    volume_name: str | None = None
    volume_mode: Raw = Raw()
    resources: Raw = Raw()
    selector: Raw = Raw()


class ClaimStatus(Lean):
    phase: Raw = Raw()
    capacity: Raw = Raw()


class LeanClaim(Lean):
    metadata: StorageMeta
    spec: ClaimSpec | None = None
    status: ClaimStatus | None = None


class VolumeMeta(Lean):
    name: str
    annotations: BetaClass | None = None
    labels: Raw = Raw()


class LeanVolume(Lean):
    metadata: VolumeMeta
    spec: dict[str, Raw] | None = None
    status: ClaimStatus | None = None


class Source(Lean):
    driver: Raw = Raw()
    read_only: Raw = Raw()
    path: Raw = Raw()


class ClaimRef(Lean):
    namespace: str = ""
    name: str = ""


def served_release(crd: dict[str, Any]) -> Release | None:
    """The Trainer release whose TrainJob a CRD serves; None where it is none that is known.

    2.0 has ``podSpecOverrides``, 2.1 ``podTemplateOverrides``, 2.2 ``runtimePatches``, 2.3 a grace period in these, and
    2.4 bounds on ``spec.trainer.numNodes`` or ``numProcPerNode`` (seen in its master of 2026-08-21).
    """
    for version in (crd.get("spec") or {}).get("versions") or ():
        if not version.get("served") or version.get("name") != "v1alpha1":
            continue
        schema = (version.get("schema") or {}).get("openAPIV3Schema") or {}
        fields = (((schema.get("properties") or {}).get("spec") or {}).get("properties")) or {}
        if "runtimePatches" in fields:
            text = msgspec.json.encode(fields["runtimePatches"])
            if b'"terminationGracePeriodSeconds"' not in text:
                return Release.V2_2
            trainer = (fields.get("trainer") or {}).get("properties") or {}
            bounded = "minimum" in (trainer.get("numNodes") or {}) or any(
                rules in (trainer.get("numProcPerNode") or {}) for rules in ("minimum", "x-kubernetes-validations")
            )
            return Release.V2_4 if bounded else Release.V2_3
        if "podTemplateOverrides" in fields:
            return Release.V2_1
        if "podSpecOverrides" in fields:
            return Release.V2_0
    return None
