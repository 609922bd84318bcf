"""What a JAX program puts into its checkpoints and takes out of them: parameters, and optax's state with them.

optax's schedules count in that state (``optax/transforms``: ``ScaleByScheduleState.count``), so without it they begin
anew as well.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Final

from webhook.programs.goes_on import Whole, result_of, wholes
from webhook.programs.program import Script
from webhook.programs.python import Around, Call, Python

_KINDS: Final = ("orbax", "flax")
_WRAPPERS: Final = frozenset(("StandardSave", "PyTreeSave", "Composite", "save_args_from_target", "unreplicate"))
_WEIGHTS: Final = ("param", "model", "weight")


def of_trees(script: Script, python: Python) -> Iterator[Whole]:
    """The states that go through Orbax or Flax's checkpoints, where optax trains."""
    if "optax" in python.source.modules:
        yield from (one for one in wholes(script, python) if one.kind in _KINDS)


def saved_tree(python: Python, whole: Whole) -> tuple[ast.expr, Around | None] | None:
    """The expression of what is saved, without ``ocp.args.StandardSave(...)`` around it."""
    call = whole.save
    if whole.kind == "flax":
        node = call.argument("target", 1)
    else:
        node = call.argument("args") or call.argument("items") or call.argument("item", 1)
    for _ in range(4):
        if not isinstance(node, ast.Call) or python.source.dotted(node.func)[0].rpartition(".")[2] not in _WRAPPERS:
            break
        values = [*node.args[:1], *(one.value for one in node.keywords)]
        node = values[0] if len(values) == 1 else None
    return (node, call.around) if node is not None else None


def without_optimizer(python: Python, whole: Whole) -> ast.expr | None:
    """``params``, ``state.params``, ``{"params": params}``: weights are all that is saved; None: not so, or unknown."""
    found = saved_tree(python, whole)
    if found is None:
        return None
    node, around = found
    if isinstance(node, ast.Attribute):
        return node if node.attr == "params" else None
    for origin, _ in python.origins(node, around):
        if isinstance(origin, ast.Dict):
            keys = [one.value if isinstance(one, ast.Constant) else "" for one in origin.keys]
            if len(keys) != 1 or "param" not in str(keys[0]):
                return None
            if not _is_params(origin.values[0]):
                return None
        elif not _is_params(node):
            return None
    return node


def _is_params(node: ast.expr) -> bool:
    name = node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""
    return name in ("params", "parameters", "model_params", "net_params")


def read_without(python: Python, whole: Whole) -> tuple[ast.expr, str, str] | None:
    """Where the parameters are taken out of what was restored and the optimizer's state, which is in it, is not: the
    expression that reads them, the name of what was restored, and the key of what is left; else None."""
    names = result_of(python, whole.load)
    found = saved_tree(python, whole)
    if len(names) != 1 or found is None:
        return None
    kept = next(
        (
            key.value
            for origin, _ in python.origins(*found)
            if isinstance(origin, ast.Dict)
            for key in origin.keys
            if isinstance(key, ast.Constant) and isinstance(key.value, str) and "opt" in key.value
        ),
        "",
    )
    taken = _taken(python, names[0], whole.load)
    if not kept or not taken or any("opt" in key for key, _ in taken):
        return None
    node = next((node for key, node in taken if any(word in key for word in _WEIGHTS)), None)
    return (node, names[0], kept) if node is not None else None


def _taken(python: Python, name: str, load: Call) -> list[tuple[str, ast.expr]]:
    """The parts that are taken out of a name, by key; empty where it is used whole as well."""
    out: list[tuple[str, ast.expr]] = []
    inside: set[int] = set()
    for node in ast.walk(python.source.tree):
        if (
            isinstance(node, ast.Subscript)
            and isinstance(node.slice, ast.Constant)
            and isinstance(node.value, ast.Name)
        ):
            key, own = str(node.slice.value), node.value
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            key, own = node.attr, node.value
        else:
            continue
        if own.id == name:
            inside.add(id(own))
            out.append((key, node))
    for node in ast.walk(python.source.tree):
        if isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Load) and id(node) not in inside:
            return []
    return [one for one in out if one[1].lineno >= load.line]
