"""Text to paste is YAML that means the value, and gives no secret away."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from webhook.model.nearest import nearest
from webhook.model.paste import shown_value, to_yaml


@pytest.mark.parametrize(
    "value",
    [
        {"a": [{"name": "x", "value": "1", "empty": []}, {"name": "$(A)", "v": None}], "b": {"c": {"d": True}}},
        {"text": 'two\nlines: "quoted" \\ and\ttabs', "yes": "yes", "number": "007", "dash": "-x", "colon": "a: b"},
        [1, [2, [3, {}]], {"a/b": "/mnt/$(RUN)", "#": "# no comment", "e": ""}],
        {"port": 8080, "share": 0.5, "off": "off", "date": "2026-01-02", "null": "null", "star": "*a", "at": "@b"},
        "\u0007\u2028é",
        {},
    ],
)
def test_yaml_means_the_value(value: Any) -> None:
    assert yaml.safe_load(to_yaml(value)) == value


def test_indent_and_placeholders() -> None:
    assert to_yaml({"claimName": "<claim>"}, 2) == "  claimName: <claim>"


def test_a_value_that_may_be_a_secret_is_not_shown() -> None:
    assert shown_value("CKPT_DIR", "/ckpt") == "/ckpt"
    assert shown_value("HF_TOKEN", "abc") == "<as it is>"
    assert shown_value("NOTE", "x" * 81) == "<as it is>"
    assert shown_value("HF_TOKEN", None) == ""


def test_the_nearest_name_comes_first() -> None:
    assert nearest("noed", ["launcher", "node", "nodes"])[0] == "node"
    assert nearest("hf", ["verl", "hf-trainer"])[0] == "hf-trainer"
    assert nearest("x" * 10_000, ["a", "b", "a"]) == ["a", "b"]
    assert nearest("x", []) == []
