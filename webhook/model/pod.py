"""The pods that Trainer and JobSet will build, and where each part of them was written."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
from typing import Any

from msgspec import Struct
from msgspec import field as struct_field

from webhook.model.budget import Cut
from webhook.model.cluster import Claim, Gap, PersistentVolume, StorageClass
from webhook.model.finding import Origin, Severity
from webhook.model.release import Release

Raw = Mapping[str, Any]
EMPTY: Raw = {}
TRAINER = "Trainer"
CONTROLLERS = frozenset((TRAINER, "JobSet"))
"""What stands in place of ``<Kind>/<name>`` where a controller adds a part by itself."""


class Memo(dict[Any, Any]):
    """Where things stand in long lists, kept beside what it was read from. It is no part of a value: all are equal."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Memo)

    def __ne__(self, other: object) -> bool:
        return not isinstance(other, Memo)

    __hash__ = None

    def places(self, key: Any, items: Sequence[Raw], name: str) -> Mapping[Any, Sequence[int]]:
        """The value of field ``name`` -> the indices of the items that have it; read from ``items`` once a ``key``."""
        found: dict[Any, list[int]] | None = self.get(key)
        if found is None:
            found = self[key] = {}
            for index, item in enumerate(items):
                found.setdefault(item.get(name), []).append(index)
        return found


class Layer(Struct, frozen=True):
    """One text that a job's pod was made of, in the order in which the texts were merged.

    ``object`` is ``<Kind>/<name>``, or ``Trainer`` / ``JobSet`` for what a controller adds by itself.
    ``field`` is the path of the PodSpec in that object; for ``spec.trainer`` (and ``spec.initializer.dataset``, whose
    fields sit the same way) it is ``spec.trainer`` itself, ``is_trainer`` is set and ``pod`` holds what it amounts to:
    ``{"containers": [{"name": "node", "env": [...], ...}]}``.
    ``places`` has the fields of parts that stand elsewhere than their list and index say, below ``field``:
    ``{"volume ckpt": "volumeClaimPolicies[0].templates[0]", "env STORAGE_URI": "storageUri"}``.
    """

    object: str
    field: str
    short: str
    pod: Raw
    is_trainer: bool = False
    places: Mapping[str, str] = EMPTY
    memo: Memo = struct_field(default_factory=Memo)

    def where(self, kind: str, name: str) -> Sequence[int]:
        """The indices of the items named so in a list of the pod."""
        items = self.pod.get(kind)
        return self.memo.places(kind, items, "name").get(name, ()) if items else ()

    def within(self, kind: str, index: int, part: str, key: str) -> Mapping[Any, Sequence[int]]:
        """The indices in the list ``part`` of a container by their field ``key``."""
        return self.memo.places((kind, index, part), self.pod[kind][index].get(part) or (), key)

    def at(self, *parts: str, short: str = "") -> Origin:
        """The place of a part: ``at("volumes[0]", short="volume ckpt")``. A controller's own parts have no field."""
        if self.object in CONTROLLERS:
            return Origin(self.object, "", f"{self.object} {short}".rstrip())
        if short in self.places:
            parts = (self.places[short],)
        field = ".".join(part for part in (self.field, *parts) if part)
        return Origin(self.object, field, " ".join(part for part in (self.short, short) if part))


class Metadata(Struct, frozen=True):
    """Labels and annotations (``raw``) that somebody wrote at ``origin`` and ``of`` gets: JobSet, Job or pod."""

    of: str
    origin: Origin
    raw: Raw


