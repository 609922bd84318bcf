"""Values of configuration files that a program is given: ``OmegaConf.load``, ``yaml.safe_load``, ``json.load``, Hydra.

Read in hydra-core 1.3.2 (``hydra/main.py``, ``hydra/_internal/defaults_list.py``): ``config_path`` is relative to the
program's own file, ``defaults`` takes ``<group>/<option>.yaml`` below it under the key ``<group>``, in order, and the
file itself stands where ``_self_`` does, first where nothing says so; ``key=value`` words of the command line win.
"""

from __future__ import annotations

import ast
import re
from typing import Final

from msgspec import Struct

from webhook.programs.arguments import given_otherwise
from webhook.programs.bound import is_sure
from webhook.programs.config import MOST, Config
from webhook.programs.constructs import Around, Binding
from webhook.programs.python import Python
from webhook.programs.results import default_of, keys_set
from webhook.programs.values import UNKNOWN, Unknown, Value, join

_LOADS: Final = frozenset(("load", "loads", "safe_load", "full_load", "load_config", "read_config", "parse_file"))
_OF: Final = ("yaml", "json", "toml", "tomllib", "tomli", "omegaconf", "ruamel", "hjson", "orjson")
_ROOTS: Final = frozenset((*_OF, "hydra"))
_WRAPS: Final = frozenset(
    (
        *(
            "EasyDict",
            "edict",
            "AttrDict",
            "ConfigDict",
            "Munch",
            "munchify",
            "Box",
            "DotDict",
            "dotdict",
            "AttributeDict",
        ),
        *(
            "SimpleNamespace",
            "Namespace",
            "dict",
            "OrderedDict",
            "create",
            "DictConfig",
            "deepcopy",
            "copy",
            "to_container",
        ),
    )
)
"""Calls that make an object with the same keys out of a dictionary, by their last names."""
_SETTINGS: Final = ("cfg", "conf", "opt", "param", "setting", "hp", "arg")
"""Parts of the names of what holds settings."""
_INSIDE: Final = 8
"""Keys inside keys that are followed."""
_STEPS: Final = 12
_ORIGINS: Final = 3
_HOLE: Final = re.compile(r"\$\{([^${}]*)\}")
_GROUPS: Final = 32
_FLAGS: Final = {
    "--config-path": "config_path",
    "-cp": "config_path",
    "--config-name": "config_name",
    "-cn": "config_name",
}


def given_value(python: Python, node: ast.expr, around: Around | None, depth: int) -> Value:
    """The value of ``cfg.a.b``, ``cfg["a"]["b"]`` or ``cfg.get("a")`` where ``cfg`` is a file's content.

    ``UNKNOWN`` where it is not, and where the text gives such a key a value of its own.
    """
    if not _reads_files(python):
        return UNKNOWN
    keys: list[str] = []
    default: ast.expr | None = None
    here = node
    while len(keys) < _INSIDE:
        step = _key_of(here)
        if step is None:
            break
        key, here, default = step[0], step[1], step[2] if not keys else default
        keys.insert(0, key)
        if not isinstance(here, ast.Name | ast.Attribute):
            continue
        found = _content(python, here, around, depth, 0)
        if found is not None:
            return _of_key(python, found, keys, default, around, depth)
    return UNKNOWN


def spread_value(python: Python, function: ast.FunctionDef, name: str, depth: int) -> Value:
    """The value of a parameter of the only call ``main(**OmegaConf.load(path))``; ``UNKNOWN`` where it is none."""
    calls = python.source.calls_of(function.name, method=False)
    if len(calls) != 1 or not _reads_files(python) or function.name in python.source.repeated:
        return UNKNOWN
    given = [one.value for one in calls[0].node.keywords if one.arg is None]
    if len(given) != 1 or calls[0].node.args or any(one.arg == name for one in calls[0].node.keywords):
        return UNKNOWN
    found = _either(python, given[0], calls[0].around, depth, 0)
    if found is None:
        return UNKNOWN
    return _of_key(python, found, [name], default_of(function, name), None, depth)


