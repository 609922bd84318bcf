"""axolotl.

Read in axolotl 0.19.0: ``utils/train.py`` (``auto_resume_from_checkpoints`` takes the checkpoint with the highest
number under ``output_dir``, if there is any; without it only ``resume_from_checkpoint`` counts),
``core/builders/base.py`` (``save_total_limit`` 4 where it is not given; ``save_steps`` makes the strategy "steps", else
it is "epoch"; ``save_only_model`` is passed on) and ``train.py`` (SIGINT alone is heard, and saves the weights).
``axolotl train FILE.yaml``, or ``-m axolotl.cli.train FILE.yaml``; ``--key value`` wins over the file.
"""

from __future__ import annotations

from collections.abc import Iterator

from webhook.programs import UNKNOWN, Invocation, Script
from webhook.programs.frameworks.framework import Framework, Setting, Use, negated, options, turned
from webhook.programs.values import is_known, is_true


def uses(script: Script) -> Iterator[Use]:
    for invocation in script.invocations:
        if invocation.module == "axolotl.cli.train" or (
            invocation.tool == "axolotl" and invocation.arguments[:1] == ("train",)
        ):
            yield _use(script, invocation)


def _use(script: Script, invocation: Invocation) -> Use:
    given = options(script, invocation, "")
    every = given.setting("save_steps")
    strategy = given.setting("save_strategy")
    return Use(
        FRAMEWORK,
        invocation.place,
        invocation=invocation,
        partial=given.partial,
        directory=given.setting("output_dir", default=UNKNOWN),
        resume=_resume(given.setting("resume_from_checkpoint"), given.setting("auto_resume_from_checkpoints")),
        keep=given.setting("save_total_limit", default=4),
        every=turned(every, UNKNOWN if every.value is None else every.value),
        saves=turned(
            strategy, UNKNOWN if not is_known(strategy.value) else every.value is not None or strategy.value != "no"
        ),
        until=given.setting("max_steps", default=UNKNOWN),
        full=negated(given.setting("save_only_model", default=False)),
    )


def _resume(path: Setting, auto: Setting) -> Setting:
    if path.value is not None:
        return path
    truth = is_true(auto.value)
    return turned(auto, UNKNOWN if truth is None else "auto" if truth else None)


FRAMEWORK = Framework(
    id="axolotl",
    title="axolotl",
    release="axolotl 0.19.0",
    recognised="axolotl train FILE.yaml; -m axolotl.cli.train",
    saves="output_dir, every save_steps, else every epoch",
    resumes="auto_resume_from_checkpoints: true; where there is none it starts afresh",
    keeps="save_total_limit (4)",
    sigterm="not heard",
    ranks="the first process writes",
    uses=uses,
    resumes_if_any=True,
    keep_fix="save_total_limit: 3",
    resume_fix="auto_resume_from_checkpoints: true",
    every_fix="save_steps: 500",
)
