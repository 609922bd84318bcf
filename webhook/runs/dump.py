"""Objects out of files (``kubectl get ... -o yaml``) in the place of an API server, for commands that only look."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from webhook.cluster.yaml_text import TextError, decode, parse, split
from webhook.model.names import API_VERSION
from webhook.runs.api import Answer
from webhook.runs.overview import seconds_of

Raw = Mapping[str, Any]
_PLURALS: Final = {
    "TrainJob": "trainjobs",
    "TrainingRuntime": "trainingruntimes",
    "ClusterTrainingRuntime": "clustertrainingruntimes",
    "JobSet": "jobsets",
    "Pod": "pods",
    "ConfigMap": "configmaps",
    "PersistentVolumeClaim": "persistentvolumeclaims",
    "Workload": "workloads",
    "Event": "events",
    "CustomResourceDefinition": "customresourcedefinitions",
}
_SUFFIXES: Final = (".yaml", ".yml", ".json")


class DumpError(Exception):
    """A file that cannot be read; the text names it, the line and why."""


class Dump:
    """Answers lists and gets. A kind of which no object is given is not known: its list is refused."""

    def __init__(self, objects: Sequence[Raw]) -> None:
        self._kinds: dict[str, list[Raw]] = {}
        for one in objects:
            plural = _PLURALS.get(str(one.get("kind")))
            if plural is not None and isinstance(one.get("metadata"), dict) and one["metadata"].get("name"):
                self._kinds.setdefault(plural, []).append(one)

    def has_runs(self) -> bool:
        """Whether any TrainJob is among them."""
        return bool(self._kinds.get("trainjobs"))

    def request(
        self,
        method: str,
        path: str,
        params: Mapping[str, str] | None = None,
        body: object | None = None,
        content_type: str = "application/json",
    ) -> Answer:
        _, within, rest = path.partition("/namespaces/")
        namespace, _, kind = rest.partition("/") if within else ("", "", path.rpartition("/")[2])
        kind, _, name = kind.partition("/")
        if kind.rpartition(".")[0] and not within:  # .../customresourcedefinitions/trainjobs.trainer.kubeflow.org
            name, kind = kind, path.split("/")[-2]
        found = self._kinds.get(kind)
        if found is None:
            return Answer(404, {"message": "none is among the files"})
        mine = [one for one in found if not namespace or one["metadata"].get("namespace", "default") == namespace]
        if name:
            mine = [one for one in mine if one["metadata"]["name"] == name]
            return Answer(200, mine[0]) if mine else Answer(404, {"message": f'"{name}" not found'})
        if kind == "events" and (wanted := (params or {}).get("fieldSelector", "")):
            mine = [one for one in mine if one.get("reason") == wanted.partition("=")[2]]
        return Answer(200, {"items": mine})


def read_dump(paths: Sequence[str], stdin: bytes | None = None) -> tuple[Dump, float]:
    """The objects of files and folders (``-``: standard input), and the newest time in them. Raises DumpError.

    The newest time stands for now: what was a minute old when it was written down is not a day old.
    """
    objects: list[Raw] = []
    for path in paths:
        for name, data in _texts(path, stdin):
            try:
                for piece in split(decode(data)):
                    for _, document in parse(piece):
                        objects.extend(_flat(document))
            except TextError as error:
                where = f"{name}:{error.line}" if error.line else name
                raise DumpError(f"{where}: {error.message}") from None
    objects = [_placed(one) for one in objects]
    return Dump(objects), max((when for one in objects for when in _times(one)), default=0.0)


def _placed(one: Raw) -> Raw:
    """A TrainJob without a namespace is in ``default``, as for kubectl."""
    metadata = one.get("metadata")
    if not isinstance(metadata, dict) or metadata.get("namespace") or one.get("apiVersion") != API_VERSION:
        return one
    if one.get("kind") == "ClusterTrainingRuntime":
        return one
    return {**one, "metadata": {**metadata, "namespace": "default"}}


def _texts(path: str, stdin: bytes | None) -> Iterator[tuple[str, bytes]]:
    if path == "-":
        yield "standard input", stdin or b""
        return
    place = Path(path)
    try:
        if not place.is_dir():
            yield path, place.read_bytes()
            return
        for file in sorted(place.rglob("*")):
            if file.suffix in _SUFFIXES and file.is_file():
                yield str(file), file.read_bytes()
    except OSError as error:
        raise DumpError(f"{error.filename}: cannot be read: {error.strerror}") from None


def _flat(document: Any) -> Iterator[Raw]:
    if not isinstance(document, dict):
        return
    if str(document.get("kind") or "").endswith("List") and isinstance(document.get("items"), list):
        for one in document["items"]:
            yield from _flat(one)
    else:
        yield document


def _times(one: Raw) -> Iterator[float]:
    metadata = one.get("metadata")
    status = one.get("status")
    if isinstance(metadata, dict) and (when := seconds_of(metadata.get("creationTimestamp"))) is not None:
        yield when
    for condition in (status.get("conditions") if isinstance(status, dict) else None) or ():
        if isinstance(condition, dict):
            for key in ("lastTransitionTime", "lastProbeTime"):
                if (when := seconds_of(condition.get(key))) is not None:
                    yield when
