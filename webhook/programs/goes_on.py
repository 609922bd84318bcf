"""A loop of the program's own that gets its whole state back in one call of a framework.

What such a call restores, as read in the releases that the frameworks' files name:
accelerate 1.15.0, ``checkpointing.py`` (``load_state`` sets weights, optimizers, schedules and data that ``prepare``
was given, what ``register_for_checkpointing`` was given, and the generators; no step, and no place in the data but with
``use_stateful_dataloader``); deepspeed 0.19.8, ``runtime/engine.py`` (``load_checkpoint`` sets weights, optimizer, the
schedule that ``initialize`` was given, ``global_steps``; it returns ``(path, client_state)``); lightning 2.6.6,
``fabric/fabric.py`` (``load(path, state)`` sets what the dictionary has); torch 2.15.0, ``distributed/checkpoint``
(``load(state)`` likewise); orbax-checkpoint 0.12.8 and flax 0.12 (the tree that was saved, as the return value);
tensorflow 2.20, ``train.Checkpoint`` (the objects that it was made with).
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from typing import Final

from msgspec import Struct

from webhook.programs.flow import in_loop, is_no_start
from webhook.programs.pasted import statement_of
from webhook.programs.program import Script
from webhook.programs.python import Call, Python
from webhook.programs.readback import is_elsewhere

COUNTS: Final = ("step", "epoch", "iter", "batch", "update", "round", "count", "start", "begin", "done", "progress")
"""Parts of the names of what counts how far a run is."""
_OWN_COUNT: Final = frozenset(
    ("step", "global_step", "global_steps", "iteration", "iterations", "epoch", "save_counter")
)


_MOST: Final = 4
"""Of one kind in a text: what is loaded for something else is seldom more."""


class Whole(Struct, frozen=True):
    """``load`` gives the run its state back, ``save`` wrote it, in the loop. ``owner`` is what both are called on.

    ``kind`` is the framework's: ``accelerate``, ``deepspeed``, ``fabric``, ``dcp``, ``orbax``, ``flax``, ``tf``.
    """

    kind: str
    load: Call
    save: Call
    owner: str


def wholes(script: Script, python: Python) -> list[Whole]:
    """Every such pair of a text; found once. Empty where a part of the program is not seen."""
    memo: list[Whole] | None = python.memo.get("wholes")
    if memo is None:
        memo = python.memo["wholes"] = []
        if not script.unread and not python.source.stars:
            for kind, modules, find in _KINDS:
                if not python.source.modules.isdisjoint(modules):
                    memo += list(_pairs(python, kind, find))[:_MOST]
    return memo


def states(python: Python, whole: Whole) -> list[tuple[str, ast.expr]]:
    """The parts of the dictionary that is saved, by key; empty where it is no dictionary of the text."""
    node = _saved(whole)
    out: list[tuple[str, ast.expr]] = []
    for origin, _ in python.origins(node, whole.save.around) if node is not None else ():
        if isinstance(origin, ast.Dict):
            out += [
                (key.value, one)
                for key, one in zip(origin.keys, origin.values, strict=True)
                if isinstance(key, ast.Constant) and isinstance(key.value, str)
            ]
    return out


def _saved(whole: Whole) -> ast.expr | None:
    if whole.kind == "fabric":
        return whole.save.argument("state", 1)
    if whole.kind == "dcp":
        return whole.save.argument("state_dict", 0)
    return None


def result_of(python: Python, call: Call) -> list[str]:
    """The names that what a call returns, or one part of it, is bound to; ``_`` is none."""
    stmt = statement_of(python, call.node)
    if not isinstance(stmt, ast.Assign) or not _is_of(stmt.value, call.node):
        return []
    parts = [part for one in stmt.targets for part in (one.elts if isinstance(one, ast.Tuple | ast.List) else [one])]
    return [name for name in (python.source.dotted(part)[0] for part in parts) if name and not name.startswith("_")]


def _is_of(value: ast.expr, node: ast.Call) -> bool:
    return value is node or (isinstance(value, ast.Subscript) and value.value is node)


def gives_count(python: Python, whole: Whole) -> bool:
    """Whether anything that comes back with the state, or stands beside it, could say how far the run is."""
    named = result_of(python, whole.load)[:_MOST]
    if whole.kind == "deepspeed" and _takes_second(python, whole.load):
        return True
    for name in named + [python.text(one) for one in whole.load.node.args[:_MOST] if isinstance(one, ast.Name)]:
        if _is_asked(python, name):
            return True
    if whole.kind == "tf" and any(
        any(word in (keyword.arg or "*").lower() for word in COUNTS)
        for call in python.calls("tensorflow.train.Checkpoint")
        for keyword in call.node.keywords
    ):
        return True
    if whole.kind == "accelerate" and any(
        "sched" not in (python.source.source(one) + python.class_of(one, call.around)).lower()
        for call in python.methods("register_for_checkpointing")
        for one in call.node.args
    ):
        return True
    scope = whole.load.around.scope if whole.load.around is not None else None
    for one, _ in python.source.returns.get(id(scope.node), []) if scope is not None else ():
        if not _is_state(one, whole.load.node, named):
            return True
    return _compared(python) or _out_of_name(python)


def _takes_second(python: Python, call: Call) -> bool:
    """``path, client_state = engine.load_checkpoint(...)``; ``path, _ =`` takes none."""
    stmt = statement_of(python, call.node)
    if not isinstance(stmt, ast.Assign) or stmt.value is not call.node:
        return False
    target = stmt.targets[0]
    if isinstance(target, ast.Tuple) and len(target.elts) == 2:
        return not python.source.dotted(target.elts[1])[0].startswith("_")
    return True


def _is_asked(python: Python, name: str) -> bool:
    """``state["step"]``, ``state.step``, ``state.get("epoch")``: a count is taken out of what was loaded."""
    for node in ast.walk(python.source.tree):
        if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
            key = node.slice.value
            if isinstance(key, str) and _counts(key) and python.source.dotted(node.value)[0].partition(".")[0] == name:
                return True
    return any(
        call.receiver is not None
        and python.source.dotted(call.receiver)[0] == name
        and any(isinstance(one, ast.Constant) and _counts(str(one.value)) for one in call.node.args[:1])
        for call in python.methods("get", "pop")
    )


def _counts(word: str) -> bool:
    return any(one in word.lower() for one in COUNTS)


def _is_state(node: ast.expr, call: ast.Call, named: list[str]) -> bool:
    """Whether a function that loads returns the state alone, or nothing."""
    if node is call or (isinstance(node, ast.Constant) and node.value is None):
        return True
    return isinstance(node, ast.Name) and (node.id in named or "state" in node.id or "model" in node.id)


def _compared(python: Python) -> bool:
    """``if state.step >= most: break``, ``int(state.step)``: the loop asks the state how far it is."""
    for node in ast.walk(python.source.tree):
        asked = (
            [node.left, *node.comparators]
            if isinstance(node, ast.Compare)
            else node.args
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("int", "range")
            else []
        )
        for one in asked:
            for part in ast.walk(one):
                if isinstance(part, ast.Attribute) and part.attr in _OWN_COUNT:
                    return True
    return False


def _out_of_name(python: Python) -> bool:
    """``int(path.split("_")[-1])``: the step is read out of a checkpoint's name."""
    words = ("path", "ckpt", "checkpoint", "name", "file", "dir", "latest", "last", "newest", "resume")
    for call in python.named("int", "search", "findall", "match", "fullmatch"):
        # What a directory is sorted by says nothing of where the loop begins.
        if call.inside("lambda") or _sorts(python, call):
            continue
        if any(word in python.text(call.node).lower() for word in words):
            return True
    return False


