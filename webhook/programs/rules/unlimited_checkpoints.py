"""Nothing limits the number of checkpoints that are kept.

Symptom: the claim fills up after some hours, a save fails with "No space left on device", and so does every restart.
Fix: keep two or three, and size the claim for one more.
Bad:
    args:
    - |
      TrainingArguments(output_dir=out, save_steps=100)
Good:
    args:
    - |
      TrainingArguments(output_dir=out, save_steps=100, save_total_limit=3)
Reads: the framework's own argument or flag for the number of copies, and its default; in a loop of the program's own,
whether a save is named by its step and anything is ever removed.
Silent when: a number is given or may be given where nobody sees it; the program removes files itself; nothing is saved;
a save of its own is named by the epoch, or goes elsewhere than to a volume.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Final

from webhook.model.finding import Severity
from webhook.model.rule import ProgramRule
from webhook.model.script import Remark
from webhook.programs import Call, Python, Script
from webhook.programs.frameworks import Setting, Use, find_calls, find_uses, mended
from webhook.programs.frameworks.copies import cleans_up
from webhook.programs.names import saves
from webhook.programs.pasted import after, folder_of, nested, only_first, pattern_of, with_import
from webhook.programs.values import as_number, said

ID = "unlimited-checkpoints"
_REMOVE: Final = "os.remove"
"""The setting of those that have none: the program removes files by itself."""
_BUCKET: Final = (
    "# a lifecycle rule of the bucket that removes what is old, or allow-delete in the mountOptions of its volume:\n"
    "# as it is mounted, nothing can be removed"
)
_SELDOM: Final = 100_000
"""Steps between two saves."""
_FEW: Final = 3
"""Saves of a whole run that fill nothing up."""


def look(script: Script) -> Iterator[Remark]:
    for use in find_uses(script):
        keep = use.keep
        if keep is None or keep.value is not None or not (use.keep_fix or use.framework.keep_fix):
            continue
        if use.partial and not keep.given:
            continue
        if use.saves is not None and use.saves.value is False:
            continue
        if _cleans_up(script) or _hardly_saves(use) or _saves_few(use):
            continue
        written = keep.written if 0 < len(keep.written) < 8 else "None"
        given = said(written) if keep.given else "absent"
        if keep.name == _REMOVE:
            # The framework has no setting for it.
            problem, fix = f"nothing removes old checkpoints of {use.framework.title}", use.keep_fix
        else:
            problem, fix = f'"{keep.name}" is {given}, so every checkpoint is kept', _fix(script, use, keep)
        if "delete" in script.launch.cannot:
            fix = _BUCKET
        yield Remark(keep.place, problem, fix or use.framework.keep_fix, subject=keep.name)
    for use in find_calls(script):
        keep, directory = use.keep, use.directory
        if keep is None or keep.value is not None or directory is None or not script.counts(directory.value):
            continue
        if _cleans_up(script) or _is_rare(use):
            continue
        shown = f'"{said(directory.written)}"' if directory.written else f'"{use.framework.title}"'
        yield Remark(
            keep.place,
            f"nothing removes old checkpoints of {shown}, and each save makes a new one"
            if not keep.given and keep.name == _REMOVE
            else f'"{keep.name}" is absent, so every checkpoint is kept',
            _loop(script, use, keep),
            subject=keep.name,
        )


def _loop(script: Script, use: Use, keep: Setting) -> str:
    """Behind the save: what removes all but the newest three, by one process alone."""
    if "delete" in script.launch.cannot:
        return _BUCKET
    if keep.call is not None:
        return mended(script, keep, f"{keep.name}=3", use)
    save = next((one for one in saves(script) if one.call is use.call), None)
    if save is None:
        return ""
    python = save.python
    pattern, is_folder = pattern_of(save)
    folder = folder_of(python, save)
    if not pattern or not folder:
        return "# behind the save: remove all but the newest three, in one process"
    remove = "shutil.rmtree(old, ignore_errors=True)" if is_folder else "os.remove(old)"
    loop = f'for old in sorted(glob.glob(os.path.join({folder}, "{pattern}")), key=os.path.getmtime)[:-3]:'
    condition, modules = only_first(script, python, save.call)
    lines = nested(condition, [loop, f"    {remove}"])
    return with_import(
        python, after(python, save.call, lines), "glob", "os", *(("shutil",) if is_folder else ()), *modules
    )


def _fix(script: Script, use: Use, keep: Setting) -> str:
    fix = use.keep_fix or use.framework.keep_fix
    if keep.name.startswith("--") and not fix.startswith("-"):
        fix = f"--{fix.replace('=', ' ')}"
    line = mended(script, keep, fix, use)
    return (
        line
        if line != fix or not keep.place.line
        else f"{fix}    # beside the other arguments of line {keep.place.line}"
    )


def _hardly_saves(use: Use) -> bool:
    """``save_steps=999999`` is how people switch saving off; never-saved and save-interval speak of that."""
    every = use.every.value if use.every is not None else None
    return isinstance(every, int | float) and every >= _SELDOM


def _is_rare(use: Use) -> bool:
    """``for step in range(19_000)`` that saves ``if step % 5_000 == 0``: as many copies as one keeps on purpose."""
    python, call = use.python, use.call
    if python is None or call is None or call.around is None:
        return False
    loop = next((one.node for one in call.around.outwards() if one.kind == "for"), None)
    until = _until(python, loop, call) if isinstance(loop, ast.For) else None
    for test, way in call.guards():
        for part in ast.walk(test) if way else ():
            if isinstance(part, ast.BinOp) and isinstance(part.op, ast.Mod):
                every = as_number(python.value(part.right, call.around))
                if until is not None and every is not None and every >= 1 and until / every <= _RARE:
                    return True
    return False


def _until(python: Python, loop: ast.For, call: Call) -> float | None:
    """How often a loop runs: ``range(n)``, or ``if step >= n: break`` in it; None where that is not told."""
    iterated = loop.iter
    if isinstance(iterated, ast.Call) and isinstance(iterated.func, ast.Name) and iterated.func.id == "range":
        end = iterated.args[min(1, len(iterated.args) - 1)] if iterated.args else None
        return as_number(python.value(end, call.around))
    for one in loop.body:
        if isinstance(one, ast.If) and isinstance(one.body[-1], ast.Break):
            parts = one.test.values if isinstance(one.test, ast.BoolOp) else [one.test]
            for part in parts:
                if isinstance(part, ast.Compare) and isinstance(part.ops[0], ast.GtE | ast.Gt | ast.Eq):
                    return as_number(python.value(part.comparators[0], call.around))
    return None


_RARE: Final = 5
"""Saves of a loop of one's own that fill nothing up."""


def _saves_few(use: Use) -> bool:
    """Whether the whole run saves no more often than copies would be kept."""
    every = as_number(use.every.value) if use.every is not None else None
    until = as_number(use.until.value) if use.until is not None else None
    if every is not None and until is not None and every >= 1 and 0 < until <= _FEW * every:
        return True
    if use.python is None or use.call is None or use.framework.id != "hf-trainer":
        return False
    strategy = use.python.argument(use.call, "save_strategy", default="steps")
    epochs = as_number(use.python.argument(use.call, "num_train_epochs", default=3))
    return strategy == "epoch" and epochs is not None and epochs <= _FEW


def _cleans_up(script: Script) -> bool:
    """Whether the program or its shell removes files: whatever they are, they may be old checkpoints."""
    if any(cleans_up(python) for python in script.pythons):
        return True
    return any(shell.has("rm", "find") for shell in script.shells)


RULE = ProgramRule(
    id=ID,
    severity=Severity.WARN,
    why="the disk fills up while a checkpoint is written, which kills the run, and no restart can save either",
    look=look,
    on_runtime=Severity.WARN,
)
