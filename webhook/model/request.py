"""What is asked: one object on its way into the cluster."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal

from msgspec import Struct


class Request(Struct, frozen=True):
    """The part of an admission request that decides. ``object`` and ``old`` are raw JSON objects, never changed.

    ``name`` is ``metadata.name`` or, where that is empty, ``metadata.generateName``.
    """

    operation: Literal["CREATE", "UPDATE"]
    kind: str
    namespace: str
    name: str
    object: Mapping[str, Any]
    old: Mapping[str, Any] | None = None
    user: str = ""
    groups: tuple[str, ...] = ()
    dry_run: bool = False
    uid: str = ""
    at: float = 0.0
    """When it was asked, in Unix time: whether an exception has ended. 0: not known, so none has."""
    as_written: bool = False
    """Nothing fills it in (``review --without-guard``): no fix may count on what an annotation asks of admission."""

    @property
    def by_controller(self) -> bool:
        """Whether Trainer, JobSet or Kueue writes this object by itself: their UPDATEs are judged and never denied."""
        return self.user in CONTROLLERS


CONTROLLERS: Final = frozenset(
    f"system:serviceaccount:{namespace}:{name}"
    for name, namespaces in {
        "kubeflow-trainer-controller-manager": ("kubeflow-system", "kubeflow"),
        "jobset-controller-manager": ("jobset-system", "kubeflow-system", "kubeflow"),
        "kueue-controller-manager": ("kueue-system",),
    }.items()
    for namespace in namespaces
)
"""Users that the releases' own manifests install; the namespace counts, since anyone may name an account of his own."""


class MalformedObject(Exception):  # noqa: N818 - it is the name of the finding
    """A field of one of our kinds has the wrong type. ``field`` is its path, ``problem`` says what stands there."""

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(f"{field}: {problem}")
        self.field = field
        self.problem = problem
