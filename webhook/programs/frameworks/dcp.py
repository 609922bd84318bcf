"""torch.distributed.checkpoint: every process writes its own part, and it loads at another number of processes.

Read in torch 2.15.0, ``torch/distributed/checkpoint``: ``state_dict_saver.py`` (``save`` and ``async_save`` are called
by all processes with ``checkpoint_id``, a directory for each save; without a process group they assume one process) and
``filesystem.py`` (``FileSystemWriter(overwrite=True)`` writes over what is there; ``.metadata`` comes last, under a
temporary name). Nothing is deleted, nothing is chosen: which checkpoint is the newest is the program's own affair.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from webhook.programs import UNKNOWN, Python, Script
from webhook.programs.back import may_load
from webhook.programs.frameworks.copies import copies_of
from webhook.programs.frameworks.framework import Framework, Setting, Use
from webhook.programs.names import Save, saves

_SAVES: Final = ("torch.distributed.checkpoint.save", "torch.distributed.checkpoint.async_save")
_LOADS: Final = ("torch.distributed.checkpoint.load", "torch.distributed.checkpoint.load_state_dict")


def uses(script: Script) -> Iterator[Use]:
    for python in script.pythons:
        if "torch" in python.source.modules:
            found = [save for save in saves(script) if save.python is python and save.function in _SAVES]
            if found:
                yield _use(script, python, found[0])


def _use(script: Script, python: Python, save: Save) -> Use:
    loads = next(python.calls(*_LOADS), None)
    place = python.at(save.call)
    if loads is not None:
        resume = Setting("dcp.load", UNKNOWN, python.at(loads), True, python.text(loads.node))
    else:
        resume = Setting("dcp.load", UNKNOWN if may_load(script) else None, place, given=False)
    return Use(
        FRAMEWORK,
        place,
        python,
        save.call,
        directory=Setting("checkpoint_id", save.value, python.at(save.path), True, python.text(save.path)),
        resume=resume,
        keep=copies_of(python, save),
    )


FRAMEWORK = Framework(
    id="torch-distributed-checkpoint",
    title="torch.distributed.checkpoint",
    release="torch 2.15.0",
    recognised="dcp.save(...), dcp.async_save(...)",
    saves="checkpoint_id=DIR/step_N, one directory for each save, by all processes",
    resumes="dcp.load(state, checkpoint_id=<the newest>); the program finds it",
    keeps="all; the program removes old ones",
    sigterm="not heard",
    ranks="every process writes its own part; loads at another number of processes",
    uses=uses,
    remote=("*",),
    by_hand=True,
)
