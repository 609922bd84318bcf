"""How a program of its own goes on from its own checkpoint: what is read back, and the loop that trains."""

from __future__ import annotations

import ast
from typing import Final

from msgspec import Struct

from webhook.programs.contents import is_optimizer, is_weights
from webhook.programs.flow import in_loop, is_no_start
from webhook.programs.names import Save, saves
from webhook.programs.program import Script
from webhook.programs.python import Around, Call, Python
from webhook.programs.values import head

_LOADS: Final = ("torch.load", "joblib.load", "pickle.load")
_ELSEWHERE: Final = ("pretrain", "init", "weights", "teacher", "best", "base", "finetune", "backbone", "imagenet")
"""Parts of the names of what a run begins with, or ends with, and does not go on from."""


class ReadBack(Struct, frozen=True):
    """One ``x.load_state_dict(state["x"])`` of a run's own checkpoint.

    ``state`` is what it is taken out of; ``optimizer`` says that it is an optimizer that gets its state back.
    """

    python: Python
    call: Call
    state: ast.expr
    optimizer: bool


def read_back(script: Script, python: Python) -> list[ReadBack]:
    """Every part that a program gets back from a checkpoint that it saves in its own loop; found once.

    Empty where a part of the program is not seen, or where what is loaded is named for something else.
    """
    memo: list[ReadBack] | None = python.memo.get("read back")
    if memo is None:
        memo = python.memo["read back"] = []
        if (
            not script.unread
            and not python.source.stars
            and "load_state_dict" in python.source.by_attr
            and kept(script, python)
        ):
            for call in python.methods("load_state_dict"):
                found = _read(python, call)
                if found is not None:
                    memo.append(found)
    return memo


def kept(script: Script, python: Python) -> list[Save]:
    """The saves of a text's own loop that hold a dictionary: what a run goes on from."""
    return [
        save
        for save in saves(script)
        if save.python is python and save.function == "torch.save" and in_loop(python, save.call) and _is_state(save)
    ]


def goes_somewhere(script: Script, save: Save) -> bool:
    """Whether a run's state goes to a place of which nothing is known, where a directory is declared."""
    return (
        bool(script.launch.directories)
        and not head(save.value)
        and (is_weights(save) or (save.function == "torch.save" and _is_state(save)))
    )


def _is_state(save: Save) -> bool:
    node = save.call.argument("obj", 0)
    return node is not None and any(
        (isinstance(origin, ast.Dict) and "state_dict" in save.python.source.source(origin))
        or (isinstance(origin, ast.Call) and save.python.source.dotted(origin.func)[0] == "dict")
        for origin, _ in save.python.origins(node, save.call.around)
    )


def _read(python: Python, call: Call) -> ReadBack | None:
    node = call.argument("state_dict", 0)
    if node is None or call.receiver is None or is_no_start(python, call) or in_loop(python, call):
        return None
    for origin, where in python.origins(node, call.around):
        if isinstance(origin, ast.Subscript) and _is_own(python, origin.value, where):
            name = python.source.dotted(call.receiver)[0]
            return ReadBack(python, call, origin.value, is_optimizer(python, name))
    return None


def _is_own(python: Python, node: ast.expr, around: Around | None) -> bool:
    """Whether a dictionary comes from a load, and not of what is called pretrained or initial."""
    for origin, where in python.origins(node, around):
        if isinstance(origin, ast.Call) and python.source.dotted(origin.func)[0] in _LOADS:
            named = any(word in python.source.source(origin).lower() for word in _ELSEWHERE)
            return not named and not any(is_elsewhere(python, one, where) for one in origin.args[:1])
    return False


def is_elsewhere(python: Python, node: ast.expr, around: Around | None) -> bool:
    """Whether a path, or what it is made of, is named for what a run begins with."""
    shown = python.source.source(node).lower()
    shown += " ".join(python.source.source(one).lower() for one, _ in python.origins(node, around))
    return any(word in shown for word in _ELSEWHERE)


def loop_of_run(python: Python, call: Call) -> tuple[ast.For | ast.While, Around] | None:
    """The outermost loop around a call, in its function or in those that call it alone; None where that is not told."""
    found = None
    for _ in range(4):
        for here in call.around.outwards() if call.around is not None else ():
            if here.kind in ("for", "while"):
                found = here.node, here
            if here.kind in ("function", "lambda"):
                break
        scope = call.around.scope if call.around is not None else None
        if scope is None or scope.kind == "lambda":
            return found
        method = scope.outer is not None and scope.outer.kind == "class"
        callers = python.source.calls_of(scope.node.name, method)
        if len(callers) != 1:
            return found
        call = callers[0]
    return found


def mentions(python: Python, *words: str) -> bool:
    """Whether the text, comments left out, has one of these words in it, whatever the case."""
    known: dict[tuple[str, ...], bool] = python.memo.setdefault("mentions", {})
    if words not in known:
        text: str | None = python.memo.get("small letters")
        if text is None:
            text = python.memo["small letters"] = python.source.code.lower()
        known[words] = any(word in text for word in words)
    return known[words]
