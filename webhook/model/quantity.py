"""Kubernetes quantities (``500m``, ``1.5Gi``, ``1e3``) as exact whole numbers."""

from __future__ import annotations

from typing import Final

from webhook.model.caches import kept_texts

BILLION: Final = 1_000_000_000
_SUFFIXES: Final[dict[str, int]] = {
    "n": 1,
    "u": 10**3,
    "m": 10**6,
    "": BILLION,
    "k": BILLION * 10**3,
    "M": BILLION * 10**6,
    "G": BILLION * 10**9,
    "T": BILLION * 10**12,
    "P": BILLION * 10**15,
    "E": BILLION * 10**18,
    "Ki": BILLION * 2**10,
    "Mi": BILLION * 2**20,
    "Gi": BILLION * 2**30,
    "Ti": BILLION * 2**40,
    "Pi": BILLION * 2**50,
    "Ei": BILLION * 2**60,
}


def parse_quantity(value: object) -> int | None:
    """A quantity in billionths, rounded up as the API server does (nothing finer than ``1n``); None if it is not one.

    A number is taken as its own decimal text, which is what YAML's ``cpu: 2`` becomes.
    """
    if isinstance(value, str):
        text = value
    elif isinstance(value, int | float) and not isinstance(value, bool):
        text = str(value)
    else:
        return None
    return _parse(text) if len(text) <= 64 else None


@kept_texts(384)  # the same few amounts stand in every pod
def _parse(text: str) -> int | None:
    digits = text.rstrip("numkKMGTPEi")
    suffix = text[len(digits) :]
    exponent = 0
    if not suffix:
        mantissa, mark, power = digits.replace("E", "e").partition("e")
        if mark:
            sign = power[:1] in ("+", "-")
            if not power[sign:].isdecimal() or len(power) > 4:
                return None
            digits, exponent = mantissa, int(power)
    factor = _SUFFIXES.get(suffix)
    if factor is None:
        return None
    negative = digits[:1] == "-"
    whole, _, part = digits[1 if digits[:1] in ("+", "-") else 0 :].partition(".")
    if not (whole + part).isdecimal() or not (whole + part).isascii():
        return None
    number = int(whole + part) * factor
    shift = exponent - len(part)
    result: int = number * 10**shift if shift >= 0 else -(-number // 10**-shift)
    return -result if negative else result
