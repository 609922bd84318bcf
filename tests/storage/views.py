"""A small ClusterView for tests: what is not given is absent, and whole kinds can be unknown."""

from __future__ import annotations

from collections.abc import Sequence

from webhook.model.cluster import (
    Claim,
    ConfigMap,
    CsiDriver,
    Gap,
    Namespace,
    PersistentVolume,
    Run,
    RunDirectory,
    Runtime,
    StorageClass,
)
from webhook.model.exceptions import Exceptions
from webhook.model.release import Release


class View:
    def __init__(
        self,
        *objects: Claim | PersistentVolume | StorageClass,
        unknown: Sequence[str] = (),
        directories: Sequence[RunDirectory] = (),
    ) -> None:
        self.objects = objects
        self.unknown = unknown
        self.runs = directories

    def _miss(self, kind: str) -> Gap:
        return Gap.UNKNOWN if kind in self.unknown else Gap.ABSENT

    def claim(self, namespace: str, name: str) -> Claim | Gap:
        for item in self.objects:
            if isinstance(item, Claim) and (item.namespace, item.name) == (namespace, name):
                return item
        return self._miss("PersistentVolumeClaim")

    def volume(self, name: str) -> PersistentVolume | Gap:
        for item in self.objects:
            if isinstance(item, PersistentVolume) and item.name == name:
                return item
        return self._miss("PersistentVolume")

    def available_volumes(self, storage_class: str) -> Sequence[PersistentVolume] | Gap:
        if "PersistentVolume" in self.unknown:
            return Gap.UNKNOWN
        volumes = [item for item in self.objects if isinstance(item, PersistentVolume)]
        return [item for item in volumes if item.storage_class == storage_class and item.phase != "Bound"]

    def storage_class(self, name: str) -> StorageClass | Gap:
        for item in self.objects:
            if isinstance(item, StorageClass) and item.name == name:
                return item
        return self._miss("StorageClass")

    def default_storage_class(self) -> StorageClass | Gap:
        for item in self.objects:
            if isinstance(item, StorageClass) and item.default:
                return item
        return self._miss("StorageClass")

    def some_classes(self) -> Sequence[StorageClass] | Gap:
        classes = [item for item in self.objects if isinstance(item, StorageClass)]
        return sorted(classes, key=lambda item: not item.default)

    def some_claims(self, namespace: str) -> Sequence[Claim] | Gap:
        if "PersistentVolumeClaim" in self.unknown:
            return Gap.UNKNOWN
        return [item for item in self.objects if isinstance(item, Claim) and item.namespace == namespace]

    def csi_driver(self, name: str) -> CsiDriver | Gap:
        for item in self.objects:
            if isinstance(item, CsiDriver) and item.name == name:
                return item
        return self._miss("CSIDriver")

    def config_map(self, namespace: str, name: str) -> ConfigMap | Gap:
        for item in self.objects:
            if isinstance(item, ConfigMap) and (item.namespace, item.name) == (namespace, name):
                return item
        return self._miss("ConfigMap")

    def namespace(self, name: str) -> Namespace | Gap:
        return Gap.ABSENT

    def runtime(self, kind: str, namespace: str, name: str) -> Runtime | Gap:
        return Gap.ABSENT

    def snapshot(self, namespace: str, trainjob: str) -> Runtime | Gap:
        return Gap.ABSENT

    def runs_of_runtime(self, kind: str, namespace: str, name: str) -> Sequence[Run] | Gap:
        return ()

    def excused_runs(self, namespace: str, besides: str) -> int | Gap:
        return 0

    def directories(self, namespace: str, claim: str, path: str | None = None) -> Sequence[RunDirectory] | Gap:
        return [entry for entry in self.runs if entry.claim == claim and path in (None, entry.path)]

    def exceptions(self, namespace: str) -> Exceptions | Gap:
        return Gap.ABSENT

    def serves_kueue(self) -> bool | None:
        return None

    def release(self) -> Release | None:
        return None

    def why_unknown(self, kind: str) -> str:
        return f"no {kind} among the files"
