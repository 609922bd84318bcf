"""A fix of a program is a program: it is put where it says, parses, and runs beside stubs of the frameworks."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from tests.programs.reading import python, remarks, shell
from webhook.model.script import Launch, Lines

DIRECTORY = "/mnt/ckpt/run"
LAUNCH = Launch(pods=2, directories=(DIRECTORY,), mounts=("/mnt/ckpt",), variable="CKPT_DIR")
ENV = {"CKPT_DIR": DIRECTORY}

DCP = """
import os
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
dist.init_process_group()
out = os.environ["CKPT_DIR"]
model, opt = torch.nn.Linear(2, 2), torch.optim.SGD([], lr=0.1)
for step in range(60):
    model(step).backward()
    opt.step()
    if step % 10 == 0:
        dcp.save({"model": model.state_dict(), "opt": opt.state_dict()}, checkpoint_id=f"{out}/step_{step}")
"""
ACCELERATE = """
from accelerate import Accelerator
import os
acc = Accelerator()
out = os.environ["CKPT_DIR"]
model, optim = acc.prepare(1, 2)
for step, batch in enumerate(range(60)):
    acc.backward(model(batch)); optim.step()
    if step % 10 == 0: acc.save_state(os.path.join(out, f"step_{step}"))
"""
DEEPSPEED = """
import deepspeed, os
engine, _, _, _ = deepspeed.initialize(model=1, model_parameters=2, config=3)
for step, batch in enumerate(range(60)):
    engine.backward(engine(batch))
    engine.step()
    if step % 10 == 0:
        engine.save_checkpoint(
            os.environ["CKPT_DIR"],
            tag=f"step_{step}",
        )
"""
METHOD = """
import os, torch
from pathlib import Path
import torch.distributed as dist
class Run:
    def __init__(self):
        self.net = torch.nn.Linear(2, 2)
        self.opt = torch.optim.SGD([], lr=0.1)
        self.out = Path(os.environ["CKPT_DIR"])
    def train(self):
        rank = dist.get_rank()
        for epoch in range(5):
            for step in range(3):
                self.net(step).backward()
                self.opt.step()
            if rank == 0:
                whole = {"net": self.net.state_dict(), "o": self.opt.state_dict(), "e": epoch}
                torch.save(whole, self.out / f"{epoch}.pt")
Run().train()
"""
WEIGHTS = """
import os, torch
out = os.environ["CKPT_DIR"]
net = torch.nn.Linear(2, 2)
sgd = torch.optim.SGD([], lr=0.1)
for step in range(60):
    sgd.zero_grad(); net(step).backward(); sgd.step()
    if step % 10 == 0:
        torch.save(net.state_dict(), f"{out}/{step}.pt")
"""
ALONE = """
import os, torch, glob
out = os.environ["CKPT_DIR"]
net = torch.nn.Linear(2, 2)
adam = torch.optim.SGD([], lr=0.1)
found = sorted(glob.glob(f"{out}/*.pt"))
if found:
    state = torch.load(found[-1])
    net.load_state_dict(state["model"])
for step in range(60):
    adam.zero_grad(); net(step).backward(); adam.step()
    if step % 10 == 0:
        torch.save({"model": net.state_dict(), "optim": adam.state_dict()}, f"{out}/step-{step}.pt")
"""
PROGRAMS = {
    "dcp": DCP,
    "accelerate": ACCELERATE,
    "deepspeed": DEEPSPEED,
    "method": METHOD,
    "weights": WEIGHTS,
    "alone": ALONE,
}

STUB = """
import os, pickle, sys, types
RANK = int(os.environ["TRY_RANK"])
class Any:
    def __init__(self, *a, **k): self.said = []
    def __call__(self, *a, **k): return self
    def __getattr__(self, name):
        if name.startswith("__"): raise AttributeError(name)
        return lambda *a, **k: Any()
    def state_dict(self): return {"w": 1}
    def load_state_dict(self, state): print("loaded", state)
def folder(path, name="data"):
    os.makedirs(path, exist_ok=True)
    open(os.path.join(path, name), "w").close()
def written(state, path):
    with open(path, "wb") as file: pickle.dump(state, file)
def read(path, **k):
    with open(path, "rb") as file: return pickle.load(file)
class Engine(Any):
    global_rank = RANK
    is_main_process = RANK == 0
    def save_checkpoint(self, out, tag): folder(os.path.join(out, tag))
    def load_checkpoint(self, out): print("loaded", out)
    def save_state(self, out): folder(out)
    def load_state(self, out): print("loaded", out)
    def prepare(self, *a): return Any(), Any()
def module(name, **members):
    made = sys.modules[name] = types.ModuleType(name)
    vars(made).update(members)
    parent, _, last = name.rpartition(".")
    if parent: setattr(sys.modules[parent], last, made)
module("torch", save=written, load=read)
module("torch.nn", Linear=Any)
module("torch.optim", SGD=Any)
module("torch.distributed", init_process_group=lambda: None, get_rank=lambda: RANK, is_initialized=lambda: True)
module("torch.distributed.checkpoint", save=lambda state, checkpoint_id: folder(checkpoint_id, ".metadata"),
       load=lambda state, checkpoint_id: print("loaded", checkpoint_id))
