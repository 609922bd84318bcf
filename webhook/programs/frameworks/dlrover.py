"""DLRover's flash checkpoint.

Read in dlrover 0.6.1, ``trainer/torch/flash_checkpoint/``: ``DdpCheckpointer(checkpoint_dir, deletion_strategy=None)``
and its like in ``ddp.py``, ``fsdp.py``, ``deepspeed.py``, ``megatron.py``; ``save_checkpoint(step, state, path,
storage_type=StorageType.DISK)`` writes ``<dir>/<step>/rank_N.pt``; with ``StorageType.MEMORY`` it stays in the pod's
shared memory, which the agent writes to disk when a process of the pod fails, and which goes with the pod;
``load_checkpoint()`` takes memory first, then disk. Nothing is deleted without a ``deletion_strategy``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from webhook.programs import UNKNOWN, Call, Python, Script
from webhook.programs.frameworks.framework import Framework, Setting, Use, call_setting, turned

_CHECKPOINTERS: Final = tuple(
    f"dlrover.{name}Checkpointer" for name in ("Ddp", "FsdpShard", "FsdpFull", "DeepSpeed", "Megatron")
)


def uses(script: Script) -> Iterator[Use]:
    for python in script.pythons:
        if "dlrover" in python.source.modules:
            made = list(python.calls(*_CHECKPOINTERS))
            if len(made) == 1:
                yield _use(script, python, made[0])


def _use(script: Script, python: Python, made: Call) -> Use:
    saves = list(python.methods("save_checkpoint"))
    kinds = [save.argument("storage_type", 3) for save in saves]
    memory = bool(saves) and all(kind is not None and python.text(kind).endswith("MEMORY") for kind in kinds)
    directory = call_setting(python, made, "checkpoint_dir", UNKNOWN, 0)
    keep = call_setting(python, made, "deletion_strategy", None)
    reads = any(True for _ in python.methods("load_checkpoint")) or not script.whole
    return Use(
        FRAMEWORK,
        python.at(made),
        python,
        made,
        partial=made.open_ended,
        directory=directory,
        resume=Setting("load_checkpoint", UNKNOWN if reads else None, python.at(made), given=False),
        keep=turned(keep, None if keep.value is None else UNKNOWN),
        fast=memory,
    )


FRAMEWORK = Framework(
    id="dlrover",
    title="DLRover flash checkpoint",
    release="dlrover 0.6.1",
    recognised="DdpCheckpointer(...) and its like of dlrover",
    saves="save_checkpoint(step, state, storage_type=StorageType.DISK) into checkpoint_dir",
    resumes="load_checkpoint(), which is empty where there is none",
    keeps="deletion_strategy (all)",
    sigterm="the agent writes what is in memory when a process fails",
    ranks="every process calls it",
    uses=uses,
    resumes_if_any=True,
    keep_fix='deletion_strategy=KeepLatestStepStrategy(max_to_keep=3, checkpoint_dir=os.environ["CKPT_DIR"])',
    resume_fix="state = checkpointer.load_checkpoint()    # before the loop",
    every_fix="checkpointer.save_checkpoint(step, state, storage_type=StorageType.DISK)    # every so many steps",
)
