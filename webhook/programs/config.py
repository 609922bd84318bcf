"""JSON and YAML that the program's shell text writes to a file: flat keys, values, lines."""

from __future__ import annotations

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
    """A file by its extension; None where it is neither JSON nor YAML or cannot be parsed."""
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
    else:
        return None
    return Config(file, place, text, _flat(data)) if isinstance(data, dict) else None


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