module("torch.distributed.checkpoint.state_dict", get_optimizer_state_dict=lambda *a: None)
module("deepspeed", initialize=lambda **k: (Engine(), 0, 0, 0))
module("accelerate", Accelerator=Engine)
exec(compile(sys.stdin.read(), "program", "exec"), {"__name__": "__main__"})
"""


def mended(text: str, rule: str) -> str:
    """The text with every fix of a rule pasted."""
    for _ in range(4):
        found = remarks(python(text, ENV, LAUNCH)).get(rule, [])
        if not found:
            return text
        fix = found[0].fix
        assert isinstance(fix, Lines), fix
        text = fix.paste(text)
    raise AssertionError(f"{rule} is not settled:\n{text}")


def run(text: str, directory: Path, rank: int = 0) -> str:
    env = {"CKPT_DIR": str(directory), "TRY_RANK": str(rank), "RANK": str(rank)}
    done = subprocess.run(
        [sys.executable, "-S", "-c", STUB], input=text, env=env, capture_output=True, text=True, check=False, timeout=30
    )
    assert done.returncode == 0, f"{text}\n{done.stderr}"
    return done.stdout


@pytest.mark.parametrize("name", PROGRAMS)
def test_every_fix_parses_in_its_place(name: str) -> None:
    text = PROGRAMS[name]
    for rule, found in remarks(python(text, ENV, LAUNCH)).items():
        for remark in found:
            assert isinstance(remark.fix, Lines), (rule, remark.fix)
            ast.parse(remark.fix.paste(text))
            ast.parse(remark.fix + "\n    pass" * remark.fix.endswith(":"))


@pytest.mark.parametrize("name", PROGRAMS)
def test_old_checkpoints_go_and_other_files_stay(name: str, tmp_path: Path) -> None:
    text = mended(PROGRAMS[name], "unlimited-checkpoints")
    if text == PROGRAMS[name]:
        pytest.skip("epochs are few")
    for other in ("latest", "best.bin", "step_best", "lost+found"):
        (tmp_path / other).touch()
    run(text, tmp_path)
    left = sorted(one.name for one in tmp_path.iterdir() if any(letter.isdigit() for letter in one.name))
    assert [one for one in left if any(word in one for word in ("30", "40", "50"))] == left
    assert len(left) == 3
    assert {"latest", "best.bin", "step_best", "lost+found"} <= {one.name for one in tmp_path.iterdir()}


@pytest.mark.parametrize("name", ["dcp", "accelerate", "deepspeed", "weights"])
def test_another_process_removes_nothing(name: str, tmp_path: Path) -> None:
    run(mended(PROGRAMS[name], "unlimited-checkpoints"), tmp_path, rank=1)
    assert len(list(tmp_path.iterdir())) in (0, 6)


@pytest.mark.parametrize("name", ["dcp", "accelerate", "deepspeed", "method", "weights"])
def test_the_second_start_loads_what_the_first_has_saved(name: str, tmp_path: Path) -> None:
    text = mended(PROGRAMS[name], "never-resumed")
    assert name == "deepspeed" or "loaded" not in run(text, tmp_path)
    assert "loaded" in run(text, tmp_path)


def test_the_optimizer_is_called_as_the_program_calls_it(tmp_path: Path) -> None:
    text = mended(ALONE, "optimizer-not-restored")
    assert "adam.load_state_dict(state" in text
    assert '"optimizer": sgd.state_dict()' in mended(WEIGHTS, "weights-only-checkpoint")


def test_a_name_without_a_number_is_not_the_newest(tmp_path: Path) -> None:
    text = mended(ALONE, "text-order-resume")
    for name in ("step-9", "step-100", "lost+found"):
        (tmp_path / f"{name}.pt").write_bytes(b"")
    probe = text.partition("if found:")[0] + "print(max(found, " + text.partition("max(found, ")[2].partition("\n")[0]
    assert run(probe, tmp_path).strip().endswith("step-100.pt")


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ('cd /app\npython train.py \\\n  --img "${SIZE}" \\\n  --exist-ok\npython export.py', "sigterm-not-forwarded"),
        ("cd /app && python train.py --a 'b  c' > log 2>&1\necho done", "sigterm-not-forwarded"),
        ('python train.py --epochs 3 \\\n  --name "a b" 2>&1 | tee log', "exit-status-lost"),
        ("python train.py || true", "exit-status-lost"),
        ("python train.py \\\n  --out /o \\\n  --bf16 || true", "exit-status-lost"),
        ('rm -rf "$CKPT_DIR" && echo gone\npython train.py --output_dir "$CKPT_DIR"', "overwritten-output"),
    ],
)
def test_a_command_keeps_its_lines_and_quotes(text: str, rule: str, tmp_path: Path) -> None:
    found = remarks(shell(text, ENV, LAUNCH))[rule]
    for remark in found:
        if isinstance(remark.fix, Lines):
            pasted = remark.fix.paste(text)
            checked = subprocess.run(["/bin/bash", "-n", "-c", pasted], capture_output=True, text=True, check=False)
            assert checked.returncode == 0, (pasted, checked.stderr)
            assert pasted.count('"') == text.count('"')
            assert "\\ " not in pasted
        checked = subprocess.run(["/bin/bash", "-n", "-c", remark.fix], capture_output=True, text=True, check=False)
        assert checked.returncode == 0, (remark.fix, checked.stderr)
        assert "\\ " not in remark.fix