def _reads_files(python: Python) -> bool:
    known: bool | None = python.memo.get("reads files")
    if known is None:
        known = python.memo["reads files"] = not _ROOTS.isdisjoint(python.source.modules)
    return known


def _key_of(node: ast.expr) -> tuple[str, ast.expr, ast.expr | None] | None:
    """The key that a node takes, what it takes it out of, and what it is where there is none."""
    if isinstance(node, ast.Attribute):
        return node.attr, node.value, None
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant) and isinstance(node.slice.value, str):
        return node.slice.value, node.value, None
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "get" and node.args:
        first = node.args[0]
        if isinstance(first, ast.Constant) and isinstance(first.value, str) and not node.keywords:
            return first.value, node.func.value, node.args[1] if len(node.args) > 1 else ast.Constant(None)
    return None


class _Content(Struct):
    """A file's content, or the part of it below a key."""

    config: Config
    prefix: tuple[str, ...] = ()


def _of_key(
    python: Python, found: _Content, keys: list[str], default: ast.expr | None, around: Around | None, depth: int
) -> Value:
    if keys[-1] in _changed(python):
        return UNKNOWN
    path = ".".join((*found.prefix, *keys))
    value = _settled(python, found.config, path, 0)
    absent = value is UNKNOWN and path not in found.config.values and len(found.config.values) < MOST
    if not absent or default is None or any(key.startswith(f"{path}.") for key in found.config.values):
        return value
    return python.follow(default, around, depth)


def _changed(python: Python) -> frozenset[str]:
    """Keys and names that the text itself gives a value; of any name where it updates its settings by others."""
    known: frozenset[str] | _Any | None = python.memo.get("changed keys")
    if known is None:
        names = {key for _, key in keys_set(python)} | given_otherwise(python)
        every = any(
            any(word in python.source.source(call.receiver).lower() for word in _SETTINGS)
            for call in python.methods("update", "merge_with", "merge_update")
            if call.receiver is not None
        )
        known = python.memo["changed keys"] = _Any() if every else frozenset(names)
    return known


class _Any(frozenset[str]):
    """Every name."""

    def __contains__(self, name: object) -> bool:
        return True


def _content(python: Python, node: ast.expr, around: Around | None, depth: int, steps: int) -> _Content | None:
    """The file whose content, or a part of it, an expression stands for; None where several may be meant."""
    if steps > _STEPS:
        return None
    bound = python.bindings(node, around)
    if len(bound) > 1:
        # ``if args.config: cfg = load(...)``, ``elif args.resume: ...``
        bound = [one for one in bound if is_sure(python, one.around, set(), depth + 1) is not False][:2]
    if len(bound) == 1:
        one = bound[0]
        if one.how == "unpacked" and one.whole is not None:
            return _part(python, one, depth, steps)
        if one.how == "parameter" and isinstance(node, ast.Name):
            return _of_parameter(python, one, node.id, depth, steps)
        if one.value is not None:
            return _either(python, one.value, one.around, depth, steps + 1)
    return _agreed(python, python.origins(node, around), node, depth, steps)


def _agreed(
    python: Python, origins: list[tuple[ast.expr, Around | None]], node: ast.expr | None, depth: int, steps: int
) -> _Content | None:
    """The content that all origins are."""
    found: _Content | None = None
    for origin, where in origins if len(origins) <= _ORIGINS else ():
        one = _either(python, origin, where, depth, steps + 1) if origin is not node else None
        if one is None or (found is not None and (one.config is not found.config or one.prefix != found.prefix)):
            return None
        found = one
    return found


def _of_parameter(python: Python, one: Binding, name: str, depth: int, steps: int) -> _Content | None:
    function = one.around.node if one.around is not None else None
    config = hydra_config(python, function)
    if config is not None:
        return _Content(config)
    if getattr(function, "decorator_list", None):
        return _handed(python, function, name, depth, steps)
    return _agreed(python, python.given(one, name), None, depth, steps)


