"""What was read from files: documents with their places, errors and notices."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from msgspec import Struct

from webhook.cluster.places import Place, steps_of
from webhook.cluster.yaml_text import Piece, places

Raw = Mapping[str, Any]
_CLUSTER_SCOPED: Final = ("ClusterTrainingRuntime", "PersistentVolume", "StorageClass", "CSIDriver", "Namespace")


class FileError(Struct, frozen=True):
    """What is wrong where. The four fields are those of ``errors`` in ``--output json``; None where there is none."""

    file: str
    line: int | None
    field: str | None
    message: str

    def __str__(self) -> str:
        where = self.file if self.line is None else f"{self.file}:{self.line}"
        return f"{where}: {self.field}: {self.message}" if self.field else f"{where}: {self.message}"


class Notice(Struct, frozen=True):
    """What was left aside, and why."""

    file: str
    message: str


class Document:
    """One object of a file that we read: of our kinds, or state that rules look up.

    ``object`` is raw and shared; never change it. ``namespace`` is ``default`` where the object names none, unless
    ``settle_namespaces`` found another one; it is ``""`` for kinds without namespace. ``name`` is the generateName
    where there is no name.
    """

    __slots__ = (
        "_index",
        "_item",
        "_line",
        "_piece",
        "_place",
        "file",
        "kind",
        "name",
        "namespace",
        "object",
        "placed",
    )

    def __init__(self, file: str, piece: Piece, index: int, line: int, item: int | None, obj: dict[str, Any]) -> None:
        self.file = file
        self.object = obj
        self.kind: str = obj["kind"]
        metadata = obj.get("metadata")
        metadata = metadata if isinstance(metadata, dict) else {}
        name = metadata.get("name") or metadata.get("generateName")
        self.name: str = name if isinstance(name, str) else ""
        namespace = metadata.get("namespace")
        self.namespace: str = ""
        self.placed = True
        """Whether the object names its namespace, or has none."""
        if self.kind not in _CLUSTER_SCOPED:
            self.placed = isinstance(namespace, str) and bool(namespace)
            self.namespace = str(namespace) if self.placed else "default"
        self._piece = piece
        self._index = index
        self._item = item
        self._line = line
        self._place: Place | None = None

    @property
    def line(self) -> int:
        """The line that the object begins on."""
        return self._line if self._item is None else self.line_of("")

    @property
    def stored(self) -> Raw:
        """The object as a store keeps it: with the namespace that it was given here, where it names none."""
        if self.placed or self.namespace == "default":
            return self.object
        metadata = self.object.get("metadata")
        metadata = metadata if isinstance(metadata, dict) else {}
        return {**self.object, "metadata": {**metadata, "namespace": self.namespace}}

    @property
    def key(self) -> tuple[str, str, str]:
        return self.kind, self.namespace, self.name

    @property
    def label(self) -> str:
        return f"{self.kind}/{self.name}"

    def line_of(self, field: str) -> int:
        """The line of a field (``spec.trainer.env[0]``), or of the nearest field around it that is written.

        ``spec.trainer.args[0] line 14`` is the 14th line of the program in that field.
        The text is parsed a second time at the first call.
        """
        if self._place is None:
            found = places(self._piece)
            self._place = found[self._index] if self._index < len(found) else Place(self._line)
        path, _, number = field.partition(" line ")
        steps = steps_of(path)
        if self._item is not None:
            steps[:0] = ["items", self._item]
        return self._place.find(steps, int(number) if number.isdecimal() else 0)


class Loaded:
    """What ``load_files`` found. ``damaged`` names the kinds of which an object may stand in what could not be read."""

    def __init__(self) -> None:
        self.documents: list[Document] = []
        self.errors: list[FileError] = []
        self.notices: list[Notice] = []
        self.damaged: set[str] = set()
        self.several: dict[tuple[str, str, str], list[Document]] = {}
        """Objects that stand in several folders, each time another: every folder has its own."""
        self.skipped = 0
        """Patches, templates and files that were passed over."""
        self.patches: list[str] = []
        self.templates: dict[str, list[str]] = {}
        """Chart or folder -> its files that are templates."""
        self.aside: dict[str, list[str]] = {}
        """Names of what stood beside objects that are read -> the files in which it stood."""
        self.convertible: dict[str, str] = {}
        """Files with a job of the Training Operator -> its kind."""

    def found(self) -> int:
        """How much was said so far: objects, errors and notices, and what is passed over and told at the end."""
        told = len(self.documents) + len(self.errors) + len(self.notices) + len(self.patches)
        return told + sum(map(len, self.templates.values()))

    def of_kind(self, *kinds: str) -> list[Document]:
        """The documents of these kinds, in the order in which they were read."""
        return [document for document in self.documents if document.kind in kinds]
