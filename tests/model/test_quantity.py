"""Quantities as the API server reads them."""

from __future__ import annotations

import pytest

from webhook.model.quantity import BILLION, parse_quantity


@pytest.mark.parametrize(
    ("text", "billionths"),
    [
        ("1", BILLION),
        (2, 2 * BILLION),
        (0.5, BILLION // 2),
        ("500m", BILLION // 2),
        ("1.5Gi", BILLION * 3 * 2**29),
        ("1Ki", BILLION * 1024),
        ("1k", BILLION * 1000),
        ("1e3", BILLION * 1000),
        ("1E3", BILLION * 1000),
        ("1E", BILLION * 10**18),
        ("-1", -BILLION),
        ("+.5", BILLION // 2),
        ("5.", 5 * BILLION),
        ("1.0000000001", BILLION + 1),  # nothing is finer than a billionth: rounded up
        ("0", 0),
    ],
)
def test_a_quantity(text: object, billionths: int) -> None:
    assert parse_quantity(text) == billionths


@pytest.mark.parametrize("text", ["", "abc", "1e", "--1", "1 ", "1_0", "3K", "1Kib", "٣", "9" * 65, None, True, [], {}])
def test_no_quantity(text: object) -> None:
    assert parse_quantity(text) is None
