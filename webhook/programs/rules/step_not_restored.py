"""The weights come back from the checkpoint and the loop begins at 0 all the same.

Symptom: after a restart the log begins at step 0; the run takes as long as if it had never been saved, and the learning
rate and the names of checkpoints begin again.
Fix: begin the loop where the checkpoint ends.
Bad:
    args:
    - |
      state = torch.load(newest)
      model.load_state_dict(state["model"])
      for step in range(100000):
Good:
    args:
    - |
      state = torch.load(newest)
      model.load_state_dict(state["model"])
      for step in range(state["step"] + 1, 100000):
Reads: what a loop of the program's own saves and reads back, and where that loop begins: torch.load, Accelerate,
DeepSpeed, Fabric, torch.distributed.checkpoint, Orbax, Flax, tf.train.Checkpoint; the rounds, epochs and timesteps that
XGBoost, LightGBM, Keras and Stable-Baselines3 are told to do on top of what they load.
Silent when: anything is read out of the checkpoint that could be the step; the loop begins at a name; batches or epochs
are skipped; what is loaded is where the run begins; a part of the program is not seen.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Final

from webhook.model.finding import Severity
from webhook.model.rule import ProgramRule
from webhook.model.script import Lines, Remark
from webhook.programs import Call, Python, Script
from webhook.programs.anew import counted_anew, told_where
from webhook.programs.beginning import begun_at
from webhook.programs.flow import loop_learns
from webhook.programs.goes_on import COUNTS, gives_count, wholes
from webhook.programs.names import Save
from webhook.programs.pasted import after
from webhook.programs.python import Around
from webhook.programs.readback import ReadBack, kept, loop_of_run, mentions, read_back
from webhook.programs.restored import parts_of
from webhook.programs.values import said

ID = "step-not-restored"
_SKIPS: Final = (
    *("skip_first", "skip_batch", "islice", "fast_forward", "resume_step", "resume_epoch", "steps_trained", "consumed"),
    *(
        "start_epoch",
        "start_step",
        "start_iter",
        "epoch_start",
        "step_start",
        "iter_start",
        "first_epoch",
        "begin_epoch",
    ),
    *("startepoch", "startstep", "initial_step", "initial_epoch", "completed_", "starting_", "resumed_"),
)
"""Words of a text that goes on in a way of its own."""
_MOST: Final = 4
"""Parts that are read back and looked at: they come out of one checkpoint."""


def look(script: Script) -> Iterator[Remark]:
    for python in script.pythons:
        yield from _by_hand(script, python)
        yield from _whole(script, python)
        yield from counted_anew(script, python)


def _by_hand(script: Script, python: Python) -> Iterator[Remark]:
    back = read_back(script, python)
    for save in kept(script, python) if back and loop_learns(python) else ():
        found = loop_of_run(python, save.call)
        if found is None or _is_before(back[0].call, *found) or not _from_nothing(python, *found):
            continue
        if _goes_on(python, found[0]) or any(_reads_count(python, one) for one in back[:_MOST]):
            return
        yield _anew(python, found[0], back[0].call, _fix(python, back[0], save, found[0]))
        return


def _whole(script: Script, python: Python) -> Iterator[Remark]:
    """What one call of a framework restores has no step in it that the loop would know of."""
    for whole in wholes(script, python):
        found = loop_of_run(python, whole.save)
        if found is None or _is_before(whole.load, *found) or not _from_nothing(python, *found):
            continue
        if not _goes_on(python, found[0]) and not gives_count(python, whole):
            yield _anew(python, found[0], whole.load, told_where(python, whole, found[0]))
        return


def _anew(python: Python, loop: ast.For | ast.While, load: Call, fix: str) -> Remark:
    line = python.source.line(loop.lineno)
    shown = f'"{said(line.rstrip(":"), 60)}" begins anew after "{said(python.text(load.node), 60)}"'
    return Remark(python.at(loop), shown, fix, subject=line)


def _goes_on(python: Python, loop: ast.For | ast.While) -> bool:
    return _passes_over(loop) or mentions(python, *_SKIPS)


def _passes_over(loop: ast.For | ast.While) -> bool:
    """``if step <= done: continue``: turns that were done are passed over."""
    names = (
        {one.id for one in ast.walk(loop.target) if isinstance(one, ast.Name)} if isinstance(loop, ast.For) else set()
    )
    return any(
        isinstance(one, ast.If)
        and any(isinstance(inner, ast.Continue) for inner in one.body)
        and names & {part.id for part in ast.walk(one.test) if isinstance(part, ast.Name)}
        for one in ast.walk(loop)
    )


def _is_before(load: Call, loop: ast.For | ast.While, around: Around) -> bool:
    """Whether the loop stands above what is read back, in one function."""
    own = load.around.scope if load.around is not None else None
    return own is around.scope and loop.lineno <= load.line


def _from_nothing(python: Python, loop: ast.For | ast.While, around: Around) -> bool:
    """``for step in range(n)``, ``for step, batch in enumerate(batches)``, ``step = 0`` and ``while step < n``."""
    if isinstance(loop, ast.While):
        test = loop.test
        if not isinstance(test, ast.Compare) or not isinstance(test.left, ast.Name):
            return False
        found = python.bindings(test.left, around)
        set_ = [one for one in found if one.how == "="]
        return (
            bool(set_)
            and any(one.how == "+=" for one in found)
            and all(one.how in ("=", "+=") for one in found)
            and all(isinstance(one.value, ast.Constant) and one.value.value in (0, 1) for one in set_)
        )
    if not isinstance(loop.iter, ast.Call):
        return False
    iterated = loop.iter
    name = python.source.dotted(iterated.func)[0].rpartition(".")[2]
    if name == "tqdm" and iterated.args and isinstance(iterated.args[0], ast.Call):
        iterated = iterated.args[0]
        name = python.source.dotted(iterated.func)[0].rpartition(".")[2]
    if name in ("range", "trange"):
        first = iterated.args[0] if len(iterated.args) > 1 else None
        return first is None or (isinstance(first, ast.Constant) and first.value in (0, 1))
    return False


def _reads_count(python: Python, back: ReadBack) -> bool:
    """Whether anything but states is taken out of the checkpoint, or out of its name."""
    name = python.source.dotted(back.state)[0]
    if not name or not name[0].isidentifier():
        return False  # ``torch.load(path)["net"]``: nothing else is taken out of it
    own = {id(one) for call in python.methods("load_state_dict") for one in ast.walk(call.node)}
    for node in ast.walk(python.source.tree):
        if isinstance(node, ast.Subscript) and id(node) not in own and python.source.dotted(node.value)[0] == name:
            return True
    for call in python.methods("get", "pop", "items"):
        if call.receiver is not None and python.source.dotted(call.receiver)[0] == name:
            return True
    # A helper that gives the checkpoint on, or a number that is read out of a file's name.
    scope = back.call.around.scope if back.call.around is not None else None
    returned = python.source.returns.get(id(scope.node), []) if scope is not None else []
    if any(not (isinstance(one, ast.Constant) and one.value is None) for one, _ in returned):
        return True
    return any(
        call.name in ("int", "re.search", "re.findall", "re.match")
        and any(
            word in python.text(call.node).lower() for word in ("path", "ckpt", "checkpoint", "name", "file", "dir")
        )
        for call in python.named("int", "search", "findall", "match")
    ) or any(one in python.source.functions and _counts(one) for one in python.source.by_attr)


def _counts(name: str) -> bool:
    return any(word in name.lower() for word in ("resume", "restore", "load")) and any(
        word in name.lower() for word in COUNTS
    )


def _fix(python: Python, back: ReadBack, save: Save, loop: ast.For | ast.While) -> str:
    counter = loop.target.id if isinstance(loop, ast.For) and isinstance(loop.target, ast.Name) else ""
    if isinstance(loop, ast.While) and isinstance(loop.test, ast.Compare) and isinstance(loop.test.left, ast.Name):
        counter = loop.test.left.id
    key = next((key for key, node in parts_of(save) if isinstance(node, ast.Name) and node.id == counter), "")
    state = python.text(back.state)
    at = max(python.place.line, 1) - 1 + loop.lineno
    if not counter or not key:
        name = counter or "step"
        return Lines(f'# save "{name}": {name} too, and begin at {state}["{name}"] + 1', at, at - 1)
    if isinstance(loop, ast.While):
        return after(python, back.call, [f'{counter} = {state}["{key}"] + 1'])
    read = f'{state}["{key}"] + 1'
    return begun_at(python, back.call, loop, read) or after(python, back.call, [f"first = {read}    # and begin there"])


RULE = ProgramRule(
    id=ID,
    severity=Severity.WARN,
    why="every restart does all steps again on weights that have done them, and the schedule and the names begin anew",
    look=look,
    on_runtime=Severity.WARN,
)
