"""The frameworks' own writers: what they leave counts as complete, what they have not ended does not.

Orbax, XGBoost and safetensors write in the environment of the recipes (``make e2e-full``); PyTorch is asked where it is
installed, since its wheel for Linux brings some gigabytes for GPUs.
"""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.recipes import environment
from tests.runs.folders import found, table

pytestmark = pytest.mark.full

ORBAX = """
import sys
import numpy
import orbax.checkpoint as ocp
manager = ocp.CheckpointManager(sys.argv[1], options=ocp.CheckpointManagerOptions(max_to_keep=2))
for step in (0, 10, 20):
    manager.save(step, args=ocp.args.StandardSave({"w": numpy.arange(10.0)}))
manager.wait_until_finished()
manager.close()
"""
SAFETENSORS = """
import sys
import numpy
import safetensors.numpy
safetensors.numpy.save_file({"w": numpy.arange(100.0)}, sys.argv[1] + "/model_step_5.safetensors")
"""
XGBOOST = """
import sys
import numpy
import xgboost
data = xgboost.DMatrix(numpy.arange(40.0).reshape(20, 2), label=numpy.arange(20.0))
checkpoint = xgboost.callback.TrainingCheckPoint(directory=sys.argv[1], name="model", interval=2)
xgboost.train({"nthread": 1}, data, num_boost_round=6, callbacks=[checkpoint])
"""


@pytest.fixture(scope="session")
def python() -> Path:
    """An interpreter that has the writers."""
    return environment.asked_for()


def write(python: Path, program: str, folder: Path) -> None:
    command = [str(python), "-c", program, str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env={"JAX_PLATFORMS": "cpu"})
    assert done.returncode == 0, done.stderr[-2000:]


def test_orbax(tmp_path: Path, python: Path) -> None:
    root = tmp_path / "run"
    write(python, ORBAX, root)
    assert table(root) == {"10": True, "20": True}
    taken = found(root).taken
    assert taken is not None
    assert taken.step == 20


def test_safetensors(tmp_path: Path, python: Path) -> None:
    write(python, SAFETENSORS, tmp_path)
    whole = (tmp_path / "model_step_5.safetensors").read_bytes()
    (tmp_path / "model_step_6.safetensors").write_bytes(whole[:-8])
    # Whole, but whether it is all that its program resumes from nobody knows.
    assert table(tmp_path) == {"model_step_5.safetensors": None, "model_step_6.safetensors": False}


def test_xgboost(tmp_path: Path, python: Path) -> None:
    write(python, XGBOOST, tmp_path)
    # A model in one file says nothing of its own end.
    assert table(tmp_path) == {"model_2.ubj": None, "model_4.ubj": None}


def test_torch(tmp_path: Path) -> None:
    torch: Any = pytest.importorskip("torch")
    torch.save({"step": 5, "w": torch.zeros(100)}, tmp_path / "step_5.pt")
    torch.save({"step": 9, "w": torch.zeros(100)}, tmp_path / "step_9.pt")
    whole = (tmp_path / "step_9.pt").read_bytes()
    (tmp_path / "step_9.pt").write_bytes(whole[:-100])
    assert table(tmp_path) == {"step_5.pt": None, "step_9.pt": False}


def test_torch_distributed_checkpoint(tmp_path: Path) -> None:
    torch: Any = pytest.importorskip("torch")
    dcp: Any = pytest.importorskip("torch.distributed.checkpoint")
    dcp.save({"w": torch.zeros(100)}, checkpoint_id=tmp_path / "step_5")
    assert table(tmp_path) == {"step_5": True}
    (tmp_path / "step_5" / ".metadata").unlink()
    assert table(tmp_path) == {"step_5": False}


def test_hugging_face_trainer(tmp_path: Path) -> None:
    torch: Any = pytest.importorskip("torch")
    transformers: Any = pytest.importorskip("transformers")
    config = transformers.GPT2Config(n_layer=1, n_head=1, n_embd=8, vocab_size=16, n_positions=8)
    model = transformers.GPT2LMHeadModel(config)
    rows = [{"input_ids": torch.arange(8), "labels": torch.arange(8)} for _ in range(8)]
    arguments = transformers.TrainingArguments(
        output_dir=str(tmp_path), max_steps=4, save_steps=2, use_cpu=True, report_to=[], disable_tqdm=True
    )
    transformers.Trainer(model=model, args=arguments, train_dataset=rows).train()
    assert table(tmp_path) == {"checkpoint-2": True, "checkpoint-4": True}
    (tmp_path / "checkpoint-4" / "optimizer.pt").unlink()
    assert table(tmp_path) == {"checkpoint-2": True, "checkpoint-4": False}
