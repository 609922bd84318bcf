"""What came from others, made harmless: the one place for it."""

from __future__ import annotations

import shlex
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from webhook.model.printable import json_printable, printable, printable_lines, printable_text, shell_word


def harmless(text: str, but: str = "") -> bool:
    return all(letter in but or unicodedata.category(letter)[0] != "C" for letter in text) and not any(
        line.lstrip().startswith("::") or "##[" in line for line in text.split("\n")
    )


@given(st.text())
def test_nothing_that_a_terminal_or_a_log_obeys_is_left(text: str) -> None:
    assert harmless(printable(text))
    assert "\n" not in printable(text)
    assert all(harmless(line) for line in printable_lines(text))
    assert harmless(printable_text(text), "\n\t")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("größe 模型 \U0001f600 a\u00a0b", "größe 模型 \U0001f600 a\u00a0b"),
        ("\x1b]0;x\x07\x7f\x9b", "\\x1b]0;x\\x07\\x7f\\x9b"),
        ("\u202e\u2066\u200b\ufeff\u2028", "\\u202e\\u2066\\u200b\\ufeff\\u2028"),
        ("  ::set-output name=a::b", "  \\x3a:set-output name=a::b"),
        ("a ##[group]b", "a #\\x23[group]b"),
        ("a::b # c", "a::b # c"),
    ],
)
def test_letters_stay_and_the_rest_is_an_escape(text: str, shown: str) -> None:
    assert printable(text) == shown
    assert printable(shown) == shown


@given(st.text())
def test_json_says_the_same(text: str) -> None:
    import json

    shown = json_printable(json.dumps({text: text}, ensure_ascii=False))
    assert harmless(shown)
    assert json.loads(shown) == {text: text}


@pytest.mark.parametrize("text", ["train-ckpt", "a/b.c", "", "x; rm -rf /", "$(id)", "it's", "a b", "é"])
def test_a_name_is_one_word_of_a_command(text: str) -> None:
    assert shlex.split(f"kubectl get pvc {shell_word(text)} -n t") == ["kubectl", "get", "pvc", text, "-n", "t"]
    assert shell_word("train-ckpt") == "train-ckpt"
