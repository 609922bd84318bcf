"""What the engine may know of the cluster, and how it says that it does not know.

Everything is a plain value; a ``ClusterView`` is filled from files or from watch caches by ``webhook.cluster``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, Protocol

from msgspec import Struct

from webhook.model.release import Release

if TYPE_CHECKING:
    from webhook.model.exceptions import Exceptions

SOME_CLAIMS: Final = 256
SOME_CLASSES: Final = 32
"""Claims of a namespace that are looked through for one to name in a fix."""


class Gap(Enum):
    """Why there is no object: it is not there, or nobody could tell (no files of that kind, no permission, ...)."""

    ABSENT = "absent"
    UNKNOWN = "unknown"


class Claim(Struct, frozen=True):
    """A PersistentVolumeClaim, the fields that a rule reads. Quantities are bytes."""

    namespace: str
    name: str
    access_modes: tuple[str, ...] = ()
    storage_class: str | None = None
    """``spec.storageClassName`` (or the old beta annotation); ``None`` means the default class, ``""`` means none."""
    volume_name: str = ""
    volume_mode: str = "Filesystem"
    phase: str = ""
    request: int | None = None
    capacity: int | None = None
    terminating: bool = False
    labels: Mapping[str, str] = {}
    made_for: str = ""
    """The JobSet whose claim template made it; known of a claim that was read as a whole, not from a watch."""
    selector: Mapping[str, Any] = {}
    """``spec.selector``: the labels that a volume has to have, unless the claim names one."""

    @property
    def bound(self) -> bool:
        """Whether it has a volume by its own words; ``storage.is_bound`` asks the volume where there is no status."""
        return self.volume_name != "" and self.phase != "Pending"

    def modes_text(self) -> str:
        """The access modes as YAML prints them: ``["ReadWriteOnce"]``."""
        return "[" + ", ".join(f'"{mode}"' for mode in self.access_modes) + "]"


class PersistentVolume(Struct, frozen=True):
    """A PersistentVolume. ``source`` is the field name of its volume source, e.g. ``hostPath``, ``local``, ``csi``."""

    name: str
    access_modes: tuple[str, ...] = ()
    storage_class: str = ""
    source: str = ""
    driver: str = ""
    """The CSI driver or FlexVolume driver, where ``source`` is one."""
    read_only: bool = False
    """``readOnly`` of the source (csi, nfs, rbd, ...)."""
    mount_options: tuple[str, ...] = ()
    node_affinity: tuple[Mapping[str, Any], ...] = ()
    """``spec.nodeAffinity.required.nodeSelectorTerms``, as stored."""
    zones: frozenset[str] = frozenset()
    """Zones that the volume can be mounted in, from node affinity or the zone label; empty means any or not said."""
    labels: Mapping[str, str] = {}
    phase: str = ""
    claim_ref: tuple[str, str] | None = None
    volume_mode: str = "Filesystem"
    capacity: int | None = None
    host_path: str = ""
    """The directory of the node, where ``source`` is ``hostPath``. No message names it."""


class StorageClass(Struct, frozen=True):
    """A StorageClass."""

    name: str
    provisioner: str
    default: bool = False
    binding_mode: str = "Immediate"
    mount_options: tuple[str, ...] = ()
    parameters: Mapping[str, str] = {}
    zones: frozenset[str] = frozenset()
    """From ``allowedTopologies``; empty means any."""


class CsiDriver(Struct, frozen=True):
    """A CSIDriver; what the object leaves out is what the API server fills in."""

    name: str
    attach_required: bool = True
    """Whether its volumes are attached to a node before they are mounted, so that ReadWriteOnce is enforced."""
    fs_group_policy: str = "ReadWriteOnceWithFSType"
    """``None``, ``File`` or ``ReadWriteOnceWithFSType``: whether the kubelet applies a pod's ``fsGroup``."""


class ConfigMap(Struct, frozen=True):
    """A ConfigMap that may hold a program: its texts by key, and the keys whose content is no text.

    ``version`` is its uid and resourceVersion where an API server sent it, ``""`` where a file has it.
    """

    namespace: str
    name: str
    data: Mapping[str, str] = {}
    binary: frozenset[str] = frozenset()
    version: str = ""


class Namespace(Struct, frozen=True):
    """A Namespace's labels and annotations."""

    name: str
    labels: Mapping[str, str] = {}
    annotations: Mapping[str, str] = {}
    terminating: bool = False


