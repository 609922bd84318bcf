"""What could bring a run back, and what is only named like it: each kind once firing and once silent."""

from __future__ import annotations

import ast

import pytest

from tests.programs.reading import remarks
from webhook.model.script import Launch
from webhook.programs.reading import read_script
from webhook.programs.rules.resume_not_asked_for import _wanted

LAUNCH = Launch(directories=("/mnt/ckpt/run",), mounts=("/mnt/ckpt",), working_dir="/srv/job")
STATE = '{"model": net.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch}'
LOOP = """
for epoch in range(start, 40):
    for batch in batches:
        net(batch).mean().backward()
        optimizer.step()
    torch.save(STATE, PLACE)
""".replace("STATE", STATE)
BEGIN = """
import argparse, os
import torch
net = torch.nn.Linear(2, 2)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
batches, start = [], 0
"""


def said(text: str, arguments: str = "") -> set[str]:
    written = f"cat > train.py <<'END_OF_IT'\n{text}\nEND_OF_IT\nexec python train.py {arguments}\n"
    return set(remarks(read_script(["bash", "-ec"], [written], {}, LAUNCH)))


def program(before: str, place: str = 'f"/mnt/ckpt/run/{epoch}.pt"') -> str:
    return BEGIN + before + LOOP.replace("PLACE", place)


NO_WAY_BACK = {
    "a download": 'from torchvision.datasets import CIFAR10\ndata = CIFAR10("/data", download=True)\n',
    "numbers of the data": 'import numpy as np\ntokens = np.load("/data/tokens.npy")\n',
    "a pickle of the data": 'import pickle\nwords = pickle.load(open("/data/words.pkl", "rb"))\n',
    "weights of others": 'net.load_state_dict(torch.load("/models/imagenet/resnet.pth"))\n',
    "a network of the hub": 'from transformers import AutoModel\nbert = AutoModel.from_pretrained("bert-base-cased")\n',
    "a quantized network": "from transformers import AutoConfig\nc = AutoConfig.from_dict(load_in_8bit=True)\n",
    "a kernel": "import triton.language as tl\ndef kernel(p):\n    return tl.load(p)\n",
    "a function that nobody calls": 'def again():\n    net.load_state_dict(torch.load("/mnt/ckpt/run/1.pt"))\n',
    "a data set's own": (
        "class Scans(torch.utils.data.Dataset):\n    def __getitem__(self, i):\n"
        "        return torch.load(self.names[i])\n"
    ),
    "for a test alone": (
        "p = argparse.ArgumentParser()\np.add_argument('--evaluate', action='store_true')\nargs = p.parse_args()\n"
        "if args.evaluate:\n    net.load_state_dict(torch.load('/mnt/ckpt/run/best.pt'))\n"
    ),
}


@pytest.mark.parametrize("name", NO_WAY_BACK)
def test_what_is_only_named_like_a_load_does_not_bring_a_run_back(name: str) -> None:
    assert "never-resumed" in said(program(NO_WAY_BACK[name])), name


WAYS_BACK = {
    "the newest": (
        'import glob\nfound = sorted(glob.glob("/mnt/ckpt/run/*.pt"), key=os.path.getmtime)\n'
        "if found:\n    whole = torch.load(found[-1])\n    net.load_state_dict(whole['model'])\n"
        "    optimizer.load_state_dict(whole['optimizer'])\n    start = whole['epoch'] + 1\n"
    ),
    "a helper of elsewhere": "from mytask.checkpoints import restore\nstart = restore(net, optimizer)\n",
    "a path that is not known": "whole = torch.load(os.environ['NEWEST'])\nnet.load_state_dict(whole['model'])\n",
    "beside what is saved": "whole = torch.load('/mnt/ckpt/run/last.pt')\nnet.load_state_dict(whole['model'])\n",
}


@pytest.mark.parametrize("name", WAYS_BACK)
def test_what_may_bring_a_run_back_is_believed(name: str) -> None:
    assert not {"never-resumed", "resume-not-asked-for"} & said(program(WAYS_BACK[name])), name


ARGUMENTS = """
p = argparse.ArgumentParser()
p.add_argument("--resume", default="")
p.add_argument("--restore-step", type=int, default=0)
p.add_argument("--out", default="out")
args = p.parse_args()
"""
READ = "whole = torch.load(args.resume)\n    net.load_state_dict(whole['model'])\n    start = whole['epoch']\n"
TURNED_OFF = {
    "a number": (
        "if args.restore_step:\n    whole = torch.load(f'/mnt/ckpt/run/{args.restore_step}.pt')\n"
        "    net.load_state_dict(whole['model'])\n",
        "--restore-step 30",
    ),
    "one of two conditions": (f"if args.resume and os.path.isfile(args.resume):\n    {READ}", "--resume $NEWEST"),
    "in a function that returns before": (
        f"def again():\n    if not args.resume:\n        return\n    {READ}again()\n",
        "--resume $NEWEST",
    ),
    "one choice of two": (
        "whole = torch.load(args.resume) if args.resume else None\n"
        "if whole:\n    net.load_state_dict(whole['model'])\n",
        "--resume $NEWEST",
    ),
}


