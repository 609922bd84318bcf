"""NVIDIA Resiliency Extension, local checkpoints.

Read in nvidia_resiliency_ext 0.4.1, ``checkpointing/local/ckpt_managers/local_manager.py`` and ``base_manager.py``:
``LocalCheckpointManager(root_local_ckpt_dir, session_id="", repl_strategy=None)`` saves each process's part on its own
node, copies to peers with ``repl_strategy``, keeps the newest complete one, and ``find_latest()`` and ``load()`` take
it. It is a fast tier: a new node has nothing, so a durable save beside it is needed.
"""

from __future__ import annotations

from collections.abc import Iterator

from webhook.programs import UNKNOWN, Script
from webhook.programs.frameworks.framework import Framework, Use, call_setting

MANAGER = "nvidia_resiliency_ext.LocalCheckpointManager"


def uses(script: Script) -> Iterator[Use]:
    for python in script.pythons:
        if "nvidia_resiliency_ext" in python.source.modules:
            for manager in python.calls(MANAGER):
                yield Use(
                    FRAMEWORK,
                    python.at(manager),
                    python,
                    manager,
                    directory=call_setting(python, manager, "root_local_ckpt_dir", UNKNOWN, 0),
                    fast=True,
                )


FRAMEWORK = Framework(
    id="nvidia-resiliency",
    title="NVIDIA Resiliency Extension",
    release="nvidia_resiliency_ext 0.4.1",
    recognised="LocalCheckpointManager(...)",
    saves="root_local_ckpt_dir on the node: a fast tier",
    resumes="find_latest() and load(), from the node and its peers",
    keeps="the newest complete one",
    sigterm="not heard",
    ranks="every process writes its own part",
    uses=uses,
    by_hand=True,
)
