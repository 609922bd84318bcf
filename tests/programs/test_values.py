"""Values are followed through what a manifest and a program write down, and anything else is unknown."""

from __future__ import annotations

import pytest

from tests.programs.reading import python
from webhook.programs.values import UNKNOWN, Text, Unknown, Value, as_number, is_known, join_path, kinds

ENV = {"CKPT_DIR": "/mnt/ckpt/run", "N": "50"}


def value_of(text: str) -> Value:
    script = python(f"import os, pathlib\nfrom pathlib import Path\nfrom os.path import join\n{text}", ENV)
    (program,) = script.pythons
    binding = program.source.bindings[0, "x"][-1]
    return program.value(binding.value, binding.around)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("x = 'a'", "a"),
        ("x = 1 + 2 * 3", 7),
        ("x = -1", -1),
        ("x = not True", False),
        ("a = 'b'\nx = a", "b"),
        ("a, b = 1, 2\nx = b", 2),
        ("x = os.environ['CKPT_DIR']", "/mnt/ckpt/run"),
        ("x = os.getenv('CKPT_DIR', '/tmp')", "/mnt/ckpt/run"),
        ("x = os.environ.get('CKPT_DIR') + '/a'", "/mnt/ckpt/run/a"),
        ("x = int(os.environ['N'])", 50),
        ("x = f\"{os.environ['CKPT_DIR']}/a\"", "/mnt/ckpt/run/a"),
        ("x = f'{7:04d}'", "0007"),
        ("x = os.path.join('/a', 'b', '/c', 'd')", "/c/d"),
        ("x = join('/a/', 'b')", "/a/b"),
        ("x = Path('/a') / 'b' / 'c'", "/a/b/c"),
        ("x = str(pathlib.Path('/a', 'b'))", "/a/b"),
        ("x = Path('/a').joinpath('b').parent", "/a"),
        ("x = '%s/%04d' % ('/a', 7)", "/a/0007"),
        ("x = '{}/{n}'.format('a', n=1)", "a/1"),
        ("x = {'a': 1}['a']", 1),
        ("x = dict(a=1)['a']", 1),
        ("x = [1, 2][-1]", 2),
        ("x = os.path.expandvars('$CKPT_DIR/${N}')", "/mnt/ckpt/run/50"),
        ("def f(p):\n    global x\n    x = p\nf('/a')", "/a"),
        ("a = 1\na = 2\nx = a", 2),
        ("x = 'a' if y else 'a'", "a"),
        ("x = None or 'a'", "a"),
    ],
)
def test_known(text: str, value: Value) -> None:
    found = value_of(text)
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    "text",
    [
        "x = f(1)",
        "x = a",
        "x = os.environ['OTHER']",
        "x = os.getenv('OTHER', '/tmp')",
        "a = 1\nif b:\n    a = 2\nx = a",
        "x = 'a' if y else 'b'",
        "x = 9 ** 9 ** 9",
        "x = '{:>999999999}'.format('a')",
        "x = x",
        "for a in b:\n    pass\nx = a",
        "def f(p):\n    global x\n    x = p\nf('/a')\nf('/b')",
    ],
)
def test_unknown(text: str) -> None:
    assert not is_known(value_of(text))


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("import datetime\nx = f'/a/{datetime.datetime.now():%Y}'", "fresh"),
        ("import time\nx = '/a/' + str(int(time.time()))", "fresh"),
        ("import time\nx = '/a/' + time.strftime('%Y')", "fresh"),
        ("from datetime import datetime as d\nx = '/a/' + d.now().strftime('%Y')", "fresh"),
        ("import uuid\nx = '/a/' + uuid.uuid4().hex[:8]", "fresh"),
        ("x = f'/a/{os.getpid()}'", "fresh"),
        ("import socket\nx = f'/a/{socket.gethostname()}'", "host"),
        ("import torch.distributed as dist\nx = f'/a/{dist.get_rank()}'", "rank"),
        ("x = f\"/a/{os.environ['LOCAL_RANK']}\"", "local-rank"),
        ("for step in range(9):\n    x = f'/a/{step}'", "loop"),
        ("n = len(os.listdir('/a'))\nx = f'/a/{n}'", "count"),
        ("import glob\nx = '/a/' + str(len(glob.glob('/a/*')) + 1)", "count"),
        ("n = len(list(Path('/a').iterdir()))\nx = f'/a/{n:03d}'", "count"),
    ],
)
def test_kind_of_what_is_unknown(text: str, kind: str) -> None:
    assert kinds(value_of(text)) == {kind}


def test_paths() -> None:
    step = Unknown("loop", "step")
    assert join_path(("/a", step, "b")) == Text(("/a/", step, "/b"))
    assert join_path((UNKNOWN, "b")) == Text((UNKNOWN, "/b"))


@pytest.mark.parametrize(
    ("value", "number"),
    [
        (3, 3.0),
        ("1_000", 1000.0),
        (10**400, None),
        (-(10**400), None),
        ("9" * 31, None),
        (float("nan"), None),
        ("nan", None),
        ("inf", None),
        ("x", None),
        (True, None),
        (None, None),
    ],
)
def test_numbers(value: Value, number: float | None) -> None:
    assert as_number(value) == number
