"""What the methods of texts, paths, dictionaries and lists give: ``"{}".format(...)``, ``path.joinpath(...)``."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from webhook.programs.constructs import Around
from webhook.programs.literals import kind_of_name
from webhook.programs.results import is_changed, of_vars, of_writer
from webhook.programs.values import UNKNOWN, Text, Unknown, Value, is_known, join, join_path

if TYPE_CHECKING:
    from webhook.programs.python import Python


def method_value(python: Python, node: ast.Call, function: ast.Attribute, around: Around | None, depth: int) -> Value:
    """What a method call on a text, a path, a dictionary or a list amounts to."""
    attr = function.attr
    if attr == "get_logdir" and not node.args:
        told = of_writer(python, function.value, around, depth)
        if told is not None:
            return told
    base = python.follow(function.value, around, depth)
    if attr in ("joinpath",) and isinstance(base, str | Text):
        return join_path((base, *(python.follow(one, around, depth) for one in node.args)))
    if attr in ("resolve", "absolute", "expanduser", "as_posix", "strip") and isinstance(base, str | Text):
        return base
    if attr in ("strftime", "isoformat", "timestamp", "hex") and isinstance(base, Unknown) and base.kind:
        return Unknown(base.kind, python.text(node))
    if attr == "get" and isinstance(base, dict) and node.args and not is_changed(python, function.value):
        key = python.follow(node.args[0], around, depth)
        if isinstance(key, str) and key in base:
            return base[key]
        if isinstance(key, str):
            return python.follow(node.args[1], around, depth) if len(node.args) > 1 else None
    key = node.args[0].value if attr == "get" and node.args and isinstance(node.args[0], ast.Constant) else None
    if isinstance(key, str):
        told = of_vars(python, function.value, key, around, depth)
        if told is not None:
            return told
        if isinstance(base, Unknown) and not base.kind:
            from webhook.programs.given import given_value

            told = given_value(python, node, around, depth + 1)
            if not isinstance(told, Unknown) or told.kind:
                return told
    if attr in ("split", "rsplit") and isinstance(base, str) and len(node.args) == 1:
        mark = python.follow(node.args[0], around, depth)
        return tuple(base.split(mark)[:256]) if isinstance(mark, str) and mark else UNKNOWN
    if attr == "join" and isinstance(base, str) and len(node.args) == 1:
        items = python.follow(node.args[0], around, depth)
        if isinstance(items, tuple) and items:
            return join((items[0], *(one for item in items[1:] for one in (base, item))))
    if attr == "format" and isinstance(base, str):
        return _formatted(python, base, node, around, depth)
    if attr in ("lower", "upper", "rstrip", "lstrip", "replace", "removesuffix") and isinstance(base, str):
        given = [python.follow(one, around, depth) for one in node.args]
        if all(isinstance(one, str) for one in given):
            try:
                return getattr(base, attr)(*given)
            except TypeError:
                return UNKNOWN
    if isinstance(base, Unknown) and base.kind in ("fresh", "host", "rank", "local-rank"):
        return Unknown(base.kind, python.text(node))
    if attr in ("zfill", "rjust", "ljust", "item") and isinstance(base, Unknown):
        return Unknown(base.kind, python.text(node))
    return Unknown(kind_of_name(attr.lower()) if attr.startswith("get_") else "", python.text(node))


def _formatted(python: Python, base: str, node: ast.Call, around: Around | None, depth: int) -> Value:
    """``"a{}b{name}".format(...)`` with plain fields."""
    parts: list[Value] = []
    given = iter(node.args)
    named = {one.arg: one.value for one in node.keywords}
    rest = base
    while "{" in rest:
        before, _, rest = rest.partition("{")
        field, closed, rest = rest.partition("}")
        if not closed or before.endswith("}") or field.startswith("{"):
            return UNKNOWN
        name, _, spec = field.partition(":")
        parts.append(before)
        found = next(given, None) if name == "" else named.get(name)
        if found is None and name.isdecimal() and len(name) < 4 and int(name) < len(node.args):
            found = node.args[int(name)]
        value = python.follow(found, around, depth) if found is not None else UNKNOWN
        parts.append(UNKNOWN if spec and is_known(value) else value)
    parts.append(rest)
    return join(parts)
