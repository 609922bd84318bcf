"""``args.NAME`` of ``argparse``: what the command line gives, else the default that the program states.

And ``training_args.NAME`` of Hugging Face's ``HfArgumentParser``, as far as the command line gives it.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from typing import Final

from msgspec import Struct

from webhook.programs.python import Around, Call, Python
from webhook.programs.values import UNKNOWN, Value

_TYPES: Final = {"int": int, "float": float}
_TEXTS: Final = frozenset(("str", "pathlib.Path", "os.path.expanduser", "os.path.abspath"))


def argument_of(python: Python, node: ast.Attribute, around: Around | None, depth: int) -> Value:
    """The value of ``args.NAME`` where ``args`` comes from ``parse_args()`` alone; ``UNKNOWN`` where it is not told.

    None of the words of the command line may be unknown: each could be the flag. An argument that the program sets by
    itself, or defines twice, is not told.
    """
    table = _arguments(python)
    made = table.get(node.attr) if table else None
    if made is None:
        return _field_of(python, node, around)
    if not _is_parsed(python, node.value, around):
        return UNKNOWN
    line = _line(python)
    if line is None:
        return UNKNOWN
    action = python.argument(made, "action", default="store")
    given = _given(line, flags_of(made), action == "store")
    if action in ("store_true", "store_false"):
        chosen = action == "store_true"
        return chosen if given is not None else _default(python, made, depth, not chosen)
    if action != "store" or made.argument("nargs") is not None:
        return UNKNOWN
    if given is None:
        required = python.argument(made, "required", default=False)
        return _default(python, made, depth, None) if required is False else UNKNOWN
    return _as_type(python, made, given)


_DATACLASSES: Final = ("parse_args_into_dataclasses", "parse_json_file", "parse_yaml_file", "parse_dict")
"""Methods of ``HfArgumentParser`` that give a tuple of objects (transformers 5.24.0, hf_argparser.py)."""


def _field_of(python: Python, node: ast.Attribute, around: Around | None) -> Value:
    """A text that a flag gives to a field of one of ``HfArgumentParser``'s objects.

    What is not given has a default that is not seen. A word that names a file may be a whole configuration.
    """
    if _DATACLASSES[0] not in python.source.by_attr or not isinstance(node.value, ast.Name):
        return UNKNOWN
    line = _line(python)
    given = _given(line, (f"--{node.attr}", f"--{node.attr.replace('_', '-')}"), True) if line else None
    if not given or "/" not in given or node.attr in _filled(python):
        return UNKNOWN
    if _names_file(python):
        return UNKNOWN
    bound = python.bindings(node.value, around)
    lines = {call.line for call in python.methods(*_DATACLASSES)}
    return given if bound and all(one.how == "unpacked" and one.line in lines for one in bound) else UNKNOWN


def _names_file(python: Python) -> bool:
    memo = python.memo.get("names a file")
    if memo is None:
        memo = any(str(word).endswith((".json", ".yaml", ".yml")) for word in python.arguments or ())
        python.memo["names a file"] = memo
    return bool(memo)


def flags_of(call: Call) -> tuple[str, ...]:
    """The flags that an ``add_argument`` defines, as written."""
    return tuple(one.value for one in call.node.args if isinstance(one, ast.Constant) and isinstance(one.value, str))


def destination_of(python: Python, call: Call) -> str | None:
    """The name of the attribute that an ``add_argument`` fills; None for a positional one, or one that is not told."""
    flags = flags_of(call)
    if not flags or len(flags) != len(call.node.args) or call.open_ended or not flags[0].startswith("-"):
        return None
    named = python.argument(call, "dest", default=None)
    if named is None:
        long = [flag for flag in flags if flag.startswith("--")]
        return (long or list(flags))[0].lstrip("-").replace("-", "_")
    return named if isinstance(named, str) else None


def filled_by_itself(python: Python) -> frozenset[str]:
    """Names of attributes that the program gives a value of its own: ``args.resume = ...``, ``set_defaults(...)``."""
    memo = python.memo.get("filled")
    if memo is None:
        filled = {
            name.rpartition(".")[2]
            for (_, name), bound in python.source.bindings.items()
            if "." in name and any(not _is_nothing(one.value) for one in bound)
        }
        filled.update(
            str(keyword.arg)
            for call in python.methods("set_defaults")
            for keyword in call.node.keywords
            if not _is_nothing(keyword.value)
        )
        memo = frozenset(filled)
        python.memo["filled"] = memo
    return memo


def _filled(python: Python) -> frozenset[str]:
    """Names of attributes that the program gives to anything but ``self``, which is not what was parsed.

    One that is made of itself (``args.out = join(args.out, stamp)``) was parsed before.
    """
    memo = python.memo.get("given to others")
    if memo is None:
        memo = frozenset(
            name.rpartition(".")[2]
            for (_, name), bound in python.source.bindings.items()
            if _is_elsewhere(name) and not (len(bound) == 1 and _is_made_of(python, bound[0].value, name))
        )
        python.memo["given to others"] = memo
    return memo


def _is_made_of(python: Python, node: ast.expr | None, name: str) -> bool:
    return node is not None and any(
        isinstance(part, ast.Attribute) and python.source.dotted(part)[0] == name for part in ast.walk(node)
    )


def _is_elsewhere(name: str) -> bool:
    root, _, rest = name.partition(".")
    return bool(rest) and (root != "self" or "." in rest)


def _arguments(python: Python) -> dict[str, Call]:
    memo = python.memo.get("arguments")
    if memo is None:
        memo = {}
        twice: set[str] = set()
        for call in python.methods("add_argument"):
            name = destination_of(python, call)
            if name is not None:
                twice.update((name,) if name in memo else ())
                memo[name] = call
        own = _filled(python) | twice
        memo = {name: call for name, call in memo.items() if name not in own}
        # Whatever is taken out of a file or a dictionary may be any of them.
        if any(True for _ in python.named("setattr", "Namespace", "set_defaults")) or _is_updated(python):
            memo = {}
        python.memo["arguments"] = memo
    return memo


def _is_updated(python: Python) -> bool:
    """``vars(args).update(...)``, ``args.__dict__.update(...)``."""
    return any(
        any(word in python.source.source(call.receiver) for word in ("vars(", "__dict__", "args", "opt"))
        for call in python.methods("update")
        if call.receiver is not None
    )


def _is_parsed(python: Python, node: ast.expr, around: Around | None) -> bool:
    if not isinstance(node, ast.Name | ast.Attribute):
        return False
    origins = python.origins(node, around)
    return bool(origins) and all(
        isinstance(one, ast.Call)
        and isinstance(one.func, ast.Attribute)
        and one.func.attr == "parse_args"
        and not one.args
        and not one.keywords
        for one, _ in origins
    )


class _Given(Struct):
    """A flag as the command line has it last: where, ``--flag=value`` or the word that follows."""

    at: int
    marked: bool
    value: str
    following: str | None


def _line(python: Python) -> dict[str, _Given] | None:
    """The flags of the command line; None where it is not known, or a word of it is not: each could be any flag."""
    memo: dict[str, _Given] | None = python.memo.get("line", _UNREAD)
    if memo is _UNREAD:
        words = python.arguments
        memo = None
        if words is not None and all(isinstance(word, str) for word in words):
            memo = {}
            for at, word in enumerate(words):
                name, mark, value = word.partition("=")
                memo[name] = _Given(at, mark != "", value, words[at + 1] if at + 1 < len(words) else None)
        python.memo["line"] = memo
    return memo


_UNREAD: Final[dict[str, _Given]] = {}


def _given(line: Mapping[str, _Given], flags: Sequence[str], takes: bool) -> str | None:
    """The last value of one of the flags; ``""`` for one that takes none; None where it is absent."""
    found = max((line[flag] for flag in flags if flag in line), key=lambda one: one.at, default=None)
    if found is None:
        return None
    if not takes:
        return ""
    return found.value if found.marked else found.following


def _default(python: Python, made: Call, depth: int, absent: Value) -> Value:
    node = made.argument("default")
    if node is None:
        return absent
    value = python.follow(node, made.around, depth)
    return _as_type(python, made, value) if isinstance(value, str) else value


def _as_type(python: Python, made: Call, word: str) -> Value:
    node = made.argument("type")
    name = "str" if node is None else python.source.dotted(node)[0]
    if name in _TEXTS:
        return word
    convert = _TYPES.get(name)
    if convert is None or len(word) > 32:
        return UNKNOWN
    try:
        return convert(word)
    except (ValueError, OverflowError):
        return UNKNOWN


def _is_nothing(node: object) -> bool:
    return isinstance(node, ast.Constant) and node.value in (None, False, "")
