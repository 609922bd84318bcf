"""Why a finding may not count, and what one fault is known by."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

DIGITS: Final = 12


class Excuse(Struct, frozen=True, gc=False):
    """Why a finding does not count: an entry of the policy or a line of an annotation."""

    rules: tuple[str, ...]
    reason: str
    owner: str
    until: str
    end: float
    """``until`` as Unix time."""
    source: str
    """``exceptions[3]``, ``CheckpointException/NAME``, or the annotation's name."""
    bounded: bool = True
    """Whether it was made sure that it ends within ``limits.exceptionDays``."""


def fingerprint(rule: str, kind: str, namespace: str, name: str, at: str) -> str:
    """One fault of one object: the same where rule, object and place are. ``at`` is as ``message.place`` writes it."""
    import hashlib

    text = "\0".join((rule, kind, namespace, name, at))
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:DIGITS]