def _sorts(python: Python, call: Call) -> bool:
    """``key=lambda name: int(...)``, and a function of the text that is given as ``key=`` alone."""
    scope = call.around.scope if call.around is not None else None
    if scope is None:
        return False
    if scope.kind == "lambda":
        return True
    keys: frozenset[str] | None = python.memo.get("sorting keys")
    if keys is None:
        keys = python.memo["sorting keys"] = frozenset(
            keyword.value.id
            for one in python.named("sorted", "sort", "max")
            for keyword in one.node.keywords
            if keyword.arg == "key" and isinstance(keyword.value, ast.Name)
        )
    return scope.node.name in keys and not python.source.calls_of(scope.node.name, False)


def _pairs(python: Python, kind: str, find: _Find) -> Iterator[Whole]:
    loads, saves = find(python)
    often = [save for save in saves if in_loop(python, save)]
    for load in loads if often else ():
        if in_loop(python, load) or is_no_start(python, load) or _from_elsewhere(python, load):
            continue
        owner = python.text(load.receiver) if load.receiver is not None else ""
        yield Whole(kind, load, often[0], owner)


def _from_elsewhere(python: Python, load: Call) -> bool:
    """Whether any argument that says where to load from is named for what a run begins with."""
    named = [one.value for one in load.node.keywords if any(word in (one.arg or "") for word in _PATHS)]
    return any(is_elsewhere(python, one, load.around) for one in [*load.node.args[:1], *named])


