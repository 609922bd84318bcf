"""A view of the cluster that counts what one review looks up, and answers no more than its budget allows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from webhook.model.budget import LOOKUPS
from webhook.model.cluster import (
    Claim,
    ClusterView,
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
from webhook.model.release import Release

if TYPE_CHECKING:
    from webhook.model.exceptions import Exceptions

_TOGETHER = 64
"""Volumes that may be bound, of one look-up, that cost as much as a look-up."""


class Counted:
    """A ``ClusterView``. Beyond the budget an answer is ``Gap.UNKNOWN``; ``lookups`` counts on."""

    __slots__ = ("_claims", "_listed", "_view", "lookups")

    def __init__(self, view: ClusterView) -> None:
        self._view = view
        self._claims: dict[tuple[str, str], Claim | Gap] = {}
        self._listed: dict[str, Sequence[PersistentVolume] | Gap] = {}
        self.lookups = 0

    def claim(self, namespace: str, name: str) -> Claim | Gap:
        key = namespace, name
        found = self._claims.get(key)
        if found is None:
            self.lookups += 1
            found = Gap.UNKNOWN if self.lookups > LOOKUPS else self._view.claim(namespace, name)
            self._claims[key] = found
        return found

    def volume(self, name: str) -> PersistentVolume | Gap:
        # Each is asked for by a claim, which was counted.
        return self._view.volume(name)

    def available_volumes(self, storage_class: str) -> Sequence[PersistentVolume] | Gap:
        found = self._listed.get(storage_class)
        if found is None:
            found = self._listed[storage_class] = self._view.available_volumes(storage_class)
        if isinstance(found, Gap):
            return found
        # Whoever asks goes through all of them.
        self.lookups += len(found) // _TOGETHER
        return Gap.UNKNOWN if self.lookups > LOOKUPS else found

    def storage_class(self, name: str) -> StorageClass | Gap:
        return self._view.storage_class(name)

    def default_storage_class(self) -> StorageClass | Gap:
        return self._view.default_storage_class()

    def some_classes(self) -> Sequence[StorageClass] | Gap:
        return self._view.some_classes()

    def some_claims(self, namespace: str) -> Sequence[Claim] | Gap:
        return self._view.some_claims(namespace)

    def csi_driver(self, name: str) -> CsiDriver | Gap:
        return self._view.csi_driver(name)

    def config_map(self, namespace: str, name: str) -> ConfigMap | Gap:
        # At most four are asked for by those who look for programs.
        return self._view.config_map(namespace, name)

    def namespace(self, name: str) -> Namespace | Gap:
        return self._view.namespace(name)

    def runtime(self, kind: str, namespace: str, name: str) -> Runtime | Gap:
        return self._view.runtime(kind, namespace, name)

    def snapshot(self, namespace: str, trainjob: str) -> Runtime | Gap:
        return self._view.snapshot(namespace, trainjob)

    def runs_of_runtime(self, kind: str, namespace: str, name: str) -> Sequence[Run] | Gap:
        return self._view.runs_of_runtime(kind, namespace, name)

    def excused_runs(self, namespace: str, besides: str) -> int | Gap:
        return self._view.excused_runs(namespace, besides)

    def directories(self, namespace: str, claim: str, path: str | None = None) -> Sequence[RunDirectory] | Gap:
        return self._view.directories(namespace, claim, path)

    def exceptions(self, namespace: str) -> Exceptions | Gap:
        return self._view.exceptions(namespace)

    def serves_kueue(self) -> bool | None:
        return self._view.serves_kueue()

    def release(self) -> Release | None:
        return self._view.release()

    def why_unknown(self, kind: str) -> str:
        if self.lookups > LOOKUPS:
            return f"the object names more than the {LOOKUPS} claims that one review looks up"
        return self._view.why_unknown(kind)
