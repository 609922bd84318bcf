"""How many steps lie between two saves of a loop."""

from __future__ import annotations

import ast

from webhook.programs.python import Call, Python
from webhook.programs.values import as_number


def interval_of(python: Python, call: Call, depth: int = 0) -> tuple[float, ast.Compare] | None:
    """The number in ``if step % 500 == 0`` around a call or its only caller, with the comparison; None if unseen."""
    for test, branch in call.guards():
        found = _modulus(python, test, call) if branch else None
        if found is not None:
            return found
    scope = call.around.scope if call.around is not None else None
    if scope is None or scope.kind == "lambda" or depth > 2:
        return None
    callers = python.source.by_attr.get(scope.node.name, ())
    return interval_of(python, callers[0], depth + 1) if len(callers) == 1 else None


def _modulus(python: Python, test: ast.expr, call: Call) -> tuple[float, ast.Compare] | None:
    parts = test.values if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And) else [test]
    for part in parts:
        if isinstance(part, ast.Compare) and len(part.ops) == 1 and isinstance(part.ops[0], ast.Eq):
            left = part.left
            if isinstance(left, ast.BinOp) and isinstance(left.op, ast.Mod) and _is_step(left.left):
                number = as_number(python.value(left.right, call.around))
                if number is not None and number >= 1:
                    return number, part
    return None


def _is_step(node: ast.expr) -> bool:
    """A step's number; epochs are no steps."""
    for part in ast.walk(node):
        name = part.id if isinstance(part, ast.Name) else part.attr if isinstance(part, ast.Attribute) else ""
        if "step" in name.lower() or name.lower() in ("iteration", "iter", "it", "iter_num"):
            return True
    return False


def with_interval(python: Python, test: ast.Compare, steps: int) -> str:
    """The same condition with another number, as the user would write it."""
    left = test.left
    if isinstance(left, ast.BinOp) and isinstance(left.right, ast.Constant):
        return f"{python.text(left.left)} % {steps} == 0"
    return f"{python.text(left.right) if isinstance(left, ast.BinOp) else 'every'} = {steps}"
