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
Reads: the schedules of torch and transformers that the program makes, and what it reads back; which of them Accelerate,
DeepSpeed, Fabric or torch.distributed.checkpoint is given.
Silent when: any schedule is read back, is told where it begins (last_epoch), or is stepped outside the loop; it is
ReduceLROnPlateau, whose learning rate is the optimizer's own; the rate is set by hand; the optimizer is not read back.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Final

from webhook.model.finding import Severity
from webhook.model.rule import ProgramRule
from webhook.model.script import Lines, Remark
from webhook.programs import Call, Python, Script
from webhook.programs.flow import in_loop
from webhook.programs.goes_on import Whole, states, wholes
from webhook.programs.pasted import after, statement_of
from webhook.programs.readback import kept, mentions, read_back
from webhook.programs.restored import parts_of
from webhook.programs.values import said

ID = "scheduler-not-restored"
_PLATEAU: Final = "ReduceLROnPlateau"


def look(script: Script) -> Iterator[Remark]:
    for python in script.pythons:
        yield from _by_hand(script, python)
        yield from _whole(script, python)


def _by_hand(script: Script, python: Python) -> Iterator[Remark]:
    back = [one for one in read_back(script, python) if one.optimizer]
    made = next((call for call in python.source.calls if _is_schedule(call)), None) if back else None
    if made is None or _is_read(python):
        return
    name = _name(python, made)
    if not name or made.argument("last_epoch") is not None:
        return
    steps = [call for call in python.methods("step") if call.name == f"{name}.step"]
    if not steps or not all(in_loop(python, call) for call in steps):
        return
    key = next((key for key, part in _saved(script, python) if python.text(part).startswith(name)), "")
    line = f'{name}.load_state_dict({python.text(back[-1].state)}["{key or "scheduler"}"])'
    line += "" if key else f'    # and save it: "scheduler": {name}.state_dict()'
    yield Remark(
        python.at(back[-1].call),
        f'"{said(python.text(back[-1].call.node), 60)}" goes without "{name}", which begins anew',
        after(python, back[-1].call, [line]),
        subject=name,
    )


def _whole(script: Script, python: Python) -> Iterator[Remark]:
    """A schedule that the program steps by itself, and that the framework which restores the rest never saw."""
    for whole in wholes(script, python):
        if whole.kind not in _GIVEN or (whole.kind in ("fabric", "dcp") and not states(python, whole)):
            continue
        for made in [one for one in python.source.calls if _is_schedule(one)][:_MOST]:
            name = _name(python, made)
            if not name or made.argument("last_epoch") is not None or _is_set(python):
                continue
            steps = [call for call in python.methods("step") if call.name == f"{name}.step"]
            if not steps or not all(in_loop(python, call) for call in steps) or _is_told(python, whole, name):
                continue
            yield Remark(
                python.at(whole.load),
                f'"{said(python.text(whole.load.node), 60)}" goes without "{name}", which begins anew',
                _told(python, whole, made, name),
                subject=name,
            )
            return


_MOST: Final = 4
_GIVEN: Final = {
    "accelerate": ("prepare", "prepare_scheduler", "register_for_checkpointing"),
    "deepspeed": ("initialize",),
    "fabric": (),
    "dcp": (),
}
"""What a schedule is handed to so that the framework saves it."""


def _is_told(python: Python, whole: Whole, name: str) -> bool:
    """Whether the framework has the schedule, or it is read back by hand, or is in what is saved."""
    if any(python.source.dotted(call.receiver)[0] == name for call in python.methods(*_BACK) if call.receiver):
        return True
    handed = [call for attr in _GIVEN[whole.kind] for call in python.named(attr)]
    if any(call.open_ended for call in handed):
        return True
    given = [node for call in handed for node in (*call.node.args, *(one.value for one in call.node.keywords))]
    return any(
        python.source.dotted(part)[0] == name
        for node in (*given, *(part for _, part in states(python, whole)))
        for part in ast.walk(node)
        if isinstance(part, ast.Name | ast.Attribute)
    )


_BACK: Final = ("load_state_dict", "state_dict")


def _is_set(python: Python) -> bool:
    return mentions(python, "last_epoch", '["lr"] =', "['lr'] =", "last_lr", "lambda_lr", "client_state")


def _told(python: Python, whole: Whole, made: Call, name: str) -> str:
    if whole.kind == "accelerate":
        line = f"{whole.owner}.register_for_checkpointing({name})"
        first = whole.load.receiver
        known = first is not None and any(one.line < made.line for one in python.bindings(first, whole.load.around))
        return after(python, made, [line]) if known else f"# before load_state, at every start:\n{line}"
    where = {
        "deepspeed": f"lr_scheduler={name} of deepspeed.initialize",
        "fabric": f'"scheduler": {name} in the state that is saved',
        "dcp": f'"scheduler": {name}.state_dict() in the state, and {name}.load_state_dict(...)',
    }[whole.kind]
    at = python.at(whole.load).line
    return Lines(f"# {where}", at, at - 1)


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
