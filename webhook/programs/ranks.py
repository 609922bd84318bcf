"""Which of several processes a call runs in: conditions on the rank, early returns, decorators, the callers' own."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Final, Literal

from webhook.programs.program import Script
from webhook.programs.python import Around, Call, Python

Guard = Literal["none", "local", "global", "unknown"]
"""``none``: every process runs it. ``local``: one of each pod does. ``global``: one does. ``unknown``: not told."""

_RANKS: Final = ("rank", "main", "master", "chief", "leader", "primary", "zero", "process", "coordin", "worker", "root")
_LEAVES: Final = (ast.Return, ast.Continue, ast.Raise, ast.Break)


def guard_of(python: Python, call: Call, depth: int = 0) -> Guard:
    """How a call is kept to one process."""
    found: Guard = "none"
    for test in _tests(python, call):
        kind = _kind(python, test, call.around)
        if kind == "global":
            return "global"
        if kind != "none" and found != "unknown":
            found = kind
    if found != "none":
        return found
    scope = call.around.scope if call.around is not None else None
    if scope is None:
        return "none"
    if scope.kind == "lambda" or depth > 3:
        return "unknown"
    if any(_names_rank(python, decorator) for decorator in scope.node.decorator_list):
        return "global"
    callers = [one for one in python.source.by_attr.get(scope.node.name, ()) if one.around is not call.around]
    if not callers:
        return "unknown"
    kinds = {guard_of(python, one, depth + 1) for one in callers}
    return kinds.pop() if len(kinds) == 1 else "unknown"


def _tests(python: Python, call: Call) -> Iterator[ast.expr]:
    """The conditions around a call in its own function, and those of returns before it."""
    scope = call.around.scope if call.around is not None else None
    here = call.around
    while here is not None and here is not scope:
        if here.test is not None:
            yield here.test
        if here.kind == "with":
            yield from (item.context_expr for item in here.node.items)
        here = here.outer
    for statement, around in python.source.statements:
        if (
            isinstance(statement, ast.If)
            and statement.lineno < call.line
            and (around.scope if around is not None else None) is scope
            and statement.body
            and isinstance(statement.body[-1], _LEAVES)
            and _encloses(around, call.around)
        ):
            yield statement.test


def _encloses(outer: Around | None, inner: Around | None) -> bool:
    return outer is None or (inner is not None and any(here is outer for here in inner.outwards()))


def _kind(python: Python, test: ast.expr, around: Around | None) -> Guard:
    words = list(_words(python, test, around))
    if not any(mark in word for word in words for mark in _RANKS):
        return "unknown" if _is_open(python, test, around) else "none"
    ranks = [word for word in words if any(mark in word for mark in _RANKS)]
    return "local" if all("local" in word for word in ranks) else "global"


def _is_open(python: Python, test: ast.expr, around: Around | None) -> bool:
    """A flag that the function is given, or a function that may ask for the rank itself."""
    for part in test.values if isinstance(test, ast.BoolOp) else [test]:
        bare = part.operand if isinstance(part, ast.UnaryOp) else part
        if isinstance(bare, ast.Name) and any(one.how == "parameter" for one in python.bindings(bare, around)):
            return True
        if isinstance(bare, ast.Call):
            name = python.source.dotted(bare.func)[0].rpartition(".")[2].lower()
            if "save" in name or "should" in name or "is_" in name[:3]:
                return True
    return False


def _names_rank(python: Python, node: ast.expr) -> bool:
    return any(mark in word for word in _words(python, node, None) for mark in _RANKS)


def _words(python: Python, test: ast.expr, around: Around | None) -> Iterator[str]:
    """The names in a condition, and in what gives those names their values."""
    pending: list[tuple[ast.AST, Around | None, int]] = [(test, around, 0)]
    seen = 0
    while pending and seen < 400:
        node, where, steps = pending.pop()
        seen += 1
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            function = python.source.functions.get(node.func.id)
            pending += [(value, inner, steps + 1) for value, inner in python.source.returns.get(id(function), ())]
        if isinstance(node, ast.Name | ast.Attribute):
            yield (node.id if isinstance(node, ast.Name) else node.attr).lower()
            if steps < 3:
                for binding in python.bindings(node, where):
                    if binding.value is not None:
                        pending.append((binding.value, binding.around, steps + 1))
                    if binding.around is not None:
                        pending += [
                            (one.test, one.outer, steps + 1)
                            for one in binding.around.outwards()
                            if one.kind == "if" and one.test is not None
                        ]
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and len(node.value) < 40:
            yield node.value.lower()
        pending += [(child, where, steps) for child in ast.iter_child_nodes(node)]


def processes_of(script: Script, python: Python) -> Literal["one", "pod", "pods", "unknown"]:
    """How many processes run a text: one, several in one pod, or several pods."""
    if script.launch.pods > 1:
        return "pods"
    for invocation in script.invocations:
        if invocation.python is python:
            if not invocation.launchers:
                spawns = any(True for _ in python.calls("torch.multiprocessing.spawn"))
                return "unknown" if spawns or "multiprocessing" in python.source.modules else "one"
            count = invocation.processes or script.launch.processes
            return "unknown" if count is None else "pod" if count > 1 else "one"
    return "unknown"
