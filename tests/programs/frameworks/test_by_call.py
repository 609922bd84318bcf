"""Frameworks that a Python text calls: training_hub, Lightning, Orbax, XGBoost, and those of a loop of its own."""

import pytest

from tests.programs.frameworks.reading import OUT, none, only, python, value


def test_training_hub() -> None:
    found = only(python(f'from training_hub import sft\nsft(model_path="m", ckpt_output_dir="{OUT}")'), "training-hub")
    assert (value(found.directory), value(found.full), value(found.saves)) == (OUT, True, True)
    assert (value(found.flushes), found.framework.resumes_by_itself) == (False, True)
    text = "from training_hub import sft\nsft(model_path=m, accelerate_full_state_at_epoch=False, ckpt_output_dir=out)"
    assert value(only(python(text), "training-hub").full) is False
    text = "import training_hub as t\nt.sft(enable_jit_checkpoint=True, accelerate_full_state_at_epoch=False)"
    found = only(python(text), "training-hub")
    assert (value(found.full), value(found.flushes)) == (True, True)
    assert value(only(python("from training_hub import sft\nsft(**settings)"), "training-hub").full) == "?"


def test_training_hub_s_other_algorithms() -> None:
    found = only(python("from training_hub import osft\nosft(model_path=m, ckpt_output_dir=out)"), "training-hub")
    assert (value(found.full), value(found.saves)) == (False, False)
    found = only(python("from training_hub import osft\nosft(m, enable_jit_checkpoint=True)"), "training-hub")
    assert (value(found.full), value(found.saves)) == (True, True)
    found = only(python("from training_hub import lora_sft\nlora_sft(model_path=m)"), "training-hub")
    assert (value(found.keep), value(found.every), value(found.resume)) == (3, 500, None)


LIGHTNING = """
import lightning as L
from lightning.pytorch.callbacks import ModelCheckpoint
from net import model, data
keep = ModelCheckpoint({keep})
trainer = L.Trainer(max_steps=1000, callbacks=[keep])
trainer.fit(model, data{fit})
"""


@pytest.mark.parametrize(
    ("keep", "fit", "expected"),
    [
        ('dirpath="/mnt/ckpt/run"', "", (OUT, None, 1)),
        ('dirpath="/mnt/ckpt/run", save_last=True', ', ckpt_path="last"', (OUT, "last", 2)),
        ('dirpath="/mnt/ckpt/run", save_top_k=-1', ", ckpt_path=None", (OUT, None, None)),
        ('dirpath="/mnt/ckpt/run", save_top_k=3, save_last="link"', ", ckpt_path=found", (OUT, "?", 4)),
        ('dirpath="/mnt/ckpt/run", save_top_k=k', "", (OUT, None, "?")),
    ],
)
def test_lightning(keep: str, fit: str, expected: tuple[object, ...]) -> None:
    found = only(python(LIGHTNING.format(keep=keep, fit=fit)), "lightning")
    assert (value(found.directory), value(found.resume), value(found.keep)) == expected


def test_what_lightning_saves() -> None:
    found = only(python(LIGHTNING.format(keep="save_top_k=0", fit="")), "lightning")
    assert value(found.saves) is False
    found = only(python(LIGHTNING.format(keep="save_weights_only=True, save_on_exception=True", fit="")), "lightning")
    assert (value(found.full), value(found.flushes)) == (False, True)
    text = "import pytorch_lightning as pl\ntrainer = pl.Trainer(enable_checkpointing=False)\ntrainer.fit(m)"
    assert value(only(python(text), "lightning").saves) is False
    none(python("import lightning as L\ntrainer = L.Trainer()\ntrainer.test(m)"))


def test_orbax() -> None:
    text = """
    import orbax.checkpoint as ocp
    manager = ocp.CheckpointManager("/mnt/ckpt/run", options=ocp.CheckpointManagerOptions({options}))
    """
    found = only(python(text.format(options="max_to_keep=2, save_interval_steps=100")), "orbax")
    assert (value(found.directory), value(found.keep), value(found.every)) == (OUT, 2, 100)
    found = only(python(text.format(options="")), "orbax")
    assert (value(found.keep), value(found.every)) == (None, "?")
    assert value(only(python(text.format(options="preservation_policy=p")), "orbax").keep) == "?"


def test_xgboost() -> None:
    text = """
    import xgboost as xgb
    keep = xgb.callback.TrainingCheckPoint(directory="/mnt/ckpt/run", interval=10)
    xgb.train({}, data, callbacks=[keep]%s)
    """
    found = only(python(text % ""), "xgboost")
    assert (value(found.directory), value(found.resume), found.keep) == (OUT, None, None)
    assert value(only(python(text % ", xgb_model=last"), "xgboost").resume) == "?"
    none(python("import xgboost as xgb\nxgb.train({}, data)"))


def test_deepspeed() -> None:
    text = """
    import deepspeed, os
    engine, _, _, _ = deepspeed.initialize(model=net, config="ds.json")
    out = os.environ["CKPT_DIR"]
    engine.load_checkpoint(out%s)
    for step in range(1000):
        if step %% 100 == 0:
            engine.save_checkpoint(out, tag=f"step_{step}")
    """
    found = only(python(text % ""), "deepspeed")
    assert (value(found.directory), value(found.resume), value(found.keep)) == (OUT, OUT, None)
    assert (found.full, found.loads) == (None, None)
    assert value(only(python(text % ", load_module_only=True"), "deepspeed").full) is False
    assert value(only(python(text % ", load_optimizer_states=False"), "deepspeed").loads) is False


def test_dcp() -> None:
    text = """
    import os
    import torch.distributed.checkpoint as dcp
    out = os.environ["CKPT_DIR"]
    for step in range(1000):
        dcp.save(state, checkpoint_id=f"{out}/step_{step}")
    """
    found = only(python(text), "torch-distributed-checkpoint")
    assert (value(found.keep), value(found.resume)) == (None, None)
    found = only(python(text + "\n    dcp.load(state, checkpoint_id=last)"), "torch-distributed-checkpoint")
    assert value(found.resume) == "?"
    found = only(python(text + "\n    shutil.rmtree(old)"), "torch-distributed-checkpoint")
    assert found.keep is None


def test_plain_pytorch() -> None:
    text = """
    import os, torch
    out = os.environ["CKPT_DIR"]
    for step in range(1000):
        torch.save({"model": net.state_dict()}, f"{out}/%s.pt")
    """
    assert value(only(python(text % "step_{step}"), "pytorch").keep) is None
    assert only(python(text % "latest"), "pytorch").keep is None
    assert only(python((text % "epoch_{epoch}").replace("step", "epoch")), "pytorch").keep is None
    none(python("import torch\ntorch.save(net, 'a.pt')"))


def test_accelerate() -> None:
    text = """
    from accelerate import Accelerator
    from accelerate.utils import ProjectConfiguration
    accelerator = Accelerator(%s)
    for step in range(1000):
        accelerator.save_state(%s)
    """
    project = (
        'project_config=ProjectConfiguration(project_dir="/mnt/ckpt/run", automatic_checkpoint_naming=True, '
        "total_limit=2)"
    )
    found = only(python(text % (project, "")), "accelerate")
    assert (value(found.directory), value(found.keep)) == (OUT, 2)
    assert value(only(python(text % (project.replace(", total_limit=2", ""), "")), "accelerate").keep) is None
    assert value(only(python(text % ("", 'f"/mnt/ckpt/run/step_{step}"')), "accelerate").keep) is None
    assert only(python(text % ("", '"/mnt/ckpt/run/last"')), "accelerate").keep is None
