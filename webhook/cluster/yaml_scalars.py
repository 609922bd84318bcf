"""Plain scalars and keys of YAML, read as kubectl reads them (source: ``resolve.go`` of go.yaml.in/yaml/v2)."""

from __future__ import annotations

from typing import Any, Final

TAG: Final = "tag:yaml.org,2002:"
MERGE: Final = TAG + "merge"
INFINITY: Final = float("inf")
_WORDS: Final[dict[str, Any]] = {
    **dict.fromkeys(("yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON"), True),
    **dict.fromkeys(("no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF"), False),
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys((".nan", ".NaN", ".NAN"), float("nan")),
    **dict.fromkeys((".inf", ".Inf", ".INF", "+.inf", "+.Inf", "+.INF"), INFINITY),
    **dict.fromkeys(("-.inf", "-.Inf", "-.INF"), -INFINITY),
}
ODD_KEYS: Final = frozenset((*_WORDS, "<<"))
NUMERIC: Final = frozenset("+-.0123456789")
PLAIN_HINT: Final = frozenset(("", *"+-.0123456789yYnNtTfFoO~"))
_DIGITS: Final = frozenset("0123456789")
INT64: Final = 2**63


def plain_value(text: str) -> Any:
    """A plain scalar's value by go-yaml's rules."""
    if text in _WORDS:
        return _WORDS[text]
    first = text[0]
    if first in _DIGITS or first in "+-":
        plain = text.replace("_", "")
        number = _integer(plain)
        if number is None and _is_float(plain):
            value = float(plain)
            return text if value in (INFINITY, -INFINITY) else value
        return text if number is None else number
    if first == "." and _is_float(text):
        value = float(text)
        return text if value == INFINITY else value
    return text


def _integer(plain: str) -> int | float | None:
    """Go's ``ParseInt(text, 0, 64)``, then ``ParseUint``; what JSON's readers in Kubernetes turn to a float is one."""
    digits = plain[1:] if plain[:1] in ("+", "-") else plain
    base = 10
    if len(digits) > 1 and digits[0] == "0":
        base = {"x": 16, "X": 16, "o": 8, "O": 8, "b": 2, "B": 2}.get(digits[1], 0)
        digits = digits[2:] if base else digits[1:]
        base = base or 8
    if not digits or not digits.isascii() or not digits.isalnum() or len(digits) > 64:
        return None
    try:
        number = int(digits, base)
    except ValueError:
        return None
    if plain[0] == "-":
        return -number if number <= INT64 else None
    if number < INT64:
        return number
    return float(number) if number < 2 * INT64 and plain[0] != "+" else None


def _is_float(text: str) -> bool:
    """go-yaml's pattern: ``[-+]?(\\.[0-9]+|[0-9]+(\\.[0-9]*)?)([eE][-+]?[0-9]+)?``."""
    body = text[1:] if text[:1] in ("+", "-") else text
    mantissa, mark, exponent = body.replace("E", "e", 1).partition("e")
    if mark:
        exponent = exponent[1:] if exponent[:1] in ("+", "-") else exponent
        if not exponent or not _DIGITS.issuperset(exponent):
            return False
    whole, point, fraction = mantissa.partition(".")
    if not _DIGITS.issuperset(whole) or not _DIGITS.issuperset(fraction):
        return False
    return bool(whole) or bool(point and fraction)


def whole_number(value: float) -> float | int:
    """Go writes a whole float below 1e21 without a point, so it is read back as an integer where 64 bits hold it."""
    return int(value) if value.is_integer() and -INT64 <= value < INT64 else value


def float_key(value: float) -> str:
    if value != value:
        return ".nan"
    if value in (INFINITY, -INFINITY):
        return ".inf" if value > 0 else "-.inf"
    return f"{value:g}"