@pytest.mark.parametrize("name", TURNED_OFF)
def test_what_a_flag_turns_on_is_asked_for_or_not(name: str) -> None:
    text, flags = TURNED_OFF[name]
    assert "resume-not-asked-for" in said(program(ARGUMENTS + text)), name
    assert not {"resume-not-asked-for", "never-resumed"} & said(program(ARGUMENTS + text), flags), name


def test_an_argument_that_only_a_resume_would_change_has_its_default() -> None:
    text = ARGUMENTS + f"if args.resume:\n    args.out = os.path.dirname(args.resume)\n    {READ}"
    there = program(text, 'os.path.join(args.out, f"{epoch}.pt")')
    assert "directory-not-used" in said(there)
    assert "directory-not-used" not in said(there, "--out /mnt/ckpt/run")
    assert "directory-not-used" not in said(there, "--resume $NEWEST")


def test_a_parser_in_a_function_that_is_told_the_command_line_is_followed() -> None:
    text = (
        "import sys\ndef parsed(words):\n    p = argparse.ArgumentParser()\n"
        "    p.add_argument('--out', default='out')\n    return p.parse_args(words)\nargs = parsed(sys.argv[1:])\n"
    )
    there = program(text, 'os.path.join(args.out, f"{epoch}.pt")')
    assert "directory-not-used" in said(there)
    assert "directory-not-used" not in said(there, "--out /mnt/ckpt/run")


def test_the_folder_of_the_program_is_no_volume() -> None:
    beside = 'os.path.join(os.path.dirname(os.path.abspath(__file__)), "out", f"{epoch}.pt")'
    assert "directory-not-used" in said(program("", beside))
    assert "directory-not-used" in said(program("", 'os.path.join(os.getcwd(), f"{epoch}.pt")'))
    assert "directory-not-used" not in said(program("os.chdir('/mnt/ckpt/run')\n", 'f"{epoch}.pt"'))


def test_a_keyword_of_the_old_python_is_read() -> None:
    assert "never-resumed" in said(program("x = net.weight.cuda(async=True)\n"))


def test_weights_by_what_an_optimizer_trains() -> None:
    loop = LOOP.replace(STATE, "gen.state_dict()").replace("PLACE", '"/mnt/ckpt/run/gen.pt"').replace("net(", "gen(")
    begin = BEGIN.replace("net", "gen")
    assert "weights-only-checkpoint" in said(begin + loop)
    both = loop.replace("gen.state_dict()", '{"g": gen.state_dict(), "optimizer": optimizer.state_dict()}')
    assert "weights-only-checkpoint" not in said(begin + both)


def test_the_best_alone_is_no_checkpoint_and_beside_others_is() -> None:
    best = "    torch.save(net.state_dict(), '/mnt/ckpt/run/best.pt')\n"
    alone = BEGIN + LOOP.replace(f"    torch.save({STATE}, PLACE)\n", best)
    assert "weights-only-checkpoint" in said(alone)
    assert "weights-only-checkpoint" not in said(program("") + best)


def test_a_name_of_text_is_no_file_that_is_moved() -> None:
    read = (
        "if os.path.exists('/mnt/ckpt/run/last.pt'):\n    whole = torch.load('/mnt/ckpt/run/last.pt')\n"
        "    net.load_state_dict(whole['model'])\n    optimizer.load_state_dict(whole['optimizer'])\n"
        "    start = whole['epoch'] + 1\n"
    )
    over = program(read + "tag = 'a/b'.replace('/', '_')\n", '"/mnt/ckpt/run/last.pt"')
    assert "overwritten-checkpoint" in said(over)
    assert "overwritten-checkpoint" not in said(
        over + "    os.replace('/mnt/ckpt/run/new.pt', '/mnt/ckpt/run/last.pt')\n"
    )


def test_a_load_at_the_start_that_asks_for_nothing_fails_the_first_start() -> None:
    read = "whole = torch.load('/mnt/ckpt/run/last.pt')\nnet.load_state_dict(whole['model'])\n"
    assert "resume-without-checkpoint" in said(program(read, '"/mnt/ckpt/run/last.pt"'))
    caught = "try:\n    whole = torch.load('/mnt/ckpt/run/last.pt')\nexcept FileNotFoundError:\n    whole = None\n"
    assert "resume-without-checkpoint" not in said(program(caught, '"/mnt/ckpt/run/last.pt"'))


