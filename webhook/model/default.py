"""A default: a name and a function that fills in one thing that the user left out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from msgspec import Struct

from webhook.model.cluster import ClusterView, Runtime
from webhook.model.draft import Draft
from webhook.model.entries import Target
from webhook.model.finding import Judged
from webhook.model.injected import Added, AddedToJob
from webhook.model.pod import Checkpoint, EffectiveJob, EffectiveSet, Raw, Storage
from webhook.model.policy import Policy
from webhook.model.release import Release
from webhook.model.request import Request

Refused = Callable[[Raw, str | None], tuple[str, str] | None]
"""(object with what the defaults added, mount that stands for the directory where none is declared) -> id and fact of
the rule that would deny the claim."""


class Context:
    """What the defaults of one request see, and what they tell each other and the one who called.

    ``runtime``, ``effective``, ``checkpoints`` and ``trained`` are those of a TrainJob as submitted; without a runtime
    they are None, None, empty and None. ``storage_of`` judges a volume as one of its containers would mount it.
    ``build`` gives the pods of a runtime as the draft has it.
    """

    __slots__ = (
        "added_env",
        "added_mounts",
        "added_to_jobs",
        "added_volumes",
        "build",
        "checkpoints",
        "claims_elsewhere",
        "cluster",
        "effective",
        "findings",
        "max_restarts_added",
        "path",
        "policy",
        "recorded",
        "release",
        "request",
        "runtime",
        "say_refused",
        "storage_of",
        "targets",
        "tiered",
        "trained",
        "with_program",
    )

    def __init__(self, request: Request, cluster: ClusterView, policy: Policy, release: Release) -> None:
        self.request = request
        self.cluster = cluster
        self.policy = policy
        self.release = release
        self.runtime: Runtime | None = None
        self.effective: EffectiveSet | None = None
        self.checkpoints: tuple[Checkpoint, ...] = ()
        self.with_program: Callable[[], tuple[Checkpoint, ...]] = tuple
        """The same, with what a program itself names where nothing declares a directory."""
        self.trained: list[tuple[EffectiveJob, Raw]] | None = None
        """Every container that trains, with its job; None where a job that trains leaves open which one it is."""
        self.claims_elsewhere = False
        self.storage_of: Callable[[Raw | None, Raw | None], Storage] = _nothing
        self.build: Callable[[Mapping[str, Any]], EffectiveSet] = _nothing
        self.findings: list[Judged] = []
        self.path: str | None = None
        """Where the default for volumes has mounted the claim, with no directory declared."""
        self.tiered = False
        """The tiered layout is asked for: it is made whole or not at all, and the defaults for one directory rest."""
        self.added_env: tuple[dict[str, Any], ...] = ()
        self.added_volumes: tuple[dict[str, Any], ...] = ()
        self.added_mounts: tuple[dict[str, Any], ...] = ()
        self.targets: dict[str, Target] = {}
        """With the three above: what has been added to the TrainJob."""
        self.recorded: Added | None = None
        """On UPDATE of a TrainJob: what its record says was added before."""
        self.say_refused: Callable[[str, str], None] | None = None
        """What tells that the rules would deny the claim (id and fact), where somebody asked for it."""
        self.added_to_jobs: dict[str, AddedToJob] = {}
        """What has been added to the runtime, by replicatedJob."""
        self.max_restarts_added: int | None = None

    def withdraw(self) -> None:
        """Nothing has been added to the TrainJob after all."""
        self.path, self.say_refused = None, None
        self.added_env, self.added_volumes, self.added_mounts, self.targets = (), (), (), {}


class Default(Struct, frozen=True):
    """``apply`` edits the draft where something is absent that it knows, and says whether it did.

    ``name`` is the file's name and stands in ``Defaulted.applied`` and in the metrics.
    """

    name: str
    apply: Callable[[Draft, Context], bool]


def _nothing(*_: Any) -> Any:
    raise RuntimeError("this context has no pods")