_PATHS: Final = ("path", "dir", "checkpoint_id", "reader", "step")
_Found = tuple[list[Call], list[Call]]
_Find = Callable[[Python], _Found]


def _on(python: Python, attrs: tuple[str, ...], *classes: str) -> list[Call]:
    """Methods of what a class of that name made, or of what is called like it."""
    found = []
    for call in python.methods(*attrs):
        made = python.class_of(call.receiver, call.around)
        named = python.text(call.receiver).lower().rpartition(".")[2] if call.receiver is not None else ""
        if made.endswith(classes) or (not made and named in {one.lower() for one in classes}):
            found.append(call)
    return found


def _accelerate(python: Python) -> _Found:
    return _on(python, ("load_state",), "Accelerator"), _on(python, ("save_state",), "Accelerator")


def _deepspeed(python: Python) -> _Found:
    own = python.source.functions
    if not any(True for _ in python.calls("deepspeed.initialize")):
        return [], []
    loads = [call for call in python.methods("load_checkpoint") if "load_checkpoint" not in own]
    # What takes the weights alone is another rule's.
    loads = [call for call in loads if not any((one.arg or "").startswith("load_") for one in call.node.keywords)]
    return loads, [call for call in python.methods("save_checkpoint") if "save_checkpoint" not in own]


def _fabric(python: Python) -> _Found:
    loads = [call for call in _on(python, ("load",), "Fabric") if len(call.node.args) + len(call.node.keywords) > 1]
    return loads, _on(python, ("save",), "Fabric")


def _dcp(python: Python) -> _Found:
    where = "torch.distributed.checkpoint"
    return list(python.calls(f"{where}.load")), list(python.calls(f"{where}.save", f"{where}.async_save"))


def _orbax(python: Python) -> _Found:
    made = ("CheckpointManager", "Checkpointer", "CheckpointHandler")
    return _on(python, ("restore",), *made), _on(python, ("save",), *made)


def _flax(python: Python) -> _Found:
    where = "flax.training.checkpoints"
    return list(python.calls(f"{where}.restore_checkpoint")), list(python.calls(f"{where}.save_checkpoint"))


def _tensorflow(python: Python) -> _Found:
    made = ("train.Checkpoint", "train.CheckpointManager")
    return _on(python, ("restore", "read", "restore_or_initialize"), *made), _on(python, ("save", "write"), *made)


_KINDS: Final[tuple[tuple[str, frozenset[str], _Find], ...]] = (
    ("accelerate", frozenset(("accelerate",)), _accelerate),
    ("deepspeed", frozenset(("deepspeed",)), _deepspeed),
    ("fabric", frozenset(("lightning", "lightning_fabric")), _fabric),
    ("dcp", frozenset(("torch",)), _dcp),
    ("orbax", frozenset(("orbax",)), _orbax),
    ("flax", frozenset(("flax",)), _flax),
    ("tf", frozenset(("tensorflow",)), _tensorflow),
)
