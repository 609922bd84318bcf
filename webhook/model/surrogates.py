"""Lone surrogates in the text of a JSON document: JSON by its grammar, and no text that could be written as UTF-8."""

from __future__ import annotations

import re
from typing import Final

_ESCAPES: Final = r"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|u([dD][89a-fA-F][0-9a-fA-F]{2})|[^u])"


def without_lone_surrogates(text: str) -> str:
    """The JSON with ``\\ufffd`` for every lone surrogate, as Go reads it. No character moves."""
    return re.sub(_ESCAPES, _whole, text)  # kept compiled by re; at import it would cost every command


def _whole(escape: re.Match[str]) -> str:
    return escape[0] if escape[1] is None else "\\ufffd"
