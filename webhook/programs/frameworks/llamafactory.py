"""LlamaFactory.

Read in llamafactory 0.9.5: ``hparams/parser.py`` (where ``resume_from_checkpoint`` is not given, ``output_dir`` exists
and ``overwrite_output_dir`` is not true, it takes ``get_last_checkpoint(output_dir)`` by itself; reward and PPO
training of all weights do not resume), ``hparams/training_args.py`` (``overwrite_output_dir`` is called deprecated in
its help and is still obeyed; the other arguments are transformers' own: ``save_steps`` 500, ``save_total_limit`` None)
and ``train/sft/workflow.py`` (``trainer.train(resume_from_checkpoint=training_args.resume_from_checkpoint)``).
``read_args`` takes a YAML or JSON file as the first word and ``key=value`` after it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from webhook.programs import UNKNOWN, Invocation, Script
from webhook.programs.frameworks.framework import Framework, Setting, Use, negated, options, turned
from webhook.programs.values import is_known

_COMMANDS: Final = ("llamafactory-cli", "llamafactory")
_STAGES: Final = ("pt", "sft", "rm", "ppo", "dpo", "kto")


def uses(script: Script) -> Iterator[Use]:
    for invocation in script.invocations:
        if _trains(invocation):
            yield from _use(script, invocation)


def _trains(invocation: Invocation) -> bool:
    if invocation.tool in _COMMANDS:
        return invocation.arguments[:1] == ("train",)
    stage = invocation.flag("stage")
    return invocation.file.endswith(("train.py", "train_bash.py")) and stage is not None and stage.value in _STAGES


def _use(script: Script, invocation: Invocation) -> Iterator[Use]:
    given = options(script, invocation, "")
    if given.setting("do_train", default=False).value is False:
        return
    strategy = given.setting("save_strategy", default="steps")
    every = given.setting("save_steps", default=500)
    overwrite = given.setting("overwrite_output_dir", default=False)
    resume = given.setting("resume_from_checkpoint")
    yield Use(
        FRAMEWORK,
        invocation.place,
        invocation=invocation,
        partial=given.partial,
        directory=given.setting("output_dir", default=UNKNOWN),
        resume=resume,
        keep=given.setting("save_total_limit"),
        every=every if strategy.value == "steps" or not is_known(strategy.value) else turned(every, UNKNOWN),
        saves=turned(strategy, strategy.value != "no" if isinstance(strategy.value, str | bool) else UNKNOWN),
        until=given.setting("max_steps", default=-1),
        full=negated(given.setting("save_only_model", default=False)),
        # Told what to resume from, it does so whatever stands in overwrite_output_dir.
        overwrite=overwrite if resume.value is None else Setting(overwrite.name, UNKNOWN, overwrite.place),
    )


FRAMEWORK = Framework(
    id="llamafactory",
    title="LlamaFactory",
    release="llamafactory 0.9.5",
    recognised="llamafactory-cli train FILE.yaml; src/train.py --stage ... (once train_bash.py)",
    saves="output_dir, every save_steps (500)",
    resumes="by itself from output_dir, unless overwrite_output_dir: true",
    keeps="save_total_limit (all)",
    sigterm="not heard",
    ranks="the first process writes",
    uses=uses,
    resumes_by_itself=True,
    resumes_if_any=True,
    keep_fix="save_total_limit: 3",
    resume_fix="overwrite_output_dir: false",
    every_fix="save_steps: 500",
)
