"""The tests that docs/decisions.md names in its table are there."""

from __future__ import annotations

import re

from tests.shape.test_labels import ROOT

PAGE = ROOT / "docs" / "decisions.md"


def test_what_the_table_names_is_there() -> None:
    named = re.findall(r"`(tests/[^`:]+|docs/[^`:]+)(?:::(\w+))?`", PAGE.read_text(encoding="utf-8"))
    assert len(named) > 40
    missing = [
        f"{path}::{test}"
        for path, test in named
        if not (ROOT / path).exists() or (test and f"def {test}(" not in (ROOT / path).read_text(encoding="utf-8"))
    ]
    assert not missing, missing
