"""What a rule sees: one object, the pods it becomes, and the cluster and policy to judge them by."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from msgspec import Struct

from webhook.model.cluster import ClusterView, Gap, Runtime, finished
from webhook.model.fields import Unknown, unknown_fields
from webhook.model.names import PATH
from webhook.model.pod import Checkpoint, EffectiveSet
from webhook.model.policy import Policy
from webhook.model.release import Release
from webhook.model.request import Request
from webhook.model.script import Program


class Subject(Struct, frozen=True):
    """One object under judgement. Everything in it is read, never changed.

    ``runtime`` is the runtime of a TrainJob (or the Gap that stands for it) and, for a runtime alone, that runtime
    itself as submitted. ``effective`` is None where there is no runtime to build from. ``require`` says that the
    namespace demands a declared directory. ``claims_elsewhere`` says that the job runs on another cluster (MultiKueue).
    ``old`` builds the same for ``oldObject`` on demand (None on CREATE).
    """

    request: Request
    release: Release
    policy: Policy
    cluster: ClusterView
    runtime: Runtime | Gap
    effective: EffectiveSet | None
    checkpoints: tuple[Checkpoint, ...] = ()
    require: bool = False
    claims_elsewhere: bool = False
    old: Callable[[], Subject | None] = lambda: None
    programs: Callable[[], tuple[Program, ...]] = tuple
    """The programs of the training containers whose command says anything; found on the first call."""
    memo: dict[str, Any] = {}
    """What one rule worked out and another can use; lives as long as this subject."""
    kept: dict[Any, Any] = {}
    """What follows from the spec, the runtime and the release alone: later decisions on the same find it."""
    written: Mapping[str, Any] | None = None
    """The object as its file has it; None where an API server sent it, which has dropped the fields that are none."""

    def unknown_fields(self) -> Iterator[Unknown]:
        """The fields of the file that the CRD lacks."""
        if self.written is None:
            return iter(())
        return unknown_fields(self.written, self.request.kind, self.release.value)

    @property
    def is_trainjob(self) -> bool:
        return self.request.kind == "TrainJob"

    @property
    def namespace(self) -> str:
        return self.request.namespace

    @property
    def spec(self) -> Mapping[str, Any]:
        """``spec`` of the object under judgement."""
        return self.request.object.get("spec") or {}

    @property
    def finished(self) -> bool:
        """Whether the TrainJob under judgement is over."""
        return finished(self.request.object)

    def declared_path(self) -> str | None:
        """The path that a TrainJob, or else its namespace, declares by annotation."""
        if not self.is_trainjob:
            return None
        own = (self.request.object.get("metadata") or {}).get("annotations") or {}
        if PATH in own:
            return own[PATH] or None
        namespace = self.cluster.namespace(self.namespace)
        return None if isinstance(namespace, Gap) else namespace.annotations.get(PATH) or None

    @property
    def label(self) -> str:
        """``<Kind>/<name>`` of the object under judgement."""
        return f"{self.request.kind}/{self.request.name}"