def _handed(python: Python, function: object, name: str, depth: int, steps: int) -> _Content | None:
    """What the only call of a function gives it, whatever a decorator of the text puts around it: the settings."""
    if not isinstance(function, ast.FunctionDef) or function.name in python.source.repeated:
        return None
    calls = python.source.calls_of(function.name, method=False)
    names = [one.arg for one in (*function.args.posonlyargs, *function.args.args)]
    if len(calls) != 1 or name not in names:
        return None
    given = calls[0].argument(name, names.index(name))
    return None if given is None else _either(python, given, calls[0].around, depth, steps + 1)


def _part(python: Python, bound: Binding, depth: int, steps: int) -> _Content | None:
    """``data, model = configs``: the one of a tuple."""
    origins = python.origins(bound.whole, bound.around)
    if len(origins) != 1 or not isinstance(origins[0][0], ast.Tuple | ast.List):
        return None
    items = origins[0][0].elts
    if bound.index >= len(items):
        return None
    return _either(python, items[bound.index], origins[0][1], depth, steps + 1)


def _either(python: Python, node: ast.expr, around: Around | None, depth: int, steps: int) -> _Content | None:
    if isinstance(node, ast.Name) or (isinstance(node, ast.Attribute) and python.bindings(node, around)):
        return _content(python, node, around, depth, steps)
    return _made(python, node, around, depth, steps)


def _made(python: Python, node: ast.expr, around: Around | None, depth: int, steps: int) -> _Content | None:
    """The content that an expression makes: a load, what wraps one, or a key of one."""
    if steps > _STEPS:
        return None
    step = _key_of(node)
    if step is not None and step[1] is not node:
        outer = _either(python, step[1], around, depth, steps + 1)
        return (
            None if outer is None or step[0] in _changed(python) else _Content(outer.config, (*outer.prefix, step[0]))
        )
    if not isinstance(node, ast.Call):
        return None
    if isinstance(node.func, ast.Name) and node.func.id in python.source.functions:
        origins = python.origins(node, around)
        return _agreed(python, origins, node, depth, steps)
    called = python.source.dotted(node.func)[0]
    last = called.rpartition(".")[2]
    if last in _LOADS and node.args and (called.partition(".")[0] in _OF or "YAML(" in python.text(node.func)):
        path = _path_of(python, node.args[0], around, depth)
        config = python.config(path) if isinstance(path, str) else None
        return None if config is None else _Content(config)
    inner = [*node.args, *(one.value for one in node.keywords if one.arg is None)]
    if last in _WRAPS and len(inner) == 1 and not any(one.arg for one in node.keywords):
        return _either(python, inner[0], around, depth, steps + 1)
    return None


def _path_of(python: Python, node: ast.expr, around: Around | None, depth: int) -> Value:
    """The path behind ``"a.yaml"``, ``open("a.yaml").read()``, ``Path("a.yaml").read_text()``, or a name that ``with
    open(...) as`` gives."""
    for _ in range(4):
        if isinstance(node, ast.Name):
            bound = python.bindings(node, around)
            if len(bound) == 1 and isinstance(bound[0].value, ast.Call):
                node, around = bound[0].value, bound[0].around
                continue
        if isinstance(node, ast.Call):
            if node.args and python.source.dotted(node.func)[0] in ("open", "io.open"):
                node = node.args[0]
                continue
            if isinstance(node.func, ast.Attribute) and node.func.attr in ("read", "read_text", "open"):
                node = node.func.value
                continue
        break
    return python.follow(node, around, depth)


def hydra_config(python: Python, function: object) -> Config | None:
    """The file of ``@hydra.main(config_path=..., config_name=...)``, with its groups, for a function that has it."""
    if not isinstance(function, ast.FunctionDef):
        return None
    for decorator in function.decorator_list:
        if isinstance(decorator, ast.Call) and python.source.dotted(decorator.func)[0] == "hydra.main":
            memo: dict[int, Config | None] = python.memo.setdefault("hydra", {})
            if id(decorator) not in memo:
                memo[id(decorator)] = _of_decorator(python, decorator)
            return memo[id(decorator)]
    return None


