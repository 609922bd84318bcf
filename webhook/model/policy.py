"""The policy: everything an administrator may change about verdicts. The defaults here are the built-in policy."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from msgspec import UNSET, Meta, Struct, UnsetType, field
from msgspec.structs import replace

from webhook.model.names import SYSTEM_NAMESPACE

Mode = Literal["enforce", "warn", "audit", "off"]
RuleSetting = Literal["deny", "warn", "audit", "off"]
RetryChoice = Literal["multi-node", "keep"]
Reach = Literal["node-local", "one-node", "many-nodes"]
"""Where a volume of a provisioner can be mounted."""

Count = Annotated[int, Meta(ge=0, le=2**31 - 1)]
"""What the API keeps as int32."""
RuntimeKind = Literal["TrainingRuntime", "ClusterTrainingRuntime"]
NEVER_DENIES: Final = {
    "unknown-runtime": "Trainer itself refuses a TrainJob without its runtime, and one that was not read is unknown",
    "immutable-default": "/mutate says it, and /mutate refuses nothing",
    "malformed-object": "the API server refuses such an object itself",
    "broken-rule": "it is a fault of the guard, not of the object",
    "expired-exception": "it only says when an exception ends: its rules deny by themselves then",
    "void-exception": "it only says why an annotation excuses nothing: its rules deny by themselves then",
}
"""Ids that stay a warning whatever policy says, each with the reason; all others deny where policy says so."""
NO_EXCEPTION: Final = tuple(rule for rule in NEVER_DENIES if rule != "unknown-runtime")
"""Ids that no exception reaches: they are no rules about an object."""

BUILT_IN_PROVISIONERS: dict[str, Reach] = {
    "kubernetes.io/no-provisioner": "node-local",
    "rancher.io/local-path": "node-local",
    "k8s.io/minikube-hostpath": "node-local",
    "microk8s.io/hostpath": "node-local",
    "docker.io/hostpath": "node-local",
    "hostpath.csi.k8s.io": "node-local",
    "openebs.io/local": "node-local",
    "*.local.csi.openebs.io": "node-local",
    "local.csi.openebs.io": "node-local",
    "zfs.csi.openebs.io": "node-local",
    "topolvm.io": "node-local",
    "ebs.csi.aws.com": "one-node",
    "pd.csi.storage.gke.io": "one-node",
    "disk.csi.azure.com": "one-node",
    "*.rbd.csi.ceph.com": "one-node",
    "cinder.csi.openstack.org": "one-node",
    "kubernetes.io/aws-ebs": "one-node",
    "kubernetes.io/gce-pd": "one-node",
    "kubernetes.io/azure-disk": "one-node",
    "kubernetes.io/rbd": "one-node",
    "efs.csi.aws.com": "many-nodes",
    "fsx.csi.aws.com": "many-nodes",
    "filestore.csi.storage.gke.io": "many-nodes",
    "file.csi.azure.com": "many-nodes",
    "*.cephfs.csi.ceph.com": "many-nodes",
    "nfs.csi.k8s.io": "many-nodes",
    "driver.longhorn.io": "many-nodes",
    "csi.juicefs.com": "many-nodes",
    "csi.weka.io": "many-nodes",
}
BUILT_IN_INLINE_DRIVERS: dict[str, Reach] = {
    "gcsfuse.csi.storage.gke.io": "many-nodes",
    "multitier-checkpoint.csi.storage.gke.io": "many-nodes",
    "phase1-checkpoint.csi.storage.gke.io": "many-nodes",
}


class DirectoryPolicy(Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """Which variables declare the checkpoint directory, first match wins."""

    variables: tuple[str, ...] = ("CKPT_DIR", "CHECKPOINT_DIR")


NO_VARIABLE: Final = "directory: {variables: [CKPT_DIR]}    # in the policy, which has no variable that declares one"
"""What to write where the list above is empty, so that nothing but a program's flag tells a directory."""


