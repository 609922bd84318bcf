"""What a call of a function of the same text amounts to, and the items of a dictionary that are set one by one."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Final

from webhook.programs.bound import is_sure
from webhook.programs.constructs import Around, Binding, Call, Function
from webhook.programs.literals import kind_of_name
from webhook.programs.values import UNKNOWN, Unknown, Value, join

if TYPE_CHECKING:
    from webhook.programs.python import Python

_CALLS: Final = 400
"""Calls of the text's own functions whose results are worked out."""
_PLAIN: Final = frozenset(("staticmethod", "classmethod", "property", "cache"))
"""Decorators that leave what a function returns."""


def function_of(python: Python, node: ast.Call, around: Around | None) -> ast.FunctionDef | None:
    """The function of this text that a call is of, by its bare name or on ``self``, where it has its name alone."""
    if isinstance(node.func, ast.Name):
        name = node.func.id
    elif isinstance(node.func, ast.Attribute) and isinstance(node.func.value, ast.Name):
        name = node.func.attr if node.func.value.id in ("self", "cls") else ""
    else:
        return None
    found = python.source.functions.get(name)
    if not isinstance(found, ast.FunctionDef) or name in python.source.repeated or name in python.source.imports:
        return None
    return found if all(isinstance(one, ast.Name) and one.id in _PLAIN for one in found.decorator_list) else None


def returned(python: Python, node: ast.Call, function: ast.FunctionDef, around: Around | None, depth: int) -> Value:
    """What a function of this text returns for what it is called with."""
    given = python.source.returns.get(id(function), [])
    python.called += 1
    unknown = Unknown(kind_of_name(function.name.lower()) if function.name.startswith("get_") else "", "")
    if not 0 < len(given) <= 8 or python.called > _CALLS or len(python.frames) > 3:
        return unknown
    if any(active == id(function) for active, _ in python.frames):
        return unknown
    frame = _frame(python, node, function, around, depth)
    if frame is None:
        return unknown
    kept, python.values = python.values, {}
    python.frames.append((id(function), frame))
    try:
        values: list[Value] = []
        for value, where in given:
            sure = is_sure(python, where, set(), depth)
            if sure is not False:
                values.append(python.follow(value, where, depth))
            if sure:
                break
    finally:
        python.frames.pop()
        python.values = kept
    if values and all(type(one) is type(values[0]) and one == values[0] for one in values):
        return values[0]
    # ``return 0`` without a group of processes, ``return dist.get_rank()`` in one.
    ranks = [one for one in values if isinstance(one, Unknown) and one.kind in ("rank", "local-rank")]
    return ranks[0] if ranks else unknown


def _frame(
    python: Python, node: ast.Call, function: ast.FunctionDef, around: Around | None, depth: int
) -> dict[str, Value] | None:
    """Parameter -> what a call gives for it; None where the call may give what is not seen."""
    names = [one.arg for one in (*function.args.posonlyargs, *function.args.args)]
    if isinstance(node.func, ast.Attribute):
        names = names[1:]
    open_ended = any(one.arg is None for one in node.keywords) or any(isinstance(one, ast.Starred) for one in node.args)
    if open_ended or len(node.args) > len(names):
        return None
    out = {name: python.follow(one, around, depth) for name, one in zip(names, node.args, strict=False)}
    out.update((str(one.arg), python.follow(one.value, around, depth)) for one in node.keywords)
    for name in (*names, *(one.arg for one in function.args.kwonlyargs)):
        if name not in out:
            default = default_of(function, name)
            out[name] = UNKNOWN if default is None else python.follow(default, None, depth)
    return out


def incremented(python: Python, node: ast.Call, around: Around | None, depth: int) -> Value:
    """YOLO's ``increment_path(path, exist_ok=False)``: ``exp``, ``exp2``, ``exp3``, whichever is not there yet."""
    given = [one.value for one in node.keywords if one.arg == "exist_ok"] or node.args[1:2]
    stays = python.follow(given[0], around, depth) if given else False
    path = python.follow(node.args[0], around, depth)
    if stays is True:
        return path
    return join((path, Unknown("fresh", python.text(node)))) if stays is False else UNKNOWN


def of_writer(python: Python, node: ast.expr, around: Around | None, depth: int) -> Value:
    """Where TensorBoard's ``SummaryWriter`` writes; without a directory ``runs/``, the time and the host below it
    (torch 2.13.0, utils/tensorboard/writer.py). None where a node is none."""
    if isinstance(node, ast.Attribute) and node.attr == "file_writer":
        node = node.value
    origins = python.origins(node, around)
    made = origins[0][0] if len(origins) == 1 else None
    if not isinstance(made, ast.Call) or python.source.dotted(made.func)[0].rpartition(".")[2] != "SummaryWriter":
        return None
    given = [one.value for one in made.keywords if one.arg in ("log_dir", "logdir")] or made.args[:1]
    if given:
        return python.follow(given[0], origins[0][1], depth)
    return join(("runs/", Unknown("fresh", python.text(node))))


