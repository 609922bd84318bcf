"""Python texts that were parsed before: a bounded store by text, since parsing is what reading costs."""

from __future__ import annotations

from typing import Final

from webhook.model.budget import marks_in
from webhook.model.caches import cache
from webhook.programs.held import held, hold
from webhook.programs.parsed import LONGEST, Source
from webhook.programs.shell import NotRead

_LETTER: Final = 100
"""Bytes that a tree takes for each character of ordinary text, measured; what one review reads finds a place."""
_NODE: Final = 450
"""Those that it takes for each mark, where the text is denser."""


_SOURCES: Final = cache("syntax trees")


def python_source(text: str, longest: int = LONGEST) -> Source:
    """The parsed text. Raises ``NotRead``; that a text is not read is remembered too."""
    if len(text) > longest:
        raise NotRead(f"it is longer than {longest // 1024} KiB")
    found = held(("python", text)) or _SOURCES.get(text)
    if found is None:
        try:
            found = Source(text, longest=longest)
        except NotRead as reason:
            found = str(reason)
        _SOURCES.put(text, found, 512 + max(_LETTER * len(text), _NODE * marks_in(text)))
    hold(("python", text), found)
    if isinstance(found, str):
        raise NotRead(found)
    return found  # type: ignore[no-any-return]


def dedented(text: str) -> str:
    """The text moved to the left edge (the SDK indents it), every line keeping its number."""
    text = text.replace("\r\n", "\n")
    first = next((line for line in text.split("\n") if line.strip() and not line.lstrip().startswith("#")), "")
    if first[:1] not in (" ", "\t"):
        return text
    from textwrap import dedent

    return dedent(text)


def clear() -> None:
    _SOURCES.clear()
