"""Text to paste: values as YAML, without a YAML library (the core does not load one)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

_SAFE: Final = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./$()<>")
_SECRET: Final = ("KEY", "TOKEN", "SECRET", "PASSW", "CREDENTIAL", "AUTH")
_WORDS: Final = frozenset(("", "null", "true", "false", "yes", "no", "on", "off", "y", "n", "~"))


def to_yaml(value: Any, indent: int = 0) -> str:
    """JSON-like data as block YAML without a final newline; ``indent`` is the number of spaces before each line."""
    return "\n".join(" " * indent + line for line in _lines(value))


def below(text: str, *fields: str) -> str:
    """``text`` as the value of ``fields``, the outermost first; of a field that ends with ``[]`` it is an entry."""
    lines = text.split("\n")
    for field in reversed(fields):
        first = "- " if field.endswith("[]") else "  "
        lines = [f"{field.removesuffix('[]')}:", first + lines[0], *("  " + line for line in lines[1:])]
    return "\n".join(lines)


def shown_value(name: str, value: object) -> str:
    """A variable's value for a text that may end up in a log: a placeholder where it is long or may be a secret."""
    text = "" if value is None else str(value)
    secret = any(word in name.upper() for word in _SECRET)
    return "<as it is>" if text and (secret or len(text) > 80) else text


def _lines(value: Any) -> list[str]:
    lines: list[str] = []
    if isinstance(value, Mapping) and value:
        for key, item in value.items():
            if isinstance(item, Mapping | list | tuple) and item:
                lines.append(f"{_scalar(key)}:")
                pad = "  " if isinstance(item, Mapping) else ""
                lines += [pad + line for line in _lines(item)]
            else:
                lines.append(f"{_scalar(key)}: {_scalar(item)}")
    elif isinstance(value, Sequence) and not isinstance(value, str) and value:
        for item in value:
            first, *rest = _lines(item)
            lines.append(f"- {first}")
            lines += ["  " + line for line in rest]
    else:
        lines.append(_scalar(value))
    return lines


def _scalar(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return str(value)
    if isinstance(value, str):
        if value[:1] == "<" and value[-1:] == ">" and "\n" not in value:
            return value  # a placeholder of ours that the user replaces
        if value.lower() not in _WORDS and not value[0].isdigit() and value[0] not in ".$" and _plain(value):
            return value
        return '"' + "".join(_ESCAPES.get(letter) or _escape(letter) for letter in value) + '"'
    return "{}" if isinstance(value, Mapping) else "[]"


def _plain(value: str) -> bool:
    return _SAFE.issuperset(value.replace("-", "a")) and value[0] != "-"


_ESCAPES: Final = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\t": "\\t", "\r": "\\r"}


def _escape(letter: str) -> str:
    if letter.isprintable():
        return letter
    code = ord(letter)
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
