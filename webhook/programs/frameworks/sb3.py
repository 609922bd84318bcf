"""Stable-Baselines3.

Read in stable_baselines3 2.9.2, ``common/callbacks.py`` (``CheckpointCallback(save_freq, save_path,
name_prefix="rl_model")`` writes ``rl_model_<steps>_steps.zip``, unpadded, with policy and optimizer, and the replay
buffer only with ``save_replay_buffer``; nothing is deleted) and ``common/base_class.py`` (``load(path)`` of the
algorithm; ``learn(reset_num_timesteps=True)`` counts anew).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from webhook.programs import UNKNOWN, Call, Python, Script
from webhook.programs.back import may_load
from webhook.programs.frameworks.copies import cleans_up
from webhook.programs.frameworks.framework import Framework, Setting, Use, call_setting, turned

_MODULES: Final = frozenset(("stable_baselines3", "sb3_contrib"))
_CALLBACKS: Final = ("stable_baselines3.CheckpointCallback",)
_LOADS: Final = ("load", "set_parameters", "load_parameters")


def uses(script: Script) -> Iterator[Use]:
    for python in script.pythons:
        if not python.source.modules.isdisjoint(_MODULES):
            callbacks = list(python.calls(*_CALLBACKS))
            if len(callbacks) == 1:
                yield _use(script, python, callbacks[0])


def _use(script: Script, python: Python, callback: Call) -> Use:
    reads = may_load(script) or any(True for _ in python.methods(*_LOADS))
    directory = call_setting(python, callback, "save_path", UNKNOWN, 1)
    keep = Setting("os.remove", UNKNOWN if cleans_up(python) else None, python.at(callback), given=False)
    newest = (
        f"max(pathlib.Path({directory.written}).glob('*_steps.zip'), key=lambda p: p.stat().st_mtime, default=None)"
    )
    return Use(
        FRAMEWORK,
        python.at(callback),
        python,
        callback,
        partial=callback.open_ended,
        directory=directory,
        resume=Setting("load", UNKNOWN if reads else None, python.at(callback), given=False),
        keep=keep,
        every=turned(call_setting(python, callback, "save_freq", UNKNOWN, 0), UNKNOWN),
        keep_fix=f"for old in sorted(pathlib.Path({directory.written}).glob('*_steps.zip'), key=lambda p: "
        "p.stat().st_mtime)[:-3]:    # in a callback of your own\n    old.unlink()"
        if directory.written
        else "",
        resume_fix=f"newest = {newest}\nmodel = model.load(newest, env=model.get_env()) if newest else model"
        if directory.written
        else "",
    )


FRAMEWORK = Framework(
    id="stable-baselines3",
    title="Stable-Baselines3",
    release="stable_baselines3 2.9.2",
    recognised="CheckpointCallback(...) of stable_baselines3",
    saves="CheckpointCallback(save_freq, save_path=DIR)",
    resumes="load(<the newest file>) and learn(reset_num_timesteps=False)",
    keeps="all",
    sigterm="not heard",
    ranks="one process",
    uses=uses,
    keep_fix="# remove all but the newest three of DIR",
    resume_fix="model = model.load(<the newest file>, env=model.get_env())    # where there is one, before learn()",
    every_fix="save_freq=10_000",
)
