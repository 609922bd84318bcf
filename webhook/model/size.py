"""Sizes in bytes and counts of model parameters, as manifests and annotations write them."""

from __future__ import annotations

from typing import Final

from webhook.model.quantity import BILLION, parse_quantity

_UNITS: Final = (("Ei", 2**60), ("Pi", 2**50), ("Ti", 2**40), ("Gi", 2**30), ("Mi", 2**20), ("Ki", 2**10))
_COUNTS: Final = {"K": 10**3, "M": 10**6, "B": 10**9, "T": 10**12}


def parse_bytes(value: object) -> int | None:
    """A quantity (``50Gi``, ``1.5e9``, a plain number) in bytes, rounded up; None where it is none."""
    billionths = parse_quantity(value)
    return None if billionths is None else -(-billionths // BILLION)


def parse_count(value: object) -> int | None:
    """A number of parameters (``7B``, ``350M``, ``1.5b``, a plain number), rounded down; None where it is none."""
    text = str(value).strip()
    factor = _COUNTS.get(text[-1:].upper(), 1)
    billionths = parse_quantity(text[:-1] if factor > 1 else text)
    return None if billionths is None else billionths * factor // BILLION


def format_bytes(number: int) -> str:
    """A size as a manifest writes it, to one decimal of the largest binary unit that it fills: ``80Gi``."""
    for suffix, unit in _UNITS:
        if number >= unit:
            return f"{round(number / unit, 1):g}{suffix}"
    return str(number)


def format_at_least(number: int) -> str:
    """The same for a size that is asked for: rounded up, so that what is written holds it."""
    for suffix, unit in _UNITS:
        if number >= unit:
            return f"{-(-number * 10 // unit) / 10:g}{suffix}"
    return str(number)
