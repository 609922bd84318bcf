"""What a settings object of the text holds: class attributes, defaults of dataclasses, namespaces, dictionaries.

Read in omegaconf 2.4.0 (``omegaconf.py``): ``create`` takes a dictionary, a list or YAML, ``structured`` a dataclass or
an object of one, ``merge`` lets what comes later win, ``from_cli`` takes ``key=value`` words of the command line.
"""

from __future__ import annotations

import ast
from typing import Final

from webhook.programs.arguments import given_otherwise, word_of
from webhook.programs.python import Around, Python
from webhook.programs.values import UNKNOWN, Unknown, Value

Found = tuple[ast.expr, Around | None]

_NAMESPACES: Final = frozenset(
    (
        *("SimpleNamespace", "Namespace", "EasyDict", "edict", "AttrDict", "ConfigDict", "Munch", "munchify", "Box"),
        *("DictConfig", "create", "structured", "merge", "dict", "DotDict", "dotdict", "AttributeDict"),
    )
)
"""Calls that make an object out of what they are given, by their last names."""
_FIELDS: Final = frozenset(("field", "Field", "attrib", "ib"))
"""``dataclasses.field``, ``pydantic.Field``, ``attr.ib``."""
_ABOVE: Final = 4
"""Base classes that are followed, and objects inside objects."""
_LONGEST: Final = 256
"""Statements of a class that are looked at."""


def field_of(python: Python, node: ast.Attribute, around: Around | None, depth: int) -> Value:
    """The value of ``x.NAME`` where the text makes ``x`` with its fields; ``UNKNOWN`` where it is not told.

    A field that the text gives a value anywhere else, under whatever name, is not told.
    """
    if "absl" in python.source.modules:
        from webhook.programs.commanded import absl_flag

        told = absl_flag(python, node, around, depth)
        if not isinstance(told, Unknown):
            return told
    if not _has_records(python) or node.attr.startswith("__"):
        return UNKNOWN
    found = _field(python, node, around, 0)
    if found is None:
        return UNKNOWN
    return python.follow(found[0], found[1], depth)


def _has_records(python: Python) -> bool:
    memo: bool | None = python.memo.get("records")
    if memo is None:
        memo = bool(python.source.classes) or not _NAMESPACES.isdisjoint(python.source.by_attr)
        python.memo["records"] = memo
    return memo


def _field(python: Python, node: ast.Attribute, around: Around | None, depth: int) -> Found | None:
    name = node.attr
    if depth > _ABOVE or name in given_otherwise(python):
        return None
    base = node.value
    if isinstance(base, ast.Name):
        if base.id in ("self", "cls"):
            owner = _class_around(around)
            return of_class(python, owner, name, 0) if owner is not None else None
        if base.id in python.source.classes and not python.bindings(base, around):
            return of_class(python, python.source.classes[base.id], name, 0)
    found: Found | None = None
    for origin, where in python.origins(base, around)[:3]:
        one = _of_object(python, origin, where, name, depth)
        if one is None or (found is not None and ast.dump(one[0]) != ast.dump(found[0])):
            return None
        found = one
    return found


def _class_around(around: Around | None) -> ast.ClassDef | None:
    """The class whose method a node stands in."""
    scope = around.scope if around is not None else None
    owner = scope.outer if scope is not None else None
    return owner.node if owner is not None and owner.kind == "class" else None


def _of_object(python: Python, node: ast.expr, around: Around | None, name: str, depth: int) -> Found | None:
    """The field of what an expression makes."""
    if isinstance(node, ast.Attribute):
        inner = _field(python, node, around, depth + 1)
        return _of_object(python, inner[0], inner[1], name, depth + 1) if inner is not None and depth < _ABOVE else None
    if isinstance(node, ast.Dict):
        return _of_dictionary(node, around, name)
    if isinstance(node, ast.Name):
        made = python.source.classes.get(node.id)
        return of_class(python, made, name, 0) if made is not None else None
    if not isinstance(node, ast.Call):
        return None
    if isinstance(node.func, ast.Name) and node.func.id in python.source.classes:
        return _of_instance(python, node, python.source.classes[node.func.id], around, name)
    last = python.source.dotted(node.func)[0].rpartition(".")[2]
    if last == "field":
        return _of_factory(python, node, around, name, depth)
    return _of_namespace(python, node, around, name, depth, last) if last in _NAMESPACES else None


