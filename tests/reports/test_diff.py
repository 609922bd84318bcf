"""The unified diff: both sides can be read back from it."""

from __future__ import annotations

from typing import Any

import yaml
from hypothesis import given
from hypothesis import strategies as st

from webhook.reports.diff import to_yaml, unified

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text()
    | st.sampled_from(
        [
            "yes",
            "1:30",
            "2024-01-01",
            "a\nb\n",
            "a\n\n  b",
            " lead",
            "tail ",
            "- x",
            "k: v",
            "x #y",
            "#",
            "~",
            "=",
            "<<",
            "a\tb\nc",
        ]
    )
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner, max_size=4),
    max_leaves=20,
)
OBJECTS = st.dictionaries(st.text(max_size=6), VALUES, min_size=1, max_size=5)


@given(OBJECTS)
def test_yaml_reads_back(value: dict[str, Any]) -> None:
    assert yaml.safe_load(to_yaml(value)) == value


@given(OBJECTS, OBJECTS)
def test_both_sides_can_be_read_from_the_diff(before: dict[str, Any], after: dict[str, Any]) -> None:
    lines = unified(before, after, "a", "b", context=1_000_000)
    if before == after:
        assert lines == []
    elif "\\t" not in repr((before, after)):  # a tab is shown as two spaces
        assert yaml.safe_load("\n".join(line[1:] for line in lines[3:] if line[0] in " -") + "\n") == before
        assert yaml.safe_load("\n".join(line[1:] for line in lines[3:] if line[0] in " +") + "\n") == after


def test_added_entry_before_and_after() -> None:
    before = {"env": [{"name": "A", "value": "1"}], "args": ["run\nfast\n"]}
    after = {"env": [{"name": "Z", "value": "0"}, {"name": "A", "value": "1"}], "args": ["run\nfast\n"], "x": {"z": []}}
    assert unified(before, after, "a", "b") == [
        "--- a",
        "+++ b",
        "@@ -1,7 +1,11 @@",
        " env:",
        "+- name: Z",
        '+  value: "0"',
        " - name: A",
        '   value: "1"',
        " args:",
        " - |",
        "   run",
        "   fast",
        "+x:",
        "+  z: []",
    ]


def test_far_changes_are_hunks_of_their_own() -> None:
    before = {f"k{index}": index for index in range(30)}
    after = {**before, "k0": "new", "k29": "new"}
    lines = unified(before, after, "a", "b")
    assert [line for line in lines if line.startswith("@@")] == ["@@ -1,4 +1,4 @@", "@@ -27,4 +27,4 @@"]
    assert "-k29: 29" in lines
    assert "+k29: new" in lines
