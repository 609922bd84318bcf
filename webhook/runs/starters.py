"""The programs that ``init`` starts from: one for each framework, with its three switches right.

Where to save (``CKPT_DIR``), how to resume, how many copies to keep. ``my_training`` stands for the user's own module.
``%(every)s`` and ``%(keep)s`` are put in; ``launch`` is the shell's last line.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct

_PYTORCH: Final = "pytorch/pytorch:2.8.0-cuda12.8-cudnn9-runtime"
OWN_IMAGE: Final = "<your image>"
"""Stands where no public image has the framework."""


class Starter(Struct, frozen=True):
    """``files`` are written by the shell before ``launch``; ``policy`` is the runtime's mlPolicy besides ``numNodes``.

    ``image`` is a public one that has the framework; where none is known it is the user's (``OWN_IMAGE``), made of
    ``base`` by ``pip``. ``program`` says where a program comes from that is no file of ours.
    """

    id: str
    title: str
    launch: str
    files: tuple[tuple[str, str], ...] = ()
    policy: str | None = "torch"
    more: int = 0
    """Copies that it keeps beyond the number asked for."""
    image: str = _PYTORCH
    pip: str = ""
    base: str = _PYTORCH
    program: str = ""

    @property
    def own_module(self) -> bool:
        """Whether its program imports ``my_training``."""
        return any("from my_training import" in text for _, text in self.files)


_STOP: Final = """\
stopping = False


def stop(signum, frame):
    global stopping
    stopping = True


signal.signal(signal.SIGTERM, stop)
"""

_HF: Final = """\
import glob
import os

from my_training import data, model  # yours
from transformers import Trainer, TrainingArguments

out = os.environ["CKPT_DIR"]
os.makedirs(out, exist_ok=True)


def checkpoints():
    # Those that are whole: trainer_state.json is written last. get_last_checkpoint() does not look.
    found = [path for path in glob.glob(f"{out}/checkpoint-*") if os.path.exists(f"{path}/trainer_state.json")]
    return sorted(found, key=lambda path: int(path.rsplit("-", 1)[1]))


args = TrainingArguments(
    output_dir=out, save_strategy="steps", save_steps=%(every)s, save_total_limit=%(keep)s
)
trainer = Trainer(model=model, args=args, train_dataset=data)
last = checkpoints()[-1] if checkpoints() else None
print(f"[checkpoint] resuming from {last}" if last else "[checkpoint] starting fresh", flush=True)
trainer.train(resume_from_checkpoint=last)
"""

_TORCH: Final = (
    """\
import os
import signal

import torch
from my_training import model, optimizer, steps, train_step  # yours

out = os.environ["CKPT_DIR"]
os.makedirs(out, exist_ok=True)
rank = int(os.environ.get("RANK", "0"))
"""
    + _STOP
    + """

def step_of(name):
    return int(name.removeprefix("step_").removesuffix(".pt"))


def checkpoints():
    names = [name for name in os.listdir(out) if name.startswith("step_") and name.endswith(".pt")]
    return sorted(names, key=step_of)


start = 0
found = checkpoints()
if found:
    state = torch.load(os.path.join(out, found[-1]), map_location="cpu")
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    start = state["step"] + 1
    print(f"[checkpoint] resuming from {out}/{found[-1]}", flush=True)
for step in range(start, steps):
    train_step(step)
    if (step + 1) %% %(every)s == 0 or stopping:
        if rank == 0:
            path = f"{out}/step_{step}.pt"
            state = {"step": step, "model": model.state_dict(), "optimizer": optimizer.state_dict()}
            torch.save(state, path + ".tmp")
            os.replace(path + ".tmp", path)
            for old in checkpoints()[:-%(keep)s]:
                os.remove(os.path.join(out, old))
        if stopping:
            raise SystemExit(143)
"""
)

_DCP: Final = """\
import os
import shutil

import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from my_training import model, optimizer, steps, train_step  # yours
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict

dist.init_process_group()
out = os.environ["CKPT_DIR"]
os.makedirs(out, exist_ok=True)