class Limits(Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """Ceilings and floors; seconds where a time is meant."""

    max_restarts: Count = 20
    termination_grace_period_seconds: Count = 60
    lost_work: str = "30m"
    unrehearsed_nodes: Count = 0
    """Runs of at most so many training pods need no rehearsal, where ``not-rehearsed`` is asked."""
    exception_days: Annotated[int, Meta(ge=1, le=36500)] = 180
    """How far ahead an exception may end."""


MEASURED: Final = {
    "short-grace": ("floor", "termination_grace_period_seconds"),
    "unbounded-restarts": ("ceiling", "max_restarts"),
    "save-interval": ("ceiling", "lost_work"),
}
"""Rules that compare a number with one of ``limits``: from which side, and the field of ``Limits``."""


class Defaults(Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """Values that the defaults fill in."""

    claim_name: str = "train-ckpt"
    path: str = "/mnt/ckpt"
    max_restarts: Count = 3
    backoff_limit: Count | RetryChoice = 0
    """A number, or for which runtimes it is 0: ``multi-node`` (numNodes above 1), ``keep`` (none)."""
    termination_grace_period_seconds: Count = 60
    runtimes: tuple[RuntimeKind, ...] = ("TrainingRuntime", "ClusterTrainingRuntime")


class ProgramsPolicy(Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """Where admission may read the text of a training program, beside the object itself."""

    config_maps: Literal["read", "off"] = "read"
    """``off``: no ConfigMap of a pod is asked for; files and ``--live`` read them all the same."""


class StoragePolicy(Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """What the administrator adds to the built-in tables; a name matches whole or by ``*.suffix``."""

    provisioners: dict[str, Reach] = {}
    inline_drivers: dict[str, Reach] = {}
    host_paths: tuple[str, ...] = ()
    """Globs of directories of the node that every node mounts from one shared file system."""


class CheckpointSize(Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """One row of the table from model parameters to the size of one checkpoint."""

    up_to_params: str
    size: str


class Modes(Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """The mode of namespaces without a label, and what their own users may set."""

    default: Mode = "enforce"
    self_service: tuple[Mode, ...] = ("enforce", "warn")


class FastTier(Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """The fast tier of the tiered layout."""

    size_limit: str = "100Gi"
    storage_class_name: str | None = None


class Tiers(Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """Settings of the tiered layout."""

    fast: FastTier = FastTier()


class Exempt(Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """Requests that are let through without judgement. All are whole names; a runtime is ``Kind/name``."""

    namespaces: tuple[str, ...] = (SYSTEM_NAMESPACE,)
    users: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    runtimes: tuple[str, ...] = ()


class Requirement(Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """One of a label selector's ``matchExpressions``."""

    key: str
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist"]
    values: tuple[str, ...] = ()


class Selector(Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """A label selector, as Kubernetes has it; an empty one selects everything."""

    match_labels: dict[str, str] = {}
    match_expressions: tuple[Requirement, ...] = ()


class EntryLimits(Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """``limits`` of some namespaces: what is not written is as elsewhere."""

    max_restarts: Count | UnsetType = UNSET
    termination_grace_period_seconds: Count | UnsetType = UNSET
    lost_work: str | UnsetType = UNSET
    unrehearsed_nodes: Count | UnsetType = UNSET


class EntryDefaults(Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """``defaults`` of some namespaces: what is not written is as elsewhere."""

    claim_name: str | UnsetType = UNSET
    path: str | UnsetType = UNSET
    max_restarts: Count | UnsetType = UNSET
    backoff_limit: Count | RetryChoice | UnsetType = UNSET
    termination_grace_period_seconds: Count | UnsetType = UNSET
    runtimes: tuple[RuntimeKind, ...] | UnsetType = UNSET


class NamespaceEntry(Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """What holds in some namespaces alone: by name (globs), by labels, or where both fit. Later entries win."""

    names: tuple[str, ...] = ()
    selector: Selector | UnsetType = UNSET
    mode: Mode | UnsetType = UNSET
    rules: dict[str, RuleSetting] = {}
    limits: EntryLimits = EntryLimits()
    defaults: EntryDefaults = EntryDefaults()


class Match(Struct, frozen=True, forbid_unknown_fields=True, rename="camel", gc=False):
    """Which objects an exception is for: all that is written has to fit. ``namespaces`` and ``names`` may be globs."""

    namespaces: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    users: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    labels: dict[str, str] = {}
    """Of the object itself."""
    fingerprints: tuple[str, ...] = ()
    """One fault of one object each; ``webhook.model.excuse.fingerprint`` makes them."""


class Exemption(Struct, frozen=True, forbid_unknown_fields=True, rename="camel", gc=False):
    """One entry of ``exceptions``: what some rules find is noted and no longer counts, until a day."""

    rules: tuple[str, ...]
    reason: str
    owner: str
    until: str
    """A day (UTC, exclusive) or an RFC 3339 time."""
    match: Match = Match()


class SelfService(Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """What an annotation ``checkpoint-guard.io/allow`` may excuse, for how long, on how many objects of a namespace."""

    rules: tuple[str, ...] = ()
    max_days: Annotated[int, Meta(ge=1, le=36500)] = 30
    max_per_namespace: Count = 20


class Policy(Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """One policy file. ``hash`` is set by whoever parsed it and stands in every decision."""

    api_version: Literal["checkpoint-guard.io/v1"] = "checkpoint-guard.io/v1"
    kind: Literal["Policy"] = "Policy"
    directory: DirectoryPolicy = DirectoryPolicy()
    rules: dict[str, RuleSetting] = {}
    limits: Limits = Limits()
    defaults: Defaults = Defaults()
    programs: ProgramsPolicy = ProgramsPolicy()
    storage: StoragePolicy = StoragePolicy()
    checkpoint_sizes: tuple[CheckpointSize, ...] = (
        CheckpointSize(up_to_params="1B", size="2Gi"),
        CheckpointSize(up_to_params="7B", size="80Gi"),
    )
    restore_managers: tuple[str, ...] = ("kueue.x-k8s.io/manager",)
    modes: Modes = Modes()
    tiers: Tiers = Tiers()
    exempt: Exempt = Exempt()
    namespaces: tuple[NamespaceEntry, ...] = ()
    exceptions: tuple[Exemption, ...] = ()
    self_service: SelfService = SelfService()
    hash: str = field(default="built-in")
    derived: dict[str, Any] = field(default_factory=dict)
    """What the engine worked out of this policy, for the next decision: what its ``exceptions`` are found by, and the
    policies of namespaces. No part of the file."""

    def __eq__(self, other: object) -> bool:
        return type(other) is Policy and all(
            getattr(self, name) == getattr(other, name) for name in self.__struct_fields__ if name != "derived"
        )

    def __reduce__(self) -> Any:
        # What is derived stays behind: the worker process derives its own.
        return _again, tuple(getattr(self, name) for name in self.__struct_fields__ if name != "derived")


def changed(policy: Policy, **fields: Any) -> Policy:
    """The policy with other fields, and nothing derived of the old ones."""
    return replace(policy, derived={}, **fields)


def _again(*values: Any) -> Policy:
    return Policy(*values)
