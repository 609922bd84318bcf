"""How many copies a program that saves in a loop of its own leaves: what frameworks without a setting for it share."""

from __future__ import annotations

import ast
from typing import Final

from webhook.programs import Call, Python
from webhook.programs.flow import in_loop
from webhook.programs.frameworks.framework import Setting
from webhook.programs.loads import names_place, removes_files
from webhook.programs.names import Save, tag_of
from webhook.programs.python import Around

_REMOVES: Final = ("rmtree", "remove", "unlink", "removedirs", "rmdir", "delete_folder")


def cleans_up(python: Python) -> bool:
    """Whether it removes files: whatever they are, they may be old checkpoints."""
    memo: bool | None = python.memo.get("cleans up")
    if memo is None:
        memo = any(_removes(python, call) for call in python.named(*_REMOVES)) or any(
            removes_files(python, call) for call in python.source.calls
        )
        python.memo["cleans up"] = memo
    return memo


def _removes(python: Python, call: Call) -> bool:
    """Not ``logger.remove()``, nor ``names.remove(one)`` of a list, of which nothing says that it is a file."""
    return call.attr != "remove" or call.imported or call.receiver is None or names_place(python, call)


def copies_of(python: Python, save: Save) -> Setting | None:
    """None where the number of copies cannot be told. Its value is None where a save in a loop is named by the step and
    nothing removes any, so that their number grows with the run (epochs are few)."""
    if not save.numbered or cleans_up(python) or not in_loop(python, save.call) or not _by_step(python, save):
        return None
    return Setting("os.remove", None, python.at(save.call), given=False)


def _by_step(python: Python, save: Save) -> bool:
    names: list[str] = []
    for node in (save.target or save.path, tag_of(python, save.call)):
        for origin, where in python.origins(node, save.call.around) if node is not None else ():
            for part in ast.walk(origin):
                if isinstance(part, ast.Name):
                    names.append("step" if _counts_steps(python, part, where) else part.id.lower())
                elif isinstance(part, ast.Attribute):
                    names.append(part.attr.lower())
    return any("step" in name or name in ("iteration", "iter_num") for name in names) and not any(
        "epoch" in name for name in names
    )


def _counts_steps(python: Python, name: ast.Name, around: Around | None) -> bool:
    """Whether a name is counted by a loop each turn of which is one step of the optimizer."""
    if "ep" in name.id.lower():
        return False
    loops = {id(one.around.node) for one in python.bindings(name, around) if one.how == "for"}
    return bool(loops) and any(
        id(_loop(call.around)) in loops for call in python.methods("backward", "step", "train_batch")
    )


def _loop(around: Around | None) -> ast.AST | None:
    """The innermost loop of the same function."""
    for here in around.outwards() if around is not None else ():
        if here.kind in ("for", "while"):
            return here.node  # type: ignore[no-any-return]
        if here.kind in ("function", "lambda"):
            return None
    return None
