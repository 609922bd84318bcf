"""``cfg.A.B`` of yacs: the default of the text, then the file that is merged, the words of the command line, and what
the program sets by itself.

Read in yacs 0.1.8 (``config.py``): ``merge_from_file`` takes YAML (a ``_BASE_`` is fvcore's and names a further file),
``merge_from_list`` pairs of a key with dots and its value, ``clone`` copies.
"""

from __future__ import annotations

import ast
from typing import Final

from webhook.programs.bound import holds, is_sure
from webhook.programs.constructs import Around, Binding
from webhook.programs.python import Python
from webhook.programs.values import UNKNOWN, Value

_INSIDE: Final = 6
_SETS: Final = 8
"""Assignments to one key that are asked about."""
_MERGES: Final = 4
_UNTOLD: Final = ("merge_from_other_cfg", "setattr")


def node_value(python: Python, node: ast.Attribute, around: Around | None, depth: int) -> Value:
    """The value of a key; ``UNKNOWN`` where ``cfg`` is no such settings or something may give it another."""
    keys: list[str] = []
    here: ast.expr = node
    while isinstance(here, ast.Attribute) and len(keys) < _INSIDE:
        keys.insert(0, here.attr)
        here = here.value
        if isinstance(here, ast.Name | ast.Attribute) and _is_node(python, here, around):
            return _of_key(python, node, ".".join(keys), depth)
    return UNKNOWN


def _is_node(python: Python, node: ast.expr, around: Around | None, steps: int = 0) -> bool:
    for origin, where in python.origins(node, around)[:3]:
        if not isinstance(origin, ast.Call):
            return False
        if python.source.dotted(origin.func)[0].rpartition(".")[2] in ("CfgNode", "CN"):
            continue
        copied = isinstance(origin.func, ast.Attribute) and origin.func.attr == "clone"
        if not copied or steps > 2 or not _is_node(python, origin.func.value, where, steps + 1):  # type: ignore[attr-defined]
            return False
    return True


def _of_key(python: Python, node: ast.Attribute, path: str, depth: int) -> Value:
    if any(True for _ in python.named(*_UNTOLD)):
        return UNKNOWN
    found = _sets(python).get(path, [])
    inside = next((one for one in found if holds(one.value, node)), None)
    others = [one for one in found if inside is None or (one.around is None or one.line < inside.line)]
    others = [one for one in others if one is not inside]
    own = [one for one in others if one.around is None]
    late = [
        one for one in others if one.around is not None and is_sure(python, one.around, set(), depth + 1) is not False
    ]
    if len(found) > _SETS or len(own) != 1:
        return UNKNOWN
    if late:
        last = late[-1]
        scopes = {id(one.around.scope) for one in late}
        if len(scopes) > 1 or last.value is None or not is_sure(python, last.around, set(), depth + 1):
            return UNKNOWN
        return python.follow(last.value, last.around, depth + 1)
    told = _of_words(python, path)
    if told is None:
        told = _of_files(python, path, depth)
    if told is not _ABSENT and told is not None:
        return told
    return python.follow(own[0].value, None, depth + 1) if own[0].value is not None else UNKNOWN


_ABSENT: Final = object()


def _sets(python: Python) -> dict[str, list[Binding]]:
    """Key with its dots -> what gives it a value, under whatever name the settings have."""
    known: dict[str, list[Binding]] | None = python.memo.get("keys of nodes")
    if known is None:
        known = python.memo["keys of nodes"] = {}
        for (_, name), bound in python.source.bindings.items():
            root, _, rest = name.partition(".")
            if rest and root == "self":
                rest = rest.partition(".")[2]
            if rest:
                known.setdefault(rest, []).extend(bound)
        for bound in known.values():
            bound.sort(key=lambda one: one.line)
    return known


def _of_words(python: Python, path: str) -> Value:
    """What the command line gives a key; None where it gives nothing."""
    words = python.arguments
    if words is None or any(not isinstance(word, str) for word in words):
        return UNKNOWN
    told: Value = None
    for at, word in enumerate(words):
        if word == path and at + 1 < len(words):
            told = words[at + 1]
        elif word.startswith(f"{path}="):
            told = word.partition("=")[2]
    return told


def _of_files(python: Python, path: str, depth: int) -> Value:
    """What the merged files give a key; ``_ABSENT`` where none has it."""
    told: Value = _ABSENT
    calls = list(python.methods("merge_from_file"))
    for call in calls if len(calls) <= _MERGES else ():
        sure = is_sure(python, call.around, set(), depth + 1)
        if sure is False:
            continue
        named = python.follow(call.node.args[0], call.around, depth + 1) if sure and call.node.args else UNKNOWN
        config = python.config(named) if isinstance(named, str) and named else None
        if config is None or any(key.split(".")[0] in ("_BASE_", "BASE") for key in config.values):
            return UNKNOWN
        told = config.values.get(path, told)
    return told if len(calls) <= _MERGES else UNKNOWN
