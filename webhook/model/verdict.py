"""What the engine answers: a verdict with its findings, or a patch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from msgspec import Struct

from webhook.model.finding import Judged
from webhook.model.script import ProgramFact


class Facts(Struct, frozen=True):
    """What was found out about the run; None where a fact does not apply. The fields are those of ``--output json``."""

    nodes: int | None = None
    directory: str | None = None
    volume: str | None = None
    claim: str | None = None
    storage: str | None = None
    program: ProgramFact | None = None
    """How much of the program was read; None where there is none."""


class Decision(Struct, frozen=True):
    """The verdict on one object.

    ``findings`` are by severity and then in the order of ``RULES``; audit findings do not change ``verdict``.
    ``mode`` is the namespace's mode that was applied. ``broken`` names the rules and defaults that raised.
    """

    verdict: Literal["allow", "warn", "deny"]
    findings: tuple[Judged, ...] = ()
    facts: Facts = Facts()
    mode: str = "enforce"
    runtime: str | None = None
    release: str | None = None
    policy_hash: str = ""
    broken: tuple[str, ...] = ()
    judged: bool = True
    """Whether there were pods to judge: not without a runtime, nor where policy or mode leave the object alone."""
    would_be: Literal["allow", "warn", "deny"] = "allow"
    """The verdict in mode ``enforce``."""


class Defaulted(Struct, frozen=True):
    """What ``/mutate`` does: an RFC 6902 patch (empty where nothing is to do), the object after it, and warnings."""

    patch: tuple[Mapping[str, Any], ...]
    object: Mapping[str, Any]
    findings: tuple[Judged, ...] = ()
    mode: str = "enforce"
    applied: tuple[str, ...] = ()
    """Names of the defaults that changed something."""
    broken: tuple[str, ...] = ()
