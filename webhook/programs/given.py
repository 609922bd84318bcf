"""Values of configuration files that a program is given: ``OmegaConf.load``, ``yaml.safe_load``, ``json.load``, Hydra.

Read in hydra-core 1.3.2 (``hydra/main.py``, ``hydra/_internal/defaults_list.py``): ``config_path`` is relative to the
program's own file, ``defaults`` takes ``<group>/<option>.yaml`` below it under the key ``<group>``, in order, and the
file itself stands where ``_self_`` does, first where nothing says so; ``key=value`` words of the command line win.
"""

from __future__ import annotations

import ast
import re
from typing import Final

from webhook.programs.config import Config
from webhook.programs.constructs import Around
from webhook.programs.python import Python
from webhook.programs.values import UNKNOWN, Unknown, Value, join

_LOADS: Final = frozenset(("load", "safe_load", "full_load", "load_config", "read_config", "parse_file"))
_OF: Final = ("yaml", "json", "toml", "tomllib", "tomli", "omegaconf", "ruamel", "hjson", "orjson")
_INSIDE: Final = 8
"""Keys inside keys that are followed."""
_HOLE: Final = re.compile(r"\$\{([^${}]*)\}")
_GROUPS: Final = 32
_FLAGS: Final = {
    "--config-path": "config_path",
    "-cp": "config_path",
    "--config-name": "config_name",
    "-cn": "config_name",
}


def given_value(python: Python, node: ast.expr, around: Around | None, depth: int) -> Value:
    """The value of ``cfg.a.b`` or ``cfg["a"]["b"]`` where ``cfg`` is a file's content; ``UNKNOWN`` where it is not."""
    keys: list[str] = []
    here = node
    while len(keys) < _INSIDE:
        if isinstance(here, ast.Attribute):
            keys.append(here.attr)
            here = here.value
        elif (
            isinstance(here, ast.Subscript)
            and isinstance(here.slice, ast.Constant)
            and isinstance(here.slice.value, str)
        ):
            keys.append(here.slice.value)
            here = here.value
        else:
            break
    if not keys or not isinstance(here, ast.Name):
        return UNKNOWN
    config = _config(python, here, around, depth)
    if config is None:
        return UNKNOWN
    return _settled(python, config, ".".join(reversed(keys)), 0)


def _config(python: Python, name: ast.Name, around: Around | None, depth: int) -> Config | None:
    """The file whose content a name stands for."""
    bound = python.bindings(name, around)
    if len(bound) != 1:
        return None
    one = bound[0]
    if one.how == "parameter":
        return hydra_config(python, one.around.node if one.around is not None else None)
    call = one.value
    if not isinstance(call, ast.Call) or not call.args:
        return None
    called = python.source.dotted(call.func)[0]
    if called.rpartition(".")[2] not in _LOADS or called.partition(".")[0] not in _OF:
        return None
    path = _path_of(python, call.args[0], one.around, depth)
    return python.config(path) if isinstance(path, str) else None


def _path_of(python: Python, node: ast.expr, around: Around | None, depth: int) -> Value:
    """The path behind ``"a.yaml"``, ``open("a.yaml")``, or a name that ``with open(...) as`` gives."""
    for _ in range(3):
        if isinstance(node, ast.Name):
            bound = python.bindings(node, around)
            if len(bound) == 1 and isinstance(bound[0].value, ast.Call):
                node, around = bound[0].value, bound[0].around
                continue
        if isinstance(node, ast.Call) and node.args and python.source.dotted(node.func)[0] in ("open", "io.open"):
            node = node.args[0]
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
