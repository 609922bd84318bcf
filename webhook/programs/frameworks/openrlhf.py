"""OpenRLHF.

Read in openrlhf 0.11.2: ``cli/train_sft.py``, ``train_rm.py``, ``train_dpo.py`` and ``train_ppo_ray.py``
(``--ckpt.path`` ``./ckpt/checkpoints_...``; ``--ckpt.save_steps`` -1, which saves no checkpoint, only the model at the
end; ``--ckpt.max_num`` 3; ``--ckpt.load_enable`` off: with it the newest of ``--ckpt.path`` is taken where that is
there; ``--ckpt.disable_ds`` leaves DeepSpeed's state out). Earlier releases have other names, which are not read here.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from webhook.programs import UNKNOWN, Invocation, Script
from webhook.programs.frameworks.framework import Framework, Options, Use, negated, turned
from webhook.programs.values import as_number, is_true

_MODULES: Final = tuple(f"openrlhf.cli.train_{name}" for name in ("sft", "rm", "dpo", "ppo_ray"))
_EARLIER: Final = ("ckpt_path", "load_checkpoint", "save_steps", "max_ckpt_num", "disable_ds_ckpt")


def uses(script: Script) -> Iterator[Use]:
    for invocation in script.invocations:
        if invocation.module in _MODULES and not any(name in invocation.flags for name in _EARLIER):
            yield _use(invocation)


def _use(invocation: Invocation) -> Use:
    given = Options(invocation, None, any(not isinstance(word, str) for word in invocation.arguments))
    every = given.setting("ckpt.save_steps", default=-1, shown="--ckpt.save_steps")
    steps = as_number(every.value)
    resume = given.setting("ckpt.load_enable", default=False, shown="--ckpt.load_enable")
    asked = is_true(resume.value)
    disabled = given.setting("ckpt.disable_ds", default=False, shown="--ckpt.disable_ds")
    return Use(
        FRAMEWORK,
        invocation.place,
        invocation=invocation,
        partial=given.partial,
        directory=given.setting("ckpt.path", default=UNKNOWN, shown="--ckpt.path"),
        resume=turned(resume, None if asked is False else UNKNOWN if asked is None else True),
        keep=given.setting("ckpt.max_num", default=3, shown="--ckpt.max_num"),
        every=turned(every, UNKNOWN if steps is None or steps <= 0 else every.value),
        saves=turned(every, UNKNOWN if steps is None else steps > 0),
        full=negated(disabled),
    )


FRAMEWORK = Framework(
    id="openrlhf",
    title="OpenRLHF",
    release="openrlhf 0.11.2",
    recognised="-m openrlhf.cli.train_sft and its like",
    saves="--ckpt.path, every --ckpt.save_steps (-1: never)",
    resumes="--ckpt.load_enable; where there is none it starts afresh",
    keeps="--ckpt.max_num (3)",
    sigterm="not heard",
    ranks="every process writes its own part (DeepSpeed)",
    uses=uses,
    resumes_if_any=True,
    keep_fix="--ckpt.max_num 3",
    resume_fix="--ckpt.load_enable",
    every_fix="--ckpt.save_steps 100",
)
