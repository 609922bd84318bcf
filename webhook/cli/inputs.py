"""What ``review`` and ``pods`` have in common: flags, files, the release of every object."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from webhook.cluster.files import Document, FileError, FileView, Loaded, Notice, join, load_files
from webhook.model.cluster import Runtime
from webhook.model.finding import Origin
from webhook.model.names import KINDS, RUNTIME_KINDS
from webhook.model.policy import Policy
from webhook.model.release import NEWEST, OVERRIDE_FIELDS, Release, infer_release, parse_release
from webhook.reports.review import Fault, Place

NO_CLUSTER = "error: --live is not built yet: give the cluster's objects as files with --state"


def add_flags(parser: argparse.ArgumentParser, outputs: Sequence[str]) -> None:
    """The flags that both commands take."""
    parser.add_argument("files", metavar="FILE", nargs="+", help="YAML or JSON, a folder, or - for standard input")
    parser.add_argument(
        "--state",
        metavar="PATH",
        action="append",
        default=[],
        help="claims, volumes, classes, namespaces and runtimes of the cluster, as a file or a folder; repeatable",
    )
    parser.add_argument("--live", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument(
        "--trainer",
        metavar="RELEASE",
        type=_release,
        help="the Kubeflow Trainer release, e.g. 2.3; else told by the override field that a TrainJob uses",
    )
    parser.add_argument("--output", choices=outputs, default="text", help="the format (default text)")


def _release(text: str) -> Release:
    try:
        return parse_release(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


class Inputs:
    """The objects of FILE and ``--state``, read once.

    ``documents`` are those of FILE that are of our kinds, in their order. ``faults`` and ``notices`` hold what was
    wrong or passed over while reading.
    """

    def __init__(
        self, files: Iterable[str], state: Iterable[str], trainer: Release | None, policy: Policy | None = None
    ) -> None:
        seen: set[str] = set()
        given = load_files(files, seen=seen)
        around = load_files(state, seen=seen)
        twice = join(given, around)
        self.documents = given.of_kind(*KINDS)
        self.faults = [fault_of(error) for error in (*given.errors, *around.errors, *twice)]
        self.notices = [notice_of(notice) for notice in (*given.notices, *around.notices)]
        self._trainer = trainer
        self._implied = _implied_releases(given)
        self._everything = [*given.documents, *around.documents]
        self._by_key: dict[tuple[str, str, str], Document] | None = None
        self.view = FileView(self._everything, trainer, given.damaged | around.damaged, policy)

    def release(self, document: Document) -> Release:
        """``--trainer``; else told by a TrainJob's override field, and for a runtime by the TrainJobs that use it."""
        if self._trainer is not None:
            return self._trainer
        if document.kind == "TrainJob":
            return infer_release(document.object.get("spec"))
        return self._implied.get(document.key, NEWEST)

    def locate(self, own: Document, origin: Origin) -> Place | None:
        """The line of a field, in the file in which its object stands."""
        document = own
        if origin.object != own.label:
            if self._by_key is None:
                self._by_key = {document.key: document for document in self._everything}
            kind, _, name = origin.object.partition("/")
            other = self._by_key.get((kind, own.namespace, name)) or self._by_key.get((kind, "", name))
            if other is None:
                return None
            document = other
        return Place(document.file, document.line_of(origin.field))

    def nothing(self, files: Sequence[str]) -> Fault | None:
        """Why there is nothing to do, where there is nothing and no other fault says so."""
        if self.documents or self.faults:
            return None
        kinds = f"{', '.join(KINDS[:-1])} or {KINDS[-1]}"
        return Fault(files[0] if len(files) == 1 else None, f"nothing to review: no {kinds} here")


def fault_of(error: FileError) -> Fault:
    """An error of reading, as reports have it."""
    return Fault(error.file, error.message, error.line, error.field)


def notice_of(notice: Notice) -> str:
    """A notice of reading in one line."""
    return f"{notice.file}: {notice.message}"


def runtime_of(document: Document, raw: Mapping[str, Any]) -> Runtime:
    """A runtime document in another state, with a cache of its own."""
    return Runtime(document.kind, document.namespace, document.name, raw, {})


def runtime_key(document: Document) -> tuple[str, str, str]:
    """Kind, namespace and name of the runtime that a TrainJob refers to."""
    ref = (document.object.get("spec") or {}).get("runtimeRef") or {}
    kind = ref.get("kind") or "ClusterTrainingRuntime"
    return kind, "" if kind == "ClusterTrainingRuntime" else document.namespace, str(ref.get("name") or "")


def _implied_releases(given: Loaded) -> dict[tuple[str, str, str], Release]:
    """Runtime -> the newest release that an override field of a TrainJob using it implies."""
    implied: dict[tuple[str, str, str], Release] = {}
    for document in given.of_kind("TrainJob"):
        spec = document.object.get("spec") or {}
        if not any(field in spec for field in OVERRIDE_FIELDS):
            continue
        key = runtime_key(document)
        release = infer_release(spec)
        if key[0] in RUNTIME_KINDS and (key not in implied or release.at_least(implied[key])):
            implied[key] = release
    return implied


def load_policy_file(path: str | None, faults: list[Fault]) -> Policy | None:
    """The policy of ``--policy``, the built-in one where there is none, None (and faults) where it cannot be read."""
    if path is None:
        return Policy()
    from webhook.cluster.policy_file import PolicyError, load_policy

    try:
        return load_policy(path)
    except PolicyError as error:
        faults.extend(fault_of(fault) for fault in error.errors)
        return None
