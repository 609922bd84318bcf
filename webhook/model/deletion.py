"""What is asked on DELETE: one object on its way out of the cluster."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from webhook.model.names import GROUP
from webhook.model.request import CONTROLLERS

CLAIM: Final = "PersistentVolumeClaim"
CONFIG_MAP: Final = "ConfigMap"
SNAPSHOT_SUFFIX: Final = "-runtime-snapshot"
"""Trainer 2.3 keeps a run's copy of its runtime in ConfigMap ``<run>-runtime-snapshot``."""
PROTECTED: Final = {
    ("", "v1", CLAIM): "persistentvolumeclaims",
    ("", "v1", CONFIG_MAP): "configmaps",
    (GROUP, "v1alpha1", "TrainingRuntime"): "trainingruntimes",
    (GROUP, "v1alpha1", "ClusterTrainingRuntime"): "clustertrainingruntimes",
}
"""What a run may need: group, version and kind, and the resource."""

CLEANERS: Final = frozenset(
    (
        "system:serviceaccount:kube-system:generic-garbage-collector",
        "system:serviceaccount:kube-system:namespace-controller",
        # a controller manager without --use-service-account-credentials is both of them
        "system:kube-controller-manager",
    )
)
"""Users who delete what nobody wants any more: owners that are gone, namespaces on their way out."""


class Deletion(Struct, frozen=True):
    """The part of a DELETE that decides. ``released``: its annotation lets it go; ``going``: it was deleted before."""

    kind: str
    namespace: str
    name: str
    released: bool = False
    going: bool = False
    user: str = ""
    groups: tuple[str, ...] = ()
    dry_run: bool = False
    uid: str = ""

    @property
    def operation(self) -> str:
        """As the audit log has it."""
        return "DELETE"

    @property
    def passes(self) -> bool:
        """Whether it is let through whatever needs the object."""
        return self.released or self.going or not self.name or self.user in CLEANERS or self.user in CONTROLLERS

    @property
    def run(self) -> str:
        """The run whose snapshot a ConfigMap is; empty where it is none."""
        if self.kind != CONFIG_MAP or not self.name.endswith(SNAPSHOT_SUFFIX):
            return ""
        return self.name.removesuffix(SNAPSHOT_SUFFIX)