def _of_namespace(
    python: Python, node: ast.Call, around: Around | None, name: str, depth: int, last: str
) -> Found | None:
    """``SimpleNamespace(out="/a")``, ``OmegaConf.create({...})``, ``OmegaConf.merge(a, b)``: what comes later wins."""
    for keyword in reversed(node.keywords):
        if keyword.arg == name:
            return keyword.value, around
        if keyword.arg is None:
            return _inside(python, keyword.value, around, name, depth)
    for argument in reversed(node.args):
        called = python.source.dotted(argument.func)[0] if isinstance(argument, ast.Call) else ""
        if called.endswith("OmegaConf.from_cli"):
            word = word_of(python, name)
            if word is None:
                return None
            if word:
                return ast.Constant(word), None
            continue
        inside = _inside(python, argument, around, name, depth)
        if inside is not None or last != "merge":
            return inside
        return None
    return None


def _inside(python: Python, node: ast.expr, around: Around | None, name: str, depth: int) -> Found | None:
    origins = python.origins(node, around)
    if len(origins) != 1 or depth > _ABOVE:
        return None
    return _of_object(python, origins[0][0], origins[0][1], name, depth + 1)


def _of_dictionary(node: ast.Dict, around: Around | None, name: str) -> Found | None:
    found: Found | None = None
    for key, value in zip(node.keys, node.values, strict=True):
        if key is None:
            return None
        if isinstance(key, ast.Constant) and key.value == name:
            found = value, around
    return found


def _of_instance(python: Python, call: ast.Call, made: ast.ClassDef, around: Around | None, name: str) -> Found | None:
    """A field of ``Config(out="/a")``: what it is called with, what ``__init__`` sets, or the class's own."""
    if any(one.arg is None for one in call.keywords) or any(isinstance(one, ast.Starred) for one in call.args):
        return None
    own = [one for one in python.source.bindings.get((0, f"self.{name}"), ()) if _belongs(one.around, made)]
    if own:
        return (own[0].value, own[0].around) if len(own) == 1 and own[0].value is not None else None
    if any(isinstance(one, ast.FunctionDef) and one.name == "__init__" for one in made.body[:_LONGEST]):
        return of_class(python, made, name, 0)
    for keyword in call.keywords:
        if keyword.arg == name:
            return keyword.value, around
    fields = [
        one.target.id
        for one in made.body[:_LONGEST]
        if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name)
    ]
    if name in fields and fields.index(name) < len(call.args):
        return call.args[fields.index(name)], around
    return of_class(python, made, name, 0)


def _belongs(around: Around | None, made: ast.ClassDef) -> bool:
    return _class_around(around) is made


def of_class(python: Python, made: ast.ClassDef, name: str, above: int) -> Found | None:
    """What the body of a class, or of one that it is derived from, gives a name."""
    if above > _ABOVE or made.name in python.source.repeated:
        return None
    if made.keywords or (made.decorator_list and any(_is_register(python, one) for one in made.decorator_list)):
        return None
    here = Around("class", made, None)
    found: ast.expr | None = None
    for statement in made.body[:_LONGEST]:
        targets = statement.targets if isinstance(statement, ast.Assign) else []
        if isinstance(statement, ast.AnnAssign):
            targets = [statement.target]
        if any(isinstance(one, ast.Name) and one.id == name for one in targets):
            value = getattr(statement, "value", None)
            found = value if value is not None else None
            if found is None:
                return None
    if found is not None:
        return _default(python, found, here)
    for base in made.bases:
        derived = python.source.classes.get(base.id) if isinstance(base, ast.Name) else None
        inherited = of_class(python, derived, name, above + 1) if derived is not None and derived is not made else None
        if inherited is not None:
            return inherited
    return None


def _is_register(python: Python, node: ast.expr) -> bool:
    """A decorator that makes the class something else than a record (``hydra.main``, ``app.command``)."""
    name = python.source.dotted(node.func if isinstance(node, ast.Call) else node)[0]
    return name.rpartition(".")[2] in ("main", "command", "group")


def _default(python: Python, node: ast.expr, around: Around) -> Found | None:
    """``field(default="/a")``, ``Field("/a")``, ``field(default_factory=lambda: "/a")``."""
    if not isinstance(node, ast.Call):
        return node, around
    last = python.source.dotted(node.func)[0].rpartition(".")[2]
    if last not in _FIELDS:
        return node, around
    for keyword in node.keywords:
        if keyword.arg == "default":
            return keyword.value, around
        if keyword.arg == "default_factory":
            return (keyword.value.body, around) if isinstance(keyword.value, ast.Lambda) else (node, around)
    return (node.args[0], around) if last == "Field" and node.args else None


def _of_factory(python: Python, node: ast.Call, around: Around | None, name: str, depth: int) -> Found | None:
    """``train: Train = field(default_factory=Train)``: a field of that class."""
    for keyword in node.keywords:
        if keyword.arg == "default_factory" and isinstance(keyword.value, ast.Name):
            made = python.source.classes.get(keyword.value.id)
            return of_class(python, made, name, depth + 1) if made is not None else None
    return None
