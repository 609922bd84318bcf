"""The policy: everything an administrator may change about verdicts. The defaults here are the built-in policy."""

from __future__ import annotations

from typing import Any, Final, Literal

from msgspec import Struct, field

from webhook.model.names import SYSTEM_NAMESPACE

Mode = Literal["enforce", "warn", "audit", "off"]
RuleSetting = Literal["deny", "warn", "audit", "off"]
RetryChoice = Literal["multi-node", "keep"]
Reach = Literal["node-local", "one-node", "many-nodes"]
"""Where a volume of a provisioner can be mounted."""

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

    max_restarts: int = 20
    termination_grace_period_seconds: int = 60
    lost_work: str = "30m"


class Defaults(Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """Values that the defaults fill in."""

    claim_name: str = "train-ckpt"
    path: str = "/mnt/ckpt"
    max_restarts: int = 3
    backoff_limit: int | RetryChoice = 0
    """A number, or for which runtimes it is 0: ``multi-node`` (numNodes above 1), ``keep`` (none)."""
    termination_grace_period_seconds: int = 60
    runtimes: tuple[Literal["TrainingRuntime", "ClusterTrainingRuntime"], ...] = (
        "TrainingRuntime",
        "ClusterTrainingRuntime",
    )


class StoragePolicy(Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """What the administrator adds to the built-in tables; a name matches whole or by ``*.suffix``."""

    provisioners: dict[str, Reach] = {}
    inline_drivers: dict[str, Reach] = {}


class ProgramsPolicy(Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """Where admission may read the text of a training program, beside the object itself."""

    config_maps: Literal["read", "off"] = "read"
    """``off``: no ConfigMap of a pod is asked for; files and ``--live`` read them all the same."""


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
    """Requests that are let through without judgement."""

    namespaces: tuple[str, ...] = (SYSTEM_NAMESPACE,)
    users: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    runtimes: tuple[str, ...] = ()


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
    namespaces: tuple[dict[str, Any], ...] = ()
    exceptions: tuple[dict[str, Any], ...] = ()
    self_service: tuple[str, ...] = ()
    """With the two above: part of the format, and nothing follows from them yet; ``unread`` names what is set."""
    hash: str = field(default="built-in")

    def unread(self) -> list[str]:
        """The fields that say something which this release does not act on."""
        fields = {"namespaces": self.namespaces, "exceptions": self.exceptions, "selfService": self.self_service}
        return [name for name, value in fields.items() if value]
