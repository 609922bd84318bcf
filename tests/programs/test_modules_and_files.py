"""Settings of files, of yacs and of parents, and modules above the program, as a checkout has them."""

from __future__ import annotations

from collections.abc import Hashable, Mapping

import pytest

from webhook.model.files import File, Lost
from webhook.model.finding import Origin
from webhook.model.script import Launch
from webhook.programs import Script
from webhook.programs.names import saves
from webhook.programs.reading import read_script
from webhook.programs.rules.directory_not_used import look as directory
from webhook.programs.rules.never_resumed import look as never
from webhook.programs.rules.resume_not_asked_for import look as unasked
from webhook.programs.rules.timestamped_directory import look as stamped
from webhook.programs.rules.unlimited_checkpoints import look as unlimited
from webhook.programs.values import head, kinds


class Texts:
    """Files of a checkout whose root is /app."""

    checkout = True
    size = (0, 0)

    def __init__(self, files: Mapping[str, str]) -> None:
        self._files = {f"/app/{name}": text for name, text in files.items()}

    @property
    def key(self) -> Hashable:
        return tuple(self._files.items())

    def find(self, path: str) -> File | Lost | None:
        return self.beside(path if path.startswith("/") else f"/app/{path}")

    def beside(self, path: str) -> File | None:
        text = self._files.get(path)
        return None if text is None else File(path, text, Origin(f"Program{path}", "", ""))

    def begins(self, path: str) -> bool:
        return path.startswith("/app/")


def read(files: Mapping[str, str], *command: str, below: str = "") -> Script:
    launch = Launch(directories=("/mnt/ckpt/run",), mounts=("/mnt/ckpt",), working_dir=f"/app{below}")
    return read_script(["python", *command], [], {}, launch, reach=Texts(files))


HEAD = "import argparse, json, os, torch, yaml\n"
LOOP = """
    for epoch in range(9):
        loss.backward()
        torch.save({"net": net.state_dict(), "optimizer": optim.state_dict()}, os.path.join(out, f"e{epoch}.pt"))
"""
BACK = """
    if resume:
        net.load_state_dict(torch.load(resume)["net"])
"""


FILE = HEAD + (
    "def train(settings):\n    out, resume = settings['run']['out'], settings['run'].get('resume')\n"
    + BACK
    + LOOP
    + "{change}\n"
    "p = argparse.ArgumentParser()\np.add_argument('--config', default='a.yaml')\nargs = p.parse_args()\n"
    "with open(args.config) as f:\n    settings = yaml.safe_load(f)\ntrain(settings)\n"
)


@pytest.mark.parametrize(
    ("change", "config", "fires"),
    [
        ("", "run: {out: runs/a}", True),
        ("", "run: {out: /mnt/ckpt/run}", False),
        ("", "run: {}", False),
        ("def other(a):\n    a['out'] = elsewhere()", "run: {out: runs/a}", False),
        ("def other(settings):\n    settings.update(elsewhere())", "run: {out: runs/a}", False),
    ],
)
def test_a_key_of_a_file_is_followed_through_functions(change: str, config: str, fires: bool) -> None:
    script = read({"train.py": FILE.replace("{change}", change), "a.yaml": config}, "train.py")
    assert bool([*directory(script)]) is fires


@pytest.mark.parametrize(
    ("config", "fires"),
    [
        ("run: {out: runs/a}", True),
        ("run: {out: runs/a, resume: null}", True),
        ("run: {out: runs/a, resume: runs/a/e8.pt}", False),
    ],
)
def test_a_resume_that_a_file_leaves_off(config: str, fires: bool) -> None:
    script = read({"train.py": FILE.replace("{change}", ""), "a.yaml": config}, "train.py")
    assert bool([*unasked(script)]) is fires


PARTS = HEAD + (
    "def train(args, configs):\n    model, run = configs\n    out = run['out']\n" + LOOP + "\n"
    "configs = (json.load(open('m.json')), json.load(open('{name}')))\ntrain(None, configs)\n"
)


@pytest.mark.parametrize(("name", "fires"), [("r.json", True), ("absent.json", False)])
def test_files_in_a_tuple(name: str, fires: bool) -> None:
    files = {"train.py": PARTS.replace("{name}", name), "m.json": "{}", "r.json": '{"out": "runs"}'}
    assert bool([*directory(read(files, "train.py"))]) is fires


DEFAULTS = "from yacs.config import CfgNode as CN\n_C = CN()\n_C.DIR = 'runs/x'\n_C.RESUME = ''\n"
NODES = HEAD + (
    "from settings import cfg\n"
    "def train(cfg):\n    out = cfg.DIR\n    if cfg.RESUME:\n        net.load_state_dict(torch.load(cfg.RESUME))\n"
    + LOOP
    + "\np = argparse.ArgumentParser()\np.add_argument('--cfg', default='')\np.add_argument('opts', nargs='*')\n"
    "args = p.parse_args()\nif args.cfg != '':\n    cfg.merge_from_file(args.cfg)\n"
    "{set}cfg.merge_from_list(args.opts)\ntrain(cfg)\n"
)