class EffectiveJob(Struct, frozen=True):
    """One Job as the Job API will store it.

    ``pods`` is the number of pods (of all ``replicas`` together), ``spec`` the runtime's JobSpec and ``pod`` the
    PodSpec, raw and shared with what they were built from: never change them. ``pod`` has its ``restartPolicy`` and
    ``terminationGracePeriodSeconds`` filled in; volumes that JobSet adds from ``volumeClaimPolicies`` stand apart in
    ``claim_volumes``. ``receives_trainer`` says that ``spec.trainer`` of a TrainJob reaches this job.
    """

    name: str
    pods: int
    trains: bool
    backoff_limit: int
    spec: Raw
    pod: Raw
    layers: tuple[Layer, ...]
    job_origin: Origin
    """The replicatedJob's ``template.spec`` in the runtime."""
    receives_trainer: bool = False
    explicit_backoff_limit: bool = False
    labels: Raw = EMPTY
    """Labels of the job template as built."""
    replicas: int = 1
    """How many Jobs JobSet makes of it; one of them has ``pods // replicas`` pods."""
    claim_volumes: tuple[Raw, ...] = ()
    """Volumes of claims that JobSet makes for the TrainJob, as the Job will have them after its own."""
    claim_layer: Layer | None = None
    """Where ``claim_volumes`` were written: the templates in the runtime."""
    metadata: tuple[Metadata, ...] = ()
    """Labels and annotations that a TrainJob gives the pods or the Job, in the order in which they were merged."""
    memo: Memo = struct_field(default_factory=Memo)

    def containers(self) -> Iterator[tuple[str, int, Raw]]:
        """Every container with the list it stands in (``initContainers`` first) and its index."""
        for kind in ("initContainers", "containers"):
            for index, container in enumerate(self.pod.get(kind) or ()):
                yield kind, index, container

    def training_containers(self) -> Sequence[Raw]:
        """Container ``node``, else the only container; empty where that leaves it open or the job does not train."""
        if not self.trains:
            return ()
        containers = self.pod.get("containers") or ()
        for container in containers:
            if container.get("name") == "node":
                return (container,)
        return tuple(containers) if len(containers) == 1 else ()

    def volume(self, name: str) -> Raw | None:
        """The volume of that name."""
        volumes: Sequence[Raw] = self.pod.get("volumes") or ()
        if len(volumes) < _FEW:
            return next((volume for volume in volumes if volume.get("name") == name), None)
        at = self.memo.places("volumes", volumes, "name").get(name)
        return volumes[at[0]] if at else None

    def mounts_of(self, volume: str) -> Sequence[Raw]:
        """The mounts of the volume in all containers, in order."""
        found: dict[Any, list[Raw]] | None = self.memo.get("mounts")
        if found is None:
            found = self.memo["mounts"] = {}
            for _, _, container in self.containers():
                for mount in container.get("volumeMounts") or ():
                    found.setdefault(mount.get("name"), []).append(mount)
        return found.get(volume, ())

    def written_volumes(self, name: str) -> Iterator[tuple[str, Raw, Origin]]:
        """Each text of the volume, the last first: the object that it stands in, the volume as written, its place."""
        for layer in reversed(self.layers):
            for index in layer.where("volumes", name):
                volume = layer.pod["volumes"][index]
                yield layer.object, volume, layer.at(f"volumes[{index}]", short=f"volume {name}")

    def volume_origin(self, name: str) -> Origin:
        """Where the volume (one from a claim template too) was written last."""
        for _, _, origin in self.written_volumes(name):
            return origin
        if self.claim_layer is not None and f"volume {name}" in self.claim_layer.places:
            return self.claim_layer.at(short=f"volume {name}")
        return self.pod_origin("volumes")

    def container_origin(self, name: str) -> Origin:
        """Where the container was written last, leaving out ``spec.trainer``, which can hold no mount or volume.

        Only a container that nobody but a controller wrote is the controller's.
        """
        controllers: Origin | None = None
        for layer, kind, index, _ in self._written(name):
            if layer.object in CONTROLLERS:
                controllers = layer.at(short=f"container {name}")
            elif not layer.is_trainer:
                return layer.at(f"{kind}[{index}]", short=f"container {name}")
        return controllers or self.pod_origin("containers")

    def written_mounts(self, container: str, mount_path: str) -> Iterator[tuple[str, Raw, Origin]]:
        """Each text of the container's mount at ``mount_path`` (as written), as ``written_volumes`` has it."""
        for layer, kind, index, raw in self._written(container):
            for at in layer.within(kind, index, "volumeMounts", "mountPath").get(mount_path, ()):
                short = f"container {container} mount {mount_path}"
                mount = raw["volumeMounts"][at]
                yield layer.object, mount, layer.at(f"{kind}[{index}].volumeMounts[{at}]", short=short)

    def mount_origin(self, container: str, mount_path: str) -> Origin:
        """Where the mount at ``mount_path`` (as written) of the container was written last."""
        for _, _, origin in self.written_mounts(container, mount_path):
            return origin
        return self.container_origin(container)

    def env_origin(self, container: str, name: str) -> Origin:
        """Where the variable of the container was written last."""
        for layer, kind, index, _ in self._written(container):
            if f"env {name}" in layer.places:
                return layer.at(short=f"env {name}")
            if places := layer.within(kind, index, "env", "name").get(name):
                where = f"env[{places[-1]}]" if layer.is_trainer else f"{kind}[{index}].env[{places[-1]}]"
                return layer.at(where, short=f"env {name}")
        return self.container_origin(container)

    def keeps_place(self, container: str, name: str) -> bool:
        """Whether others than ``spec.trainer`` set the variable: it then stays where they have put it in the list."""
        return any(
            name in layer.within(kind, index, "env", "name")
            for layer, kind, index, _ in self._written(container)
            if not layer.is_trainer and layer.object not in CONTROLLERS
        )

    def container_field_origin(self, container: str, field: str) -> Origin:
        """Where a field of the container (``command``, ``args``, ``image``) was written last."""
        for layer, kind, index, raw in self._written(container):
            own = "resourcesPerNode" if layer.is_trainer and field == "resources" else field
            if raw.get(own) is not None:
                return layer.at(
                    own if layer.is_trainer else f"{kind}[{index}].{field}", short=f"{field} of {container}"
                )
        return self.container_origin(container)

    def pod_origin(self, field: str = "") -> Origin:
        """Where a field of the PodSpec was written last; where nobody wrote it, its place in the runtime."""
        for layer in reversed(self.layers):
            if field in layer.pod and not layer.is_trainer and layer.object not in CONTROLLERS:
                return layer.at(field, short=field)
        return self.layers[0].at(field, short=field)

    def _written(self, container: str) -> Iterator[tuple[Layer, str, int, Raw]]:
        for layer in reversed(self.layers):
            for kind in ("containers", "initContainers"):
                for index in layer.where(kind, container):
                    yield layer, kind, index, layer.pod[kind][index]


