"""Numbers as a person reads them."""

from __future__ import annotations

from webhook.model.size import format_bytes
from webhook.runs.layouts import Saved


def duration(seconds: float) -> str:
    """``42 s``, ``3 min``, ``2.5 h``, ``4 d``."""
    seconds = max(seconds, 0.0)
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 7200:
        return f"{seconds / 60:.0f} min"
    if seconds < 172800:
        return f"{seconds / 3600:.1f} h"
    return f"{seconds / 86400:.0f} d"


def named(saved: Saved) -> str:
    """``step 1500 (checkpoint-1500)``; the name alone where no number tells the step."""
    if saved.step is None:
        return f'"{saved.name}"'
    return f"{saved.unit} {saved.step} ({saved.path})"


def pods(count: int) -> str:
    """``1 pod``, ``2 pods``."""
    return "1 pod" if count == 1 else f"{count} pods"


def still(count: int) -> str:
    """The verb for so many."""
    return "is still" if count == 1 else "are still"


def completeness(saved: Saved) -> str:
    return {"complete": "yes", "incomplete": "no"}.get(saved.state, saved.state)


def size(number: int) -> str:
    return format_bytes(number) if number >= 1024 else f"{number} B"
