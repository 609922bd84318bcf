"""What ``review`` and ``pods`` have in common: files, the release of every object."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar

from webhook.cli.output import complain
from webhook.cluster.documents import Document, FileError, Loaded, Notice
from webhook.cluster.file_view import FileView
from webhook.cluster.files import give_way, load_files, nearest_to, settle_namespaces
from webhook.model.cluster import Runtime
from webhook.model.finding import Origin
from webhook.model.names import KINDS, RUNTIME_KINDS
from webhook.model.policy import Policy
from webhook.model.release import NEWEST, OVERRIDE_FIELDS, Release, infer_release
from webhook.reports.review import Fault, Place

if TYPE_CHECKING:
    from pathlib import Path

    from webhook.cluster.live_files import LiveFiles

Answer = TypeVar("Answer")
_ROUNDS: Final = 12
"""More than look-ups can lead from one to the next."""


def inputs_of(arguments: argparse.Namespace, policy: Policy | None = None) -> Inputs | None:
    """What the flags of ``add_flags`` name; None, and a line on standard error, where they name no file."""
    files = [*arguments.files, *arguments.more]
    if not files:
        complain(["error: FILE is missing: name a file, a folder, or - for standard input; see --help"])
        return None
    kubeconfig = None
    if arguments.kubeconfig or arguments.context:
        from pathlib import Path

        kubeconfig = Path(arguments.kubeconfig) if arguments.kubeconfig else None
    return Inputs(
        files,
        arguments.state,
        arguments.trainer,
        policy,
        live=arguments.live,
        namespace=arguments.namespace,
        exclude=arguments.exclude,
        kubeconfig=kubeconfig,
        context=arguments.context,
    )


class Inputs:
    """The objects of FILE and ``--state``, read once.

    ``documents`` are those of FILE that are of our kinds, in their order. ``faults`` and ``notices`` hold what was
    wrong or passed over while reading.
    """

    def __init__(
        self,
        files: Iterable[str],
        state: Iterable[str],
        trainer: Release | None,
        policy: Policy | None = None,
        *,
        live: bool = False,
        namespace: str | None = None,
        exclude: Sequence[str] = (),
        kubeconfig: Path | None = None,
        context: str | None = None,
    ) -> None:
        seen: set[str] = set()
        self.files = list(files)
        given = load_files(self.files, seen=seen, exclude=exclude, settled=False)
        around = load_files(state, seen=seen, settled=False)
        settle_namespaces(namespace, given, around)
        self.namespace = namespace
        give_way(given, around)
        self.documents = given.of_kind(*KINDS)
        self.maps = given.of_kind("ConfigMap")
        """Those of FILE: they may hold programs."""
        self.skipped = given.skipped
        self.faults = [fault_of(error) for error in (*given.errors, *around.errors)]
        self.notices = [notice_of(notice) for notice in (*given.notices, *around.notices)]
        self._trainer = trainer
        self._implied = _implied_releases(given)
        self._everything = [*given.documents, *around.documents]
        self._by_key: dict[tuple[str, str, str], Document] | None = None
        self._several = {**around.several, **given.several}
        self._filled: dict[int, Runtime] = {}
        self.settled = ""
        """The folder whose objects count now, where another one has others of the same name."""
        damaged = self._damaged = given.damaged | around.damaged
        self._live: LiveFiles | None = None
        if live:
            self._live = self._over_cluster(damaged, policy, kubeconfig, context)
            if self._live is not None and self._live.notice:
                self.notices.append(f"--live: {self._live.notice}")
            if self._live is None:
                self.documents = []
        self.view = self._live or FileView(self._everything, trainer, damaged, policy)

    def _over_cluster(
        self, damaged: set[str], policy: Policy | None, kubeconfig: Path | None, context: str | None
    ) -> LiveFiles | None:
        """The view of the files over the cluster; None, and a fault, where there is no cluster."""
        try:
            from webhook.cluster.access import NoCluster
            from webhook.cluster.live_files import LiveFiles

            try:
                return LiveFiles(
                    documents=self._everything,
                    release=self._trainer,
                    damaged=damaged,
                    policy=policy,
                    kubeconfig=kubeconfig,
                    context=context,
                )
            except NoCluster as error:
                self.faults.append(Fault(None, f"--live: {error}"))
        except ModuleNotFoundError as error:
            if (error.name or "").startswith("webhook"):
                raise
            self.faults.append(
                Fault(None, f"--live needs the library {error.name}: pip install 'checkpoint-guard[cluster]'")
            )
        return None

    @property
    def live(self) -> bool:
        """Whether a cluster is read too."""
        return self._live is not None

    def of_kind(self, kind: str) -> list[Document]:
        """The objects of a kind in FILE and ``--state``."""
        return [document for document in self._everything if document.kind == kind]

    def asked(self, ask: Callable[[], Answer]) -> Answer:
        """What the engine answers once everything that it looks up has been read; at once where files are all there is.

        With ``--live`` it is asked again after every read, since what was read may lead to more.
        """
        answer = ask()
        for _ in range(_ROUNDS):
            if self._live is None or not self._live.lacks():
                break
            self._live.read()
            answer = ask()
        return answer

    def put_runtime(self, document: Document, raw: Mapping[str, Any]) -> None:
        """A runtime of FILE as it will be stored."""
        self._filled[id(document)] = runtime_of(document, raw)
        self.view.put_runtime(self._filled[id(document)])
        self.settled = ""

    def settle_for(self, document: Document) -> None:
        """Of objects that stand in several folders, let those count that are nearest to this document."""
        folder = document.file.replace("\\", "/").rpartition("/")[0] or "."
        if not self._several or folder == self.settled:
            return
        self.settled = folder
        for among in self._several.values():
            chosen = nearest_to(document.file, among)
            filled = self._filled.get(id(chosen))
            if filled is not None:
                self.view.put_runtime(filled)
            else:
                self.view.store.put(chosen.kind, chosen.stored)

    def assume_for(self, document: Document, release: Release) -> str:
        """The runtime that a TrainJob is judged by because Trainer ships it and nobody gave one of that name.

        ``torch-distributed as shipped with 2.3``, for 2.4 with a word about that; empty where there is none.
        It holds until the next call.
        """
        self.view.assumed = None
        if self._live is not None or document.kind != "TrainJob" or "ClusterTrainingRuntime" in self._damaged:
            return ""
        kind, _, name = runtime_key(document)
        if kind != "ClusterTrainingRuntime" or isinstance(self.view.runtime(kind, "", name), Runtime):
            return ""
        from webhook.cluster.shipped import shipped_runtime, shipped_with

        self.view.assumed = shipped_runtime(name, release)
        if self.view.assumed is None:
            return ""
        taken = shipped_with(release)
        instead = "" if taken is release else f", taken for {release.value}"
        return f"{name} as shipped with {taken.value}{instead}"

    def close(self) -> None:
        """End the connection to a cluster, and note what could not be read there."""
        if self._live is not None:
            self._live.close()
            self.notices += [f"--live: {why}: what depends on it is unknown" for why in self._live.unread()]
            self._live = None

    def release(self, document: Document) -> Release:
        """``--trainer``, else what the cluster serves.

        Else a TrainJob's override field tells it, and for a runtime that of the TrainJobs that use it.
        """
        if self._trainer is not None:
            return self._trainer
        if (served := self.view.release()) is not None:
            return served
        if document.kind == "TrainJob":
            return infer_release(document.object.get("spec"))
        return self._implied.get(document.key, NEWEST)

    def locate(self, own: Document, origin: Origin) -> Place | None:
        """The line of a field, in the file in which its object stands."""
        if origin.object.startswith("Program/"):
            number = origin.field.removeprefix("line ")
            return Place(origin.object.removeprefix("Program/"), int(number) if number.isdecimal() else None)
        document = self.standing(own, origin.object)
        return None if document is None else Place(document.file, document.line_of(origin.field))

    def standing(self, own: Document, label: str) -> Document | None:
        """The object ``Kind/name`` that counts for ``own``, of FILE or ``--state``; None where neither has it."""
        if label == own.label:
            return own
        if self._by_key is None:
            self._by_key = {document.key: document for document in self._everything}
        kind, _, name = label.partition("/")
        other = self._by_key.get((kind, own.namespace, name)) or self._by_key.get((kind, "", name))
        return None if other is None else nearest_to(own.file, self._several.get(other.key) or [other])

    def nothing(self) -> Fault | None:
        """Why there is nothing to do, where there is nothing and no other fault says so."""
        if self.documents or self.faults:
            return None
        kinds = f"{', '.join(KINDS[:-1])} or {KINDS[-1]}"
        return Fault(self.files[0] if len(self.files) == 1 else None, f"nothing to review: no {kinds} here")


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


def load_policy_file(path: str | None, faults: list[Fault], notices: list[str] | None = None) -> Policy | None:
    """The policy of ``--policy``, the built-in one where there is none, None (and faults) where it cannot be read.

    ``notices`` gets what is no fault and still will not do what somebody may expect.
    """
    if path is None:
        return Policy()
    from webhook.cluster.policy_file import read_policy

    checked = read_policy(path)
    faults.extend(fault_of(fault) for fault in checked.faults)
    if notices is not None:
        notices.extend(map(str, checked.warnings))
    return checked.policy


def policy_in(policy: Policy, namespace: str | None, notes: list[str] | None = None) -> Policy:
    """The policy of a namespace of which nothing but the name is known; ``notes`` gets what that leaves open."""
    from webhook.decision.in_force import in_named
    from webhook.model.policy import Selector

    if not policy.namespaces:
        return policy
    by_labels = sum(isinstance(entry.selector, Selector) for entry in policy.namespaces)
    if notes is not None and by_labels:
        word = "entry" if by_labels == 1 else "entries"
        notes.append(f"{by_labels} {word} of the policy's namespaces select by labels, which are not known here")
    if notes is not None and not namespace:
        notes.append("the policy has entries for some namespaces, and no namespace is named: say -n")
    return in_named(policy, namespace or "")
