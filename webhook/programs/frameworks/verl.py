"""verl.

Read in verl 0.9.1: ``trainer/config/ppo_trainer.yaml`` and ``sft_trainer_engine.yaml`` (``trainer.save_freq`` -1, which
saves nothing at all, not even at the end; ``trainer.resume_mode`` auto; ``trainer.default_local_dir``
``checkpoints/<project>/<experiment>``; ``max_actor_ckpt_to_keep`` and, for SFT, ``max_ckpt_to_keep`` null, which keep
all), ``trainer/ppo/ray_trainer.py`` (``save_freq > 0 and (is_last_step or ...)``; ``_load_checkpoint`` with
``resume_mode: auto`` starts afresh where there is none, ``disable`` always) and ``trainer/config/actor/actor.yaml``
(``checkpoint.save_contents``: model, optimizer, extra). ``-m verl.trainer.main_ppo key=value``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from webhook.programs import UNKNOWN, Invocation, Script
from webhook.programs.frameworks.framework import Framework, Options, Setting, Use, options, turned
from webhook.programs.values import as_number, is_known

_PPO: Final = ("verl.trainer.main_ppo", "verl.trainer.main_ppo_v0")
_SFT: Final = ("verl.trainer.sft_trainer", "verl.trainer.sft_trainer_ray", "verl.trainer.fsdp_sft_trainer")


def uses(script: Script) -> Iterator[Use]:
    for invocation in script.invocations:
        if invocation.module in _PPO or invocation.module in _SFT:
            yield _use(script, invocation)


def _use(script: Script, invocation: Invocation) -> Use:
    given = options(script, invocation)
    # A configuration of one's own (hydra's --config-name) may hold everything, and so may a group of settings, which
    # is chosen by a name without a dot: verl's own settings all have one.
    if any("." not in name for name in invocation.flags):
        given.partial = True
    ppo = invocation.module in _PPO
    every = given.setting("trainer.save_freq", default=-1)
    frequency = as_number(every.value)
    mode = given.setting("trainer.resume_mode", default="auto")
    keep = given.setting("trainer.max_actor_ckpt_to_keep" if ppo else "trainer.max_ckpt_to_keep")
    return Use(
        FRAMEWORK,
        invocation.place,
        invocation=invocation,
        partial=given.partial,
        directory=given.setting("trainer.default_local_dir", default=UNKNOWN),
        resume=turned(mode, None if mode.value == "disable" else mode.value),
        keep=keep,
        every=turned(every, UNKNOWN if frequency is None or frequency <= 0 else every.value),
        saves=turned(every, UNKNOWN if frequency is None else frequency > 0),
        until=given.setting("trainer.total_training_steps", default=UNKNOWN),
        full=_full(given, ppo),
        overwrite=turned(mode, UNKNOWN if not is_known(mode.value) else mode.value == "disable"),
    )


def _full(given: Options, ppo: bool) -> Setting:
    name = "actor_rollout_ref.actor.checkpoint.save_contents" if ppo else "checkpoint.save_contents"
    contents = given.setting(name, default="model,optimizer,extra")
    text = contents.value
    return turned(contents, "optimizer" in text if isinstance(text, str) else UNKNOWN)


FRAMEWORK = Framework(
    id="verl",
    title="verl",
    release="verl 0.9.1",
    recognised="-m verl.trainer.main_ppo, -m verl.trainer.sft_trainer",
    saves="trainer.default_local_dir, every trainer.save_freq (-1: never)",
    resumes="by itself (trainer.resume_mode=auto)",
    keeps="trainer.max_actor_ckpt_to_keep, for SFT trainer.max_ckpt_to_keep (all)",
    sigterm="not heard",
    ranks="every process writes its own part",
    uses=uses,
    resumes_if_any=True,
    resumes_by_itself=True,
    keep_fix="trainer.max_actor_ckpt_to_keep=3",
    resume_fix="trainer.resume_mode=auto",
    every_fix="trainer.save_freq=50",
)
