"""One thing that ``install-check`` asks."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

Outcome = Literal["as expected", "not yet", "left out"]


class Probe(Struct, frozen=True):
    """One thing asked, and how it went. ``call`` is what the API server said of calling the webhook, if it failed.

    ``fix`` is what to do where it is known right away.
    """

    what: str
    outcome: Outcome
    words: str
    call: str | None = None
    forbidden: str | None = None
    fix: str | None = None
