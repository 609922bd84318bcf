"""NVIDIA NeMo, by its experiment manager.

Read in nemo_toolkit 3.0.0, ``utils/exp_manager.py``: ``resume_if_exists`` False, with which every start makes a
directory of its own (``exp_dir/name/<time>``); with it the newest of ``explicit_log_dir`` or ``exp_dir/name`` is taken,
and where there is none it fails unless ``resume_ignore_no_checkpoint`` is True; ``create_checkpoint_callback`` True,
with ``checkpoint_callback_params.save_top_k`` 3 and ``save_last``; ``create_preemption_callback`` True saves on SIGTERM
where processes talk to each other; ``s3://`` and ``msc://`` are read and written. Its scripts are started with Hydra's
``exp_manager.resume_if_exists=true``, over a configuration in the image.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from webhook.programs import UNKNOWN, Invocation, Script
from webhook.programs.frameworks.framework import Framework, Options, Use, turned
from webhook.programs.values import is_true

_PREFIX: Final = "exp_manager."


def uses(script: Script) -> Iterator[Use]:
    for invocation in script.invocations:
        if invocation.python is None and any(name.startswith(_PREFIX) for name in invocation.flags):
            yield _use(invocation)


def _use(invocation: Invocation) -> Use:
    # What is not given stands in the configuration, which is in the image.
    given = Options(invocation, None, True)
    asked = given.setting(f"{_PREFIX}resume_if_exists")
    afresh = given.setting(f"{_PREFIX}resume_ignore_no_checkpoint")
    value = is_true(asked.value)
    demands = value is True and afresh.given and is_true(afresh.value) is False
    return Use(
        FRAMEWORK,
        invocation.place,
        invocation=invocation,
        directory=given.setting(f"{_PREFIX}explicit_log_dir", f"{_PREFIX}exp_dir", default=UNKNOWN),
        resume=turned(asked, True if demands else None if asked.given and value is False else UNKNOWN),
        keep=given.setting(f"{_PREFIX}checkpoint_callback_params.save_top_k"),
        saves=turned(asked, _saves(given)),
    )


def _saves(given: Options) -> object:
    made = given.setting(f"{_PREFIX}create_checkpoint_callback")
    return False if made.given and is_true(made.value) is False else UNKNOWN


FRAMEWORK = Framework(
    id="nemo",
    title="NeMo",
    release="nemo_toolkit 3.0.0",
    recognised="exp_manager.* of a command line",
    saves="exp_manager.explicit_log_dir, or exp_dir/name/<time>",
    resumes="exp_manager.resume_if_exists=true, resume_ignore_no_checkpoint=true for the first start",
    keeps="exp_manager.checkpoint_callback_params.save_top_k (3)",
    sigterm="saves (create_preemption_callback)",
    ranks="the first process writes, or every process its own part",
    uses=uses,
    remote=("s3", "msc"),
    flushes=True,
    keep_fix="exp_manager.checkpoint_callback_params.save_top_k=3",
    resume_fix="exp_manager.resume_if_exists=true exp_manager.resume_ignore_no_checkpoint=true",
    every_fix="exp_manager.checkpoint_callback_params.every_n_train_steps=500",
)