def step_of(name):
    return int(name.removeprefix("step_"))


def checkpoints():
    names = [name for name in os.listdir(out) if os.path.exists(os.path.join(out, name, ".metadata"))]
    return sorted(names, key=step_of)


start = 0
found = [checkpoints()]
dist.broadcast_object_list(found, src=0)
weights, optim = get_state_dict(model, optimizer)
if found[0]:
    state = {"model": weights, "optimizer": optim}
    dcp.load(state, checkpoint_id=f"{out}/{found[0][-1]}")
    set_state_dict(model, optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"])
    start = step_of(found[0][-1]) + 1
    print(f"[checkpoint] resuming from {out}/{found[0][-1]}", flush=True)
for step in range(start, steps):
    train_step(step)
    if (step + 1) %% %(every)s == 0:
        weights, optim = get_state_dict(model, optimizer)
        dcp.save({"model": weights, "optimizer": optim}, checkpoint_id=f"{out}/step_{step}")
        if dist.get_rank() == 0:
            for old in checkpoints()[:-%(keep)s]:
                shutil.rmtree(os.path.join(out, old))
"""

_DEEPSPEED: Final = """\
import os
import shutil

import deepspeed
from my_training import config, model, steps, train_step  # yours

out = os.environ["CKPT_DIR"]
os.makedirs(out, exist_ok=True)
engine, _, _, _ = deepspeed.initialize(model=model, config=config, model_parameters=model.parameters())
start = 0
if os.path.exists(os.path.join(out, "latest")):
    path, _ = engine.load_checkpoint(out)
    start = engine.global_steps
    print(f"[checkpoint] resuming from {path}", flush=True)
for step in range(start, steps):
    train_step(engine, step)
    if engine.global_steps %% %(every)s == 0:
        engine.save_checkpoint(out, tag=f"step_{engine.global_steps}")
        if engine.global_rank == 0:
            kept = [name for name in os.listdir(out) if name.startswith("step_")]
            for old in sorted(kept, key=lambda name: int(name.removeprefix("step_")))[:-%(keep)s]:
                shutil.rmtree(os.path.join(out, old))
"""

_LIGHTNING: Final = """\
import os

import lightning as L
from lightning.pytorch.callbacks import ModelCheckpoint
from my_training import data, model  # yours

out = os.environ["CKPT_DIR"]
save = ModelCheckpoint(
    dirpath=out, every_n_train_steps=%(every)s, save_top_k=%(keep)s, monitor="step", mode="max", save_last=True
)
trainer = L.Trainer(callbacks=[save], default_root_dir=out)
trainer.fit(model, datamodule=data, ckpt_path="last")
"""

_ACCELERATE: Final = """\
import os
import shutil

from accelerate import Accelerator
from my_training import loader, model, optimizer, steps, train_step  # yours

out = os.environ["CKPT_DIR"]
os.makedirs(out, exist_ok=True)
accelerator = Accelerator()
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)


def checkpoints():
    # Those that are whole: a folder gets its name when all is in it.
    names = [name for name in os.listdir(out) if name.startswith("step_") and name[5:].isdigit()]
    return sorted(names, key=lambda name: int(name[5:]))


start = 0
found = checkpoints()
if found:
    accelerator.load_state(os.path.join(out, found[-1]))
    start = int(found[-1][5:]) + 1
    print(f"[checkpoint] resuming from {out}/{found[-1]}", flush=True)
for step in range(start, steps):
    train_step(accelerator, model, optimizer, step)
    if (step + 1) %% %(every)s == 0:
        accelerator.save_state(f"{out}/step_{step}.part")
        accelerator.wait_for_everyone()
        if accelerator.is_main_process:
            os.replace(f"{out}/step_{step}.part", f"{out}/step_{step}")
            for old in checkpoints()[:-%(keep)s]:
                shutil.rmtree(os.path.join(out, old))
        accelerator.wait_for_everyone()
"""

_ORBAX: Final = """\
import os

