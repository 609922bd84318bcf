"""The fields that the API server stores of an object: those that the release's CRD has. What is none is dropped."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any, Final

from msgspec.json import decode

from webhook.model.release import OVERRIDE_FIELDS

METADATA: Final = frozenset(
    (
        "annotations",
        "clusterName",
        "creationTimestamp",
        "deletionGracePeriodSeconds",
        "deletionTimestamp",
        "finalizers",
        "generateName",
        "generation",
        "labels",
        "managedFields",
        "name",
        "namespace",
        "ownerReferences",
        "resourceVersion",
        "selfLink",
        "uid",
    )
)
"""The fields of ObjectMeta (k8s.io/apimachinery, meta/v1)."""
Unknown = tuple[str, str, tuple[str, ...], Any]
"""Path above, name, the names that are known there, and the value."""


@lru_cache(maxsize=1)
def nodes_of_crds() -> list[Any]:
    """The nodes that ``webhook.model.crd_fields`` tells of."""
    from webhook.model.crd_fields import NODES

    nodes: list[Any] = decode(NODES)
    return nodes


def root_of(release: str, kind: str) -> int:
    """The node of a kind in a release (``2.3``), or in the newest that is known."""
    from webhook.model.crd_fields import KINDS

    return (KINDS.get(release) or KINDS[max(KINDS)]).get(kind, 0)


def unknown_fields(obj: Any, kind: str, release: str) -> Iterator[Unknown]:
    """Each field that the CRD lacks, in one pass. The override of another release, which has a rule of its own, and
    what begins with ``$`` are none."""
    nodes = nodes_of_crds()
    pending: list[tuple[Any, int, str]] = [(obj, root_of(release, kind), "")]
    while pending:
        value, number, path = pending.pop()
        shape = nodes[number]
        if isinstance(shape, list):
            if len(shape) == 1 and isinstance(value, list):
                pending += [(one, shape[0], f"{path}[{at}]") for at, one in reversed(list(enumerate(value)))]
            elif len(shape) == 2 and isinstance(value, dict):
                pending += [(one, shape[0], f"{path}.{key}") for key, one in value.items()]
        elif isinstance(shape, dict) and isinstance(value, dict):
            for key, one in value.items():
                below = shape.get(key)
                if below is None:
                    if not _has_its_rule(path, key):
                        yield path, str(key), tuple(shape), one
                elif below:
                    pending.append((one, below, f"{path}.{key}" if path else key))
    metadata = obj.get("metadata") if isinstance(obj, dict) else None
    for key, one in metadata.items() if isinstance(metadata, dict) else ():
        if key not in METADATA:
            yield "metadata", str(key), tuple(METADATA), one


def as_stored(obj: Mapping[str, Any], kind: str, release: str) -> Mapping[str, Any]:
    """The object without the fields that the CRD lacks; the same object where it has none of those."""
    if next(unknown_fields(obj, kind, release), None) is None:
        return obj
    nodes = nodes_of_crds()

    def kept(value: Any, number: int, path: str) -> Any:
        shape = nodes[number]
        if isinstance(shape, list):
            if len(shape) == 1 and isinstance(value, list):
                return [kept(one, shape[0], "-") for one in value]
            if len(shape) == 2 and isinstance(value, dict):
                return {key: kept(one, shape[0], "-") for key, one in value.items()}
        elif isinstance(shape, dict) and isinstance(value, dict):
            return {
                key: kept(one, shape.get(key) or 0, str(key) if not path else "-")
                for key, one in value.items()
                if key in shape or _has_its_rule(path, key)
            }
        return value

    stored: Mapping[str, Any] = kept(obj, root_of(release, kind), "")
    return stored


def _has_its_rule(path: str, name: Any) -> bool:
    return (path == "spec" and name in OVERRIDE_FIELDS) or str(name).startswith("$")
