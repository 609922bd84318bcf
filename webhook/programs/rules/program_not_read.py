"""A program's text is in the manifest, and it was not read.

Symptom: no rule about programs says anything, though the program stands in the manifest.
Fix: see the reason; a program of more than 32 KiB belongs into the image or a ConfigMap.
Bad:
    args: ["-c", "<a text of 40 KiB>"]
Good:
    command: [python, /app/train.py]
Reads: `command` and `args` of the containers that train.
Silent when: everything that the manifest has of the program was read, or it has nothing of it.
"""

from __future__ import annotations

from collections.abc import Iterator

from webhook.model.finding import Severity
from webhook.model.rule import ProgramRule
from webhook.model.script import Remark
from webhook.programs import Script

ID = "program-not-read"


def look(script: Script) -> Iterator[Remark]:
    for place, reason in script.unread[:1]:
        yield Remark(place, f"the program was not read: {reason}", _fix(reason), subject=ID)


def _fix(reason: str) -> str:
    if "not installed" in reason:
        return "pip install tree-sitter tree-sitter-bash"
    if "longer" in reason:
        return "command: [python, /app/train.py]    # the program in the image"
    return "python3 -m py_compile <the program>    # or see whether another shell or language was meant"


RULE = ProgramRule(
    id=ID,
    severity=Severity.AUDIT,
    why="whether the program saves and resumes was not looked at",
    look=look,
    on_runtime=Severity.AUDIT,
)
