"""Frameworks with the faults that their users make, and the same programs right."""

from __future__ import annotations

import pytest

from tests.programs.reading import python, remarks, shell
from webhook.programs.frameworks import FRAMEWORKS, directory_of, find_calls, find_uses
from webhook.programs.program import Script

COMPOSER = """\
from composer import Trainer
from task import data, net

trainer = Trainer(model=net, train_dataloader=data, max_duration="10ep", %s)
trainer.fit()
"""
RAY = """\
import ray
from ray.train import CheckpointConfig, RunConfig
from ray.train.torch import TorchTrainer
from task import loop

def work(config):
    %s
    loop(config)

run = RunConfig(name="llm", storage_path="/mnt/ckpt/run", checkpoint_config=CheckpointConfig(%s))
TorchTrainer(work, run_config=run).fit()
"""
SB3 = """\
import pathlib
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import CheckpointCallback

model = PPO("MlpPolicy", "CartPole-v1")
%s
keep = CheckpointCallback(save_freq=1000, save_path="/mnt/ckpt/run")
model.learn(100000, callback=keep)
%s
"""
KERAS = """\
import keras
import numpy as np

net = keras.Sequential([keras.layers.Dense(10)])
data = np.zeros((5, 20))
%s
net.fit(data, epochs=100, callbacks=[keep])
"""
LGB = """\
import lightgbm as lgb
from task import data

booster = lgb.train({}, data, num_boost_round=%d, callbacks=[%s])
booster.save_model("/mnt/ckpt/run/model.txt")
"""
DLROVER = """\
from dlrover.trainer.torch.flash_checkpoint.ddp import DdpCheckpointer, StorageType
from task import net, adam, steps

checkpointer = DdpCheckpointer("/mnt/ckpt/run")
%s
for step in steps:
    adam.step()
    state = {"net": net.state_dict(), "adam": adam.state_dict()}
    checkpointer.save_checkpoint(step, state, storage_type=StorageType.%s)
"""
NVRX = """\
from nvidia_resiliency_ext.checkpointing.local.ckpt_managers.local_manager import LocalCheckpointManager
import torch.distributed.checkpoint as dcp
from task import state, steps

manager = LocalCheckpointManager("/local/ckpt")
for step in steps:
    manager.save(state, step)
    %s
"""
ODH = """\
checkpoint_config = {"enable_jit": True, "output_dir": "/mnt/ckpt/run", "save_steps": 100, %s}
_, _, apply, upload = _create_checkpoint_instrumentation(checkpoint_config)
apply()

from transformers import Trainer, TrainingArguments
from task import data, net

Trainer(net, TrainingArguments(output_dir="out"), train_dataset=data).train()
"""


@pytest.mark.parametrize(
    ("script", "rules"),
    [
        (shell("litgpt pretrain pythia-14m --out_dir /mnt/ckpt/run --resume false"), "resume-not-asked-for"),
        (shell("litgpt pretrain pythia-14m --out_dir /mnt/ckpt/run"), "resume-not-asked-for"),
        (shell("litgpt pretrain pythia-14m --out_dir /mnt/ckpt/run --resume true"), "resume-without-checkpoint"),
        (shell("litgpt pretrain pythia-14m --out_dir /mnt/ckpt/run --resume auto"), "unlimited-checkpoints"),
        (shell("litgpt finetune_lora pythia-14m --out_dir /mnt/ckpt/run"), "weights-only-checkpoint"),
        (python(COMPOSER % 'save_folder="/mnt/ckpt/run"'), "never-resumed unlimited-checkpoints"),
        (python(COMPOSER % 'autoresume=True, run_name="llm"'), "never-saved"),
        (
            python(COMPOSER % 'save_folder="/mnt/ckpt/run", save_weights_only=True, autoresume=True, run_name="llm"'),
            "weights-only-checkpoint",
        ),
        (
            shell("python asr.py exp_manager.exp_dir=/mnt/ckpt exp_manager.resume_if_exists=false"),
            "resume-not-asked-for",
        ),
        (
            shell(
                "python asr.py exp_manager.resume_if_exists=true exp_manager.resume_ignore_no_checkpoint=false "
                "exp_manager.explicit_log_dir=/mnt/ckpt/run"
            ),
            "resume-without-checkpoint",
        ),
        (python(RAY % ("pass", "")), "never-resumed unlimited-checkpoints"),
        (shell("deepspeed --module openrlhf.cli.train_sft --ckpt.path /mnt/ckpt/run"), "never-saved"),
        (
            shell("python -m openrlhf.cli.train_sft --ckpt.path /mnt/ckpt/run --ckpt.save_steps 100"),
            "resume-not-asked-for",
        ),
        (
            shell("python -m openrlhf.cli.train_sft --ckpt.path /mnt/ckpt/run --ckpt.save_steps 9 --ckpt.disable_ds"),
            "weights-only-checkpoint",
        ),
        (shell("torchrun -m open_clip_train.main --logs /mnt/ckpt --name run"), "resume-not-asked-for"),
        (
            shell("torchrun -m open_clip_train.main --logs /mnt/ckpt --name run --resume latest"),
            "unlimited-checkpoints",
        ),
        (shell("python -m EasyLM.models.llama.llama_train --logger.output_dir=/mnt/ckpt/run"), "never-saved"),
        (
            shell("python -m EasyLM.models.llama.llama_train --save_model_freq=100 --logger.output_dir=/mnt/ckpt/run"),
            "weights-only-checkpoint resume-not-asked-for",
        ),
        (python(SB3 % ("", "")), "never-resumed unlimited-checkpoints"),
        (
            python(KERAS % 'keep = keras.callbacks.ModelCheckpoint("/mnt/ckpt/run/{epoch}.keras")'),
            "never-resumed unlimited-checkpoints",
        ),
        (python(LGB % (5000, "lgb.early_stopping(5)")), "never-saved"),
        (python(DLROVER % ("", "DISK")), "never-resumed unlimited-checkpoints"),
        (python(DLROVER % ("checkpointer.load_checkpoint()", "MEMORY")), "fast-only-checkpoint"),
        (python(NVRX % "pass"), "fast-only-checkpoint"),
        (python(ODH % '"save_total_limit": None'), "unlimited-checkpoints"),
    ],
)
def test_a_fault_is_told(script: Script, rules: str) -> None:
    assert set(rules.split()) <= remarks(script).keys()


