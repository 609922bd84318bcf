"""Which of several assignments is in force where a name is used, and what a condition amounts to."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from webhook.programs.constructs import Around, Binding
from webhook.programs.literals import truth_of
from webhook.programs.values import UNKNOWN, Unknown, Value, is_known

if TYPE_CHECKING:
    from webhook.programs.python import Python


def bound(python: Python, found: list[Binding], node: ast.expr, around: Around | None, depth: int) -> Value:
    """The value that several assignments leave at a use: the last that surely came before it, where those that may
    have come after it say the same."""
    if len(found) > 1 and any(one.how in ("for", "+=") for one in found):
        return Unknown("loop", python.text(node))
    values = [_given_by(python, one, node, depth) for one in _reaching(python, found, node, around, depth)]
    if values and all(type(value) is type(values[0]) and value == values[0] for value in values[1:]):
        return values[0]
    return UNKNOWN


def _given_by(python: Python, one: Binding, node: ast.expr, depth: int) -> Value:
    """The value that one assignment gives, or that a function gets for its parameter."""
    if one.how == "parameter" and isinstance(node, ast.Name):
        return _parameter(python, one, node.id, depth)
    if one.how == "unpacked" and isinstance(one.whole, ast.Call):
        # ``logger, folder = prepare(cfg)``, whose function returns both.
        items = python.follow(one.whole, one.around, depth)
        return items[one.index] if isinstance(items, tuple) and one.index < len(items) else UNKNOWN
    if one.value is None or one.how == "with":
        return Unknown("loop", python.text(node)) if one.how in ("for", "+=") else UNKNOWN
    return python.follow(one.value, one.around, depth)


def _parameter(python: Python, one: Binding, name: str, depth: int) -> Value:
    function = one.around.node
    for active, values in reversed(python.frames):
        if active == id(function):
            return values.get(name, UNKNOWN)
    if getattr(function, "decorator_list", None) or {"fire", "typer", "tyro", "jsonargparse"} & python.source.modules:
        from webhook.programs.commanded import commanded

        told = commanded(python, function, name, depth)
        if told is not None:
            return told
    if isinstance(function, ast.FunctionDef) and any(
        one.arg is None for call in python.source.by_attr.get(function.name, ())[:1] for one in call.node.keywords
    ):
        from webhook.programs.given import spread_value

        return spread_value(python, function, name, depth + 1)
    values_given = [python.follow(given, where, depth) for given, where in python.given(one, name)]
    same = values_given and all(type(v) is type(values_given[0]) and v == values_given[0] for v in values_given)
    return values_given[0] if same else UNKNOWN


def _reaching(python: Python, found: list[Binding], node: ast.expr, around: Around | None, depth: int) -> list[Binding]:
    """The bindings that may be in force at a use, the last first, up to the first that surely is."""
    if len(found) == 1:
        return found
    above = set(around.outwards()) if around is not None else set()
    scope = around.scope if around is not None else None
    looped = next((one for one in (around.outwards() if around else ()) if one.kind in ("for", "while")), None)
    out: list[Binding] = []
    for one in reversed(found):
        own = one.around.scope if one.around is not None else None
        if own is scope and (one.line >= node.lineno or holds(one.value, node)):
            if looped is not None and one.around is not None and looped in one.around.outwards():
                out.append(one)
            continue
        sure = is_sure(python, one.around, above, depth)
        if sure is False or _is_fallback(python, one, found, depth):
            continue
        out.append(one)
        if sure:
            break
    return out


def is_sure(python: Python, around: Around | None, above: set[Around], depth: int) -> bool | None:
    """Whether what stands there runs before a use that stands in ``above``; None where that is not told."""
    answer: bool | None = True
    here = around
    while here is not None and here.kind not in ("function", "lambda", "class"):
        if here not in above and here.kind not in ("with", "try", "finally"):
            met = truth(python, here.test, here.outer, depth) if here.kind == "if" and here.test is not None else None
            if met is not None and met != here.branch:
                return False
            answer = answer if met is not None else None
        here = here.outer
    return answer


def _is_fallback(python: Python, one: Binding, found: list[Binding], depth: int) -> bool:
    """``except KeyError: out = "/tmp"`` where what was tried is known, so that it does not fail."""
    caught = next((here for here in (one.around.outwards() if one.around else ()) if here.kind == "except"), None)
    return caught is not None and any(
        other.value is not None
        and any(here.kind == "try" and caught.node in here.node.handlers for here in other.around.outwards())
        and is_known(python.follow(other.value, other.around, depth))
        for other in found
        if other.around is not None
    )


def truth(python: Python, test: ast.expr, around: Around | None, depth: int) -> bool | None:
    """Whether a condition holds; None where that is not told."""
    return truth_of(python.follow(test, around, depth))


def holds(outer: ast.expr | None, node: ast.expr) -> bool:
    """Whether ``node`` stands in ``outer``, by their lines and columns."""
    return (
        outer is not None
        and (outer.lineno, outer.col_offset) <= (node.lineno, node.col_offset)
        and (node.end_lineno or 0, node.end_col_offset or 0) <= (outer.end_lineno or 0, outer.end_col_offset or 0)
    )


def visible(found: list[Binding], around: Around | None) -> list[Binding]:
    """Without the attributes of classes, which only the class's own body sees by their bare names."""
    if not any(one.around is not None and _body(one.around) is not None for one in found):
        return found
    own = _body(around) if around is not None else None
    return [one for one in found if one.around is None or _body(one.around) in (None, own)]


def _body(around: Around) -> ast.ClassDef | None:
    """The class in whose body, and in no method of it, something stands."""
    for here in around.outwards():
        if here.kind in ("function", "lambda"):
            return None
        if here.kind == "class":
            return here.node  # type: ignore[no-any-return]
    return None
