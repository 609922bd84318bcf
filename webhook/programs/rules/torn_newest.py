"""The newest checkpoint is loaded without a look whether it is whole, and a save that is cut off leaves a torn one.

Symptom: after a kill in the midst of a save every restart ends with "PytorchStreamReader failed reading zip archive".
Fix: write under another name, and give the file its own when it is whole.
Bad:
    args:
    - |
      torch.save(state, path)
Good:
    args:
    - |
      torch.save(state, path + ".tmp")
      os.replace(path + ".tmp", path)
Reads: how the program names and writes its checkpoints, how it picks the one that it loads.
Silent when: anything is renamed; the load is tried (try), or a mark of what is whole is asked for; the name that is
loaded comes from elsewhere.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Final

from webhook.model.finding import Severity
from webhook.model.rule import ProgramRule
from webhook.model.script import Lines, Remark
from webhook.programs import Python, Script
from webhook.programs.flow import in_loop, is_no_start
from webhook.programs.listing import listing
from webhook.programs.loads import Load, loads
from webhook.programs.names import Save, numbered_saves
from webhook.programs.pasted import LONGEST, after, with_import
from webhook.programs.python import Around
from webhook.programs.readback import mentions
from webhook.programs.values import said

ID = "torn-newest"
_WHOLE: Final = (
    "os.replace",
    "os.rename",
    ".rename(",
    ".replace(tmp",
    "shutil.move",
    "complete",
    "success",
    "is_valid",
)
"""Signs of a writer or a reader that tells a whole file from a torn one."""
_MARKS: Final = ("commit", "verify", "checksum", "sha256", "md5", "getsize", "st_size", "latest", "done")


def look(script: Script) -> Iterator[Remark]:
    for load in loads(script):
        python = load.python
        if load.function != "torch.load" or load.path is None or mentions(python, *_WHOLE, *_MARKS):
            continue
        if load.call.inside("try") or is_no_start(python, load.call) or in_loop(python, load.call):
            continue
        save = next((one for one in numbered_saves(script) if _is_plain(python, one)), None)
        if save is None or not _is_newest(python, load):
            continue
        yield Remark(
            python.at(load.call),
            f'"{said(python.text(load.call.node))}" takes the newest, which a save that was cut off leaves torn',
            _fix(save),
            subject=save.name,
        )


def _is_plain(python: Python, save: Save) -> bool:
    return save.python is python and save.function == "torch.save" and bool(in_loop(python, save.call))


def _is_newest(python: Python, load: Load) -> bool:
    """Whether the path is one of a directory's names: ``sorted(glob(...))[-1]``, ``max(names, key=...)``."""
    return load.path is not None and any(
        _is_pick(python, origin, where) for origin, where in python.origins(load.path, load.call.around)
    )


def _is_pick(python: Python, node: ast.expr, around: Around | None, depth: int = 0) -> bool:
    if depth > 4:
        return False
    if isinstance(node, ast.Call):
        name = python.source.dotted(node.func)[0]
        if name in ("os.path.join", "str", "pathlib.Path") and node.args:
            last = node.args[-1]
            return any(_is_pick(python, one, where, depth + 1) for one, where in python.origins(last, around))
        return name in ("max", "next") and bool(node.args) and _lists(python, node.args[0], around)
    if isinstance(node, ast.Subscript) and not isinstance(node.slice, ast.Slice):
        return _lists(python, node.value, around)
    return False


def _lists(python: Python, node: ast.expr, around: Around | None) -> bool:
    for origin, where in python.origins(node, around):
        inner = origin
        if isinstance(origin, ast.Call) and python.source.dotted(origin.func)[0] in ("sorted", "reversed", "list"):
            inner = origin.args[0] if origin.args else origin
        if listing(python, inner, where) is not None:
            return True
    return False


def _fix(save: Save) -> str:
    """The save under another name, and the renaming of what is whole."""
    python, path = save.python, save.python.source.source(save.path)
    text = python.source.source(save.call.node)
    aside = text.replace(path, 'path + ".tmp"', 1)
    whole = aside if path == "path" else f"path = {path}\n{aside}"
    last = 'os.replace(path + ".tmp", path)'
    fixed = after(python, save.call, [last], whole)
    if isinstance(fixed, Lines) and any(len(line) > LONGEST for line in fixed.split("\n")):
        shown = f'path = ...    # as it is now\ntorch.save(..., path + ".tmp")\n{last}'
        fixed = Lines(shown, fixed.first, fixed.last, whole=str(fixed))
    return with_import(python, fixed, "os")


RULE = ProgramRule(
    id=ID,
    severity=Severity.AUDIT,
    why="a kill in the midst of a save leaves a newest file that cannot be read, and then every restart fails",
    look=look,
    on_runtime=Severity.AUDIT,
)
