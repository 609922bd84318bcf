from __future__ import annotations

import pytest

from webhook.effective.expansion import LONGEST, Value, expand

KNOWN = {"A": Value("1"), "B": Value("<metadata.name>", ("metadata.name",)), "": Value("empty")}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain", "plain"),
        ("$(A)", "1"),
        ("$(A)$(A)", "11"),
        ("x$(A)y", "x1y"),
        ("$$(A)", "$(A)"),
        ("$$$(A)", "$1"),
        ("$(A", "$(A"),
        ("$A ${A}", "$A ${A}"),
        ("$", "$"),
        ("a$", "a$"),
        ("$()", "empty"),
        ("$($(A))", "$($(A))"),
    ],
)
def test_the_kubelets_grammar(text: str, expected: str) -> None:
    assert expand(text, KNOWN, False).text == expected


def test_what_is_missing_stays_and_is_told_once() -> None:
    value = expand("$(X)/$(X)/$(B)", KNOWN, False)
    assert (value.text, value.missing, value.per_pod) == ("$(X)/$(X)/<metadata.name>", ("X",), ("metadata.name",))


def test_with_other_sources_a_reference_is_unknown() -> None:
    assert expand("$(X)", KNOWN, True).unknown
    assert not expand("$(A)", KNOWN, True).unknown
    assert expand("$(API_SERVICE_HOST)", KNOWN, False).unknown


def test_long_texts_are_given_up() -> None:
    """Either of these takes for ever where the cost grows faster than the text."""
    assert expand("$(" * 2_000_000, KNOWN, False).unknown
    assert expand("$(" * (LONGEST // 2 - 1), KNOWN, False).text
