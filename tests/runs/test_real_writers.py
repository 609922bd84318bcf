"""The frameworks' own writers, where they are installed: what they leave counts as complete, what they have not ended
does not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.runs.folders import found, table


def test_orbax(tmp_path: Path) -> None:
    ocp: Any = pytest.importorskip("orbax.checkpoint")
    numpy: Any = pytest.importorskip("numpy")
    root = tmp_path / "run"
    manager = ocp.CheckpointManager(root, options=ocp.CheckpointManagerOptions(max_to_keep=2))
    for step in (0, 10, 20):
        manager.save(step, args=ocp.args.StandardSave({"w": numpy.arange(10.0)}))
    manager.wait_until_finished()
    manager.close()
    assert table(root) == {"10": True, "20": True}
    taken = found(root).taken
    assert taken is not None
    assert taken.step == 20


def test_torch(tmp_path: Path) -> None:
    torch: Any = pytest.importorskip("torch")
    torch.save({"step": 5, "w": torch.zeros(100)}, tmp_path / "step_5.pt")
    torch.save({"step": 9, "w": torch.zeros(100)}, tmp_path / "step_9.pt")
    whole = (tmp_path / "step_9.pt").read_bytes()
    (tmp_path / "step_9.pt").write_bytes(whole[:-100])
    assert table(tmp_path) == {"step_5.pt": True, "step_9.pt": False}


def test_torch_distributed_checkpoint(tmp_path: Path) -> None:
    torch: Any = pytest.importorskip("torch")
    dcp: Any = pytest.importorskip("torch.distributed.checkpoint")
    dcp.save({"w": torch.zeros(100)}, checkpoint_id=tmp_path / "step_5")
    assert table(tmp_path) == {"step_5": True}
    (tmp_path / "step_5" / ".metadata").unlink()
    assert table(tmp_path) == {"step_5": False}


def test_safetensors(tmp_path: Path) -> None:
    numpy: Any = pytest.importorskip("numpy")
    safetensors: Any = pytest.importorskip("safetensors.numpy")
    safetensors.save_file({"w": numpy.arange(100.0)}, tmp_path / "model_step_5.safetensors")
    whole = (tmp_path / "model_step_5.safetensors").read_bytes()
    (tmp_path / "model_step_6.safetensors").write_bytes(whole[:-8])
    assert table(tmp_path) == {"model_step_5.safetensors": True, "model_step_6.safetensors": False}
