"""LitGPT.

Read in litgpt 0.5.13: ``pretrain.py`` and ``finetune/full.py`` (``resume`` False; ``True`` fails where there is no
checkpoint, ``auto`` starts afresh; ``out_dir``; ``train.save_interval`` 1000; a save is
``out_dir/step-00001000/lit_model.pth`` with model, optimizer and counters; nothing is deleted), ``utils.py``
(``find_resume_path`` compares numbers) and ``finetune/lora.py`` (its saves hold the LoRA weights alone, and it has no
``resume``). ``litgpt pretrain --config FILE --resume auto --out_dir DIR``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from webhook.programs import UNKNOWN, Invocation, Script
from webhook.programs.frameworks.framework import Framework, Setting, Use, options, turned
from webhook.programs.pasted import quoted
from webhook.programs.values import is_true

_RESUMING: Final = ("pretrain", "finetune_full")
_ADAPTERS: Final = ("finetune", "finetune_lora", "finetune_adapter", "finetune_adapter_v2")


def uses(script: Script) -> Iterator[Use]:
    for invocation in script.invocations:
        if invocation.tool == "litgpt" and invocation.arguments[:1]:
            command = invocation.arguments[0]
            if command in _RESUMING or command in _ADAPTERS:
                yield _use(script, invocation, command in _RESUMING)


def _use(script: Script, invocation: Invocation, resumes: bool) -> Use:
    given = options(script, invocation, "config")
    every = given.setting("train.save_interval", default=1000, shown="--train.save_interval")
    resume = given.setting("resume", default=None, shown="--resume")
    directory = given.setting("out_dir", default=UNKNOWN, shown="--out_dir")
    folder = quoted(directory.value) if isinstance(directory.value, str) else '"$OUT_DIR"'
    off = is_true(resume.value) is False
    return Use(
        FRAMEWORK,
        invocation.place,
        invocation=invocation,
        partial=given.partial,
        directory=directory,
        resume=(turned(resume, None) if off else resume) if resumes else None,
        keep=Setting("os.remove", UNKNOWN if given.partial else None, invocation.place, given=False)
        if resumes
        else None,
        keep_fix=f"ls -dt {folder}/step-* | tail -n +4 | xargs -r rm -r    # now and then, beside the training",
        every=every,
        saves=turned(every, every.value is not None if every.value is not UNKNOWN else UNKNOWN),
        until=given.setting("train.max_steps", default=UNKNOWN, shown="--train.max_steps"),
        full=None if resumes else turned(every, False),
    )


FRAMEWORK = Framework(
    id="litgpt",
    title="LitGPT",
    release="litgpt 0.5.13",
    recognised="litgpt pretrain, litgpt finetune_full",
    saves="--out_dir, every --train.save_interval (1000)",
    resumes="--resume auto; --resume true fails where there is no checkpoint",
    keeps="all",
    sigterm="not heard",
    ranks="Fabric saves once, or a part of each process",
    uses=uses,
    resume_fix="--resume auto",
    every_fix="--train.save_interval 500",
)
