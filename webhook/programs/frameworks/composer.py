"""Composer and LLM Foundry of MosaicML.

Read in mosaicml 0.32.1, ``trainer/trainer.py`` (``save_folder`` None: nothing is saved; ``save_interval`` ``1ep``;
``save_num_checkpoints_to_keep`` -1, which keeps all; ``save_weights_only`` False; ``autoresume`` False: with it the
newest of ``save_folder`` is taken, and it starts afresh where there is none; ``load_path`` is one checkpoint) and
``utils/file_helpers.py`` (addresses: s3, oci, gs, azure, dbfs); in llm-foundry 0.22.0, ``utils/config_utils.py``
(``save_interval`` ``1000ba``) and ``command_utils/train.py`` (``autoresume`` becomes True where ``run_name``, or the
variable RUN_NAME, and ``save_folder`` are given and neither ``save_overwrite`` nor ``save_weights_only``).
``composer train.py FILE key=value``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from webhook.programs import UNKNOWN, Call, Invocation, Python, Script
from webhook.programs.frameworks.framework import (
    Framework,
    Options,
    Setting,
    Use,
    call_setting,
    is_open,
    negated,
    turned,
)
from webhook.programs.values import head, is_true, tail

_TRAINERS: Final = ("composer.Trainer",)


def uses(script: Script) -> Iterator[Use]:
    for python in script.pythons:
        if "composer" in python.source.modules:
            for trainer in python.calls(*_TRAINERS):
                yield _of_trainer(python, trainer)
    for invocation in script.invocations:
        if invocation.tool == "composer" and invocation.python is None:
            file = next((word for word in invocation.arguments if tail(word).endswith((".yaml", ".yml"))), None)
            if file is not None:
                yield _of_foundry(script, invocation, file)


def _of_trainer(python: Python, trainer: Call) -> Use:
    folder = call_setting(python, trainer, "save_folder", None)
    resume = call_setting(python, trainer, "autoresume", False)
    load = call_setting(python, trainer, "load_path", None)
    asked = is_true(resume.value)
    return Use(
        FRAMEWORK,
        python.at(trainer),
        python,
        trainer,
        partial=is_open(python, trainer),
        directory=folder,
        resume=turned(resume, None) if asked is False and load.value is None else turned(resume, UNKNOWN),
        keep=_kept(call_setting(python, trainer, "save_num_checkpoints_to_keep", -1)),
        every=turned(call_setting(python, trainer, "save_interval", "1ep"), UNKNOWN),
        saves=turned(folder, False if folder.value is None else True if isinstance(folder.value, str) else UNKNOWN),
        full=negated(call_setting(python, trainer, "save_weights_only", False)),
    )


def _of_foundry(script: Script, invocation: Invocation, file: object) -> Use:
    found = script.config(file)
    unseen = any(not isinstance(word, str) for word in invocation.arguments)
    given = Options(invocation, found, unseen or found is None)
    folder = given.setting("save_folder", default=None)
    resume = given.setting("autoresume", default=False)
    whole = given.setting("save_weights_only", default=False)
    # RUN_NAME of the environment may name the run, so where it is not named nothing is known.
    on = is_true(resume.value) is True or not _is_plain(given, whole)
    return Use(
        FRAMEWORK,
        invocation.place,
        invocation=invocation,
        partial=given.partial,
        directory=folder,
        resume=turned(resume, UNKNOWN if on else None),
        keep=_kept(given.setting("save_num_checkpoints_to_keep", default=-1)),
        every=turned(given.setting("save_interval", default="1000ba"), UNKNOWN),
        saves=turned(folder, False if folder.value is None else True if head(folder.value) else UNKNOWN),
        full=negated(whole),
    )


def _is_plain(given: Options, whole: Setting) -> bool:
    """Whether LLM Foundry leaves ``autoresume`` off: what it saves is overwritten, or weights alone."""
    over = given.setting("save_overwrite", default=False)
    return is_true(over.value) is True or is_true(whole.value) is True


def _kept(keep: Setting) -> Setting:
    return turned(keep, None) if keep.value == -1 else keep


FRAMEWORK = Framework(
    id="composer",
    title="Composer, LLM Foundry",
    release="mosaicml 0.32.1, llm-foundry 0.22.0",
    recognised="Trainer(...) of composer; composer train.py FILE.yaml",
    saves="save_folder, every save_interval (an epoch)",
    resumes="autoresume=True with run_name; where there is none it starts afresh",
    keeps="save_num_checkpoints_to_keep (-1: all)",
    sigterm="not heard",
    ranks="the first process writes, or every process its own part",
    uses=uses,
    remote=("s3", "oci", "gs", "azure", "dbfs"),
    resumes_if_any=True,
    keep_fix="save_num_checkpoints_to_keep=3",
    resume_fix='autoresume=True, run_name="<one name for all starts>"',
    every_fix='save_interval="500ba"',
)
