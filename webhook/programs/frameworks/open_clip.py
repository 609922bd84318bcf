"""OpenCLIP.

Read in open_clip_torch 3.3.0, ``open_clip_train/params.py`` and ``main.py``: checkpoints go to
``<--logs>/<--name>/checkpoints/epoch_N.pt`` every ``--save-frequency`` epochs (1); without ``--name`` the name has the
time in it; ``--resume latest`` takes the newest of that directory and starts afresh where there is none; nothing is
deleted but with ``--delete-previous-checkpoint``; ``--remote-sync`` copies to an address.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from webhook.programs import UNKNOWN, Invocation, Script
from webhook.programs.frameworks.framework import Framework, Setting, Use, flag_setting, turned
from webhook.programs.values import as_number, is_true, join_path

_MODULES: Final = ("open_clip_train.main", "open_clip_train")


def uses(script: Script) -> Iterator[Use]:
    for invocation in script.invocations:
        if invocation.module in _MODULES or invocation.file.endswith("open_clip_train/main.py"):
            yield _use(invocation)


def _use(invocation: Invocation) -> Use:
    partial = any(not isinstance(word, str) for word in invocation.arguments)
    absent = UNKNOWN if partial else None
    logs = flag_setting(invocation, "logs", default=UNKNOWN)
    name = flag_setting(invocation, "name", default=absent)
    resume = flag_setting(invocation, "resume", default=absent)
    every = flag_setting(invocation, "save_frequency", default=1)
    number = as_number(every.value)
    removes = flag_setting(invocation, "delete_previous_checkpoint", default=UNKNOWN if partial else False)
    directory = (
        turned(logs, join_path((logs.value, name.value))) if logs.given and name.given else turned(logs, UNKNOWN)
    )
    if flag_setting(invocation, "remote_sync", default=absent).value is not None:
        directory = turned(directory, UNKNOWN)
    return Use(
        FRAMEWORK,
        invocation.place,
        invocation=invocation,
        partial=partial,
        directory=directory,
        resume=resume,
        keep=_kept(removes),
        every=turned(every, UNKNOWN),
        saves=turned(every, UNKNOWN if number is None else number > 0),
    )


def _kept(removes: Setting) -> Setting:
    """One where the one before is deleted, else all."""
    truth = is_true(removes.value)
    return turned(removes, UNKNOWN if truth is None else 1 if truth else None)


FRAMEWORK = Framework(
    id="open-clip",
    title="OpenCLIP",
    release="open_clip_torch 3.3.0",
    recognised="-m open_clip_train.main",
    saves="<--logs>/<--name>/checkpoints, every --save-frequency epochs (1)",
    resumes="--resume latest with --name; where there is none it starts afresh",
    keeps="all, or one with --delete-previous-checkpoint",
    sigterm="not heard",
    ranks="the first process writes",
    uses=uses,
    resumes_if_any=True,
    keep_fix="--delete-previous-checkpoint --save-most-recent",
    resume_fix="--resume latest --name <one name for all starts>",
    every_fix="--save-frequency 1",
)
