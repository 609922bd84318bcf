"""Fixes are programs, with the real frameworks: a faulty program, the fixes put in, killed, started again: it goes on.

All of it is full: torch, transformers, accelerate and Lightning on the CPU, JAX, Orbax and XGBoost, in the interpreters
that the rehearsals have.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.programs.test_fixed_programs import mended
from tests.rehearsal.venvs import interpreter

pytestmark = [
    pytest.mark.full,
    pytest.mark.skipif(not os.environ.get("E2E_FULL"), reason="full: some gigabytes of frameworks"),
]
STOP = 57
KILL = """\
def at(step):
    if os.environ.get("STOP") == str(step):
        os._exit(137)
    print("at", step, flush=True)


"""


def run(text: str, folder: Path, needs: str, stop: int | None = None, processes: int = 1) -> list[str]:
    """Starts a program, whose steps it gives in the order in which the first process did them."""
    folder.mkdir(exist_ok=True)
    python = interpreter(needs)
    file = folder.parent / "train.py"
    file.write_text(text)
    env = {**os.environ, "CKPT_DIR": str(folder), "STOP": "" if stop is None else str(stop), "OMP_NUM_THREADS": "1"}
    env |= {"JAX_PLATFORMS": "cpu", "HF_HUB_OFFLINE": "1", "TQDM_DISABLE": "1", "PYTHONWARNINGS": "ignore"}
    if processes > 1:
        launcher = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"]
        command = [python, *launcher, str(file)]
    else:
        command = [python, str(file)]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=300, cwd=folder.parent)
    killed = done.returncode == 137 or (processes > 1 and stop is not None and done.returncode != 0)
    assert killed is (stop is not None), done.stderr[-3000:]
    return [line.split()[1] for line in done.stdout.splitlines() if line.startswith("at ")]


def goes_on(text: str, rules: list[str], folder: Path, needs: str, first: int, processes: int = 1) -> str:
    """Puts the fix of each rule in, one after another; the restart has to begin at step ``first``."""
    for rule in rules:
        text = mended(text, rule, folder, processes)
    before = run(text, folder, needs, STOP, processes)
    assert before[:2] == ["0", "1"], before[:3]
    after = run(text, folder, needs, None, processes)
    assert after[0] == str(first), (after[:3], text)
    return text


TORCH = (
    """\
import glob
import os

import torch

"""
    + KILL
    + """\
torch.manual_seed(1)
out = os.environ["CKPT_DIR"]
net = torch.nn.Linear(2, 2)
adam = torch.optim.AdamW(net.parameters())
warm = torch.optim.lr_scheduler.LinearLR(adam, total_iters=50)
LOAD
for step in range(BEGIN):
    at(step)
    adam.zero_grad()
    net(torch.randn(2, 2)).sum().backward()
    adam.step()
    warm.step()
    if step % 10 == 0:
        SAVE
print("steps", int(adam.state[net.weight]["step"]))
"""
)
STATE = '{"net": net.state_dict(), "optimizer": adam.state_dict(), "warm": warm.state_dict(), "step": step'
PATH = 'os.path.join(out, f"step_{step:08d}.pt")'
WHOLE = f"torch.save({STATE}}}, {PATH})"
LOAD = """\
found = sorted(glob.glob(os.path.join(out, "step_*.pt")))
if found:
    state = torch.load(found[-1])
    net.load_state_dict(state["net"])
    adam.load_state_dict(state["optimizer"])
    warm.load_state_dict(state["warm"])
"""
WARM = '    warm.load_state_dict(state["warm"])\n'
ADAM = '    adam.load_state_dict(state["optimizer"])\n'
ALL = f"{LOAD}    first = state['step'] + 1\n"


def of_torch(load: str = "", begin: str = "80", save: str = WHOLE) -> str:
    return TORCH.replace("LOAD", load).replace("BEGIN", begin).replace("SAVE", save)


@pytest.mark.parametrize(
    ("rules", "text"),
    [
        (["never-resumed"], of_torch()),
        (["never-resumed", "unlimited-checkpoints"], of_torch()),
        (["weights-only-checkpoint", "never-resumed"], of_torch(save=f"torch.save(net.state_dict(), {PATH})")),
        (
            ["never-resumed", "overwritten-checkpoint"],
            of_torch(save=WHOLE.replace(PATH, 'os.path.join(out, "last.pt")')),
        ),
        (["step-not-restored"], of_torch(load=LOAD)),
        (["torn-newest"], of_torch(load=f"first = 0\n{ALL}", begin="first, 80")),
        (["scheduler-not-restored"], of_torch(load=f"first = 0\n{ALL}".replace(WARM, ""), begin="first, 80")),
        (["optimizer-not-restored"], of_torch(load=f"first = 0\n{ALL}".replace(ADAM, ""), begin="first, 80")),
        (["text-order-resume"], of_torch(f"first = 0\n{ALL}", "first, 80", WHOLE.replace(":08d", ""))),
    ],
    ids=lambda given: "+".join(given) if isinstance(given, list) else "",
)
def test_torch(rules: list[str], text: str, tmp_path: Path) -> None:
    goes_on(text, rules, tmp_path / "ckpt", "full", 51)


ORBAX = (
    """\
import os

import jax
import jax.numpy as jnp
import orbax.checkpoint as ocp

"""
    + KILL
    + """\
out = os.environ["CKPT_DIR"]
key = jax.random.PRNGKey(0)
state = {"w": jnp.zeros(4)}
manager = ocp.CheckpointManager(out, options=ocp.CheckpointManagerOptions(max_to_keep=3, save_interval_steps=10))
LOAD
for step in range(80):
    at(step)
    key, sub = jax.random.split(key)
    state = {"w": state["w"] + jax.random.normal(sub, (4,))}
    manager.save(step, args=ocp.args.StandardSave(state))
    manager.wait_until_finished()
"""
)
RESTORE = """\
if manager.latest_step() is not None:
    state = manager.restore(manager.latest_step(), args=ocp.args.StandardRestore(state))
"""


def test_orbax(tmp_path: Path) -> None:
    """Step and key: with both fixes the draws of a resumed run are those of one without a stop."""
    rules = ["step-not-restored", "rng-not-restored"]
    text = goes_on(ORBAX.replace("LOAD", RESTORE), rules, tmp_path / "ckpt", "light", 51)
    assert "fold_in(key, step)" in text