import orbax.checkpoint as ocp
from my_training import state, steps, train_step  # yours

out = os.environ["CKPT_DIR"]
options = ocp.CheckpointManagerOptions(max_to_keep=%(keep)s, save_interval_steps=%(every)s)
manager = ocp.CheckpointManager(out, options=options)
start = 0
last = manager.latest_step()
if last is not None:
    state = manager.restore(last, args=ocp.args.StandardRestore(state))
    start = last + 1
    print(f"[checkpoint] resuming from step {last}", flush=True)
for step in range(start, steps):
    state = train_step(state, step)
    manager.save(step, args=ocp.args.StandardSave(state))
    if manager.reached_preemption(step):
        manager.wait_until_finished()
        raise SystemExit(143)
manager.wait_until_finished()
"""

_XGBOOST: Final = """\
import os

import xgboost as xgb
from my_training import params, rounds, train_data  # yours

out = os.environ["CKPT_DIR"]
os.makedirs(out, exist_ok=True)


def round_of(name):
    return int(name.removeprefix("model_").removesuffix(".ubj"))


class Save(xgb.callback.TrainingCallback):
    def after_iteration(self, model, epoch, evals_log):
        done = model.num_boosted_rounds()
        if done %% %(every)s == 0 and xgb.collective.get_rank() == 0:
            path = f"{out}/model_{done}.ubj"
            model.save_model(path + ".tmp.ubj")
            os.replace(path + ".tmp.ubj", path)
            for old in checkpoints()[:-%(keep)s]:
                os.remove(os.path.join(out, old))
        return False


def checkpoints():
    names = [name for name in os.listdir(out) if name.startswith("model_") and not name.endswith(".tmp.ubj")]
    return sorted(names, key=round_of)


found = checkpoints()
last = xgb.Booster(model_file=os.path.join(out, found[-1])) if found else None
done = last.num_boosted_rounds() if last else 0
print(f"[checkpoint] resuming from round {done}" if last else "[checkpoint] starting fresh", flush=True)
xgb.train(params, train_data, num_boost_round=rounds - done, xgb_model=last, callbacks=[Save()])
"""

_TRAINING_HUB: Final = """\
import os

from my_training import data, model  # yours
from training_hub import sft

sft(
    model_path=model,
    data_path=data,
    ckpt_output_dir=os.environ["CKPT_DIR"],
    data_output_dir="/tmp/data",
    checkpoint_at_epoch=True,
    accelerate_full_state_at_epoch=True,
    max_tokens_per_gpu=8192,
    nproc_per_node=int(os.environ.get("LOCAL_WORLD_SIZE", "1")),
)
"""

_LLAMAFACTORY: Final = """\
model_name_or_path: <model>
stage: sft
do_train: true
finetuning_type: lora
dataset: <dataset>
template: default
output_dir: %(directory)s
save_strategy: steps
save_steps: %(every)s
save_total_limit: %(keep)s
overwrite_output_dir: false
"""

_AXOLOTL: Final = """\
base_model: <model>
datasets:
  - path: <dataset>
    type: alpaca
