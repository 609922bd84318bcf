"""Objects by kind, namespace and name. Filled from files here and from watch caches in a cluster."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from webhook.cluster.objects import (
    created,
    first_classes,
    parse_claim,
    parse_config_map,
    parse_csi_driver,
    parse_namespace,
    parse_run,
    parse_runtime,
    parse_storage_class,
    parse_volume,
    snapshot_text,
)
from webhook.model.cluster import (
    SOME_CLAIMS,
    Claim,
    ConfigMap,
    CsiDriver,
    Gap,
    Namespace,
    PersistentVolume,
    Run,
    Runtime,
    StorageClass,
    finished,
)
from webhook.model.names import EXCEPTION

if TYPE_CHECKING:
    from webhook.model.exceptions import Exceptions
    from webhook.model.policy import Exemption

Raw = Mapping[str, Any]


class Store:
    """Holds what a view answers from, and why a kind is unknown where it is.

    A look-up that finds nothing is ``Gap.UNKNOWN`` for a kind that ``unknown`` names (with the reason), else
    ``Gap.ABSENT``. Not safe for several writers at once.
    """

    def __init__(self, unknown: Mapping[str, str] | None = None) -> None:
        self.unknown: dict[str, str] = dict(unknown or {})
        self._claims: dict[tuple[str, str], Claim] = {}
        self._claims_of: dict[str, dict[str, Claim]] = {}
        self._volumes: dict[str, PersistentVolume] = {}
        self._by_class: dict[str, list[PersistentVolume]] | None = None
        self._classes: dict[str, StorageClass] = {}
        self._class_age: dict[str, str] = {}
        self._drivers: dict[str, CsiDriver] = {}
        self._namespaces: dict[str, Namespace] = {}
        self._runtimes: dict[tuple[str, str, str], Runtime] = {}
        self._trainjobs: dict[tuple[str, str], Raw] = {}
        self._snapshots: dict[tuple[str, str], Runtime] = {}
        self._exceptions: dict[str, dict[str, Exemption]] = {}
        self._excepted: dict[str, Exceptions] = {}
        self._config_maps: dict[tuple[str, str], ConfigMap] = {}

    def put(self, kind: str, raw: Raw) -> None:
        """Adds or replaces an object of a kind that is kept; others are ignored."""
        if kind == "PersistentVolumeClaim":
            claim = parse_claim(raw)
            self._claims[claim.namespace, claim.name] = claim
            self._claims_of.setdefault(claim.namespace, {})[claim.name] = claim
        elif kind == "PersistentVolume":
            volume = parse_volume(raw)
            self._volumes[volume.name] = volume
            self._by_class = None
        elif kind == "StorageClass":
            found = parse_storage_class(raw)
            self._classes[found.name] = found
            self._class_age[found.name] = created(raw)
        elif kind == "CSIDriver":
            driver = parse_csi_driver(raw)
            self._drivers[driver.name] = driver
        elif kind == "Namespace":
            namespace = parse_namespace(raw)
            self._namespaces[namespace.name] = namespace
        elif kind == "TrainJob":
            run = parse_run(raw)
            self._trainjobs[run.namespace, run.name] = raw
        elif kind in ("TrainingRuntime", "ClusterTrainingRuntime"):
            self.put_runtime(parse_runtime(raw))
        elif kind == EXCEPTION:
            self._put_exception(raw)
        elif kind == "ConfigMap":
            self._put_snapshot(raw)
            # Whatever stands in a file may be an old state of it, so what was read of it before does not count.
            made = replace(parse_config_map(raw), version="")
            self._config_maps[made.namespace, made.name] = made

    def put_runtime(self, runtime: Runtime) -> None:
        """Adds a runtime or replaces it, e.g. by its defaulted form."""
        self._runtimes[runtime.kind, runtime.namespace, runtime.name] = runtime

    def _put_snapshot(self, raw: Raw) -> None:
        found = snapshot_text(raw)
        if found is None:
            return
        from webhook.cluster.yaml_text import Piece, TextError, parse

        namespace, trainjob, text = found
        try:
            documents = [value for _, value in parse(Piece(text.encode()))]
        except TextError:
            return
        if len(documents) == 1 and isinstance(documents[0], dict):
            self._snapshots[namespace, trainjob] = parse_runtime(documents[0])

    def _put_exception(self, raw: Raw) -> None:
        from webhook.cluster.granted import Unusable, parse_exception

        try:
            (namespace, name), entry = parse_exception(raw)
        except Unusable:  # which is said where files are read
            return
        self._exceptions.setdefault(namespace, {})[name] = entry
        self._excepted.pop(namespace, None)

    def exceptions(self, namespace: str) -> Exceptions | Gap:
        """Of those that were put; where none was given, none counts."""
        entries = self._exceptions.get(namespace)
        if entries is None:
            return Gap.ABSENT
        made = self._excepted.get(namespace)
        if made is None:
            from webhook.model.exceptions import Exceptions

            made = self._excepted[namespace] = Exceptions.of_objects(entries)
        return made

    def miss(self, kind: str) -> Gap:
        """What a look-up of that kind answers where nothing is found."""
        return Gap.UNKNOWN if kind in self.unknown else Gap.ABSENT

    def claim(self, namespace: str, name: str) -> Claim | Gap:
        return self._claims.get((namespace, name)) or self.miss("PersistentVolumeClaim")

    def volume(self, name: str) -> PersistentVolume | Gap:
        return self._volumes.get(name) or self.miss("PersistentVolume")

    def available_volumes(self, storage_class: str) -> Sequence[PersistentVolume] | Gap:
        """Volumes of the class that are not bound; one that names a claim beforehand is among them."""
        if "PersistentVolume" in self.unknown:
            return Gap.UNKNOWN
        if self._by_class is None:
            self._by_class = {}
            for volume in self._volumes.values():
                if volume.phase in ("", "Available", "Pending"):
                    self._by_class.setdefault(volume.storage_class, []).append(volume)
        return self._by_class.get(storage_class, ())

    def storage_class(self, name: str) -> StorageClass | Gap:
        return self._classes.get(name) or self.miss("StorageClass")

    def default_storage_class(self) -> StorageClass | Gap:
        """The class annotated as default; of several the newest, then the first by name, as Kubernetes' admission."""
        best: StorageClass | None = None
        for found in self._classes.values():
            if found.default and (best is None or self._before(found, best)):
                best = found
        return best or self.miss("StorageClass")

    def _before(self, one: StorageClass, other: StorageClass) -> bool:
        age, other_age = self._class_age[one.name], self._class_age[other.name]
        return age > other_age if age != other_age else one.name < other.name

    def some_classes(self) -> Sequence[StorageClass] | Gap:
        """The default one first; where some may be missing, unknown."""
        if "StorageClass" in self.unknown:
            return Gap.UNKNOWN
        return first_classes(self.default_storage_class(), self._classes.values())

    def some_claims(self, namespace: str) -> Sequence[Claim]:
        """Those of a namespace, in the order that they came in, cut off at ``SOME_CLAIMS``."""
        return tuple(islice(self._claims_of.get(namespace, {}).values(), SOME_CLAIMS))

    def csi_driver(self, name: str) -> CsiDriver | Gap:
        return self._drivers.get(name) or self.miss("CSIDriver")

    def config_map(self, namespace: str, name: str) -> ConfigMap | Gap:
        return self._config_maps.get((namespace, name)) or self.miss("ConfigMap")

    def namespace(self, name: str) -> Namespace | Gap:
        return self._namespaces.get(name) or self.miss("Namespace")

    def runtime(self, kind: str, namespace: str, name: str) -> Runtime | Gap:
        scope = "" if kind == "ClusterTrainingRuntime" else namespace
        return self._runtimes.get((kind, scope, name)) or self.miss(kind)

    def snapshot(self, namespace: str, trainjob: str) -> Runtime | Gap:
        return self._snapshots.get((namespace, trainjob)) or self.miss("ConfigMap")

    def names_of_trainjobs(self) -> frozenset[tuple[str, str]]:
        """Namespace and name of every TrainJob, finished or not."""
        return frozenset(self._trainjobs)

    def unfinished(self, namespace: str | None = None) -> Iterator[tuple[Run, Raw]]:
        """TrainJobs that are not over, of one namespace or of all."""
        for (where, _), raw in self._trainjobs.items():
            if namespace in (None, where) and not finished(raw):
                yield parse_run(raw), raw

    def runs_of_runtime(self, kind: str, namespace: str, name: str) -> Sequence[Run] | Gap:
        if "TrainJob" in self.unknown:
            return Gap.UNKNOWN
        scope = None if kind == "ClusterTrainingRuntime" else namespace
        return [run for run, _ in self.unfinished(scope) if run.runtime_kind == kind and run.runtime_name == name]

    def why_unknown(self, kind: str) -> str:
        return self.unknown.get(kind, f"{kind} objects cannot be read")
