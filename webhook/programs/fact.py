"""How much of a program was read: the fact ``program`` of every review."""

from __future__ import annotations

from webhook.model.script import ProgramFact
from webhook.programs.program import SETTINGS_ENDINGS, Invocation, Script


def fact_of(script: Script) -> ProgramFact:
    """``read`` where everything that runs was, else what is missing and why."""
    seen = [one for one in script.invocations if one.python is not None or one.tool]
    unseen = [one for one in script.invocations if one.python is None and not one.tool]
    lost = {path: lost.reason for path, lost in script.lost}
    if seen:
        main = next((one for one in seen if one.python is not None), seen[0])
        path, line = main.file or None, main.python.place.line or 1 if main.python is not None else None
        why = _why_partly(script, unseen, lost)
        return ProgramFact("partly-read" if why else "read", path, line, why or None)
    if lost:
        path, reason = next(iter(lost.items()))
        return ProgramFact("not-found", path, None, reason)
    if script.unread:
        place, reason = script.unread[0]
        path = place.field if place.in_file else None
        return ProgramFact("partly-read", path, place.line or None, reason)
    if unseen:
        return ProgramFact("in-image", unseen[0].file or unseen[0].module or None)
    if script.whole and script.shells:
        place = script.shells[0].place
        return ProgramFact("read", place.field if place.in_file else None, place.line or 1)
    return ProgramFact("in-image")


def _why_partly(script: Script, unseen: list[Invocation], lost: dict[str, str]) -> str:
    for path, reason in lost.items():
        return f"{path}: {reason}"
    for _, reason in script.unread[:1]:
        return reason
    for one in unseen[:1]:
        return f"{one.file or one.module or 'a program'} is in the image"
    for one in script.invocations:
        for word in one.arguments if one.tool else ():
            if isinstance(word, str) and word.endswith(SETTINGS_ENDINGS) and script.config(word) is None:
                return f"{word.rpartition('=')[2]} is in the image"
    return "" if script.whole else "a command of it is not known"
