"""EasyLM.

Read in EasyLM at commit fe5b2c354e25 (2024-08-12, its newest), ``checkpoint.py`` and
``models/llama/llama_train.py``: ``--save_model_freq`` 0, which saves nothing; ``--checkpointer.save_optimizer_state``
False, which leaves the optimizer out; one file is written over, and ``--save_milestone_freq`` keeps others, all of
them; ``--load_checkpoint`` is one checkpoint (``trainstate::FILE``). Files are opened by mlxu, ``gs://`` too.
"""

from __future__ import annotations

from collections.abc import Iterator

from webhook.programs import UNKNOWN, Invocation, Script
from webhook.programs.frameworks.framework import Framework, Options, Use, turned
from webhook.programs.values import as_number, is_true


def uses(script: Script) -> Iterator[Use]:
    for invocation in script.invocations:
        if invocation.module.startswith("EasyLM.models.") and invocation.module.endswith("_train"):
            yield _use(invocation)


def _use(invocation: Invocation) -> Use:
    given = Options(invocation, None, any(not isinstance(word, str) for word in invocation.arguments))
    every = given.setting("save_model_freq", default=0, shown="--save_model_freq")
    mark = given.setting("save_milestone_freq", default=0, shown="--save_milestone_freq")
    numbers = [as_number(every.value), as_number(mark.value)]
    saves = True if any(one is not None and one > 0 for one in numbers) else UNKNOWN if None in numbers else False
    resume = given.setting("load_checkpoint", default=None, shown="--load_checkpoint")
    full = given.setting(
        "checkpointer.save_optimizer_state", default=False, shown="--checkpointer.save_optimizer_state"
    )
    return Use(
        FRAMEWORK,
        invocation.place,
        invocation=invocation,
        partial=given.partial,
        directory=given.setting("logger.output_dir", default=UNKNOWN, shown="--logger.output_dir"),
        resume=turned(resume, None) if resume.value in (None, "") else resume,
        every=turned(every, UNKNOWN if not numbers[0] else every.value),
        saves=turned(every, saves),
        until=given.setting("total_steps", default=UNKNOWN, shown="--total_steps"),
        full=turned(full, is_true(full.value) if is_true(full.value) is not None else UNKNOWN),
    )


FRAMEWORK = Framework(
    id="easylm",
    title="EasyLM",
    release="EasyLM fe5b2c354e25 (2024-08-12)",
    recognised="-m EasyLM.models.llama.llama_train and its like",
    saves="--logger.output_dir, every --save_model_freq (0: never)",
    resumes="--load_checkpoint=trainstate::FILE; the command finds it",
    keeps="one, which is written over; those of --save_milestone_freq all",
    sigterm="not heard",
    ranks="the first process writes",
    uses=uses,
    remote=("gs",),
    resume_fix="--load_checkpoint=trainstate::<the newest, where there is one>",
    every_fix="--save_model_freq=500",
)
