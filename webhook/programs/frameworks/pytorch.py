"""Plain PyTorch: a loop of one's own with ``torch.save``.

Read in torch 2.15.0 (the released wheel), ``torch/serialization.py``: ``save(obj, f)`` gives the name to
``PyTorchFileWriter`` (``_open_zipfile_writer_file``), which writes to it in place and ends the archive, by
``write_end_of_file()``, only when all is written: until then a fixed name holds neither the old nor the new. It knows
nothing of processes, nor of what is in ``obj``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from webhook.programs import UNKNOWN, Python, Script
from webhook.programs.back import may_load
from webhook.programs.frameworks.copies import copies_of
from webhook.programs.frameworks.framework import Framework, Setting, Use
from webhook.programs.frameworks.hf_trainer import is_trainer
from webhook.programs.names import Save, saves
from webhook.programs.values import head

_OTHERS: Final = frozenset(("trl", "lightning", "pytorch_lightning", "deepspeed", "accelerate", "training_hub"))


def uses(script: Script) -> Iterator[Use]:
    for python in script.pythons:
        if "torch" not in python.source.modules or not python.source.modules.isdisjoint(_OTHERS):
            continue
        seen = "transformers" in python.source.modules
        if not (seen and any(is_trainer(python, call.name) for call in python.source.calls)):
            found = [save for save in saves(script) if save.python is python and save.function == "torch.save"]
            looped = [save for save in found if _in_loop(save)]
            if looped:
                yield _use(script, python, looped)


def _in_loop(save: Save) -> bool:
    """In a loop, or in a function, which a loop may call."""
    return save.call.inside("for", "while") or save.call.function is not None


def _use(script: Script, python: Python, found: list[Save]) -> Use:
    apart = _apart(script, found)
    numbered = next((one for one in found if one.numbered), None)
    save = apart or numbered or found[0]
    place = python.at(save.call)
    resume = Setting("torch.load", UNKNOWN if may_load(script) else None, place, given=False)
    # Several saves of one directory may take turns; what has a step in its name does not.
    keep = copies_of(python, save) if len(found) == 1 or apart is not None or numbered is not None else None
    return Use(
        FRAMEWORK,
        place,
        python,
        save.call,
        directory=Setting("torch.save", save.value, python.at(save.path), True, python.text(save.path)),
        resume=resume,
        keep=keep,
    )


def _apart(script: Script, found: list[Save]) -> Save | None:
    """Of several saves the one with a step in its name and a directory for itself: the durable one of two tiers."""
    folders = [head(save.value).rpartition("/")[0] for save in found]
    return next(
        (
            save
            for save, folder in zip(found, folders, strict=True)
            if folder and save.numbered and folders.count(folder) == 1 and not script.in_fast_tier(save.value)
        ),
        None,
    )


FRAMEWORK = Framework(
    id="pytorch",
    title="PyTorch",
    release="torch 2.15.0",
    recognised="torch.save(...) in a loop, without a framework around it",
    saves="where the program says",
    resumes="torch.load(...) of a file that the program finds, before the loop",
    keeps="all; the program removes old ones",
    sigterm="not heard",
    ranks="none: only one process may write a file",
    uses=uses,
    by_hand=True,
    guards_ranks=False,
)
