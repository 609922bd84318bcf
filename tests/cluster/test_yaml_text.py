"""YAML as kubectl reads it, with the line of every fault."""

from __future__ import annotations

import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from webhook.cluster.places import field_of, steps_of
from webhook.cluster.yaml_text import MAX_DEPTH, Piece, TextError, decode, parse, places, split


def read(text: str | bytes) -> list[object]:
    data = text.encode() if isinstance(text, str) else text
    return [value for piece in split(decode(data)) for _, value in parse(piece)]


def fault(text: str | bytes) -> TextError:
    with pytest.raises(TextError) as caught:
        read(text)
    return caught.value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        # booleans of YAML 1.1, and the two words that PyYAML writes without quotes
        ("yes", True),
        ("Off", False),
        ("TRUE", True),
        ("y", "y"),
        ("N", "N"),
        # no dates, no sexagesimals
        ("2024-01-02", "2024-01-02"),
        ("2024-01-02T03:04:05Z", "2024-01-02T03:04:05Z"),
        ("1:30", "1:30"),
        # Go's integers
        ("017", 15),
        ("0o17", 15),
        ("0x1F", 31),
        ("0b11", 3),
        ("-0b11", -3),
        ("1_000", 1000),
        ("+7", 7),
        ("08", 8),
        ("9223372036854775807", 2**63 - 1),
        ("-9223372036854775808", -(2**63)),
        ("9223372036854775808", float(2**63)),
        ("99999999999999999999", 1e20),
        ("0x", "0x"),
        ("1_", 1),
        ("_1", "_1"),
        ("-", [None]),
        # floats; whole ones arrive as integers
        ("1.5", 1.5),
        (".5", 0.5),
        ("+.5", 0.5),
        ("1e3", 1000),
        ("2.0", 2),
        ("1e400", "1e400"),
        (".e5", ".e5"),
        ("1e", "1e"),
        ("1.2.3", "1.2.3"),
        # nothing
        ("~", None),
        ("null", None),
        ("Null", None),
        ("'null'", "null"),
        # tags
        ("!!str 1", "1"),
        ("!!int '5'", 5),
        ("!!float 3", 3),
        ("!!binary aGk=", "hi"),
        ("!anything 5", "5"),
    ],
)
def test_scalars_are_read_as_kubectl_reads_them(text: str, value: object) -> None:
    (found,) = read(text)
    assert found == value
    assert type(found) is type(value)


def test_keys_become_strings() -> None:
    assert read("1: a\ntrue: b\n2.5: c\n'x y': d\noff: e") == [
        {"1": "a", "true": "b", "2.5": "c", "x y": "d", "false": "e"}
    ]


def test_merge_keys_give_way_to_what_stands_below_them_alone() -> None:
    assert read("base: &b {x: 1, y2: 1}\nbelow: {<<: *b, x: 2}\nabove: {x: 2, <<: *b}") == [
        {"base": {"x": 1, "y2": 1}, "below": {"x": 2, "y2": 1}, "above": {"x": 1, "y2": 1}}
    ]
    assert read("a: {<<: [{x: 1}, {x: 2, z: 3}]}") == [{"a": {"x": 1, "z": 3}}]


def test_documents_are_parted_as_kubectl_parts_them() -> None:
    assert read("---\na: 1\n--- # next\nb: 2\n---\n") == [{"a": 1}, {"b": 2}, None]
    assert read("%YAML 1.1\n---\na: 1\n---\nb: 2\n") == [{"a": 1}, {"b": 2}]
    assert read("a: |\n  ---\n  x\n") == [{"a": "---\nx\n"}]
    assert read("") == []
    assert read("# nothing\n") == []


def test_encodings() -> None:
    assert read(b"\xef\xbb\xbfa: 1\r\nb: 2\r\n") == [{"a": 1, "b": 2}]
    for encoding in ("utf-16", "utf-32"):
        assert read("a: é".encode(encoding)) == [{"a": "é"}]


def test_half_a_character_in_json_is_read_as_the_api_server_does() -> None:
    assert read(r'{"a": "x\ud800y", "\uDFFF": "\ud83d\ude00", "b": "\\ud800"}') == [
        {"a": "x\ufffdy", "\ufffd": "\U0001f600", "b": "\\ud800"}
    ]


def test_json_is_read_with_kubernetes_numbers() -> None:
    assert read('{"a": 1.0, "b": 12345678901234567890, "c": "\\ud83d\\ude00"}\n{"d": [1e2]}') == [
        {"a": 1, "b": 12345678901234567890.0, "c": "😀"},
        {"d": [100]},
    ]
    assert read("{a: b, c: [d]}") == [{"a": "b", "c": ["d"]}]


