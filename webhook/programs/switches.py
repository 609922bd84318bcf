"""Conditions that a setting of the text makes false: ``RESUME = False``, a field of a class, an option of click."""

from __future__ import annotations

import ast
from typing import Final

from msgspec import Struct

from webhook.programs.python import Around, Call, Python
from webhook.programs.values import Value, is_known

_CHANGES: Final = ("setattr", "__dict__", "vars(", "auto_envvar_prefix", "default_map")
"""Words of a text in which any field or option may be given a value that is not seen."""
_FILLS: Final = frozenset(("__init__", "__post_init__", "__getattr__", "__getattribute__", "__new__"))


class Switch(Struct, frozen=True):
    """A name in a condition, where it is given its value, and what that is; ``flag``: an option sets it."""

    name: str
    line: int
    value: Value
    flag: str = ""


def switch_off(python: Python, test: ast.expr, branch: bool, call: Call) -> Switch | None:
    """The setting by which a condition around a call is known not to hold; alone or compared with a literal."""
    node, other, same = test, None, True
    if isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.ops[0], ast.Eq | ast.NotEq):
        node, other, same = test.left, test.comparators[0], isinstance(test.ops[0], ast.Eq)
    found = _of_module(python, node) or _of_class(python, node, call) or _of_option(python, node, call)
    if found is None:
        return None
    if other is not None:
        wanted = python.value(other, None)
        holds = (found.value == wanted) == same if is_known(wanted) else branch
    elif isinstance(found.value, bool) or found.value is None:
        holds = bool(found.value)
    else:
        return None
    return found if holds != branch else None


def _of_module(python: Python, node: ast.expr) -> Switch | None:
    """A name of the module with one value."""
    if not isinstance(node, ast.Name):
        return None
    bound, value = python.bindings(node, None), python.value(node, None)
    if len(bound) != 1 or bound[0].around is not None or not is_known(value):
        return None
    return Switch(python.text(node), bound[0].line, value)


def _of_class(python: Python, node: ast.expr, call: Call) -> Switch | None:
    """``cfg.resume`` of ``cfg = Config()``, whose class in the text says ``resume: bool = False``."""
    if not isinstance(node, ast.Attribute) or any(word in python.source.code for word in _CHANGES):
        return None
    if any(name.endswith(f".{node.attr}") for _, name in python.source.bindings):
        return None
    made = {id(one): one for one, _ in python.origins(node.value, call.around)}
    if len(made) != 1:
        return None
    one = next(iter(made.values()))
    if not isinstance(one, ast.Call) or one.args or one.keywords or not isinstance(one.func, ast.Name):
        return None
    kind = python.source.classes.get(one.func.id)
    if not isinstance(kind, ast.ClassDef) or kind.bases or kind.keywords:
        return None
    fields: list[tuple[int, ast.expr]] = []
    for part in kind.body:
        if isinstance(part, ast.FunctionDef) and part.name in _FILLS:
            return None
        target: ast.expr | None = part.target if isinstance(part, ast.AnnAssign) else None
        if isinstance(part, ast.Assign) and len(part.targets) == 1:
            target = part.targets[0]
        if isinstance(target, ast.Name) and target.id == node.attr:
            value = getattr(part, "value", None)
            fields += [(part.lineno, value)] if value is not None else []
    if len(fields) != 1 or not isinstance(fields[0][1], ast.Constant):
        return None
    return Switch(python.text(node), fields[0][0], python.value(fields[0][1], None))


def _of_option(python: Python, node: ast.expr, call: Call) -> Switch | None:
    """A parameter that ``@click.option("--resume", is_flag=True)`` fills."""
    scope = call.around.scope if call.around is not None else None
    function = scope.node if scope is not None else None
    if not isinstance(node, ast.Name) or not isinstance(function, ast.FunctionDef):
        return None
    if any(word in python.source.code for word in _CHANGES) or not _is_parameter(python, node, call.around):
        return None
    if any(one.node.args or one.node.keywords for one in python.source.by_attr.get(function.name, ())):
        return None
    for decorator in function.decorator_list:
        if not isinstance(decorator, ast.Call) or python.source.dotted(decorator.func)[0] != "click.option":
            continue
        words = [one.value for one in decorator.args if isinstance(one, ast.Constant)]
        flag = next((one.partition("/")[0] for one in words if isinstance(one, str) and one.startswith("--")), "")
        given = {keyword.arg: keyword.value for keyword in decorator.keywords}
        if flag.lstrip("-").replace("-", "_") != node.id or not given.keys() <= _KNOWN:
            continue
        default = given.get("default")
        value = python.value(default, None) if default is not None else None
        required = python.value(given["required"], None) if "required" in given else False
        return Switch(node.id, function.lineno, value, flag) if is_known(value) and required is False else None
    return None


_KNOWN: Final = frozenset(("default", "is_flag", "help", "type", "required", "show_default", "metavar"))


def _is_parameter(python: Python, node: ast.Name, around: Around | None) -> bool:
    bound = python.bindings(node, around)
    return len(bound) == 1 and bound[0].how == "parameter"


__all__ = ["Switch", "switch_off"]
