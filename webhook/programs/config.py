"""JSON, YAML and TOML that a program is given, in its shell text or beside it: flat keys, values, lines."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from msgspec import Struct

from webhook.model.script import Place
from webhook.programs.literals import constant
from webhook.programs.values import UNKNOWN, Value

MOST = 2000
"""Keys and maps of one file that are looked at."""
_ALIASES = 24
"""Aliases of a file that merges maps: each level multiplies, and the parser builds them all."""


class Config(Struct):
    """One configuration file. ``values`` is flat: ``{"optimizer.lr": 0.1, "stages": (1, 2)}``.

    ``expands``: it stands in a here-document without quotes, so the shell puts variables in.
    """

    file: str
    place: Place
    text: str
    values: dict[str, Value]
    expands: bool = False
    defaults: tuple[tuple[str, str], ...] = ()
    """Hydra's list of other files: group and option; ``("", "_self_")`` stands for this one."""

    def at(self, key: str) -> Place:
        """The line that gives the key its value (the first that has its last part before a colon)."""
        last = key.rpartition(".")[2]
        for number, line in enumerate(self.text.split("\n")):
            bare = line.strip().lstrip("{- ").replace('"', "").replace("'", "")
            if bare.startswith(last) and bare[len(last) :].lstrip()[:1] in (":", "="):
                return Place(self.place.field, self.place.index, max(self.place.line, 1) + number)
        return self.place

    def holds(self, place: Place) -> bool:
        """Whether a line is one of this file's."""
        first = max(self.place.line, 1)
        same = (self.place.field, self.place.index) == (place.field, place.index)
        return same and first <= place.line < first + self.text.count("\n") + 1

    def line(self, key: str) -> str:
        at = self.at(key)
        lines = self.text.split("\n")
        return lines[at.line - max(self.place.line, 1)].strip()


def read_config(file: str, text: str, place: Place) -> Config | None:
    """A file by its extension; None where it is no JSON, YAML or TOML or cannot be parsed."""
    data: Any
    if file.endswith((".yaml", ".yml")):
        import yaml

        if "<<" in text and text.count("*") > _ALIASES:
            return None
        loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
        try:
            data = yaml.load(text, Loader=loader)  # noqa: S506 - one of the two safe loaders
        except (yaml.YAMLError, ValueError, RecursionError, MemoryError, TypeError):
            return None
    elif file.endswith(".json"):
        import json

        try:
            data = json.loads(text)
        except (ValueError, RecursionError, MemoryError):
            return None
    elif file.endswith(".toml"):
        import tomllib

        try:
            data = tomllib.loads(text)
        except (ValueError, RecursionError, MemoryError):
            return None
    else:
        return None
    if not isinstance(data, dict):
        return None
    return Config(file, place, text, _flat(data), False, tuple(_defaults(data.get("defaults"))))


def _defaults(listed: Any) -> Iterator[tuple[str, str]]:
    for entry in listed[:MOST] if isinstance(listed, list) else ():
        if isinstance(entry, str):
            yield "", entry
        elif isinstance(entry, dict) and len(entry) == 1:
            ((group, option),) = entry.items()
            if isinstance(group, str) and isinstance(option, str) and not group.startswith(("override ", "optional ")):
                yield group.partition("@")[0].strip("/"), option


def _flat(data: dict[Any, Any]) -> dict[str, Value]:
    out: dict[str, Value] = {}
    pending: list[tuple[str, Any, int]] = [("", data, 0)]
    rounds = 0
    while pending and rounds < MOST:
        rounds += 1
        path, value, depth = pending.pop()
        if isinstance(value, dict):
            if depth < 20 and len(path) < 1024:
                pending += [
                    (f"{path}.{key}" if path else str(key), below, depth + 1)
                    for key, below in list(value.items())[:MOST]
                ]
        elif isinstance(value, list):
            out[path] = tuple(constant(one) for one in value[:256])
        else:
            out[path] = constant(value) if value is None or isinstance(value, str | int | float) else UNKNOWN
    return out