FINE = [
    shell("exec litgpt pretrain pythia-14m --out_dir /tmp/x --resume auto --train.save_interval 10"),
    python(COMPOSER % 'save_folder="/mnt/ckpt/run", autoresume=True, run_name="a", save_num_checkpoints_to_keep=3'),
    python(COMPOSER % "**task.settings"),
    shell("exec composer train.py unseen.yaml"),
    shell("exec python asr.py exp_manager.exp_dir=/mnt/ckpt/run"),
    shell("exec python asr.py exp_manager.resume_if_exists=true exp_manager.resume_ignore_no_checkpoint=true"),
    python(RAY % ("ray.train.get_checkpoint()", "num_to_keep=3")),
    shell("exec python -m openrlhf.cli.train_sft --ckpt.path /mnt/ckpt/run --ckpt.save_steps 100 --ckpt.load_enable"),
    shell("exec python -m openrlhf.cli.train_sft --ckpt_path /mnt/ckpt/run --save_steps 100"),
    shell(
        "exec torchrun -m open_clip_train.main --logs /mnt/ckpt --name run --resume latest "
        "--delete-previous-checkpoint --save-most-recent $MORE"
    ),
    shell(
        "exec python -m EasyLM.models.llama.llama_train --save_model_freq=100 --checkpointer.save_optimizer_state=True "
        "--load_checkpoint=trainstate::/mnt/ckpt/run/streaming_train_state --logger.output_dir=/mnt/ckpt/run"
    ),
    python(SB3 % ("model = PPO.load(newest)", "keep.path.unlink()")),
    python(KERAS % 'keep = keras.callbacks.BackupAndRestore("/mnt/ckpt/run", double_checkpoint=True)'),
    python(
        KERAS
        % 'net.load_weights("w")\nkeep = keras.callbacks.ModelCheckpoint("/mnt/ckpt/run/best", save_best_only=True)'
    ),
    python(KERAS % 'net.load_weights("w")\nkeep = keras.callbacks.ModelCheckpoint("w", save_weights_only=True)'),
    python(LGB % (50, "")),
    python(LGB % (5000, "task.save_it")),
    python(
        (DLROVER % ("checkpointer.load_checkpoint()", "DISK")).replace(
            '"/mnt/ckpt/run")', '"/mnt/ckpt/run", deletion_strategy=task.three)'
        )
    ),
    python(NVRX % 'dcp.save(state, checkpoint_id=f"/mnt/ckpt/run/step_{step:08d}")'),
    python(ODH % '"save_total_limit": 3'),
]
ABOUT = {
    "never-resumed",
    "resume-not-asked-for",
    "resume-without-checkpoint",
    "never-saved",
    "weights-only-checkpoint",
    "fast-only-checkpoint",
}


@pytest.mark.parametrize("script", FINE, ids=range(len(FINE)))
def test_the_right_form_is_silent(script: Script) -> None:
    assert not ABOUT & remarks(script).keys()
    own = [use.framework for use in (*find_uses(script), *find_calls(script))]
    if own and own[0].id not in ("litgpt", "open-clip", "nvidia-resiliency", "torch-distributed-checkpoint"):
        assert "unlimited-checkpoints" not in remarks(script)


@pytest.mark.parametrize(
    ("script", "local"),
    [
        (python(COMPOSER % 'save_folder="s3://runs/llm"'), ""),
        (python(COMPOSER % 'save_folder="hdfs://runs/llm"'), "Composer"),
        (python((RAY % ("pass", "")).replace("/mnt/ckpt/run", "gs://runs/llm")), ""),
        (shell("litgpt pretrain x --out_dir s3://runs/llm"), "LitGPT"),
        (shell("litgpt pretrain x --out_dir pvc://runs/llm"), "LitGPT"),
        (python(ODH % '"cloud_remote_storage_uri": "s3://runs/llm"'), ""),
        (shell("python -m EasyLM.models.llama.llama_train --save_model_freq=9 --logger.output_dir=gs://b/x"), ""),
        (python((SB3 % ("", "")).replace("/mnt/ckpt/run", "s3://runs/llm")), "Stable-Baselines3"),
    ],
)
def test_who_writes_to_an_address(script: Script, local: str) -> None:
    written = directory_of(script)
    assert written is not None
    assert "://" in written.directory
    assert written.local == local


def test_every_framework_says_where_its_facts_were_read() -> None:
    from importlib import import_module

    modules = [use.uses.__module__ for use in FRAMEWORKS]
    assert len(set(modules)) == len(FRAMEWORKS)
    for name in modules:
        assert "Read in " in (import_module(name).__doc__ or ""), name


def test_a_manager_of_torchft_hides_nothing() -> None:
    text = """\
import torch
from torchft import Manager

manager = Manager(pg, load_state_dict=load, state_dict=save, min_replica_size=1)
for step in range(1000):
    loss.backward()
    optimizer.step()
    torch.save(model.state_dict(), f"/mnt/ckpt/run/step_{step:08d}.pt")
"""
    script = python(text)
    assert "torchft" in {use.framework.id for use in find_calls(script)}
    assert "weights-only-checkpoint" in remarks(script)
