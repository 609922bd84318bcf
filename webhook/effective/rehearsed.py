"""What a rehearsal holds for: a fingerprint of what the training containers run.

Image, command, arguments, variables and the runtime's name count. A variable that names the checkpoint directory does
not, since the guard fills it in, nor what Trainer adds for the number of nodes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec
from msgspec import Struct

from webhook.model.pod import EffectiveSet

_TRAINERS: Final = ("PET_", "OMPI_", "JAX_", "COORDINATOR_", "RUNTIME_")
_LENGTH: Final = 16


class Noted(Struct, frozen=True):
    """The annotation, read: ``verdict`` and ``at`` are empty where it does not say them."""

    fingerprint: str
    verdict: str
    at: str


def fingerprint(effective: EffectiveSet, variables: Sequence[str]) -> str | None:
    """Of the containers that train; None where that is open. ``variables`` name a checkpoint directory."""
    parts: list[object] = [effective.runtime_label]
    for job in effective.jobs:
        for container in job.training_containers():
            env = [
                one
                for one in container.get("env") or ()
                if str(one.get("name")) not in variables and not str(one.get("name")).startswith(_TRAINERS)
            ]
            told = {name: container.get(name) for name in ("image", "command", "args")}
            parts.append({**told, "env": env, "job": job.name})
    if len(parts) == 1:
        return None
    from hashlib import sha256  # dear to import, as OpenSSL is

    return sha256(msgspec.json.encode(parts, order="sorted")).hexdigest()[:_LENGTH]


def to_annotation(print_: str, verdict: str, day: str) -> str:
    """The annotation's value."""
    return f"{print_};verdict={verdict};at={day}"


def read_annotation(text: str) -> Noted:
    """What an annotation says; whoever writes the file can write anything."""
    head, *rest = text.split(";")
    told = dict(part.strip().partition("=")[::2] for part in rest)
    return Noted(head.strip(), told.get("verdict", "")[:32], told.get("at", "")[:32])