@pytest.mark.parametrize(
    ("given", "words", "fires"),
    [
        ("", (), True),
        ("", ("--cfg", "b.yaml"), True),
        ("", ("--cfg", "c.yaml"), False),
        ("", ("--cfg", "absent.yaml"), False),
        ("", ("DIR", "/mnt/ckpt/run/a"), False),
        ("if elsewhere():\n    cfg.DIR = '/mnt/ckpt/run'\n", (), False),
        ("def put():\n    if elsewhere():\n        cfg.DIR = found()\n", (), False),
    ],
)
def test_yacs(given: str, words: tuple[str, ...], fires: bool) -> None:
    files = {
        "train.py": NODES.replace("{set}", given),
        "settings/__init__.py": "from .defaults import _C as cfg\n",
        "settings/defaults.py": DEFAULTS,
        "b.yaml": "LR: 1",
        "c.yaml": "DIR: /mnt/ckpt/run",
    }
    script = read(files, "train.py", *words)
    assert bool([*directory(script)]) is fires


def test_yacs_asks_for_no_resume() -> None:
    files = {
        "train.py": NODES.replace("{set}", ""),
        "settings/__init__.py": "from .defaults import _C as cfg\n",
        "settings/defaults.py": DEFAULTS,
    }
    assert [*unasked(read(files, "train.py"))]
    assert not [*unasked(read(files, "train.py", "RESUME", "runs/x/e8.pt"))]


ABOVE = "from lib_of_run.state import last\n" + HEAD + "def train(out):\n" + LOOP + "\n{back}\ntrain('runs')\n"


@pytest.mark.parametrize(("back", "fires"), [("", True), ("last(net)", False)])
def test_a_module_above_the_program_is_read(back: str, fires: bool) -> None:
    files = {
        "scripts/train.py": ABOVE.replace("{back}", back),
        "lib_of_run/state.py": "import torch\ndef last(net):\n    net.load_state_dict(torch.load('runs/last.pt'))\n",
        "lib_of_run/__init__.py": "",
    }
    assert bool([*never(read(files, "train.py", below="/scripts"))]) is fires


PARENT = HEAD + (
    "import time\nclass Base:\n    def __init__(self, out):\n        self.out = {out}\n"
    "    def train(self):\n        out = self.out\n" + LOOP.replace("\n    ", "\n        ") + "\n"
    "class Own(Base):\n    def __init__(self, where):\n        super().__init__(where)\n"
    "Own('/mnt/ckpt/run/a').train()\n"
)


@pytest.mark.parametrize(
    ("out", "fires"), [("os.path.join(out, time.strftime('%H%M%S'))", True), ("os.path.join(out, 'a')", False)]
)
def test_what_a_parent_is_given(out: str, fires: bool) -> None:
    (save,) = saves(read({"train.py": PARENT.replace("{out}", out)}, "train.py"))
    assert ("fresh" in kinds(save.value)) is fires
    assert head(save.value).startswith("/mnt/ckpt/run/a/")


WRITER = HEAD + (
    "from torch.utils.tensorboard import SummaryWriter\nimport random\n"
    "def train(writer):\n    out = writer.log_dir\n" + LOOP + "\ntrain(SummaryWriter({given}))\n"
)


@pytest.mark.parametrize(
    ("given", "fires"), [("", True), ("log_dir=f'runs/{random.randint(1, 9)}'", True), ("'runs/a'", False)]
)
def test_the_directory_of_a_logger(given: str, fires: bool) -> None:
    assert bool([*stamped(read({"train.py": WRITER.replace("{given}", given)}, "train.py"))]) is fires


PAIR = HEAD + (
    "def made(root):\n    return print, root + '/a'\ndef train():\n    log, out = made({root})\n" + LOOP + "\ntrain()\n"
)


@pytest.mark.parametrize(("root", "fires"), [("'runs'", True), ("elsewhere()", False), ("'/mnt/ckpt/run'", False)])
def test_one_of_two_that_a_function_returns(root: str, fires: bool) -> None:
    assert bool([*directory(read({"train.py": PAIR.replace("{root}", root)}, "train.py"))]) is fires


UNASKED = HEAD + (
    "def net_of(weights=None):\n    net = Net()\n    if weights is not None:\n"
    "        net.load_state_dict(torch.load(weights))\n"
    "    return net\ndef train(out):\n    net = net_of({given})\n" + LOOP + "\ntrain('runs')\n"
)


@pytest.mark.parametrize(("given", "fires"), [("", True), ("elsewhere()", False)])
def test_a_parameter_that_nobody_gives_is_no_way_back(given: str, fires: bool) -> None:
    script = read({"train.py": UNASKED.replace("{given}", given)}, "train.py")
    assert bool([*never(script)]) is fires
    assert not [*unasked(script)]


KEPT = "from transformers import Trainer, TrainingArguments\n{first} = TrainingArguments('.')\n" + (
    "args = TrainingArguments(output_dir='/mnt/ckpt/run', save_total_limit=3, save_steps=10)\n"
    "Trainer(model=net, args=args).train(resume_from_checkpoint=last)\n"
)


@pytest.mark.parametrize(("first", "fires"), [("_", False), ("other", True)])
def test_arguments_that_are_thrown_away(first: str, fires: bool) -> None:
    assert bool([*unlimited(read({"train.py": KEPT.replace("{first}", first)}, "train.py"))]) is fires
