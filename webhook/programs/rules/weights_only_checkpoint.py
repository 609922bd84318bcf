"""The checkpoints hold the weights alone: no optimizer, no scheduler, so a run cannot go on from them.

Symptom: after a restart the loss jumps and the learning rate warms up again.
Fix: save the optimizer's state with the weights.
Bad:
    args:
    - |
      torch.save(model.state_dict(), f"{out}/step_{step:08d}.pt")
Good:
    args:
    - |
      torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}, path)
Reads: what is saved in the loop; save_only_model, --no-save-optim, load_module_only, save_weights_only,
accelerate_full_state_at_epoch; the tree that Orbax or Flax saves where optax trains.
Silent when: the optimizer is saved anywhere; it is an export after training, or the best model beside others; nothing
is saved into the checkpoint directory.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Final

from webhook.model.finding import Severity
from webhook.model.rule import ProgramRule
from webhook.model.script import Remark
from webhook.programs import Python, Script
from webhook.programs.contents import is_weights, keeps_optimizer, optimizer_of
from webhook.programs.corrected import LONGEST, with_node
from webhook.programs.flow import in_loop, loop_learns
from webhook.programs.frameworks import find_calls, find_uses, mended
from webhook.programs.names import Save, saves
from webhook.programs.pasted import after, statement_of, with_import
from webhook.programs.readback import goes_somewhere
from webhook.programs.trees import of_trees, without_optimizer
from webhook.programs.values import said

ID = "weights-only-checkpoint"
_EXPORTS: Final = ("best", "final", "export", "ema", "deploy", "publish", "inference")
_BESIDE: Final = ("token", "processor", "config", "extractor")
_FUNCTIONS: Final = (
    "torch.save",
    "torch.distributed.checkpoint.save",
    "torch.distributed.checkpoint.async_save",
    "save_pretrained",
)
_ARRAYS: Final = ("numpy.save", "numpy.savez")
"""Where PyTorch trains, they hold curves and predictions."""


def look(script: Script) -> Iterator[Remark]:
    for use in (*find_uses(script), *find_calls(script)):
        full = use.full
        if full is None or full.value is not False or (use.saves is not None and use.saves.value is False):
            continue
        # Two callbacks of Lightning, or a save of one's own, may keep the rest.
        if use.python is not None and keeps_optimizer(use.python) and use.framework.id not in ("deepspeed",):
            continue
        if not full.given and use.partial:
            continue
        short = full.name.rpartition(".")[2]
        stated = said(full.written.removeprefix(full.name).lstrip(" =:")) if full.given else "absent"
        done = "read back" if use.framework.id == "deepspeed" else "saved"
        yield Remark(
            full.place,
            f'"{short}" leaves the optimizer\'s state out'
            if short.startswith("--")
            else f'"{short}" is {stated}, so no optimizer state is {done}',
            mended(script, full, _fix(full.name, full.given), use),
            subject=full.name,
        )
    for python in script.pythons:
        yield from _trees(script, python)
    if not find_uses(script):
        for python in script.pythons:
            yield from _by_hand(script, python)


def _trees(script: Script, python: Python) -> Iterator[Remark]:
    """JAX: ``params`` or ``state.params`` is all that Orbax or Flax saves, and optax trains."""
    for whole in of_trees(script, python):
        node = without_optimizer(python, whole)
        if node is None:
            continue
        yield Remark(
            python.at(node),
            f'"{said(python.text(whole.save.node), 64)}" saves no optimizer state, and nothing else does',
            _tree(python, node),
            subject=python.text(node),
        )
        return


def _tree(python: Python, node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return with_node(python, node, python.text(node.value))
    name = next((name for _, name in python.source.bindings if name.startswith("opt") and "state" in name), "opt_state")
    return with_node(python, node, f'{{"params": {python.text(node)}, "opt_state": {name}}}')


def _fix(name: str, given: bool) -> str:
    if name == "accelerate_full_state_at_epoch" or not given:
        return f"{name}=True"
    if name.startswith("--"):
        return f"without {name}"
    if "save_contents" in name:
        return f"{name}='[model,optimizer,extra]'"
    return f"{name}=False"


def _by_hand(script: Script, python: Python) -> Iterator[Remark]:
    if keeps_optimizer(python) or python.source.stars or not loop_learns(python) or "optim" not in python.source.code:
        return
    mine = [save for save in saves(script) if save.python is python and not _is_own(save)]
    often = [save for save in mine if save.function not in _ARRAYS and in_loop(python, save.call)]
    looped = [save for save in often if not _is_export(save)] or [save for save in often if _is_best(save)]
    if not looped or not all(save.function in _FUNCTIONS and is_weights(save) for save in looped):
        return
    for save in looped:
        if script.counts(save.value) or goes_somewhere(script, save):
            shown = said(python.text(save.call.node), 64)
            yield Remark(
                python.at(save.call),
                f'"{shown}" saves no optimizer state, and nothing else does',
                _whole(python, save),
                subject=save.name,
            )
            return


def _is_own(save: Save) -> bool:
    """``self.save_checkpoint(...)`` of this text: what that writes is a save of its own."""
    receiver = save.call.receiver
    return (
        save.function in save.python.source.functions
        and isinstance(receiver, ast.Name)
        and receiver.id in ("self", "cls")
    )


def _whole(python: Python, save: Save) -> str:
    """The save with the optimizer, in the user's own words."""
    path = python.text(save.path)
    if save.function == "save_pretrained" and "accelerate" in python.source.modules:
        made = next(iter(python.calls("accelerate.Accelerator")), None)
        stmt = statement_of(python, made.node) if made is not None else None
        name = python.text(stmt.targets[0]) if isinstance(stmt, ast.Assign) else "accelerator"
        return after(python, save.call, (), f"{name}.save_state({path})")
    model, optimizer = _model_of(python, save), optimizer_of(python)
    distributed = save.function.startswith("torch.distributed")
    node = save.call.argument("state_dict" if distributed else "obj", 0)
    if (distributed or save.function == "torch.save") and isinstance(node, ast.Dict) and node.keys:
        both = python.source.source(node).rstrip("}").rstrip(" ,")
        # What DCP is given may be the objects themselves.
        state = optimizer if distributed and isinstance(node.values[0], ast.Name) else f"{optimizer}.state_dict()"
        if len(both) > LONGEST:
            return f'"optimizer": {state}'
        whole = f'{both}, "optimizer": {state}}}'
        if save.call.line == node.lineno == node.end_lineno:
            return with_node(python, node, whole)
        named = "checkpoint_id=" if distributed else ""
        return after(python, save.call, (), f"{python.text(save.call.node.func)}({whole}, {named}{path})")
    whole = f'torch.save({{"model": {model}.state_dict(), "optimizer": {optimizer}.state_dict()}}, {path})'
    return with_import(python, after(python, save.call, (), whole), "torch")