def test_few_saves_of_a_long_loop_fill_nothing_up() -> None:
    every = "    if epoch % EVERY == 0:\n        torch.save(STATE, f'/mnt/ckpt/run/step_{epoch}.pt')\n".replace(
        "STATE", STATE
    )
    text = BEGIN + LOOP.replace(f"    torch.save({STATE}, PLACE)\n", every).replace(
        "range(start, 40)", "range(0, 20000)"
    )
    text = text.replace("epoch", "step")
    assert "unlimited-checkpoints" in said(text.replace("EVERY", "100"))
    assert "unlimited-checkpoints" not in said(text.replace("EVERY", "5000"))


KERAS = """
from tensorflow import keras
from mytask import data, make
model = make()
model.compile(optimizer="adam", loss="mse")
HOOKS
model.save("/mnt/ckpt/run/model.h5")
"""


def test_keras_that_saves_behind_its_fit() -> None:
    assert "never-saved" in said(KERAS.replace("HOOKS", "model.fit(data, epochs=9)"))
    hook = 'model.fit(data, epochs=9, callbacks=[keras.callbacks.BackupAndRestore("/mnt/ckpt/run/b")])'
    assert "never-saved" not in said(KERAS.replace("HOOKS", hook))


def test_keras_weights_in_the_old_form() -> None:
    hook = (
        'model.fit(data, epochs=9, callbacks=[keras.callbacks.ModelCheckpoint("/mnt/ckpt/run/{epoch}ENDING", '
        "save_weights_only=True)])"
    )
    assert "weights-only-checkpoint" in said(KERAS.replace("HOOKS", hook.replace("ENDING", ".h5")))
    assert "weights-only-checkpoint" not in said(KERAS.replace("HOOKS", hook.replace("ENDING", ".weights.h5")))


HUGGING = """
from transformers import HfArgumentParser, Trainer, TrainingArguments
from mytask import data, model
(training_args,) = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses()
trainer = Trainer(model=model, args=training_args, train_dataset=data)
trainer.train(resume_from_checkpoint=training_args.resume_from_checkpoint)
"""


def test_the_trainers_own_flag_that_is_not_given() -> None:
    told = "--output_dir /mnt/ckpt/run --save_total_limit 3"
    assert "resume-not-asked-for" in said(HUGGING, told)
    assert "resume-not-asked-for" not in said(HUGGING, f"{told} --resume_from_checkpoint $NEWEST")


def test_a_name_that_was_padded_before_it_is_put_together() -> None:
    text = (
        "def path_of(epoch):\n    return f'/mnt/ckpt/run/net_{epoch}.pt'\n"
        "found = sorted(os.listdir('/mnt/ckpt/run'))\n"
        "if found:\n    net.load_state_dict(torch.load('/mnt/ckpt/run/' + found[-1])['model'])\n"
    )
    assert "text-order-resume" in said(program(text, "path_of(epoch)").replace("range(start, 40)", "range(start, n)"))
    padded = program(text, 'path_of(f"{epoch:04d}")').replace("range(start, 40)", "range(start, n)")
    assert "text-order-resume" not in said(padded)


WORD = """
import os, torch, torch.nn as nn
out = "/mnt/ckpt/run"
init_from = "nothing"
net = nn.Linear(4, 4)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
step = 0
if init_from == "resume":
    newest = os.path.join(out, "last.pt")
    kept = torch.load(newest)
    net.load_state_dict(kept["model"])
    optimizer.load_state_dict(kept["optimizer"])
    step = kept["step"]
for step in range(step, 100):
    net(torch.zeros(4)).sum().backward()
    optimizer.step()
    state = {"model": net.state_dict(), "optimizer": optimizer.state_dict(), "step": step}
    torch.save(state, os.path.join(out, "last.pt"))
"""


def _fix(text: str) -> str:
    written = f"cat > train.py <<'END_OF_IT'\n{text}\nEND_OF_IT\nexec python train.py\n"
    (remark,) = remarks(read_script(["bash", "-ec"], [written], {}, LAUNCH))["resume-not-asked-for"]
    return remark.fix


def test_a_condition_asks_for_a_path_that_is_known_where_it_stands() -> None:
    fix = _fix(WORD)
    assert fix.endswith('os.path.exists(os.path.join(out, "last.pt"))')
    assert "newest" not in fix


def test_a_word_that_a_setting_is_compared_with_is_what_to_write() -> None:
    test = ast.parse('kind == "a" and (begin_with == "resume")', mode="eval").body
    assert _wanted(test, ast.parse("begin_with", mode="eval").body) == "'resume'"
    assert _wanted(test, ast.parse("goes_on", mode="eval").body) == "true"
