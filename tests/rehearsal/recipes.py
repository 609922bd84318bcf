"""The recipes of docs/recipes and the starters of ``init``, as commands that can be rehearsed here on two cores.

What a user has to bring, a module with a model and data, is below; what else is changed stands beside each: fewer
processes, and a CPU in the place of a GPU. Frameworks that need a GPU, a download or a compiler are left out.
"""

from __future__ import annotations

import contextlib
import io
import os
from pathlib import Path
from typing import Any, Final

import yaml
from msgspec import Struct

from webhook.cli import main

FOLDER: Final = Path(__file__).parents[2] / "docs" / "recipes"

_STEP: Final = """\
import time

import torch

torch.manual_seed(0)
torch.set_num_threads(1)
PACE = 0.02
"""

_LOOP: Final = (
    _STEP
    + """
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.AdamW(model.parameters())
steps = 100_000


def batches(step):
    return torch.randn(8, 4, generator=torch.Generator().manual_seed(step))


def make_model():
    return model


def loss_of(model, batch):
    time.sleep(PACE)
    return (model(batch) - batch.sum(1, keepdim=True)).pow(2).mean()


def train_step(step):
    loss_of(model, batches(step)).backward()
    optimizer.step()
    optimizer.zero_grad()
"""
)

_ACCELERATE: Final = (
    _STEP
    + """
torch.set_default_device("cpu")
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.AdamW(model.parameters())
steps = 100_000
rows = torch.randn(20_000, 4, generator=torch.Generator().manual_seed(1))
loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(rows), batch_size=1)


def make_model():
    return model


def loss_of(model, batch):
    time.sleep(PACE)
    return (model(batch[0]) - batch[0].sum(1, keepdim=True)).pow(2).mean()


def train_step(accelerator, model, optimizer, step):
    accelerator.backward(loss_of(model, [rows[step : step + 1]]))
    optimizer.step()
    optimizer.zero_grad()
"""
)

_HF: Final = (
    _STEP
    + """
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)

    def forward(self, x, labels=None):
        time.sleep(PACE)
        made = self.layer(x)
        return {"loss": (made - labels).pow(2).mean(), "logits": made}


rows = torch.randn(20_000, 4, generator=torch.Generator().manual_seed(1))
data = [{"x": row, "labels": row.sum().reshape(1)} for row in rows]
model = Net()
"""
)

_LIGHTNING: Final = (
    _STEP
    + """
import lightning as L


class Net(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)

    def training_step(self, batch, _):
        time.sleep(PACE)
        return (self.layer(batch[0]) - batch[0].sum(1, keepdim=True)).pow(2).mean()

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters())


class Data(L.LightningDataModule):
    def train_dataloader(self):
        rows = torch.randn(20_000, 4, generator=torch.Generator().manual_seed(1))
        return torch.utils.data.DataLoader(torch.utils.data.TensorDataset(rows))


data, model = Data(), Net()
"""
)

_ORBAX: Final = """\
import time

import jax.numpy as jnp

state = {"weights": jnp.zeros(4), "momentum": jnp.zeros(4)}
steps = 100_000


def train_step(state, step):
    time.sleep(0.01)
    momentum = 0.9 * state["momentum"] + (1.0 - state["weights"])
    return {"weights": state["weights"] + 0.01 * momentum, "momentum": momentum}
"""

_XGBOOST: Final = """\
import numpy as np
import xgboost as xgb

rounds = 100_000
params = {"max_depth": 3, "nthread": 1}
rows = np.random.default_rng(0).normal(size=(500, 4))
train_data = xgb.DMatrix(rows, label=rows.sum(axis=1))
"""


class Recipe(Struct, frozen=True):
    """``name`` is a file of docs/recipes, or behind ``init `` a starter. ``changes``: what has to be other here."""

    name: str
    needs: str = ""
    module: str = ""
    changes: tuple[tuple[str, str], ...] = ()
    flags: tuple[str, ...] = ()

    def job(self) -> dict[str, Any]:
        """Its TrainJob."""
        if self.name.startswith("init "):
            with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()):
                if main(["init", "--framework", self.name[5:], "--class", "efs", "--every", "10"]) != 0:
                    raise ValueError(self.name)
            text = out.getvalue()
        else:
            text = (FOLDER / f"{self.name}.yaml").read_text()
        found: dict[str, Any] = next(one for one in yaml.safe_load_all(text) if one and one["kind"] == "TrainJob")
        return found

    def command(self, folder: Path) -> list[str]:
        """What its pod starts, with the module beside it. Raises ValueError where a change does not apply any more."""
        trainer = self.job()["spec"]["trainer"]
        text = trainer["args"][0]
        for old, new in self.changes:
            if old not in text:
                raise ValueError(f"{self.name} has no {old!r}")
            text = text.replace(old, new)
        for name in ("my_training", "mytask"):
            (folder / f"{name}.py").write_text(self.module)
        return [*trainer["command"], text.replace("/tmp/train.py", f"{folder}/train.py")]

    @staticmethod
    def environment(folder: Path, python: str) -> dict[str, str]:
        """Variables beside the rehearsal's own: what an image has on its path, and that there is no GPU."""
        return {
            "PATH": f"{Path(python).parent}:{os.environ['PATH']}",
            "PAUSE": "0.001",
            "CKPT_FAST_DIR": f"{folder}/fast",
            "CUDA_VISIBLE_DEVICES": "",
            "JAX_PLATFORMS": "cpu",
            "HF_HUB_OFFLINE": "1",
        }


_COMPARE: Final = ("--compare",)
_500: Final = ("% 500 == 0", "% 10 == 0")
_TWO_PROCESSES: Final = (
    ('--nnodes 2 --nproc_per_node 8 --node_rank "$PET_NODE_RANK"', "--standalone --nproc_per_node 2"),
    ('--master_addr "$PET_MASTER_ADDR" --master_port "$PET_MASTER_PORT"', ""),
)
_NO_GPU: Final = (('torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))', ""), ("make_model().cuda()", "make_model()"))

_TORCHRUN: Final = (("exec torchrun", "exec torchrun --nproc_per_node 2"),)

RECIPES: Final = (
    Recipe("plain-python", flags=_COMPARE),
    Recipe("xgboost", "light", flags=_COMPARE),
    Recipe("orbax", "light", changes=(("save_interval_steps=500", "save_interval_steps=20"),), flags=_COMPARE),
    Recipe("init xgboost", "light", _XGBOOST, flags=_COMPARE),
    Recipe("init orbax", "light", _ORBAX, flags=_COMPARE),
    Recipe("pytorch-two-tiers", "full", _LOOP, (("% 100 == 0", "% 10 == 0"), ("% 500 == 0", "% 30 == 0"))),
    Recipe("fsdp2-dcp", "full", _LOOP, (_500, *_NO_GPU, *_TWO_PROCESSES)),
    Recipe("hf-trainer", "full", _HF, (("save_steps=200", "save_steps=10"),)),
    Recipe("accelerate", "full", _ACCELERATE, (_500, ("--num_processes 8", "--cpu --num_processes 1"))),
    Recipe("lightning", "full", _LIGHTNING, (("every_n_train_steps=500", "every_n_train_steps=10"),)),
    Recipe("init pytorch", "full", _LOOP),
    Recipe(
        "init torch-distributed-checkpoint", "full", _LOOP, (("exec torchrun", "exec torchrun --nproc_per_node 2"),)
    ),
    Recipe("init hf-trainer", "full", _HF),
    Recipe("init accelerate", "full", _ACCELERATE),
    Recipe("init lightning", "full", _LIGHTNING),
)
