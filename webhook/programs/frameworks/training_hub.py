"""training_hub.

Read in training_hub 0.11.2: ``algorithms/sft.py`` (backend instructlab-training; ``ckpt_output_dir``,
``checkpoint_at_epoch``, ``accelerate_full_state_at_epoch``; ``enable_jit_checkpoint`` saves on SIGTERM and at the
next start), ``algorithms/osft.py`` (backend mini-trainer) and ``algorithms/lora.py`` (``save_steps`` 500,
``save_total_limit`` 3; it resumes only with ``enable_jit_checkpoint`` or remote storage). In instructlab-training
0.16.2: ``config.py`` (``checkpoint_at_epoch`` and ``accelerate_full_state_at_epoch`` are true where they are not given)
and ``utils.py`` (``load_latest_full_state`` resumes by itself from ``full_state``, which
``keep_last_checkpoint_only`` does not thin out). In rhai-innovation-mini-trainer 0.9.0: ``train.py`` (the optimizer is
saved, and looked for at the start, only with ``on_demand_checkpointing``).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from webhook.programs import UNKNOWN, Call, Python, Script, Value
from webhook.programs.frameworks.framework import Framework, Setting, Use, call_setting, is_open, turned
from webhook.programs.values import is_known, is_true

_FULL: Final = ("training_hub.sft",)
_ORTHOGONAL: Final = ("training_hub.osft",)
_ADAPTERS: Final = ("training_hub.lora_sft", "training_hub.lora_grpo")


def uses(script: Script) -> Iterator[Use]:
    for python in script.pythons:
        if "training_hub" in python.source.modules:
            for call in python.calls(*_FULL):
                yield _full(python, call)
            for call in python.calls(*_ORTHOGONAL):
                yield _orthogonal(python, call)
            for call in python.calls(*_ADAPTERS):
                yield _adapters(python, call)


def _full(python: Python, call: Call) -> Use:
    saves = call_setting(python, call, "checkpoint_at_epoch", None)
    full = call_setting(python, call, "accelerate_full_state_at_epoch", None)
    adapters = call_setting(python, call, "lora_r", None)
    jit = _jit(python, call)
    return Use(
        FRAMEWORK,
        python.at(call),
        python,
        call,
        partial=is_open(python, call),
        directory=call_setting(python, call, "ckpt_output_dir", UNKNOWN),
        resume=turned(jit, UNKNOWN),
        saves=turned(saves, _either(_default(saves.value, True), jit.value)),
        full=turned(full, UNKNOWN if adapters.given else _either(_default(full.value, True), jit.value)),
        flushes=jit,
    )


def _orthogonal(python: Python, call: Call) -> Use:
    saves = call_setting(python, call, "checkpoint_at_epoch", None)
    jit = _jit(python, call)
    return Use(
        FRAMEWORK,
        python.at(call),
        python,
        call,
        partial=is_open(python, call),
        directory=call_setting(python, call, "ckpt_output_dir", UNKNOWN),
        resume=turned(jit, UNKNOWN),
        saves=turned(saves, _either(_default(saves.value, False), jit.value)),
        full=jit,
        flushes=jit,
    )


def _adapters(python: Python, call: Call) -> Use:
    jit = _jit(python, call)
    storage = call_setting(python, call, "checkpoint_storage", None)
    return Use(
        FRAMEWORK,
        python.at(call),
        python,
        call,
        partial=is_open(python, call),
        directory=call_setting(python, call, "ckpt_output_dir", UNKNOWN),
        resume=turned(jit, None if jit.value is False and storage.value is None else UNKNOWN),
        keep=turned(*_with_default(call_setting(python, call, "save_total_limit", 3), 3)),
        every=turned(*_with_default(call_setting(python, call, "save_steps", 500), 500)),
        flushes=jit,
    )


def _jit(python: Python, call: Call) -> Setting:
    setting = call_setting(python, call, "enable_jit_checkpoint", False)
    truth = is_true(setting.value)
    return turned(setting, UNKNOWN if truth is None else truth)


def _default(value: Value, default: bool) -> Value:
    if value is None:
        return default
    truth = is_true(value)
    return UNKNOWN if truth is None else truth


def _with_default(setting: Setting, default: int) -> tuple[Setting, Value]:
    return setting, default if setting.value is None else setting.value


def _either(one: Value, two: Value) -> Value:
    if one is True or two is True:
        return True
    return False if is_known(one) and is_known(two) else UNKNOWN


FRAMEWORK = Framework(
    id="training-hub",
    title="training_hub",
    release="training_hub 0.11.2, instructlab-training 0.16.2, mini-trainer 0.9.0",
    recognised="sft(...), osft(...), lora_sft(...) of training_hub",
    saves="ckpt_output_dir, at every epoch (checkpoint_at_epoch)",
    resumes="sft by itself from full_state; osft and lora_sft with enable_jit_checkpoint=True",
    keeps="lora_sft: save_total_limit (3); sft and osft: all",
    sigterm="saves with enable_jit_checkpoint=True",
    ranks="handled by the backend",
    uses=uses,
    resumes_by_itself=True,
    resumes_if_any=True,
    resume_fix="enable_jit_checkpoint=True",
    every_fix="checkpoint_at_epoch=True",
)
