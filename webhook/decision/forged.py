"""Names that hold line breaks, on one line: in a fix they would be lines that nobody of ours wrote.

What is shown is made harmless line by line (``webhook.model.printable``); a fix has lines of its own, so what breaks
them has to be found where the names come from. A name like that is refused sooner or later, or is a path.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from webhook.model.cluster import Runtime
from webhook.model.printable import printable
from webhook.model.subject import Subject

_TEXTS: Final = frozenset(("command", "args", "managedFields", "annotations"))
"""Where lines belong: of a program a fix quotes a line at most."""
_KEY: Final = "line breaks"


def on_one_line(made: str | Callable[[], str], subject: Subject) -> str:
    """The fix with every name of the subject that holds a line break written with an escape."""
    fix = made if isinstance(made, str) else made()
    if "\n" not in fix:
        return fix
    names: tuple[str, ...] | None = subject.memo.get(_KEY)
    if names is None:
        names = _names(subject.request.object)
        if isinstance(subject.runtime, Runtime) and subject.runtime.raw is not subject.request.object:
            known = subject.runtime.prepared.get(_KEY)
            if known is None:
                known = subject.runtime.prepared[_KEY] = _names(subject.runtime.raw)
            names += known
        subject.memo[_KEY] = names = tuple(sorted(names, key=len, reverse=True))
    for name in names:
        if name in fix:
            fix = fix.replace(name, printable(name))
    return fix


def _names(obj: Mapping[str, Any]) -> tuple[str, ...]:
    """Strings, and keys of maps, that hold a line break."""
    found: set[str] = set()
    left: list[Any] = [obj]
    while left:
        value = left.pop()
        if type(value) is dict:
            for key, item in value.items():
                if "\n" in key:
                    found.add(key)
                if type(item) is str:
                    if "\n" in item:
                        found.add(item)
                elif key not in _TEXTS:
                    left.append(item)
        elif type(value) is list:
            for item in value:
                if type(item) is str:
                    if "\n" in item:
                        found.add(item)
                else:
                    left.append(item)
    return tuple(found)
