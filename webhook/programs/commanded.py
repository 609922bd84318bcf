"""Parameters that a command line fills: functions under ``click``, ``typer`` or ``fire``.

Read in click 8.5.1 (``core.py``, ``Option._parse_decls``): the parameter is a bare name among the option's, else the
first of its names with the most dashes, ``-`` as ``_``; its value is the flag's, else ``default``. Read in typer
0.29.2 (``main.py``): a parameter with a default is an option ``--its-name``. Read in fire 0.7.1 (``core.py``):
``--name value`` and ``--name=value``, and words in order.
"""

from __future__ import annotations

import ast
from typing import Any, Final

from webhook.programs.arguments import flag_value, has_line
from webhook.programs.python import Around, Python
from webhook.programs.results import default_of
from webhook.programs.values import UNKNOWN, Value, as_number


def commanded(python: Python, function: Any, name: str, depth: int) -> Value:
    """The value of a parameter that the command line fills; None where nothing of the kind fills it.

    ``UNKNOWN`` where it may be filled and the value is not told.
    """
    if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
        return None
    for decorator in function.decorator_list:
        if not isinstance(decorator, ast.Call):
            continue
        dotted = python.source.dotted(decorator.func)[0]
        if dotted in ("click.option", "click.argument", "rich_click.option"):
            if _parameter(decorator) == name:
                return _option(python, decorator, depth) if dotted.endswith("option") else UNKNOWN
        elif dotted.endswith((".command", ".callback")) and "typer" in python.source.modules:
            return _typer(python, function, name, depth)
    if any(_runs(python, runner, function.name) for runner in _BY_SIGNATURE):
        return _typer(python, function, name, depth)
    if _runs(python, "fire.Fire", function.name):
        return _fired(python, function, name, depth)
    return None


_BY_SIGNATURE: Final = ("typer.run", "tyro.cli", "jsonargparse.CLI", "jsonargparse.auto_cli")
"""They make an option ``--its-name`` of each parameter with a default; jsonargparse keeps ``_``."""


def absl_flag(python: Python, node: ast.Attribute, around: Around | None, depth: int) -> Value:
    """``FLAGS.out`` and ``OUT.value`` of absl: what the flag gives, else the default of its ``DEFINE_string``.

    ``UNKNOWN`` where it is nothing of the kind, or is defined twice (absl-py 2.5.1, flags/_defines.py).
    """
    made = _definition(python, node, around)
    if made is None or not has_line(python):
        return UNKNOWN
    kind = python.source.dotted(made.func)[0].rpartition(".")[2]
    name = made.args[0].value if made.args and isinstance(made.args[0], ast.Constant) else ""
    default = made.args[1] if len(made.args) > 1 else next((o.value for o in made.keywords if o.arg == "default"), None)
    if not isinstance(name, str) or default is None:
        return UNKNOWN
    if kind == "DEFINE_bool" or kind == "DEFINE_boolean":
        given = [flag for flag in (f"--{name}", f"--no{name}") if flag_value(python, (flag,), False) is not None]
        if given:
            return UNKNOWN if len(given) > 1 else given[0] == f"--{name}"
        return python.follow(default, None, depth)
    word = flag_value(python, (f"--{name}", f"-{name}"), True)
    if word is None:
        return python.follow(default, None, depth)
    return word if kind in ("DEFINE_string", "DEFINE_enum") else as_number(word) or UNKNOWN


def _definition(python: Python, node: ast.Attribute, around: Around | None) -> ast.Call | None:
    """The ``flags.DEFINE_...`` that makes ``FLAGS.NAME`` or that ``NAME.value`` is of."""
    if node.attr == "value":
        for origin, _ in python.origins(node.value, around)[:1]:
            if isinstance(origin, ast.Call) and python.source.dotted(origin.func)[0].startswith("absl.flags.DEFINE_"):
                return origin
        return None
    base = python.source.dotted(node.value)[0]
    if base != "absl.flags.FLAGS":
        origins = python.origins(node.value, around)
        if len(origins) != 1 or python.source.dotted(origins[0][0])[0] != "absl.flags.FLAGS":
            return None
    found = [
        call.node
        for call in python.source.calls
        if call.name.startswith("absl.flags.DEFINE_") and _first(call.node) == node.attr
    ]
    return found[0] if len(found) == 1 else None


def _first(call: ast.Call) -> object:
    return call.args[0].value if call.args and isinstance(call.args[0], ast.Constant) else None


def _parameter(option: ast.Call) -> str:
    """The name of the parameter that an option fills."""
    names = [one.value for one in option.args if isinstance(one, ast.Constant) and isinstance(one.value, str)]
    bare = [one for one in names if not one.startswith("-")]
    long = [one for one in names if one.startswith("--")]
    chosen = (bare or long or names or [""])[0]
    return chosen.partition("/")[0].lstrip("-").replace("-", "_").lower()


def _option(python: Python, option: ast.Call, depth: int) -> Value:
    flags = [one.value for one in option.args if isinstance(one, ast.Constant) and isinstance(one.value, str)]
    keywords = {str(one.arg): one.value for one in option.keywords}
    if not has_line(python) or "envvar" in keywords or "multiple" in keywords or "callback" in keywords:
        return UNKNOWN
    if any("/" in one for one in flags):
        return UNKNOWN
    is_flag = "is_flag" in keywords and python.follow(keywords["is_flag"], None, depth) is True
    given = flag_value(python, [one for one in flags if one.startswith("-")], not is_flag)
    if given is not None:
        return True if is_flag else _as_default(given, keywords.get("type"), python)
    if "default" in keywords:
        return python.follow(keywords["default"], None, depth)
    return False if is_flag else UNKNOWN


def _as_default(word: Value, kind: ast.expr | None, python: Python) -> Value:
    name = python.source.dotted(kind)[0] if kind is not None else "str"
    number = as_number(word) if name in ("int", "float") else None
    if name in ("int", "float"):
        return UNKNOWN if number is None else int(number) if name == "int" else number
    return word


def _typer(python: Python, function: ast.FunctionDef | ast.AsyncFunctionDef, name: str, depth: int) -> Value:
    default = default_of(function, name)
    if default is None or not has_line(python):
        return UNKNOWN
    if isinstance(default, ast.Call):
        if python.source.dotted(default.func)[0] != "typer.Option" or not default.args or len(default.args) > 1:
            return UNKNOWN
        default = default.args[0]
    value = python.follow(default, None, depth)
    given = flag_value(python, (f"--{name.replace('_', '-')}", f"--{name}"), True)
    return value if given is None else given if isinstance(value, str) else UNKNOWN


def _fired(python: Python, function: ast.FunctionDef | ast.AsyncFunctionDef, name: str, depth: int) -> Value:
    if not has_line(python):
        return UNKNOWN
    words = python.arguments or ()
    given = flag_value(python, (f"--{name}", f"--{name.replace('_', '-')}"), True)
    default = default_of(function, name)
    if given is not None:
        return given if isinstance(given, str) and given[:1] in "/.~" else UNKNOWN
    if default is None or (words and not str(words[0]).startswith("-")):
        return UNKNOWN
    return python.follow(default, None, depth)


def _runs(python: Python, runner: str, name: str) -> bool:
    return any(
        len(call.node.args) >= 1 and isinstance(call.node.args[0], ast.Name) and call.node.args[0].id == name
        for call in python.calls(runner)
    )
