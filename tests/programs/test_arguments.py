"""What ``args.NAME`` of argparse amounts to: the command line, else the default, else not told."""

from __future__ import annotations

from typing import Any

import pytest

from tests.programs.reading import LAUNCH
from webhook.programs.reading import read_script
from webhook.programs.values import Text, Unknown

TOP = """
import argparse
import datetime
parser = argparse.ArgumentParser()
parser.add_argument("--out", "-o", default="/mnt/ckpt/run")
parser.add_argument("--keep-last", type=int, default=3)
parser.add_argument("--every", type=int, default="200", dest="interval")
parser.add_argument("--bare", action="store_true")
parser.add_argument("--no-save", action="store_false", dest="save")
parser.add_argument("--fresh", default=f"/mnt/{datetime.datetime.now()}")
parser.add_argument("--itself", default=args.itself)
parser.add_argument("--many", nargs="*", default=[])
parser.add_argument("--odd", type=odd, default="x")
parser.add_argument("--needed", required=True)
parser.add_argument("--nothing")
parser.add_argument("name")
"""
PARSED = "args = parser.parse_args()\n"


def value(text: str, *words: str) -> Any:
    script = read_script(["python", "-c"], [text, *words], {}, LAUNCH)
    (python,) = script.pythons
    return python.value(python.source.bindings[(0, "wanted")][0].value, None)


@pytest.mark.parametrize(
    ("name", "words", "wanted"),
    [
        ("out", (), "/mnt/ckpt/run"),
        ("out", ("--out", "/a"), "/a"),
        ("out", ("-o", "/a"), "/a"),
        ("out", ("--out=/a", "--out=/b"), "/b"),
        ("keep_last", (), 3),
        ("keep_last", ("--keep-last", "1"), 1),
        ("interval", (), 200),
        ("bare", (), False),
        ("bare", ("--bare",), True),
        ("save", (), True),
        ("save", ("--no-save",), False),
        ("needed", ("--needed", "x"), "x"),
        ("nothing", (), None),
    ],
)
def test_it_is_told(name: str, words: tuple[str, ...], wanted: Any) -> None:
    assert value(f"{TOP}{PARSED}wanted = args.{name}\n", *words) == wanted


def test_a_default_that_is_new_at_every_start() -> None:
    found = value(f"{TOP}{PARSED}wanted = args.fresh\n")
    assert isinstance(found, Text)
    assert any(isinstance(piece, Unknown) and piece.kind == "fresh" for piece in found.parts)


@pytest.mark.parametrize("name", ["itself", "many", "odd", "needed", "name", "absent"])
def test_it_is_not_told(name: str) -> None:
    assert isinstance(value(f"{TOP}{PARSED}wanted = args.{name}\n"), Unknown)


@pytest.mark.parametrize(
    "parsed",
    [
        "args = parser.parse_args()\nargs.out = elsewhere()\n",
        "args = parser.parse_args(sys.argv[2:])\n",
        "args = merge(parser.parse_args(), config)\n",
        "args = parser.parse_args()\nargs = other()\n",
        "args = parser.parse_args()\nsetattr(args, key, 1)\n",
        "args = parser.parse_args()\nvars(args).update(config)\n",
        "parser.set_defaults(**config)\nargs = parser.parse_args()\n",
        'parser.add_argument("--out", default="/b")\nargs = parser.parse_args()\n',
    ],
)
def test_what_is_set_in_another_way_too_is_not_told(parsed: str) -> None:
    assert isinstance(value(f"{TOP}{parsed}wanted = args.out\n"), Unknown)


def test_a_word_that_is_not_known_may_be_any_flag() -> None:
    text = f"{TOP}{PARSED}wanted = args.out\n"
    script = read_script(["bash", "-c"], [f"python - $EXTRA <<'PY'\n{text}PY\n"], {}, LAUNCH)
    (python,) = script.pythons
    assert isinstance(python.value(python.source.bindings[(0, "wanted")][0].value, None), Unknown)


def test_through_functions() -> None:
    text = f"{TOP}\ndef parse():\n    return parser.parse_args()\n\ndef main(given):\n    global wanted\n"
    text += "    wanted = given.keep_last\n\nmain(parse())\n"
    script = read_script(["python", "-c"], [text, "--keep-last", "7"], {}, LAUNCH)
    (python,) = script.pythons
    (binding,) = python.source.bindings[(0, "wanted")]
    assert python.value(binding.value, binding.around) == 7


def test_self_is_not_what_was_parsed() -> None:
    text = f"{TOP}{PARSED}class Run:\n    def __init__(self, out):\n        self.out = out\nwanted = args.out\n"
    assert value(text, "--out", "/a") == "/a"


PARSER = """
from transformers import HfArgumentParser, TrainingArguments
parser = HfArgumentParser((ModelArguments, TrainingArguments))
model_args, training_args = parser.parse_args_into_dataclasses()
"""


@pytest.mark.parametrize("flag", ["--output_dir", "--output-dir"])
def test_a_field_of_hf_argument_parser_is_what_its_flag_gives(flag: str) -> None:
    assert value(f"{PARSER}wanted = training_args.output_dir\n", flag, "/a/b") == "/a/b"


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ("", ()),
        ("", ("run.json",)),
        ("", ("--output_dir", "/a", "--config", "run.yaml")),
        ("training_args.output_dir = '/b'\n", ("--output_dir", "/a")),
        ("training_args = other()\n", ("--output_dir", "/a")),
        ("", ("--output_dir", "--do_train")),
    ],
)
def test_a_field_of_hf_argument_parser_is_not_told(more: str, words: tuple[str, ...]) -> None:
    found = value(f"{PARSER}{more}wanted = training_args.output_dir\n", *words)
    assert isinstance(found, Unknown) or (more and found == "/b")