output_dir: %(directory)s
save_strategy: steps
save_steps: %(every)s
save_total_limit: %(keep)s
auto_resume_from_checkpoints: true
"""

_PY: Final = "/tmp/train.py"  # noqa: S108 - paths in a pod
_YAML: Final = "/tmp/sft.yaml"  # noqa: S108

STARTERS: Final[tuple[Starter, ...]] = (
    Starter(
        "hf-trainer",
        "Hugging Face Trainer, TRL",
        "exec torchrun /tmp/train.py",
        ((_PY, _HF),),
        image=OWN_IMAGE,
        pip="'transformers>=4.51' 'accelerate>=1.6' datasets",
    ),
    Starter("pytorch", "plain PyTorch", "exec torchrun /tmp/train.py", ((_PY, _TORCH),)),
    Starter(
        "torch-distributed-checkpoint", "torch.distributed.checkpoint", "exec torchrun /tmp/train.py", ((_PY, _DCP),)
    ),
    Starter(
        "deepspeed",
        "DeepSpeed",
        "exec torchrun /tmp/train.py",
        ((_PY, _DEEPSPEED),),
        image=OWN_IMAGE,
        pip="'deepspeed>=0.16'",
        base=_PYTORCH.replace("-runtime", "-devel"),
    ),
    Starter(
        "lightning",
        "Lightning",
        "exec torchrun /tmp/train.py",
        ((_PY, _LIGHTNING),),
        more=1,
        image=OWN_IMAGE,
        pip="'lightning>=2.5'",
    ),
    Starter(
        "accelerate",
        "Accelerate",
        "exec torchrun /tmp/train.py",
        ((_PY, _ACCELERATE),),
        image=OWN_IMAGE,
        pip="'accelerate>=1.6'",
    ),
    Starter(
        "megatron",
        "Megatron-LM",
        'exec torchrun pretrain_gpt.py --save "$CKPT_DIR" --load "$CKPT_DIR" --save-interval %(every)s '
        "--exit-signal-handler --ckpt-format torch_dist $MEGATRON_ARGS",
        image=OWN_IMAGE,
        pip="'megatron-core[dev]>=0.12'",
        base=_PYTORCH.replace("-runtime", "-devel"),
        program="pretrain_gpt.py is Megatron-LM's: git clone https://github.com/NVIDIA/Megatron-LM, as WORKDIR of the "
        "image; MEGATRON_ARGS is a variable of yours with the model's and the data's flags",
    ),
    Starter(
        "llamafactory",
        "LLaMA-Factory",
        "exec llamafactory-cli train /tmp/sft.yaml",
        ((_YAML, _LLAMAFACTORY),),
        image="hiyouga/llamafactory:latest",
        program="the configuration stands in the TrainJob: put yours in the place of <model> and <dataset>",
    ),
    Starter(
        "axolotl",
        "axolotl",
        "exec axolotl train /tmp/sft.yaml",
        ((_YAML, _AXOLOTL),),
        image="axolotlai/axolotl:main-latest",
        program="the configuration stands in the TrainJob: put yours in the place of <model> and <dataset>",
    ),
    Starter(
        "training-hub",
        "training_hub",
        "exec python /tmp/train.py",
        ((_PY, _TRAINING_HUB),),
        image=OWN_IMAGE,
        pip="training-hub",
    ),
    Starter(
        "torchtune",
        "torchtune",
        'if [ -f "$CKPT_DIR/recipe_state/recipe_state.pt" ]; then resume=True; else resume=False; fi\n'
        'exec tune run full_finetune_distributed --config llama3_2/1B_full output_dir="$CKPT_DIR" '
        "resume_from_checkpoint=$resume",
        image=OWN_IMAGE,
        pip="torchtune torchao",
        program="the recipe is torchtune's own: name yours, and your configuration, in the TrainJob's args",
    ),
    Starter(
        "verl",
        "verl",
        'exec python -m verl.trainer.main_ppo trainer.default_local_dir="$CKPT_DIR" trainer.save_freq=%(every)s '
        "trainer.resume_mode=auto trainer.max_actor_ckpt_to_keep=%(keep)s trainer.max_critic_ckpt_to_keep=%(keep)s "
        "$VERL_ARGS",
        image=OWN_IMAGE,
        pip="'verl[vllm]'",
        program="the program is verl's own; VERL_ARGS is a variable of yours with the model's and the data's settings",
    ),
    Starter(
        "orbax",
        "Orbax (JAX)",
        "exec python /tmp/train.py",
        ((_PY, _ORBAX),),
        "jax",
        image=OWN_IMAGE,
        pip="'jax[cuda12]' orbax-checkpoint",
        base="python:3.12-slim",
    ),
    Starter(
        "xgboost",
        "XGBoost",
        "exec python /tmp/train.py",
        ((_PY, _XGBOOST),),
        "xgboost",
        image=OWN_IMAGE,
        pip="'xgboost>=2.1'",
        base="python:3.12-slim",
    ),
)
