"""The random numbers begin anew at every restart: the same seed is set again, and their state is not saved.

Symptom: after a restart the same shuffles and the same dropout come again, and the run is not the one without a stop.
Fix: save the state of the generators with the rest, and set it back.
Bad:
    args:
    - |
      torch.manual_seed(1)
      model.load_state_dict(state["model"])
Good:
    args:
    - |
      torch.manual_seed(1)
      model.load_state_dict(state["model"])
      torch.set_rng_state(state["rng"])
Reads: the seed that the program sets, and what it reads back of its own checkpoint.
Silent when: no seed is set; anything speaks of the generators' state; the seed is made of the step or the epoch.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Final

from webhook.model.finding import Severity
from webhook.model.rule import ProgramRule
from webhook.model.script import Remark
from webhook.programs import Python, Script
from webhook.programs.pasted import after, module_name
from webhook.programs.readback import ReadBack, mentions, read_back
from webhook.programs.values import said

ID = "rng-not-restored"
_SEEDS: Final = ("torch.manual_seed", "torch.cuda.manual_seed_all", "random.seed", "numpy.random.seed")


def look(script: Script) -> Iterator[Remark]:
    for python in script.pythons:
        back = read_back(script, python)
        if not back or mentions(python, "rng", "random_state", "random.setstate", "get_state()", "generator"):
            continue
        for call in python.calls(*_SEEDS):
            if not call.node.args or _is_of_run(python, call.node.args[0]):
                continue
            yield Remark(
                python.at(call),
                f'"{said(python.text(call.node))}" is done at every start, and no generator gets its state back',
                after(python, back[-1].call, [_set_back(python, back[-1])]),
                subject=call.name,
            )
            break


def _set_back(python: Python, back: ReadBack) -> str:
    torch = module_name(python, "torch") or "torch"
    line = f'{torch}.set_rng_state({python.text(back.state)}["rng"])'
    return f'{line}    # and save it: "rng": {torch}.get_rng_state()'


def _is_of_run(python: Python, node: ast.expr) -> bool:
    """Whether the seed is worked out, by the rank or by what was done so far, or is named for that."""
    words = python.source.source(node).lower()
    return not isinstance(node, ast.Constant | ast.Name | ast.Attribute) or any(
        word in words for word in ("step", "epoch", "iter", "start", "time")
    )


RULE = ProgramRule(
    id=ID,
    severity=Severity.AUDIT,
    why="what follows a restart is drawn from the same random numbers as the beginning: the same shuffles come again",
    look=look,
    on_runtime=Severity.AUDIT,
)
