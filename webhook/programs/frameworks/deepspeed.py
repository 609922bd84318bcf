"""DeepSpeed, called by a program of one's own.

Read in deepspeed 0.19.8, ``deepspeed/runtime/engine.py``: ``save_checkpoint(save_dir, tag=None)`` is called by all
processes, writes weights, optimizer and scheduler under ``global_step<N>`` and then the file ``latest``; nothing is
ever deleted. ``load_checkpoint(load_dir)`` follows ``latest`` and, where there is none, warns and returns ``(None,
None)``; ``load_optimizer_states=False`` and ``load_module_only=True`` leave the optimizer as it is. ZeRO's parts load
at another number of processes only as a universal checkpoint (``checkpoint: {load_universal: true}``), which
``ds_to_universal.py`` makes first.
"""

from __future__ import annotations

from collections.abc import Iterator

from webhook.programs import UNKNOWN, Call, Python, Script
from webhook.programs.back import may_load
from webhook.programs.frameworks.copies import copies_of
from webhook.programs.frameworks.framework import Framework, Setting, Use, call_setting, turned
from webhook.programs.names import saves
from webhook.programs.values import is_known, is_true


def uses(script: Script) -> Iterator[Use]:
    for python in script.pythons:
        if "deepspeed" in python.source.modules and any(True for _ in python.calls("deepspeed.initialize")):
            for save in saves(script):
                if save.python is python and save.function == "save_checkpoint" and not _other(python, save.call):
                    yield _use(script, python, save.call)
                    break


def _other(python: Python, call: Call) -> bool:
    """A function of this text, or an object that something else made."""
    made = python.class_of(call.receiver, call.around)
    return bool(made) and not made.startswith("deepspeed")


def _use(script: Script, python: Python, call: Call) -> Use:
    directory = call_setting(python, call, "save_dir", UNKNOWN, 0)
    loads = [one for one in python.methods("load_checkpoint") if not _other(python, one)]
    resume: Setting | None = None
    optimizer: Setting | None = None
    full: Setting | None = None
    for load in loads:
        source = call_setting(python, load, "load_dir", UNKNOWN, 0)
        resume = resume or source
        # Weights from another directory are where a run begins, not where it goes on.
        if is_known(source.value) and source.value == directory.value:
            resume = source
            states = call_setting(python, load, "load_optimizer_states", True)
            module = call_setting(python, load, "load_module_only", False)
            if is_true(states.value) is False:
                optimizer = turned(states, False)
            if is_true(module.value) is True:
                full = turned(module, False)
    if resume is None:
        resume = Setting("load_checkpoint", UNKNOWN if may_load(script) else None, directory.place, given=False)
    keep = next(
        (copies_of(python, one) for one in saves(script) if one.python is python and one.call is call),
        None,
    )
    engine = call.name.rpartition(".")[0] or "engine"
    return Use(
        FRAMEWORK,
        python.at(call),
        python,
        call,
        directory=directory,
        resume=resume,
        keep=keep,
        full=full,
        loads=optimizer,
        resume_fix=f"{engine}.load_checkpoint({directory.written or '<the directory>'})",
    )


FRAMEWORK = Framework(
    id="deepspeed",
    title="DeepSpeed",
    release="deepspeed 0.19.8",
    recognised="deepspeed.initialize(...) and engine.save_checkpoint(...)",
    saves="engine.save_checkpoint(DIR, tag=...), by all processes",
    resumes="engine.load_checkpoint(DIR) follows latest; where there is none it starts afresh",
    keeps="all; the program removes old ones",
    sigterm="not heard",
    ranks="every process writes its own part",
    uses=uses,
    by_hand=True,
    resumes_if_any=True,
    loads_directory=True,
    resume_fix="engine.load_checkpoint(<the directory>)",
)
