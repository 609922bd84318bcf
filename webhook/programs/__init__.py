"""The text of the training program, read as facts. It is parsed and never run.

``find_programs`` gives the legible programs of an ``EffectiveSet``; ``program_findings`` turns what a rule says of them
into findings, cached. ``Script`` is what a rule and a framework see. What reads is imported with the first program.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from webhook.programs.cache import (
    fact_of,
    find_directory,
    find_programs,
    is_concealed,
    origin_of,
    program_findings,
    remarks_on,
)
from webhook.programs.values import UNKNOWN, Text, Unknown, Value

if TYPE_CHECKING:
    from webhook.programs.program import Invocation, Script
    from webhook.programs.python import Call, Python

_LATER: Final = {"Call": "python", "Invocation": "program", "Python": "python", "Script": "program"}

__all__ = [
    "UNKNOWN",
    "Call",
    "Invocation",
    "Python",
    "Script",
    "Text",
    "Unknown",
    "Value",
    "fact_of",
    "find_directory",
    "find_programs",
    "is_concealed",
    "origin_of",
    "program_findings",
    "remarks_on",
]


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(name)
    return getattr(import_module(f"webhook.programs.{_LATER[name]}"), name)