_FEW = 8
"""Items of a list that are looked through faster than they are indexed."""


class Stopped(Struct, frozen=True):
    """Why Trainer's controller makes no JobSet of what was admitted: the fact, the field to change, and to what."""

    at: Origin
    problem: str
    fix: str


class EffectiveSet(Struct, frozen=True):
    """What one TrainJob and its runtime (or a runtime alone) become. ``jobs`` is empty where no JobSet is made."""

    release: Release
    jobs: tuple[EffectiveJob, ...]
    failure_policy: Raw | None
    jobset_spec: Raw
    """The JobSetSpec that Trainer submits: ``volumeClaimPolicies``, ``ttlSecondsAfterFinished``, ..."""
    runtime_label: str
    """``<Kind>/<name>`` of the runtime, the owner of fields such as ``failurePolicy``."""
    namespace: str = ""
    """That of the TrainJob, ``default`` where it is not said, or of a runtime alone (``""`` of a cluster's)."""
    trainjob: str | None = None
    """``metadata.name`` of the TrainJob; ``""`` where the API server will generate it, None for a runtime alone."""
    generate_name: str = ""
    metadata: tuple[Metadata, ...] = ()
    """Labels and annotations that the JobSet takes from the runtime and, in 2.0 and 2.1, from the TrainJob's spec."""
    elsewhere: bool = False
    """No JobSet is made in this cluster: ``managedBy`` names another controller and this release heeds it."""
    stopped: Stopped | None = None
    """Why there are no ``jobs``, where nobody else says it."""
    cut: tuple[Cut, ...] = ()
    """What is more than one review looks at: ``jobs`` or their lists are not whole."""
    memo: Memo = struct_field(default_factory=Memo)

    def job(self, name: str) -> EffectiveJob | None:
        jobs: dict[str, EffectiveJob] | None = self.memo.get("jobs")
        if jobs is None:
            jobs = self.memo["jobs"] = {}
            for job in self.jobs:
                jobs.setdefault(job.name, job)
        return jobs.get(name)

    @property
    def training_pods(self) -> int:
        """How many pods train."""
        pods = 0
        for job in self.jobs:
            if job.trains:
                pods += job.pods
        return pods

    def template(self, volume: str) -> Raw | None:
        """The ``volumeClaimPolicies`` template of that name, with its policy under ``policy``: see ``templates``."""
        policies = self.jobset_spec.get("volumeClaimPolicies")
        if not policies:
            return None
        templates: dict[Any, Raw] | None = self.memo.get("templates")
        if templates is None:
            templates = self.memo["templates"] = {}
            for policy in policies:
                for template in policy.get("templates") or ():
                    name = (template.get("metadata") or EMPTY).get("name")
                    templates.setdefault(name, {"template": template, "policy": policy})
        return templates.get(volume)