def is_listed(python: Python, node: ast.expr) -> bool:
    """``glob("runs/*")``, ``os.listdir("runs")``, ``list(Path("runs").iterdir())``: what a directory holds now."""
    if not isinstance(node, ast.Call):
        return False
    name, _ = python.source.dotted(node.func)
    if name in ("list", "sorted") and len(node.args) == 1:
        return is_listed(python, node.args[0])
    return name in ("glob.glob", "os.listdir") or name.endswith((".glob", ".iterdir"))


def of_vars(python: Python, node: ast.expr, key: str, around: Around | None, depth: int) -> Value:
    """``args["out"]`` where ``args = vars(parser.parse_args())``; None where it is nothing of the kind."""
    if "vars" not in python.source.by_attr or not isinstance(key, str):
        return None
    for origin, where in python.origins(node, around)[:1]:
        if isinstance(origin, ast.Call) and isinstance(origin.func, ast.Name) and origin.func.id == "vars":
            from webhook.programs.arguments import argument_of

            if len(origin.args) == 1 and key.isidentifier():
                return argument_of(python, ast.Attribute(origin.args[0], key, ast.Load()), where, depth + 1)
    return None


def keyed(python: Python, node: ast.expr, key: str, around: Around | None, depth: int) -> tuple[Value] | None:
    """What ``settings["key"] = value`` gives, which may be None; None itself where the text has no such line."""
    found = keys_set(python).get((python.source.dotted(node)[0], key))
    if found is None:
        return None
    return (python.follow(found[0].value, found[0].around, depth) if len(found) == 1 else UNKNOWN,)


def keys_set(python: Python) -> dict[tuple[str, str], list[Binding]]:
    """(name, key) -> the assignments to that item of a dictionary."""
    out: dict[tuple[str, str], list[Binding]] | None = python.memo.get("keys")
    if out is None:
        out = python.memo["keys"] = {}
        for statement, around in python.source.statements:
            if not isinstance(statement, ast.Assign):
                continue
            for target in statement.targets:
                if isinstance(target, ast.Subscript) and isinstance(target.slice, ast.Constant):
                    key = (python.source.dotted(target.value)[0], str(target.slice.value))
                    out.setdefault(key, []).append(Binding(statement.lineno, statement.value, "=", around))
    return out


def is_changed(python: Python, node: ast.expr) -> bool:
    """Whether the text changes a dictionary's items after it was made."""
    name = python.source.dotted(node)[0]
    return any(one == name for one, _ in keys_set(python)) or any(
        python.source.dotted(call.receiver)[0] == name
        for call in python.methods("update", "setdefault", "pop")
        if call.receiver is not None
    )


def calls_below(python: Python, owner: ast.ClassDef) -> list[Call]:
    """The calls by which classes that are derived from one make it: ``super().__init__(model, config)`` in their own
    ``__init__``, else the calls of them."""
    derived: dict[str, list[ast.ClassDef]] | None = python.memo.get("derived")
    if derived is None:
        derived = python.memo["derived"] = {}
        for made in python.source.classes.values():
            for base in made.bases[:_BASES]:
                derived.setdefault(python.source.dotted(base)[0].rpartition(".")[2], []).append(made)
    out: list[Call] = []
    for made in derived.get(owner.name, ())[:_BASES]:
        if any(isinstance(one, ast.FunctionDef) and one.name == "__init__" for one in made.body):
            out += [call for call in _supers(python).get(id(made), ()) if call.receiver is not None]
        else:
            out += python.source.calls_of(made.name, method=False)
    return out


_BASES: Final = 8
"""Bases and derived classes of one class that are followed."""


def _supers(python: Python) -> dict[int, list[Call]]:
    """Class -> the ``super().__init__(...)`` in its methods."""
    known: dict[int, list[Call]] | None = python.memo.get("supers")
    if known is None:
        known = python.memo["supers"] = {}
        for call in python.methods("__init__"):
            scope = call.around.scope if call.around is not None else None
            made = call.receiver
            if scope is None or scope.outer is None or not isinstance(made, ast.Call):
                continue
            if isinstance(made.func, ast.Name) and made.func.id == "super":
                known.setdefault(id(scope.outer.node), []).append(call)
    return known


def default_of(function: Function, name: str) -> ast.expr | None:
    """The default of a parameter; None where it has none."""
    positional = [*function.args.posonlyargs, *function.args.args]
    for argument, value in zip(reversed(positional), reversed(function.args.defaults), strict=False):
        if argument.arg == name:
            return value
    for argument, keyword_default in zip(function.args.kwonlyargs, function.args.kw_defaults, strict=True):
        if argument.arg == name:
            return keyword_default
    return None
