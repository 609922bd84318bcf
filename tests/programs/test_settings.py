"""Settings that a program keeps in classes, dictionaries, functions and its command line are followed."""

from __future__ import annotations

from typing import Any

import pytest

from tests.programs.reading import LAUNCH
from webhook.programs.reading import read_script
from webhook.programs.values import Unknown, is_known, kinds

ENV = {"CKPT_DIR": "/mnt/ckpt/run"}


def value(text: str, *words: str) -> Any:
    script = read_script(["python", "-c"], [f"import os\n{text}", *words], ENV, LAUNCH)
    (python,) = script.pythons
    found = [one for (_, name), bound in python.source.bindings.items() if name == "wanted" for one in bound]
    return python.value(found[-1].value, found[-1].around)


DIR = "os.environ['CKPT_DIR']"


@pytest.mark.parametrize(
    "text",
    [
        f"class C:\n    out = {DIR}\nwanted = C.out\n",
        f"class C:\n    out = {DIR}\nc = C()\nwanted = c.out\n",
        f"class B:\n    out = {DIR}\nclass C(B):\n    lr = 1\nwanted = C().out\n",
        f"class C:\n    def __init__(self, out):\n        self.out = out\nwanted = C({DIR}).out\n",
        f"class C:\n    out = {DIR}\n    def go(self):\n        global wanted\n        wanted = self.out\n",
        f"@dataclass\nclass C:\n    lr: float = 1\n    out: str = field(default={DIR})\nwanted = C().out\n",
        f"@dataclass\nclass C:\n    lr: float = 1\n    out: str = 'x'\nwanted = C(2, {DIR}).out\n",
        f"@dataclass\nclass C:\n    out: str = 'x'\nc = C(out={DIR})\nwanted = c.out\n",
        f"class T:\n    out = {DIR}\nclass C:\n    t = T()\nwanted = C().t.out\n",
        f"from types import SimpleNamespace\nc = SimpleNamespace(out={DIR})\nwanted = c.out\n",
        f"from argparse import Namespace\nc = Namespace(**{{'out': {DIR}}})\nwanted = c.out\n",
        f"from omegaconf import OmegaConf\nc = OmegaConf.create({{'t': {{'out': {DIR}}}}})\nwanted = c.t.out\n",
        f"d = dict(out={DIR})\nwanted = d.get('out', '/tmp')\n",
        f"d = {{'out': '/tmp'}}\nd['out'] = {DIR}\nwanted = d['out']\n",
        f"d = {{}}\nwanted = d.get('out', {DIR})\n",
        f"def made(p):\n    os.makedirs(p)\n    return p\nlogs = made('/logs')\nwanted = made({DIR})\n",
        f"class C:\n    def place(self):\n        return {DIR}\n    def go(self):\n        wanted = self.place()\n",
        f"def f(p=None):\n    if p is None:\n        p = {DIR}\n    return p\nwanted = f()\n",
        f"try:\n    out = {DIR}\nexcept KeyError:\n    out = '/tmp'\nwanted = out\n",
        f"slurm = False\nout = '/tmp' if slurm else {DIR}\nwanted = out\n",
        f"local = False\nif local:\n    out = '/tmp'\nelse:\n    out = {DIR}\nwanted = out\n",
        f"out = {DIR}\nif not out:\n    out = '/tmp'\nwanted = out\n",
        f"def f(out):\n    out = out + '.'\n    out = {DIR}\n    global wanted\n    wanted = out\nf('a')\n",
        f"wanted = os.path.dirname({DIR} + '/last.pt')\n",
        "wanted = '/'.join(['/mnt', 'ckpt', 'run'])\n",
        "wanted = '/mnt/ckpt/run:x'.split(':')[0]\n",
    ],
)
def test_the_directory_is_told(text: str) -> None:
    assert value(text) == "/mnt/ckpt/run"


@pytest.mark.parametrize(
    "text",
    [
        "class C:\n    out = '/a'\nc = C()\nc.out = elsewhere()\nwanted = c.out\n",
        "class C:\n    out = '/a'\nC.out = '/b'\nc = C()\nwanted = c.out\n",
        "class C:\n    out = '/a'\nclass C:\n    out = '/b'\nclass D:\n    out = '/c'\nwanted = elsewhere(C).out\n",
        "class C:\n    out = '/a'\nwanted = out\n",
        "d = {'out': '/a'}\nd['out'] = '/b'\nd['out'] = '/c'\nwanted = d['out']\n",
        "d = {'out': '/a'}\nd.update(elsewhere())\nwanted = d.get('out')\n",
        "def f(p):\n    if p:\n        return '/a'\n    return '/b'\nwanted = f(elsewhere())\n",
        "def f(p):\n    return f(p)\nwanted = f('/a')\n",
        "@elsewhere\ndef f(p):\n    return p\nwanted = f('/a')\n",
        "out = '/a'\nif elsewhere():\n    out = '/b'\nwanted = out\n",
        "try:\n    out = elsewhere()\nexcept KeyError:\n    out = '/a'\nwanted = out\n",
        "wanted = '/a' if elsewhere() else '/b'\n",
        "for i in x:\n    wanted = out\n    out = os.path.join(out, 'a')\nout = '/a'\n",
    ],
)
def test_it_is_not_told(text: str) -> None:
    assert not is_known(value(text))


