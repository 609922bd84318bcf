"""TorchFT, fault tolerance between replicas.

Read in torchft 0.2.0, ``manager.py``: a replica that comes back gets weights from the others while they live
(``Manager(load_state_dict=..., state_dict=...)``); checkpoints are the program's own, and have to hold the manager's
``state_dict()`` too, since step and batches committed are in it. Where all replicas end at once, as in a preemption,
only those checkpoints are left.
"""

from __future__ import annotations

from collections.abc import Iterator

from webhook.programs import Script
from webhook.programs.frameworks.framework import Framework, Use


def uses(script: Script) -> Iterator[Use]:
    for python in script.pythons:
        if "torchft" in python.source.modules:
            for manager in python.calls("torchft.Manager"):
                yield Use(FRAMEWORK, python.at(manager), python, manager)


FRAMEWORK = Framework(
    id="torchft",
    title="TorchFT",
    release="torchft 0.2.0",
    recognised="Manager(...) of torchft",
    saves="what the program saves, with manager.state_dict() in it",
    resumes="from living replicas by itself; after a stop of all of them the program loads",
    keeps="all; the program removes old ones",
    sigterm="not heard",
    ranks="one replica writes",
    uses=uses,
    by_hand=True,
)
