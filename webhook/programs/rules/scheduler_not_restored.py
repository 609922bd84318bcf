"""The optimizer comes back from the checkpoint, and the learning rate's schedule does not.

Symptom: after a restart the learning rate warms up again, and the loss jumps.
Fix: save the scheduler's state with the optimizer's, and read it back.
Bad:
    args:
    - |
      optimizer.load_state_dict(state["optimizer"])
Good:
    args:
    - |
      optimizer.load_state_dict(state["optimizer"])
      scheduler.load_state_dict(state["scheduler"])
Reads: the schedules of torch and transformers that the program makes, and what it reads back.
Silent when: any schedule is read back, is told where it begins (last_epoch), or is stepped outside the loop; it is
ReduceLROnPlateau, whose learning rate is the optimizer's own; the rate is set by hand; the optimizer is not read back.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Final

from webhook.model.finding import Severity
from webhook.model.rule import ProgramRule
from webhook.model.script import Remark
from webhook.programs import Call, Python, Script
from webhook.programs.flow import in_loop
from webhook.programs.pasted import after, statement_of
from webhook.programs.readback import kept, mentions, read_back
from webhook.programs.restored import parts_of
from webhook.programs.values import said

ID = "scheduler-not-restored"
_PLATEAU: Final = "ReduceLROnPlateau"


def look(script: Script) -> Iterator[Remark]:
    for python in script.pythons:
        back = [one for one in read_back(script, python) if one.optimizer]
        made = next((call for call in python.source.calls if _is_schedule(call)), None) if back else None
        if made is None or _is_read(python):
            continue
        name = _name(python, made)
        if not name or made.argument("last_epoch") is not None:
            continue
        steps = [call for call in python.methods("step") if call.name == f"{name}.step"]
        if not steps or not all(in_loop(python, call) for call in steps):
            continue
        key = next((key for key, part in _saved(script, python) if python.text(part).startswith(name)), "")
        line = f'{name}.load_state_dict({python.text(back[-1].state)}["{key or "scheduler"}"])'
        line += "" if key else f'    # and save it: "scheduler": {name}.state_dict()'
        yield Remark(
            python.at(back[-1].call),
            f'"{said(python.text(back[-1].call.node), 60)}" goes without "{name}", which begins anew',
            after(python, back[-1].call, [line]),
            subject=name,
        )


def _saved(script: Script, python: Python) -> list[tuple[str, ast.expr]]:
    return [part for save in kept(script, python) for part in parts_of(save)]


def _is_schedule(call: Call) -> bool:
    """A schedule of torch (``torch.optim.lr_scheduler``) or of transformers (``get_cosine_schedule_with_warmup``)."""
    if not call.imported or call.attr == _PLATEAU:
        return False
    if call.name.startswith("torch.optim.lr_scheduler."):
        return True
    return call.name.partition(".")[0] in ("transformers", "diffusers") and (
        "_schedule" in call.attr or call.attr == "get_scheduler"
    )


def _name(python: Python, made: Call) -> str:
    stmt = statement_of(python, made.node)
    if not isinstance(stmt, ast.Assign) or stmt.value is not made.node or len(stmt.targets) != 1:
        return ""
    target = stmt.targets[0]
    return python.source.dotted(target)[0] if isinstance(target, ast.Name | ast.Attribute) else ""


def _is_read(python: Python) -> bool:
    """Whether a schedule is read back in any way, or several are made, of which one may be."""
    receivers = [python.text(one.receiver).lower() for one in python.methods("load_state_dict") if one.receiver]
    if any("sched" in one or "warm" in one or one.rpartition(".")[2].startswith("lr") for one in receivers):
        return True
    return mentions(
        python, "last_epoch", '["lr"] =', "['lr'] =", ".prepare(", _PLATEAU.lower(), "for obj in", "last_lr"
    )


RULE = ProgramRule(
    id=ID,
    severity=Severity.WARN,
    why="the learning rate begins anew at every restart, with a warm-up on weights that are trained, and ends too high",
    look=look,
    on_runtime=Severity.WARN,
)