def test_a_time_that_a_function_puts_into_a_directory() -> None:
    text = "import datetime\ndef fresh(base):\n    made = base / datetime.datetime.now().strftime('%H')\n"
    text += "    made.mkdir()\n    return made\n"
    assert "fresh" in kinds(value(f"from pathlib import Path\n{text}wanted = fresh(Path({DIR}))\n"))


ARGPARSE = "import argparse\np = argparse.ArgumentParser()\np.add_argument('--out', default='/a')\n"


@pytest.mark.parametrize(
    ("text", "words", "expected"),
    [
        (f"{ARGPARSE}a = vars(p.parse_args())\nwanted = a['out']\n", ("--out", "/b"), "/b"),
        (f"{ARGPARSE}a = vars(p.parse_args())\nwanted = a.get('out')\n", (), "/a"),
        (f"{ARGPARSE}a, rest = p.parse_known_args()\nwanted = a.out\n", ("--out", "/b"), "/b"),
        (f"{ARGPARSE}a = p.parse_known_args()[0]\nwanted = a.out\n", (), "/a"),
        (
            "import argparse\np = argparse.ArgumentParser()\nfor k, v in dict(out='/a', n=1).items():\n"
            "    p.add_argument(f'--{k}', default=v)\na = p.parse_args()\nwanted = a.out\n",
            ("--n", "2"),
            "/a",
        ),
        (
            "from absl import flags, app\nFLAGS = flags.FLAGS\nflags.DEFINE_string('out', '/a', 'h')\n"
            "def main(_):\n    global wanted\n    wanted = FLAGS.out\napp.run(main)\n",
            ("--out=/b",),
            "/b",
        ),
        ("from absl import flags\nOUT = flags.DEFINE_string('out', '/a', 'h')\nwanted = OUT.value\n", (), "/a"),
        (
            "import click\n@click.command()\n@click.option('--out', '-o', default='/a')\n"
            "def main(out):\n    global wanted\n    wanted = out\nmain()\n",
            ("-o", "/b"),
            "/b",
        ),
        ("import typer\ndef main(out: str = '/a'):\n    global wanted\n    wanted = out\ntyper.run(main)\n", (), "/a"),
        (
            "import fire\ndef main(out='/a'):\n    global wanted\n    wanted = out\nfire.Fire(main)\n",
            ("--out=/b",),
            "/b",
        ),
        (
            "from transformers import HfArgumentParser\n@dataclass\nclass Own:\n    out: str = field(default='/a')\n"
            "    name: str = 'n'\n(own,) = HfArgumentParser(Own).parse_args_into_dataclasses()\nwanted = own.out\n",
            ("--name", "x.json"),
            "/a",
        ),
        (
            "from omegaconf import OmegaConf\n"
            "c = OmegaConf.merge({'out': '/a'}, OmegaConf.from_cli())\nwanted = c.out\n",
            ("out=/b",),
            "/b",
        ),
    ],
)
def test_the_command_line_is_told(text: str, words: tuple[str, ...], expected: str) -> None:
    assert value(text, *words) == expected


def test_a_rank_is_set_by_whoever_starts_the_group() -> None:
    found = value(
        "import argparse\np = argparse.ArgumentParser()\np.add_argument('--rank', default=0, type=int)\n"
        "a = p.parse_args()\nwanted = a.rank\n"
    )
    assert isinstance(found, Unknown)
    assert found.kind == "rank"


@pytest.mark.parametrize(
    ("word", "told"),
    [("--lr $LR", True), ('--lr "$LR"', True), ("--name=$N", True), ("$EXTRA", False), ("--bf16 $MORE_ARGS", False)],
)
def test_one_unknown_word_is_one_unknown_argument(word: str, told: bool) -> None:
    text = f"{ARGPARSE}p.add_argument('--lr')\na = p.parse_args()\nwanted = a.out\n"
    script = read_script(["bash", "-c"], [f"python - {word} <<'PY'\n{text}PY\n"], {}, LAUNCH)
    (python,) = script.pythons
    assert is_known(python.value(python.source.bindings[0, "wanted"][0].value, None)) is told
