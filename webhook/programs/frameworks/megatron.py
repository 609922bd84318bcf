"""Megatron-LM, and MindSpeed-LLM, which runs it on Ascend with the same flags.

Read in Megatron-LM at commit 008e9cd, ``megatron/training/config/training_config.py``: ``CheckpointConfig``
(``--save``, ``--load``, ``--save-interval``, none of them with a default; ``--most-recent-k`` -1, which keeps all;
``--save-retain-interval``, which deletes all others but the last; ``--no-save-optim``, ``--no-load-optim``;
``--finetune`` loads neither optimizer nor random state and sets the iteration to 0; ``--pretrained-checkpoint``;
``--exit-on-missing-checkpoint``, without which a ``--load`` that holds none starts from random; ``--ckpt-format``
torch_dist) and ``TrainingConfig`` (``--exit-signal-handler`` saves and leaves on SIGTERM, off by default).
MindSpeed-LLM at commit 015ce04, ``mindspeed_llm/training/checkpointing.py``: it wraps Megatron's own save and load,
with the same arguments and the same tracker file.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from webhook.programs import UNKNOWN, Invocation, Script, Value
from webhook.programs.frameworks.framework import Framework, Setting, Use, options, turned
from webhook.programs.values import is_known

_PREFIXES: Final = ("pretrain_", "posttrain_", "finetune_")
_MARKS: Final = (
    "tensor_model_parallel_size",
    "pipeline_model_parallel_size",
    "micro_batch_size",
    "global_batch_size",
    "num_attention_heads",
    "use_mcore_models",
)
_FLAGS: Final = ("save", "load", "save_interval", "train_iters", "train_samples", "ckpt_format", "finetune")
_SCRIPTS: Final = frozenset(
    (
        "pretrain_gpt.py",
        "pretrain_bert.py",
        "pretrain_t5.py",
        "pretrain_mamba.py",
        "pretrain_vlm.py",
        "posttrain_gpt.py",
    )
)
"""Scripts of Megatron's own, and MindSpeed-LLM's, by name."""


def is_megatron(invocation: Invocation) -> bool:
    """Told by its scripts' names and its flags: one without the other is something else."""
    name = invocation.file.rpartition("/")[2]
    marks = sum(mark in invocation.flags for mark in _MARKS)
    if name.startswith(_PREFIXES) and name.endswith(".py"):
        own = sum(flag in invocation.flags for flag in _FLAGS)
        return marks > 0 or own > (1 if name in _SCRIPTS else 2)
    return marks > 2 and bool(name)


def uses(script: Script) -> Iterator[Use]:
    for invocation in script.invocations:
        if invocation.python is None and is_megatron(invocation):
            yield _use(script, invocation)


def _use(script: Script, invocation: Invocation) -> Use:
    given = options(script, invocation, "yaml_cfg")
    partial = given.partial or any(isinstance(word, str) and word[:1] == "@" for word in invocation.arguments)
    save = given.setting("save", shown="--save")
    load = given.setting("load", shown="--load")
    interval = given.setting("save_interval", "persistent_save_interval", shown="--save-interval")
    keep = given.setting("most_recent_k", default=-1, shown="--most-recent-k")
    retain = given.setting("save_retain_interval")
    finetune = _switch(invocation, "finetune", partial)
    no_load = _switch(invocation, "no_load_optim", partial)
    no_save = _switch(invocation, "no_save_optim", partial)
    format_ = given.setting("ckpt_format", shown="--ckpt-format")
    until = given.setting("train_iters", default=UNKNOWN)
    if retain.given or not is_known(retain.value):
        keep = turned(retain, UNKNOWN)
    elif keep.value == -1:
        keep = turned(keep, None)
    return Use(
        FRAMEWORK,
        invocation.place,
        invocation=invocation,
        partial=partial,
        directory=turned(save, save.value if save.given else UNKNOWN),
        resume=load,
        keep=keep,
        every=turned(interval, UNKNOWN if interval.value is None else interval.value),
        saves=_saves(save, interval, partial),
        until=until,
        full=turned(no_save, False if no_save.value is True else UNKNOWN if not is_known(no_save.value) else True),
        # What it finetunes from may be another model's directory: only its own is a restart that is thrown away.
        overwrite=turned(finetune, finetune.value if _same(save, load) else UNKNOWN),
        loads=turned(no_load, False if no_load.value is True and _same(save, load) else UNKNOWN),
        fixed=turned(format_, format_.value == "torch" if format_.given else UNKNOWN),
        flushes=_switch(invocation, "exit_signal_handler", partial),
    )


def _saves(save: Setting, interval: Setting, partial: bool) -> Setting:
    """Each of ``--save`` and ``--save-interval`` is nothing without the other."""
    if partial:
        return turned(interval, UNKNOWN)
    if save.given != interval.given:
        return turned(interval if save.given else save, False)
    return turned(save, save.given)


def _switch(invocation: Invocation, name: str, partial: bool) -> Setting:
    flag = invocation.flag(name)
    if flag is not None:
        return Setting(flag.name, True, flag.place, True, flag.raw)
    return Setting("--" + name.replace("_", "-"), UNKNOWN if partial else False, invocation.place, given=False)


def _same(save: Setting, load: Setting) -> bool:
    return save.given and load.given and is_known(save.value) and _path(save.value) == _path(load.value)


def _path(value: Value) -> Value:
    return value.rstrip("/") if isinstance(value, str) else value


FRAMEWORK = Framework(
    id="megatron",
    title="Megatron-LM, MindSpeed-LLM",
    release="Megatron-LM 008e9cd, MindSpeed-LLM 015ce04",
    recognised="pretrain_*.py, posttrain_*.py, finetune_*.py with its flags",
    saves="--save DIR with --save-interval N",
    resumes="--load DIR; where there is none it starts afresh",
    keeps="--most-recent-k (all), --save-retain-interval",
    sigterm="--exit-signal-handler saves",
    ranks="every process writes its own part",
    uses=uses,
    resumes_if_any=True,
    loads_directory=True,
    keep_fix="--most-recent-k 3    # where pretrain_gpt.py --help has it; else remove old iter_* before the start",
    resume_fix="--load <the directory of --save>",
    every_fix="--save-interval 500",
)
