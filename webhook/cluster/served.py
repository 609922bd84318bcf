"""What a cluster serves: a Trainer that is newer than this engine, told by its CRD, and Kueue."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Any, Final, Protocol

from webhook.cluster.access import NoCluster, Refused, Unreachable
from webhook.model.fields import nodes_of_crds
from webhook.model.release import NEWEST

_KIND: Final = "TrainJob"
_VERSION: Final = "v1alpha1"
_NAMED: Final = 3
_EVERYWHERE: Final = ("apiVersion", "kind", "metadata")
_KUEUE: Final = "/apis/kueue.x-k8s.io"
"""Discovery, which every authenticated user may read."""
_PAUSE: Final = 60.0
"""Seconds between two looks for Kueue, which is installed once."""


class _Told(Protocol):
    kueue: bool | None


async def serves_kueue(get: Callable[[str], Awaitable[bytes]]) -> bool | None:
    """Whether the cluster serves Kueue's API; None where it cannot be told."""
    try:
        await get(_KUEUE)
    except Refused as refused:
        return False if refused.status == 404 else None
    except (Unreachable, NoCluster):
        return None
    return True


async def follow_kueue(get: Callable[[str], Awaitable[bytes]], told: _Told) -> None:
    """Keep ``told.kueue`` up to date until cancelled; what was known stands while nobody answers."""
    while True:
        found = await serves_kueue(get)
        told.kueue = told.kueue if found is None else found
        await asyncio.sleep(_PAUSE)


def unknown_parts(crd: Mapping[str, Any]) -> tuple[str, ...]:
    """The first few fields that none of our releases' CRDs has, ``spec.trainer.elastic``; of several versions all.

    Empty where the CRD is one of a known release, or tells no schema. ``versions.v1`` stands for a CRD that does not
    serve the version that is known at all. Source of what is known: ``webhook.model.crd_fields``.
    """
    served = [one for one in (crd.get("spec") or {}).get("versions") or () if one.get("served")]
    if served and all(one.get("name") != _VERSION for one in served):
        return tuple(f"versions.{one.get('name')}" for one in served[:_NAMED])
    found: list[str] = []
    for version in served:
        if version.get("name") == _VERSION:
            for path in _unknown((version.get("schema") or {}).get("openAPIV3Schema") or {}):
                found.append(path)
                if len(found) == _NAMED:
                    break
    return tuple(found)


def told(parts: tuple[str, ...]) -> str:
    """What to say of it, in one line."""
    return (
        f"the cluster's Trainer is none of those that are known: its TrainJob has {', '.join(parts)}; "
        f"verdicts are those of Trainer {NEWEST.value}"
    )


def _unknown(schema: Mapping[str, Any]) -> Iterator[str]:
    from webhook.model.crd_fields import KINDS

    nodes = nodes_of_crds()
    roots = frozenset(kinds[_KIND] for kinds in KINDS.values())
    pending: list[tuple[Mapping[str, Any], frozenset[int], str]] = [(schema, roots, "")]
    # One path is looked at in all releases at once: each part of the schema is visited once.
    while pending:
        part, known, path = pending.pop()
        if not known or 0 in known:
            continue
        if (items := part.get("items")) is not None:
            pending.append((items, frozenset(nodes[one][0] for one in known if _is_list(nodes[one])), f"{path}[]"))
            continue
        for name, one in (part.get("properties") or {}).items():
            if not path and name in _EVERYWHERE:
                continue
            shapes = (nodes[number] for number in known)
            below = frozenset(shape[name] for shape in shapes if isinstance(shape, dict) and name in shape)
            at = f"{path}.{name}" if path else str(name)
            if not below:
                yield at
            else:
                pending.append((one, below, at))


def _is_list(shape: Any) -> bool:
    return isinstance(shape, list) and len(shape) == 1