class Runtime(Struct, frozen=True):
    """A TrainingRuntime or ClusterTrainingRuntime as stored.

    ``prepared`` is the engine's own cache of what depends on the runtime alone; it lives as long as this object, which
    a store keeps per uid and resourceVersion.
    """

    kind: str
    namespace: str
    name: str
    raw: Mapping[str, Any]
    prepared: dict[Any, Any] = {}

    @property
    def label(self) -> str:
        return f"{self.kind}/{self.name}"


class Run(Struct, frozen=True):
    """An unfinished TrainJob, as far as rules about other runs need it."""

    namespace: str
    name: str
    uid: str = ""
    suspended: bool = False
    runtime_kind: str = "ClusterTrainingRuntime"
    runtime_name: str = ""
    queued: bool = False
    """Whether it has a Kueue queue."""


def finished(trainjob: Mapping[str, Any]) -> bool:
    """Whether a TrainJob is over: condition ``Complete`` or ``Failed`` is true. What has another type tells nothing."""
    status = trainjob.get("status")
    conditions = status.get("conditions") if isinstance(status, dict) else None
    return isinstance(conditions, list) and any(
        isinstance(one, dict) and one.get("type") in ("Complete", "Failed") and one.get("status") == "True"
        for one in conditions
    )


class RunDirectory(Struct, frozen=True):
    """A directory of a claim that an unfinished TrainJob writes checkpoints to (subPath included, normalised)."""

    run: Run
    claim: str
    path: str


class ClusterView(Protocol):
    """Answers without waiting. A look-up that could not be done is ``Gap.UNKNOWN``; ``why_unknown`` has its reason."""

    def claim(self, namespace: str, name: str) -> Claim | Gap: ...

    def volume(self, name: str) -> PersistentVolume | Gap: ...

    def available_volumes(self, storage_class: str) -> Sequence[PersistentVolume] | Gap:
        """PersistentVolumes of that class name (``""``: of none) which no claim holds yet."""
        ...

    def storage_class(self, name: str) -> StorageClass | Gap: ...

    def default_storage_class(self) -> StorageClass | Gap: ...

    def some_classes(self) -> Sequence[StorageClass] | Gap:
        """At most ``SOME_CLASSES``, the default one first; for the text of a fix, never for a verdict."""
        ...

    def some_claims(self, namespace: str) -> Sequence[Claim] | Gap:
        """At most ``SOME_CLAIMS`` claims of a namespace; for the text of a fix, never for a verdict.

        Unknown to a server: a denial is read by whoever may create a TrainJob, and who may not list claims.
        """
        ...

    def csi_driver(self, name: str) -> CsiDriver | Gap: ...

    def config_map(self, namespace: str, name: str) -> ConfigMap | Gap:
        """A ConfigMap that the pods mount and that may hold their program; ``snapshot`` reads those of Trainer."""
        ...

    def namespace(self, name: str) -> Namespace | Gap: ...

    def runtime(self, kind: str, namespace: str, name: str) -> Runtime | Gap:
        """The runtime as stored; for kind ClusterTrainingRuntime ``namespace`` is not looked at."""
        ...

    def snapshot(self, namespace: str, trainjob: str) -> Runtime | Gap:
        """Trainer 2.3's copy of the runtime of an existing TrainJob (ConfigMap ``<trainjob>-runtime-snapshot``)."""
        ...

    def runs_of_runtime(self, kind: str, namespace: str, name: str) -> Sequence[Run] | Gap:
        """Unfinished TrainJobs that refer to the runtime."""
        ...

    def directories(self, namespace: str, claim: str, path: str | None = None) -> Sequence[RunDirectory] | Gap:
        """Directories on the claim that unfinished TrainJobs of the namespace write to, by name of the TrainJob.

        With ``path`` (as ``storage.path_on_claim`` gives it) only those that are this directory, one for each TrainJob:
        of thousands of runs on one claim only these are looked at.
        """
        ...

    def excused_runs(self, namespace: str, besides: str) -> int | Gap:
        """How many unfinished TrainJobs of the namespace carry annotation ``checkpoint-guard.io/allow``.

        The one of name ``besides`` is not counted.
        """
        ...

    def exceptions(self, namespace: str) -> Exceptions | Gap:
        """What the CheckpointExceptions of a namespace excuse; ``Gap.ABSENT`` where there are none, or no such kind."""
        ...

    def serves_kueue(self) -> bool | None:
        """Whether the cluster serves Kueue's API; None where that is not known."""
        ...

    def release(self) -> Release | None:
        """The Trainer release whose CRDs are served; None where that is not known."""
        ...

    def why_unknown(self, kind: str) -> str:
        """Why objects of that kind are unknown, in words: ``no PersistentVolumeClaim among the files``."""
        ...
