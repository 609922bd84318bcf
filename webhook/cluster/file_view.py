"""A view of the cluster made of what files say."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from webhook.cluster.directories import checkpoint_directories
from webhook.cluster.documents import Document, Raw
from webhook.cluster.files import STATE_KINDS
from webhook.cluster.store import Store
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
from webhook.model.names import RUNTIME_KINDS
from webhook.model.policy import Policy
from webhook.model.release import Release
from webhook.model.request import MalformedObject
from webhook.model.shape import check_shape

if TYPE_CHECKING:
    from webhook.model.exceptions import Exceptions

DirectoriesOf = Callable[["FileView", Raw], Iterable[tuple[str, str]]]
"""The directories that a TrainJob writes to: pairs of claim and path on it."""


class FileView:
    """A ``ClusterView`` of what stands in files.

    A kind of which no object at all is given is unknown; where some are given, one that is not among them is absent. Of
    claims that holds for each namespace: one of a namespace of which no claim is given was not looked for.
    ``Store.put_runtime`` of ``store`` replaces a runtime, e.g. by its defaulted form.
    """

    def __init__(
        self,
        documents: Iterable[Document],
        release: Release | None = None,
        damaged: Iterable[str] = (),
        policy: Policy | None = None,
        directories_of: DirectoriesOf | None = None,
    ) -> None:
        self.store = Store()
        self.assumed: Runtime | None = None
        """A runtime that counts where none of its kind and name is given."""
        self._release = release
        self.kueue: bool | None = None
        """Files tell nothing of it."""
        self.policy = policy or Policy()
        self._directories_of = directories_of or directories_of_trainjob
        self._directories: dict[tuple[str, str, str | None], list[RunDirectory]] | None = None
        given: set[str] = set()
        self._looked_in: set[str] = set()
        malformed: list[tuple[str, str]] = []
        for document in documents:
            given.add(document.kind)
            if document.kind == "PersistentVolumeClaim":
                self._looked_in.add(document.namespace)
            if document.kind in RUNTIME_KINDS:
                try:
                    check_shape(document.kind, document.object)
                except MalformedObject as fault:
                    # Nothing can be built from it, and what is wrong is said where it is reviewed itself.
                    malformed.append((document.kind, f"{document.label} is malformed at {fault.field or 'its top'}"))
                    continue
            self.store.put(document.kind, document.stored)
        self.store.unknown.update((kind, f"no {kind} among the files") for kind in STATE_KINDS if kind not in given)
        self.store.unknown.update(malformed)
        self.store.unknown.update(
            (kind, f"a {kind} may stand in what could not be read of the files") for kind in damaged
        )

    def put_runtime(self, runtime: Runtime) -> None:
        """Replaces a runtime, e.g. by its defaulted form."""
        self.store.put_runtime(runtime)
        self._directories = None

    def claim(self, namespace: str, name: str) -> Claim | Gap:
        found = self.store.claim(namespace, name)
        return Gap.UNKNOWN if found is Gap.ABSENT and namespace not in self._looked_in else found

    def volume(self, name: str) -> PersistentVolume | Gap:
        return self.store.volume(name)

    def available_volumes(self, storage_class: str) -> Sequence[PersistentVolume] | Gap:
        return self.store.available_volumes(storage_class)

    def storage_class(self, name: str) -> StorageClass | Gap:
        return self.store.storage_class(name)

    def default_storage_class(self) -> StorageClass | Gap:
        return self.store.default_storage_class()

    def some_classes(self) -> Sequence[StorageClass] | Gap:
        return self.store.some_classes()

    def some_claims(self, namespace: str) -> Sequence[Claim] | Gap:
        return self.store.some_claims(namespace) if namespace in self._looked_in else Gap.UNKNOWN

    def csi_driver(self, name: str) -> CsiDriver | Gap:
        return self.store.csi_driver(name)

    def config_map(self, namespace: str, name: str) -> ConfigMap | Gap:
        # That others are among the files says nothing: kubectl create and kustomize make them as well.
        found = self.store.config_map(namespace, name)
        return Gap.UNKNOWN if isinstance(found, Gap) else found

    def namespace(self, name: str) -> Namespace | Gap:
        return self.store.namespace(name)

    def runtime(self, kind: str, namespace: str, name: str) -> Runtime | Gap:
        found = self.store.runtime(kind, namespace, name)
        assumed = self.assumed
        if assumed is not None and isinstance(found, Gap) and (kind, name) == (assumed.kind, assumed.name):
            return assumed
        return found

    def snapshot(self, namespace: str, trainjob: str) -> Runtime | Gap:
        return self.store.snapshot(namespace, trainjob)

    def runs_of_runtime(self, kind: str, namespace: str, name: str) -> Sequence[Run] | Gap:
        return self.store.runs_of_runtime(kind, namespace, name)

    def excused_runs(self, namespace: str, besides: str) -> int | Gap:
        return Gap.UNKNOWN  # what is reviewed is not what is stored

    def exceptions(self, namespace: str) -> Exceptions | Gap:
        return self.store.exceptions(namespace)

    def directories(self, namespace: str, claim: str, path: str | None = None) -> Sequence[RunDirectory] | Gap:
        """Builds the pods of all unfinished TrainJobs at the first call."""
        if "TrainJob" in self.store.unknown:
            return Gap.UNKNOWN
        if self._directories is None:
            # Set before it is filled: working out a job's directory may ask this view again.
            index = self._directories = {}
            for run, raw in sorted(self.store.unfinished(), key=_by_name):
                # A job has one directory in several containers; it counts once.
                for name, where in dict.fromkeys(self._directories_of(self, raw)):
                    found = RunDirectory(run, name, where)
                    index.setdefault((run.namespace, name, None), []).append(found)
                    index.setdefault((run.namespace, name, where), []).append(found)
        return self._directories.get((namespace, claim, path), ())

    def serves_kueue(self) -> bool | None:
        return self.kueue

    def release(self) -> Release | None:
        return self._release

    def why_unknown(self, kind: str) -> str:
        if kind not in self.store.unknown:
            return f"no {kind} of that namespace among the files"
        return self.store.why_unknown(kind)


def _by_name(entry: tuple[Run, Raw]) -> tuple[str, str]:
    return entry[0].namespace, entry[0].name


def directories_of_trainjob(view: FileView, trainjob: Raw) -> Iterator[tuple[str, str]]:
    """Claim and path on it of every checkpoint directory of a TrainJob, as the engine works them out."""
    return checkpoint_directories(view, trainjob, view.policy)
