"""Sizes as manifests write them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from webhook.model.size import format_at_least, format_bytes, parse_bytes


def test_a_size_that_is_asked_for_is_rounded_up() -> None:
    need = 2 * 80 * 2**30 * 1000 // 7  # two checkpoints of a trillion parameters
    assert (format_bytes(need), format_at_least(need)) == ("22.3Ti", "22.4Ti")
    assert [format_at_least(number) for number in (0, 1023, 1024, 160 * 2**30)] == ["0", "1023", "1Ki", "160Gi"]


@given(st.integers(0, 2**63 - 1))
def test_what_is_written_holds_what_is_needed(number: int) -> None:
    written = parse_bytes(format_at_least(number))
    assert written is not None
    assert number <= written <= max(number * 1.1, number + 1)
