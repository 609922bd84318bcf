"""The file that a restart reads is overwritten in place.

Symptom: the pod was killed while it saved; the restart fails with an unexpected end of file, and there is no older
copy.
Fix: write beside it, and move it over the old one when it is whole.
Bad:
    args:
    - |
      torch.save(state, "/mnt/ckpt/run/latest.pt")
Good:
    args:
    - |
      torch.save(state, "/mnt/ckpt/run/latest.pt.tmp")
      os.replace("/mnt/ckpt/run/latest.pt.tmp", "/mnt/ckpt/run/latest.pt")
Reads: saves in a loop whose path is always the same, and the loads of the same path.
Silent when: it lies on a bucket, where an object appears whole or not at all; anything is renamed or linked; the name
changes with the step; the program does not read that path, or reads it when training is over or to predict.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Final

from webhook.model.addresses import scheme_of
from webhook.model.finding import Severity
from webhook.model.rule import ProgramRule
from webhook.model.script import Lines, Remark
from webhook.programs import Call, Python, Script, Value
from webhook.programs.flow import in_loop, is_no_start
from webhook.programs.loads import Load, loads
from webhook.programs.names import LOCAL, Save, saves
from webhook.programs.pasted import after, counter_of, opened_with, with_import, with_opened
from webhook.programs.python import Around
from webhook.programs.values import Text, Unknown, head, pieces, said

ID = "overwritten-checkpoint"
_MOVES: Final = (
    "replace",
    "rename",
    "renames",
    "move",
    "symlink",
    "symlink_to",
    "copy",
    "copyfile",
    "copytree",
    "link",
)
_WHOLE: Final = frozenset(
    ("torch.save", "torch.distributed.checkpoint.save", "pickle.dump", "save_state", "joblib.dump")
)


def look(script: Script) -> Iterator[Remark]:
    # An object appears when it is whole, or not at all; bucket-mount speaks of what the mount refuses.
    bucket = bool(script.launch.cannot)
    if any(_moves(python, call) for python in script.pythons for call in python.methods(*_MOVES)):
        return
    read = [
        (_read(load, origin, around), load)
        for load in loads(script)
        if load.path is not None
        for origin, around in load.python.origins(load.path, load.call.around)
    ]
    for save in saves(script):
        if save.function not in _WHOLE or not _is_fixed(save.value) or not in_loop(save.python, save.call):
            continue
        if (bucket or scheme_of(head(save.value))) and save.function in LOCAL:
            continue
        if "best" in save.name.lower() or not any(
            _same(save.value, value) and not _comes_later(load, save) and not is_no_start(load.python, load.call)
            for value, load in read
        ):
            continue
        path = save.python.text(save.path)
        yield Remark(
            save.python.at(save.call),
            f'"{said(path)}" is overwritten in place, and a restart reads it',
            _fix(save, save.python.source.source(save.path)),
            subject=path,
        )
        return


def _moves(python: Python, call: Call) -> bool:
    """Whether a call renames, links or copies a file; not ``name.replace("a", "b")`` or ``{...}.copy()``."""
    if call.name.partition(".")[0] in ("os", "shutil"):
        return True
    if call.attr == "replace":
        return len(call.node.args) == 1
    return bool(call.node.args or call.node.keywords) and call.attr != "copy"


def _read(load: Load, origin: ast.expr, around: Around | None) -> Value:
    """The path that a load reads, also of a file that ``open`` gives it."""
    python = load.python
    if isinstance(origin, ast.Call) and origin.args and python.source.dotted(origin.func)[0] in ("open", "io.open"):
        return python.value(origin.args[0], around)
    return python.value(origin, around)


def _comes_later(load: Load, save: Save) -> bool:
    """Below the save in one function: read when training is over, to test or to go back to the best, not at a start."""
    if load.python is not save.python or load.call.node.lineno < save.call.node.lineno:
        return False
    one, other = load.call.around, save.call.around
    return (one.scope if one is not None else None) is (other.scope if other is not None else None)


def _is_fixed(value: Value) -> bool:
    """The same at every save: no step in it, and its end is known."""
    if isinstance(value, str):
        return value != ""
    if not isinstance(value, Text) or not isinstance(value.parts[-1], str):
        return False
    parts = pieces(value)
    return all(
        isinstance(piece, str) or (piece.kind == "" and not _COUNTS.search(_shown(before, piece)))
        for before, piece in zip(("", *parts), parts, strict=False)
    )


def _shown(before: str | Unknown, piece: Unknown) -> str:
    return f"{before if isinstance(before, str) else ''}<{piece.source}"


_COUNTS: Final = re.compile(
    r"(?i)<.*(step|epoch|iter|idx|index|round|num|count)|(checkpoint|ckpt|epoch|step|iter)[_-]?<"
)
"""What may be a number of its own at every save: by its name, or by what stands before it."""


def _same(one: Value, other: Value) -> bool:
    if isinstance(one, Text) and isinstance(other, Text):
        named = [piece.source for piece in one.parts if isinstance(piece, Unknown)]
        return one == other and all(named)
    return isinstance(one, str) and one == other


def _fix(save: Save, path: str) -> str:
    first = save.call.node.args[0] if save.call.node.args else None
    state = save.python.source.source(first) if first is not None else "state"
    python, function = save.python, save.python.text(save.call.node.func)
    beside = _beside(save.path, path)
    opened = opened_with(save)
    if opened is not None:
        base = max(python.place.line, 1) - 1
        begin, end = base + opened.lineno, base + (opened.end_lineno or opened.lineno)
        text = f"{with_opened(save, opened, beside)}\nos.replace({beside}, {path})"
        return with_import(python, Lines(text, begin, end), "os")
    if save.function in ("torch.save", "joblib.dump") and not save.opener:
        whole = f"{function}({state}, {beside})\nos.replace({beside}, {path})"
        fixed = after(python, save.call, (), whole)
        if isinstance(fixed, Lines) and len(state) > _SHOWN:
            # Too long to be shown: nothing that would save something else where it is pasted.
            fixed = Lines(_behind(beside, path), fixed.first, fixed.last, fixed.like, whole=fixed.whole)
        return with_import(python, fixed, "os")
    if save.function == "torch.distributed.checkpoint.save":
        counted = counter_of(python, save.call)
        if counted:
            name = f'os.path.join({path}, f"step_{{{counted}:08d}}")'
            return with_import(python, after(python, save.call, (), f"{function}({state}, checkpoint_id={name})"), "os")
        return "# into a directory of its own for each save, named by the step"
    return with_import(python, _behind(beside, path), "os")


def _behind(beside: str, path: str) -> str:
    return f"# write to {beside} instead, and behind it:\nos.replace({beside}, {path})"


_SHOWN: Final = 60
"""Characters of what is saved that a message shows."""


def _beside(node: ast.expr, path: str) -> str:
    """The path with ``.tmp`` behind it. Before Python 3.12 no quote may stand in an f-string of the same."""
    if isinstance(node, ast.Constant | ast.JoinedStr):
        return _with_end(path)
    if any(one in path for one in ("\\", "#", "\n")) or ('"' in path and "'" in path):
        return f'str({path}) + ".tmp"'
    quote = "'" if '"' in path else '"'
    return f"f{quote}{{{path}}}.tmp{quote}"


def _with_end(text: str) -> str:
    """A text's own source with ``.tmp`` before its closing quote."""
    quote = text[-3:] if text.endswith(('"""', "'''")) else text[-1:]
    return f"{text[: -len(quote)]}.tmp{quote}"


RULE = ProgramRule(
    id=ID,
    severity=Severity.WARN,
    why="a kill while saving leaves a torn file and nothing older, so the run cannot resume at all",
    look=look,
    on_runtime=Severity.WARN,
)
