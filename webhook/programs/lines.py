"""Patterns over a program's lines, comments passed over.

They are looked for only in lines that hold one of their words, which is most of the work.
"""

from __future__ import annotations

from typing import Any

from webhook.programs.python import Source


def search(source: Source, pattern: str, *words: str) -> Any:
    """The first match of ``pattern`` in a line that holds one of ``words``; None where there is none.

    Every match of the pattern has to hold one of the words. How often its parts repeat has to be bounded: a line may be
    one long word. ``re`` is imported here: the command line starts without.
    """
    if not any(word in source.text for word in words):
        return None
    import re

    compiled = re.compile(pattern)
    for line in source.lines:
        for word in words:
            if word in line:
                found = compiled.search(line)
                if found is not None and not _is_comment(line, found.end()):
                    return found
                break
    return None


def _is_comment(line: str, at: int) -> bool:
    """Whether what ends at a place in a line ends behind a ``#`` that is in no text."""
    mark = line.find("#")
    while 0 <= mark < at:
        before = line[:mark]
        if before.count('"') % 2 == 0 and before.count("'") % 2 == 0:
            return True
        mark = line.find("#", mark + 1)
    return False