def _of_decorator(python: Python, decorator: ast.Call) -> Config | None:
    given: dict[str, Value] = {"config_path": None, "config_name": None}
    for position, name in enumerate(("config_path", "config_name")):
        node = next((one.value for one in decorator.keywords if one.arg == name), None)
        node = decorator.args[position] if node is None and position < len(decorator.args) else node
        if node is not None:
            given[name] = python.value(node, None)
    words = list(python.arguments or ())
    for at, word in enumerate(words):
        if not isinstance(word, str):
            return None
        flag, mark, value = word.partition("=")
        field = {
            "--config-path": "config_path",
            "-cp": "config_path",
            "--config-name": "config_name",
            "-cn": "config_name",
        }
        if flag in field:
            given[field[flag]] = value if mark else words[at + 1] if at + 1 < len(words) else UNKNOWN
    folder, name = given["config_path"], given["config_name"]
    if not isinstance(name, str) or not (folder is None or isinstance(folder, str)):
        return None
    own = python.place.field if python.place.in_file else python.file
    root = own.rpartition("/")[0]
    where = folder if folder and folder.startswith("/") else "/".join(part for part in (root, folder) if part)
    chosen = {word.partition("=")[0]: word.partition("=")[2] for word in words if isinstance(word, str) and "=" in word}
    return _composed(python, where, name, chosen)


def _composed(python: Python, folder: str, name: str, chosen: dict[str, str]) -> Config | None:
    main = python.config(f"{folder}/{name.removesuffix('.yaml')}.yaml" if folder else f"{name}.yaml")
    if main is None:
        return None
    values: dict[str, Value] = {}
    listed = main.defaults
    own = False
    for entry in listed[:_GROUPS]:
        if entry == ("", "_self_"):
            values.update(main.values)
            own = True
            continue
        group, option = entry
        option = chosen.get(group, option) if group else option
        part = python.config("/".join(one for one in (folder, group, f"{option.removesuffix('.yaml')}.yaml") if one))
        prefix = f"{group.replace('/', '.')}." if group else ""
        for key, value in part.values.items() if part is not None else ():
            values[prefix + key] = value
    if not own:
        values = {**values, **main.values} if not listed else {**main.values, **values}
    return Config(main.file, main.place, main.text, values)


def _settled(python: Python, config: Config, key: str, depth: int) -> Value:
    """The value of a key, words of the command line before it, and what it refers to put in."""
    for word in python.arguments or ():
        if not isinstance(word, str):
            return UNKNOWN
        name, mark, value = word.partition("=")
        if mark and name.lstrip("+") == key:
            return value
    if key not in config.values:
        return UNKNOWN
    value = config.values[key]
    if not isinstance(value, str) or "${" not in value or depth >= _INSIDE:
        return value if not isinstance(value, str) or "${" not in value else UNKNOWN
    parts: list[Value] = []
    at = 0
    for hole in _HOLE.finditer(value):
        parts += [value[at : hole.start()], _referred(python, config, hole[1], depth + 1)]
        at = hole.end()
    parts.append(value[at:])
    if "${" in value[at:]:
        return UNKNOWN
    only = [part for part in parts if part != ""]
    return only[0] if len(only) == 1 else join(only)


def _referred(python: Python, config: Config, text: str, depth: int) -> Value:
    resolver, mark, rest = text.partition(":")
    if not mark:
        return _settled(python, config, text.strip(), depth)
    if resolver == "now":
        return Unknown("fresh", f"${{{text}}}")
    if resolver in ("oc.env", "env"):
        # Without the variable here it may still come from the image, so the default behind a comma does not count.
        return python.env.get(rest.partition(",")[0].strip(), UNKNOWN)
    return Unknown("", f"${{{text}}}")
