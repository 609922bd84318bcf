"""Orbax, the checkpoints of JAX and Flax.

Read in orbax-checkpoint 0.12.8, ``checkpoint_manager.py``: ``CheckpointManager(directory, options=...)`` saves every
``save_interval_steps`` (1) and keeps all (``max_to_keep`` None), unless ``preservation_policy`` says otherwise; a save
is made under a temporary name and renamed; ``latest_step()`` is None where there is none; ``reached_preemption(step)``
makes it save where JAX's distributed service was told of SIGTERM. All processes call ``save`` and ``restore``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from webhook.programs import UNKNOWN, Call, Python, Script
from webhook.programs.back import may_load
from webhook.programs.frameworks.copies import cleans_up
from webhook.programs.frameworks.framework import Framework, Setting, Use, call_setting, turned

_MANAGERS: Final = ("orbax.CheckpointManager",)
_OPTIONS: Final = ("orbax.CheckpointManagerOptions",)
_POLICIES: Final = ("preservation_policy", "best_fn", "keep_period", "keep_time_interval")


def uses(script: Script) -> Iterator[Use]:
    for python in script.pythons:
        if "orbax" in python.source.modules:
            managers = list(python.calls(*_MANAGERS))
            for manager in managers:
                yield _use(script, python, manager, alone=len(managers) == 1)


def _use(script: Script, python: Python, manager: Call, alone: bool) -> Use:
    """``alone``: of several managers one may keep the best, and which options are whose is not told."""
    restores = next(python.methods("restore"), None)
    resume = Setting(
        "restore", UNKNOWN if restores is not None or may_load(script) else None, python.at(manager), False
    )
    options = list(python.calls(*_OPTIONS))
    keep = Setting("max_to_keep", None, python.at(manager), given=False)
    every = Setting("save_interval_steps", 1, python.at(manager), given=False)
    given = manager.argument("options", 2) is not None
    if not alone:
        keep, every = turned(keep, UNKNOWN), turned(every, UNKNOWN)
    elif len(options) == 1:
        keep = call_setting(python, options[0], "max_to_keep", None)
        every = call_setting(python, options[0], "save_interval_steps", 1)
        if any(options[0].argument(name) is not None for name in _POLICIES):
            keep = _latest(python, options[0]) or turned(keep, UNKNOWN)
    elif given or manager.open_ended:
        keep, every = turned(keep, UNKNOWN), turned(every, UNKNOWN)
    if cleans_up(python) or any(True for _ in python.methods("delete")):
        keep = turned(keep, UNKNOWN)
    return Use(
        FRAMEWORK,
        python.at(manager),
        python,
        manager,
        partial=manager.open_ended,
        directory=call_setting(python, manager, "directory", UNKNOWN, 0),
        resume=resume,
        keep=keep,
        # An interval of one is what a loop that calls save() now and then uses: it says nothing.
        every=every if every.given else turned(every, UNKNOWN),
        keep_fix=f"{keep.name}=3" if keep.call is not None else "",
    )


def _latest(python: Python, options: Call) -> Setting | None:
    """``preservation_policy=LatestN(3)``, the newer way to say ``max_to_keep=3`` (``preservation_policy.py``)."""
    policy = options.argument("preservation_policy")
    for call in python.named("LatestN"):
        if call.node is policy:
            return call_setting(python, call, "n", None, 0)
    return None


FRAMEWORK = Framework(
    id="orbax",
    title="Orbax",
    release="orbax-checkpoint 0.12.8",
    recognised="CheckpointManager(...) of orbax.checkpoint",
    saves="its directory, save(step, ...), every save_interval_steps",
    resumes="restore(latest_step()); latest_step() is None where there is none",
    keeps="max_to_keep (all)",
    sigterm="saves where jax.distributed is initialised",
    ranks="every process writes its own part",
    uses=uses,
    remote=("*",),
    flushes=True,
    loads_directory=True,
    keep_fix="options=ocp.CheckpointManagerOptions(max_to_keep=3)",
    resume_fix="manager.restore(manager.latest_step())",
    every_fix="save_interval_steps=500",
)
