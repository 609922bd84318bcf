"""Files over a live cluster: what ``ckptguard review --live`` sees.

Only what is asked for is read, with the rights of whoever runs the command. What stands in the files comes before what
the cluster has.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import orjson

from webhook.cluster.access import NoCluster, Refused, Unreachable
from webhook.cluster.connection import Connection, configuration
from webhook.cluster.documents import Document
from webhook.cluster.file_view import FileView
from webhook.cluster.kinds import TRAINJOB, served_release
from webhook.cluster.live import LiveView, read_into
from webhook.cluster.objects import parse_run
from webhook.cluster.reader import Reader
from webhook.cluster.served import serves_kueue, told, unknown_parts
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
from webhook.model.names import GROUP
from webhook.model.policy import Policy
from webhook.model.release import Release

WHO: Final = "the user of your kubeconfig"
_SECONDS: Final = 10.0
_SCHEMA: Final = f"/openapi/v3/apis/{GROUP}/v1alpha1"
_ROUNDS: Final = 12


class LiveFiles(FileView):
    """A ``ClusterView`` of files and of the cluster behind them.

    A look-up of what is in neither is unknown at first and makes the view *lack* something: call ``read`` and ask
    again. ``close`` ends the connection. Raises NoCluster where there is no cluster to ask.
    """

    def __init__(
        self,
        documents: Iterable[Document],
        release: Release | None = None,
        damaged: Iterable[str] = (),
        policy: Policy | None = None,
        kubeconfig: Path | None = None,
        context: str | None = None,
    ) -> None:
        super().__init__(documents, release, damaged, policy)
        self._damaged = frozenset(damaged)
        self._live = LiveView(None, {})
        self._merged: set[str] = set()
        self._runner = asyncio.Runner()
        self._connection = Connection(configuration(kubeconfig, context=context))
        self._reader = Reader(self._connection, WHO, _SECONDS, 16)
        try:
            self.notice = ""
            self._served = release or self._runner.run(self._ask_release())
        except BaseException:
            self.close()
            raise

    def lacks(self) -> bool:
        """Whether something has to be read before an answer of the engine counts."""
        return bool(self._live.missed)

    def read(self) -> None:
        """Read what was missed, all at once."""
        self._runner.run(read_into(self._live, self._reader))
        self._directories = None

    def unread(self) -> list[str]:
        """Why some of what was asked for is unknown."""
        return sorted(set(self._live.reasons()))

    def close(self) -> None:
        """End the connection."""
        self._runner.run(self._connection.close())
        self._runner.close()

    async def _ask_release(self) -> Release | None:
        """From the published schema, which everybody may read, unlike the CRD."""
        try:
            published = orjson.loads(await self._connection.get(_SCHEMA, seconds=_SECONDS))
        except (Unreachable, orjson.JSONDecodeError) as error:
            raise NoCluster(f"the cluster of your kubeconfig does not answer: {error}") from None
        except Refused as refused:
            if refused.status == 401:
                raise NoCluster("the cluster does not accept the credentials of your kubeconfig") from None
            return None
        crd = _crd_of(published)
        if parts := unknown_parts(crd):
            self.notice = told(parts)
        return served_release(crd)

    def claim(self, namespace: str, name: str) -> Claim | Gap:
        found = self.store.claim(namespace, name)
        return self._either("PersistentVolumeClaim", self._live.claim(namespace, name)) if _gap(found) else found

    def volume(self, name: str) -> PersistentVolume | Gap:
        found = self.store.volume(name)
        return self._either("PersistentVolume", self._live.volume(name)) if _gap(found) else found

    def available_volumes(self, storage_class: str) -> Sequence[PersistentVolume] | Gap:
        live = self._live.available_volumes(storage_class)
        if isinstance(live, Gap) or "PersistentVolume" in self._damaged:
            return Gap.UNKNOWN
        own = self.store.available_volumes(storage_class)
        own = () if isinstance(own, Gap) else own
        return [*own, *(volume for volume in live if _gap(self.store.volume(volume.name)))]

    def storage_class(self, name: str) -> StorageClass | Gap:
        found = self.store.storage_class(name)
        return self._either("StorageClass", self._live.storage_class(name)) if _gap(found) else found

    def default_storage_class(self) -> StorageClass | Gap:
        found = self.store.default_storage_class()
        return self._either("StorageClass", self._live.default_storage_class()) if _gap(found) else found

    def some_classes(self) -> Sequence[StorageClass] | Gap:
        # Of those among the files nobody knows whether the cluster has others.
        found = self.default_storage_class()
        return found if isinstance(found, Gap) else (found,)

    def csi_driver(self, name: str) -> CsiDriver | Gap:
        found = self.store.csi_driver(name)
        return self._either("CSIDriver", self._live.csi_driver(name)) if _gap(found) else found

    def config_map(self, namespace: str, name: str) -> ConfigMap | Gap:
        found = self.store.config_map(namespace, name)
        return self._either("ConfigMap", self._live.config_map(namespace, name)) if _gap(found) else found

    def namespace(self, name: str) -> Namespace | Gap:
        found = self.store.namespace(name)
        return self._either("Namespace", self._live.namespace(name)) if _gap(found) else found

    def runtime(self, kind: str, namespace: str, name: str) -> Runtime | Gap:
        found = self.store.runtime(kind, namespace, name)
        return self._either(kind, self._live.runtime(kind, namespace, name)) if _gap(found) else found

    def snapshot(self, namespace: str, trainjob: str) -> Runtime | Gap:
        found = self.store.snapshot(namespace, trainjob)
        return self._live.snapshot(namespace, trainjob) if _gap(found) else found

    def runs_of_runtime(self, kind: str, namespace: str, name: str) -> Sequence[Run] | Gap:
        self._merge("" if kind == "ClusterTrainingRuntime" else namespace)
        return super().runs_of_runtime(kind, namespace, name)

    def directories(self, namespace: str, claim: str, path: str | None = None) -> Sequence[RunDirectory] | Gap:
        self._merge(namespace)
        return super().directories(namespace, claim, path)

    def exceptions(self, namespace: str) -> Exceptions | Gap:
        own, live = super().exceptions(namespace), self._live.exceptions(namespace)
        if isinstance(live, Gap):
            return live if live is Gap.UNKNOWN or isinstance(own, Gap) else own
        return live if isinstance(own, Gap) else own.before(live)

    def serves_kueue(self) -> bool | None:
        if self.kueue is None:
            self.kueue = self._runner.run(serves_kueue(partial(self._connection.get, seconds=_SECONDS)))
        return self.kueue

    def release(self) -> Release | None:
        return self._served

    def why_unknown(self, kind: str) -> str:
        return self._live.reason(kind) or super().why_unknown(kind)

    def _merge(self, namespace: str) -> None:
        """Add the cluster's TrainJobs of a namespace (``""``: of all) to those of the files."""
        found = self._live.trainjobs(namespace)
        if isinstance(found, Gap) or namespace in self._merged:
            return
        self._merged.add(namespace)
        self._directories = None
        if TRAINJOB not in self._damaged:
            self.store.unknown.pop(TRAINJOB, None)
        given = self.store.names_of_trainjobs()
        for raw in found:
            run = parse_run(raw)
            if (run.namespace, run.name) not in given:
                self.store.put(TRAINJOB, raw)

    def _either(self, kind: str, live: Any) -> Any:
        """What the cluster says of an object that is not among the files."""
        return Gap.UNKNOWN if live is Gap.ABSENT and kind in self._damaged else live


def _gap(found: object) -> bool:
    return isinstance(found, Gap)


def published_release(published: Any) -> Release | None:
    """The release whose TrainJob an OpenAPI document describes."""
    return served_release(_crd_of(published))


def _crd_of(published: Any) -> dict[str, Any]:
    """What an OpenAPI document says of TrainJobs, as it stands in the CRD; empty where it says nothing."""
    schemas = ((published.get("components") or {}).get("schemas") or {}) if isinstance(published, Mapping) else {}
    for name, schema in schemas.items():
        if name.endswith(".TrainJob") and isinstance(schema, Mapping):
            version = {"name": "v1alpha1", "served": True, "schema": {"openAPIV3Schema": schema}}
            return {"spec": {"versions": [version]}}
    return {}