class DirectoryStatus(Enum):
    """How the checkpoint directory is known."""

    DECLARED = "declared"
    """One of the policy's variables names it."""
    INFERRED = "inferred"
    """A framework's flag or the program names it: what is found about it is a warning at most."""
    UNEXPANDED = "unexpanded"
    """Declared, and a literal ``$(VAR)`` stays in it."""
    UNRESOLVED = "unresolved"
    """Declared from a ConfigMap, a Secret or a field that admission cannot read."""
    NONE = "none"


class StorageKind(Enum):
    """What the volume under the checkpoint directory is worth; the values are those of ``facts.storage``."""

    NONE = "none"
    """No directory, so no volume."""
    EPHEMERAL = "ephemeral"
    NODE_LOCAL = "node-local"
    READ_ONLY = "read-only"
    ONE_NODE = "one-node"
    MANY_NODES = "many-nodes"
    OBJECT_STORE = "object-store"
    """A bucket mounted as a file system: durable and shared, without what a file system promises of renames."""
    BY_TEMPLATE = "by-template"
    UNKNOWN = "unknown"


class Storage(Struct, frozen=True):
    """The judgement of one volume as mounted.

    ``fact`` says in words what was seen, naming claim, modes, class and provisioner but no path, server, node or zone
    (those are in ``private``). ``warn_only`` marks what is likely and not certain.
    """

    kind: StorageKind
    fact: str
    source: str = ""
    """The volume source's field name, e.g. ``emptyDir``; ``""`` where no volume is mounted."""
    claim_name: str | None = None
    claim: Claim | Gap | None = None
    volume: PersistentVolume | Gap | None = None
    storage_class: StorageClass | Gap | None = None
    warn_only: bool = False
    read_only: str = ""
    """Where the read-only came from, in words, also where another kind weighs more; ``""`` where it is writable."""
    private: str = ""
    detail: str = ""
    """``fact`` without the volume's or claim's name: modes, class, provisioner."""

    @property
    def what(self) -> str:
        """The claim or volume by its name alone; ``fact`` goes on with ``detail``."""
        return self.fact.removesuffix(self.detail).rstrip(" ,") if self.detail else self.fact


class Checkpoint(Struct, frozen=True):
    """The checkpoint directory of one container that trains, and what lies under it."""

    job: EffectiveJob
    container: Raw
    status: DirectoryStatus
    storage: Storage
    directory: str | None = None
    """Normalised and absolute; what only a running pod knows stands in it as ``<field>``, e.g. ``<metadata.name>``."""
    written: str | None = None
    """The value as the user wrote it."""
    variable: str | None = None
    flag: str | None = None
    """The flag or argument that an inferred directory was taken from."""
    origin: Origin | None = None
    """Where an inferred directory was written; see ``directory_origin``."""
    per_pod: tuple[str, ...] = ()
    """Fields that change with every pod and that the directory or the mount's subPathExpr depends on."""
    missing: tuple[str, ...] = ()
    """Names of the ``$(VAR)`` that stay literal."""
    mount: Raw | None = None
    volume: Raw | None = None
    sub_path: str | None = None
    """The mount's ``subPathExpr`` as the kubelet expands it; None where there is none or nobody can tell."""
    unset: tuple[str, ...] = ()
    """Names of the ``$(VAR)`` in the mount's ``subPathExpr`` that are not set or empty: no such container starts."""

    @property
    def container_name(self) -> str:
        return str(self.container.get("name", ""))

    @property
    def mount_name(self) -> str:
        """The name of the volume that the mount under the directory refers to; ``""`` where there is no mount."""
        return "" if self.mount is None else str(self.mount.get("name") or "")

    @property
    def at_most(self) -> Severity | None:
        """The most that a finding about the directory may weigh: an inferred one is a guess."""
        return Severity.WARN if self.status is DirectoryStatus.INFERRED else None

    def directory_origin(self) -> Origin:
        """Where the user wrote the directory; the container where nothing was written."""
        if self.origin is not None:
            return self.origin
        if self.variable is not None:
            return self.job.env_origin(self.container_name, self.variable)
        return self.job.container_origin(self.container_name)

    def volume_origin(self) -> Origin:
        """The volume under the directory; the mount where there is no such volume; else the container."""
        if self.volume is not None:
            return self.job.volume_origin(str(self.volume.get("name", "")))
        return self.mount_origin()

    def mount_origin(self) -> Origin:
        """The mount under the directory, or the container where there is none."""
        if self.mount is not None:
            return self.job.mount_origin(self.container_name, str(self.mount.get("mountPath", "")))
        return self.job.container_origin(self.container_name)
