"""Hugging Face Accelerate, called by a program of one's own.

Read in accelerate 1.15.0: ``accelerator.py`` (``save_state(output_dir)`` writes weights, optimizer, scheduler and RNG,
the first process what is shared; with ``automatic_checkpoint_naming`` it goes to ``project_dir/checkpoints`` and
``total_limit`` counts, which it does nowhere else; ``load_state(path)`` fails where the directory is absent) and
``utils/dataclasses.py`` (``ProjectConfiguration``: ``automatic_checkpoint_naming`` off, ``total_limit`` None).
"""

from __future__ import annotations

from collections.abc import Iterator

from webhook.programs import UNKNOWN, Call, Python, Script
from webhook.programs.back import may_load
from webhook.programs.frameworks.copies import cleans_up, copies_of
from webhook.programs.frameworks.framework import Framework, Setting, Use, call_setting, turned
from webhook.programs.names import saves
from webhook.programs.values import is_true


def uses(script: Script) -> Iterator[Use]:
    for python in script.pythons:
        if "accelerate" in python.source.modules and any(True for _ in python.calls("accelerate.Accelerator")):
            call = next(python.methods("save_state"), None)
            if call is not None:
                yield _use(script, python, call)


def _use(script: Script, python: Python, call: Call) -> Use:
    load = next(python.methods("load_state"), None)
    place = python.at(call)
    if load is not None:
        resume = call_setting(python, load, "input_dir", UNKNOWN, 0)
        resume = turned(resume, UNKNOWN)
    else:
        resume = Setting("load_state", UNKNOWN if may_load(script) else None, place, given=False)
    project = next(python.calls("accelerate.ProjectConfiguration"), None)
    keep: Setting | None = None
    directory = call_setting(python, call, "output_dir", UNKNOWN, 0)
    if project is not None:
        named = is_true(call_setting(python, project, "automatic_checkpoint_naming", False).value)
        limit = call_setting(python, project, "total_limit", None)
        keep = turned(limit, limit.value if named and not cleans_up(python) else UNKNOWN)
        if named:
            directory = call_setting(python, project, "project_dir", UNKNOWN, 0)
        if named is False:
            keep = None
    if keep is None:
        for save in saves(script):
            if save.call is call:
                keep = copies_of(python, save)
    return Use(FRAMEWORK, place, python, call, directory=directory, resume=resume, keep=keep)


FRAMEWORK = Framework(
    id="accelerate",
    title="Accelerate",
    release="accelerate 1.15.0",
    recognised="Accelerator(...) and save_state(...)",
    saves="accelerator.save_state(DIR/step_N)",
    resumes="accelerator.load_state(<the newest>); fails where there is none",
    keeps="all; total_limit with automatic_checkpoint_naming",
    sigterm="not heard",
    ranks="handled by save_state, which all processes call",
    uses=uses,
    by_hand=True,
)