def _model_of(python: Python, save: Save) -> str:
    """The model in the user's own words."""
    call = save.call.node if save.function == "save_pretrained" else save.call.argument("obj", 0)
    for node in ast.walk(call) if call is not None else ():
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            return python.text(node.func.value)
    optimizer = optimizer_of(python)
    for one in python.methods("state_dict"):
        if one.receiver is not None and python.text(one.receiver) != optimizer:
            return python.text(one.receiver)
    if isinstance(call, ast.Name):
        made = [one.value for one in python.bindings(call, save.call.around)]
        # The model itself is what is saved, and not a dictionary with it.
        if not any(isinstance(one, ast.Dict | ast.Tuple | ast.List) or one is None for one in made):
            return python.text(call)
    return "model"


def _is_best(save: Save) -> bool:
    """The best so far, where nothing else is saved in the loop."""
    name = save.name.lower() + save.python.text(save.path).lower()
    return "best" in name and not any(word in name for word in _EXPORTS if word != "best")


def _is_export(save: Save) -> bool:
    """A copy for use, or what goes with it: ``tokenizer.save_pretrained(...)``."""
    if save.function == "save_pretrained" and any(word in save.call.name.lower() for word in _BESIDE):
        return True
    name = save.name.lower() + save.python.text(save.path).lower()
    return any(word in name for word in _EXPORTS)


RULE = ProgramRule(
    id=ID,
    severity=Severity.WARN,
    why="a restart has weights and no optimizer: momentum, learning rate and step begin again, and the loss jumps",
    look=look,
    on_runtime=Severity.WARN,
)
