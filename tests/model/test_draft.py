"""Edits of a draft: the patch says the same as the object, and the original stays as it was."""

from __future__ import annotations

import copy
import json
from typing import Any

import jsonpatch
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from webhook.model.draft import Draft, pointer


def applied(original: Any, draft: Draft) -> Any:
    """The original after the patch, by an implementation of RFC 6902 that is not ours."""
    return jsonpatch.apply_patch(copy.deepcopy(original), json.loads(json.dumps(draft.patch)))


def test_set_makes_missing_parents() -> None:
    original: dict[str, Any] = {"spec": {"runtimeRef": {"name": "r"}}}
    draft = Draft(original)

    draft.set(("spec", "trainer", "image"), "i")

    assert draft.object == {"spec": {"runtimeRef": {"name": "r"}, "trainer": {"image": "i"}}}
    assert draft.patch == [{"op": "add", "path": "/spec/trainer", "value": {"image": "i"}}]
    assert applied(original, draft) == draft.object
    assert original == {"spec": {"runtimeRef": {"name": "r"}}}


def test_append_makes_null_parents_and_the_list() -> None:
    original: dict[str, Any] = {"spec": {"trainer": None}}
    draft = Draft(original)

    draft.insert(("spec", "trainer", "env"), {"name": "A"})
    draft.insert(("spec", "trainer", "env"), {"name": "B"})
    draft.insert(("spec", "trainer", "env"), {"name": "0"}, 0)

    assert [item["name"] for item in draft.get(("spec", "trainer", "env"))] == ["0", "A", "B"]
    assert draft.patch[0] == {"op": "replace", "path": "/spec/trainer", "value": {"env": [{"name": "A"}]}}
    assert applied(original, draft) == draft.object
    assert original == {"spec": {"trainer": None}}


def test_index_past_the_end_appends() -> None:
    draft = Draft({"env": [1]})
    draft.insert(("env",), 2, 7)
    assert draft.object == {"env": [1, 2]}
    assert draft.patch == [{"op": "add", "path": "/env/-", "value": 2}]


def test_set_replaces_an_item() -> None:
    original = {"env": [{"name": "A"}, {"name": "B"}]}
    draft = Draft(original)
    draft.set(("env", 1), {"name": "C"})
    draft.set(("env", 0, "value"), "x")
    assert draft.object == {"env": [{"name": "A", "value": "x"}, {"name": "C"}]}
    assert applied(original, draft) == draft.object
    assert original == {"env": [{"name": "A"}, {"name": "B"}]}


def test_keys_are_escaped() -> None:
    original: dict[str, Any] = {"metadata": {"labels": {"a/b~c": "1"}}}
    draft = Draft(original)
    draft.set(("metadata", "labels", "a/b~c"), "2")
    draft.set(("metadata", "labels", "~1/"), "3")
    assert draft.patch[0] == {"op": "replace", "path": "/metadata/labels/a~1b~0c", "value": "2"}
    assert pointer(("~1/", 0)) == "/~01~1/0"
    assert applied(original, draft) == draft.object


def test_what_is_not_touched_is_shared() -> None:
    original: dict[str, Any] = {"spec": {"a": {"deep": [1]}}, "status": {"big": [2]}}
    draft = Draft(original)
    draft.set(("spec", "b"), 1)
    assert draft.object["status"] is original["status"]
    assert draft.object["spec"]["a"] is original["spec"]["a"]


def test_a_value_given_is_not_changed_by_later_edits() -> None:
    value: dict[str, Any] = {"env": []}
    draft = Draft({})
    draft.set(("trainer",), value)
    draft.insert(("trainer", "env"), 1)
    assert value == {"env": []}
    assert draft.patch[0]["value"] == {"env": []}
    assert draft.object == {"trainer": {"env": [1]}}


def test_undo_forgets_edits_since_the_mark() -> None:
    original: dict[str, Any] = {"env": []}
    draft = Draft(original)
    draft.insert(("env",), 1)
    mark = draft.mark()
    draft.insert(("env",), 2)
    draft.set(("other",), 3)

    draft.undo(mark)

    assert draft.object == {"env": [1]}
    assert len(draft.patch) == 1
    draft.insert(("env",), 4)
    assert applied(original, draft) == draft.object == {"env": [1, 4]}


@pytest.mark.parametrize("path", [("text", "x"), ("list", "x"), ("text", "x", "y"), ("map", 0, "x")])
def test_a_path_through_another_type_is_a_type_error(path: tuple[str | int, ...]) -> None:
    original: dict[str, Any] = {"text": "t", "list": [1], "map": {}}
    draft = Draft(original)
    with pytest.raises(TypeError):
        draft.set(path, 1)
    assert draft.object == original
    assert draft.patch == []


@pytest.mark.parametrize("path", [("list", 1), ("list", 3, "x"), ("none", 0), ("none", 0, "x")])
def test_an_item_that_is_not_there_is_an_index_error(path: tuple[str | int, ...]) -> None:
    draft = Draft({"list": [{}]})
    with pytest.raises(IndexError):
        draft.set(path, 1)
    assert draft.patch == []


def test_inserting_into_no_list_is_a_type_error() -> None:
    draft = Draft({"map": {}})
    with pytest.raises(TypeError):
        draft.insert(("map",), 1)
    assert draft.patch == []


KEYS = st.sampled_from(["a", "b", "~", "a/b", ""])
TREES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda child: st.lists(child, max_size=3) | st.dictionaries(KEYS, child, max_size=3),
    max_leaves=12,
)
PATHS = st.lists(KEYS | st.integers(0, 3), min_size=1, max_size=4)
EDITS = st.lists(st.tuples(st.sampled_from(["set", "insert", "undo"]), PATHS, TREES, st.none() | st.integers(0, 4)))


@settings(max_examples=100, deadline=None)
@given(st.dictionaries(KEYS, TREES, max_size=4), EDITS)
def test_the_patch_leads_to_the_draft(original: dict[str, Any], edits: list[tuple[str, Any, Any, int | None]]) -> None:
    before = copy.deepcopy(original)
    draft = Draft(original)
    mark = draft.mark()
    for kind, path, value, index in edits:
        given_value = copy.deepcopy(value)
        try:
            if kind == "set":
                draft.set(path, value)
            elif kind == "insert":
                draft.insert(path, value, index)
            elif len(draft.patch) % 2:
                draft.undo(mark)
            else:
                mark = draft.mark()
        except (TypeError, IndexError):
            pass
        assert value == given_value
        assert applied(original, draft) == draft.object
    assert original == before