@pytest.mark.parametrize(
    ("text", "line", "field", "words"),
    [
        ("a:\n  b: 1\n  b: 2\n", 3, "a.b", 'key "b" stands twice'),
        ("x:\n- a: 1\n- c: 1\n  c: 2\n", 4, "x[1].c", 'key "c" stands twice'),
        ('{"a": 1,\n "a": 2}', 2, "a", 'key "a" stands twice'),
        ("a: 1\nb: [1, 2", 2, None, "not YAML"),
        ("a:\n\t- b\n", 2, None, "a tab indents this line"),
        ("a: b: c", 1, None, "not YAML"),
        ("a: @x", 1, None, '"@" cannot begin a value'),
        ("a: 1\n---\nb: ]\n", 3, None, "not YAML"),
        ("a: .inf", 1, "a", "no number that JSON can carry"),
        ("a: {b: .nan}", 1, "a.b", "no number that JSON can carry"),
        ("~: 1", 1, None, "null stands where a key belongs"),
        ("? [a]\n: b", 1, None, "stands where a key belongs"),
        ("a: *b", 1, "a", "names no anchor"),
        ("a: &b [*b]", 1, "a[0]", "stands inside the value"),
        ("a: {<<: 5}", 1, "a[<<]", "<< takes a mapping"),
        ("a: !!int x", 1, "a", "is no !!int"),
        ("a: !!binary '%'", 1, "a", "no base64"),
        ("a: 1\nb: \x01", 2, None, "U+0001 is not allowed"),
        (b"a: 1\nb: \xff", 2, None, "not UTF-8"),
        (b"a: 1\n\0\x01ELF", 2, None, "binary"),
        (b"\xff\xfea", None, None, "not UTF-16"),
        ("image: {{ .Values.image }}\n", 1, "image", "helm template"),
        ("a: 1\n{{- if .Values.x }}\nb: 2\n{{- end }}\n", 2, None, "helm template"),
        ("a: 1\n{% if x %}\nb: 2\n{% endif %}\n", 2, None, "helm template"),
    ],
)
def test_faults_say_where_and_what(text: str | bytes, line: int | None, field: str | None, words: str) -> None:
    error = fault(text)
    assert (error.line, error.field) == (line, field)
    assert words in error.message
    assert "\n" not in error.message


def test_braces_inside_a_program_make_no_template() -> None:
    assert "helm" not in fault("args:\n- 'x = {{ y }}'\nb: : c\n").message
    assert read("args:\n- |\n  print('{{ y }}')\n  {{ z }}\n") == [{"args": ["print('{{ y }}')\n{{ z }}\n"]}]


def test_aliases_may_not_explode() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 12)]
    error = fault("\n".join(lines))
    assert "aliases repeat more than" in error.message
    assert error.line is not None


def test_nesting_is_limited_in_every_notation() -> None:
    deep = MAX_DEPTH + 1
    for text in (
        "[" * deep,
        "a:\n" + "".join(" " * n + "-\n" for n in range(1, deep + 1)),
        '{"a":' * deep + "1" + "}" * deep,
    ):
        assert "nested deeper" in fault(text).message
    assert read("[" * MAX_DEPTH + "]" * MAX_DEPTH)
    assert read('{"a":' * MAX_DEPTH + "1" + "}" * MAX_DEPTH)
    assert "nested deeper" in fault('{"a":' * 200_000).message


def test_places_name_lines_of_fields() -> None:
    text = "# head\nspec:\n  env:\n  - name: a\n    value: b\n  - {name: c,\n     value: d}\n  labels:\n    a.b/c: d\n"
    (place,) = places(Piece(text.encode(), line=10))
    for field, line in (
        ("", 11),
        ("spec.env", 12),
        ("spec.env[0].value", 14),
        ("spec.env[1].value", 16),
        ("spec.labels[a.b/c]", 18),
        ("spec.env[7].name", 12),
        ("spec.absent.field", 11),
    ):
        assert place.find(steps_of(field)) == line, field


def test_field_paths_are_read_back() -> None:
    for field in ("spec.env[0].name", "metadata.labels[a.b/c]", "items[3].spec", "[0][1].x"):
        assert field_of(steps_of(field)) == field


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=20,
)


@given(st.dictionaries(st.text(max_size=8), VALUES, max_size=4))
def test_any_json_object_is_read_as_it_is(value: dict[str, object]) -> None:
    assert read(json.dumps(value)) == [value]


@given(st.binary(max_size=200) | st.text(alphabet="ab:-[]{}&*!|>%@\"'\n\t #?,<.1~", max_size=80).map(str.encode))
def test_no_text_raises_anything_else(text: bytes) -> None:
    with contextlib.suppress(TextError):
        read(text)
