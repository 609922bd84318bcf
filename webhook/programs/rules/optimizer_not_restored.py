"""The optimizer is saved, and a restart does not read it back.

Symptom: the loss jumps at every restart, and the learning rate warms up again.
Fix: load the optimizer's state together with the weights.
Bad:
    args:
    - |
      state = torch.load(newest)
      model.load_state_dict(state["model"])
Good:
    args:
    - |
      state = torch.load(newest)
      model.load_state_dict(state["model"])
      optimizer.load_state_dict(state["optimizer"])
Reads: what torch.save writes and what is done with what torch.load gives; --no-load-optim, load_optimizer_states;
adapters that are loaded from a checkpoint without the trainer being told; what is taken out of a tree that Orbax or
Flax restored; Keras' load_weights of a file that ModelCheckpoint wrote, before the optimizer is built.
Silent when: what is loaded comes from elsewhere (it is where the run begins); anything mentions the optimizer's state
on the way back; it is read when training is over or to predict; a part of the program is not seen.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Final

from webhook.model.finding import Severity
from webhook.model.rule import ProgramRule
from webhook.model.script import Lines, Remark
from webhook.programs import Call, Python, Script
from webhook.programs.anew import keras_resume
from webhook.programs.contents import optimizer_of
from webhook.programs.corrected import in_line
from webhook.programs.flow import in_loop, is_no_start
from webhook.programs.frameworks import find_calls, find_uses, mended
from webhook.programs.frameworks.hf_trainer import train_calls
from webhook.programs.lines import search
from webhook.programs.names import Save, saves
from webhook.programs.pasted import after, statement_of
from webhook.programs.readback import mentions
from webhook.programs.restored import parts_of
from webhook.programs.trees import of_trees, read_without
from webhook.programs.values import said, tail

ID = "optimizer-not-restored"
_SAVED: Final = (
    r"""(?i)["'](\w{0,40}optim\w{0,40}|opt)["']\s*:\s*\w|optim\w{0,40}\s*=\s*\w{0,40}optim\w{0,40}\.state_dict\("""
)
_READ: Final = (
    r"""(?i)optim\w{0,40}(\[\w{1,40}\])?\.load_state_dict|\[\s*["']\w{0,40}opt\w{0,40}["']\s*\]"""
    r"""|get\(\s*["']\w{0,40}opt\w{0,40}["']|load_optim|optim\w{0,40}\s*=\s*\w{0,40}load"""
    r"""|set_optimizer_state_dict|set_state_dict|optim_state_dict_to_load|load_state\(|load_checkpoint\(|\.restore\("""
)


def look(script: Script) -> Iterator[Remark]:
    for use in (*find_uses(script), *find_calls(script)):
        if use.loads is not None and use.loads.value is False:
            name = use.loads.name if use.call is None else f"{use.loads.name}={use.loads.written}"
            yield Remark(
                use.loads.place,
                f'"{name}" leaves the optimizer unread in the run\'s own checkpoints',
                mended(script, use.loads, f"without {name}" if use.call is None else f"{use.loads.name}=True", use),
                subject=use.loads.name,
            )
    for python in script.pythons:
        if script.whole and not script.unread and not python.source.stars:
            yield from _by_hand(script, python)
        yield from _adapters(script, python)
        yield from _trees(script, python)
        yield from _keras(python)


def _by_hand(script: Script, python: Python) -> Iterator[Remark]:
    text = python.source.text
    if "torch.load" not in text and ".load(" not in text:
        return
    saved = search(python.source, _SAVED, "opt")
    if saved is None or search(python.source, _READ, "opt", "load", "restore", "set_") or "." in python.source.modules:
        return
    if any(_of_several(python, call) for call in python.methods("load_state_dict")):
        return
    mine = [save for save in saves(script) if save.python is python and save.function == "torch.save"]
    if not any(_holds_optimizer(python, save.call) and in_loop(python, save.call) for save in mine):
        return
    for call in python.methods("load_state_dict"):
        node = call.argument("state_dict", 0)
        if node is None or not _from_own(python, call, node) or is_no_start(python, call):
            continue
        source = _container(python, call, node)
        if source is None or "optim" in python.text(node).lower():
            continue
        key = saved.group(1) or "optimizer"
        yield Remark(
            python.at(call),
            f'"{python.text(call.node)}" is all that is read back, without "{key}"',
            after(python, call, [f'{_saved_by(python, mine, key)}.load_state_dict({python.text(source)}["{key}"])']),
            subject=key,
        )
        return


def _saved_by(python: Python, mine: list[Save], key: str) -> str:
    """The optimizer whose state is saved under the key, in the user's own words."""
    for save in mine:
        for name, part in parts_of(save):
            if name == key and isinstance(part, ast.Call) and isinstance(part.func, ast.Attribute):
                return python.text(part.func.value)
    return optimizer_of(python)


def _of_several(python: Python, call: Call) -> bool:
    """``for key, one in parts.items(): one.load_state_dict(state[key])``: which those are is not told."""
    receiver = call.receiver
    return isinstance(receiver, ast.Name) and any(
        binding.how in ("for", "unpacked") for binding in python.bindings(receiver, call.around)
    )


def _holds_optimizer(python: Python, call: Call) -> bool:
    node = call.argument("obj", 0)
    if node is None:
        return False
    return any("optim" in python.source.source(origin) for origin, _ in python.origins(node, call.around))


def _container(python: Python, call: Call, node: ast.expr) -> ast.expr | None:
    """``state`` of ``state["model"]``, also where that has a name of its own."""
    for origin, _ in python.origins(node, call.around):
        if isinstance(origin, ast.Subscript):
            return origin.value
    return None


def _from_own(python: Python, call: Call, node: ast.expr) -> bool:
    """``state["model"]`` where state comes from torch.load, and not from what is called pretrained or initial."""
    base = _container(python, call, node)
    for origin, _ in python.origins(base, call.around) if base is not None else ():
        if isinstance(origin, ast.Call) and python.source.dotted(origin.func)[0] == "torch.load":
            path = origin.args[0] if origin.args else None
            shown = " ".join(
                python.source.source(part).lower()
                for part in (
                    origin,
                    *(one for one, _ in (python.origins(path, call.around) if path is not None else ())),
                )
            )
            return not any(word in shown for word in ("pretrain", "init", "weights", "teacher", "best", "base"))
    return False


def _adapters(script: Script, python: Python) -> Iterator[Remark]:
    """``PeftModel.from_pretrained(base, get_last_checkpoint(out))`` and ``train()`` with nothing."""
    trains = train_calls(python)
    if not trains or any(call.node.args or call.node.keywords for call in trains):
        return
    for call in python.calls("peft.PeftModel.from_pretrained", "peft.PeftModelForCausalLM.from_pretrained"):
        path = call.argument("model_id", 1)
        if path is None:
            continue
        for origin, _ in python.origins(path, call.around):
            if isinstance(origin, ast.Call) and "last_checkpoint" in python.source.dotted(origin.func)[0]:
                shown = python.text(path)
                yield Remark(
                    python.at(call),
                    f'only the adapters are read from "{shown}", and "{trains[0].name}()" begins anew',
                    _told(script, python, trains[0], shown),
                    subject=shown,
                )
                return


def _trees(script: Script, python: Python) -> Iterator[Remark]:
    """JAX: ``params = restored["params"]``, and optax's state beside it is made anew."""
    for whole in of_trees(script, python):
        found = read_without(python, whole)
        if found is None:
            continue
        node, name, key = found
        shown = python.text(node)
        stmt = statement_of(python, node)
        at = python.at(node).line + (stmt.end_lineno or stmt.lineno) - node.lineno if stmt is not None else 0
        taken = f"{name}.{key}" if isinstance(node, ast.Attribute) else f'{name}["{key}"]'
        yield Remark(
            python.at(node),
            f'"{shown}" is all that is read back, without "{key}"',
            Lines(f"# behind line {at}, in the place of what init() makes:\n{key} = {taken}", at + 1, at),
            subject=key,
        )
        return


def _keras(python: Python) -> Iterator[Remark]:
    """Keras 3.15.1, run: ``load_weights`` passes over the state of an optimizer that has not been built yet."""
    found = keras_resume(python) if "load_weights" in python.source.by_attr else None
    if found is None or found[0].attr != "load_weights" or mentions(python, ".build(", "train_on_batch"):
        return
    load, _, save = found
    path = save.argument("filepath", 0)
    if path is None or not tail(python.value(path, save.around)).endswith(".weights.h5"):
        return
    model = python.text(load.receiver) if load.receiver is not None else "model"
    build = f"{model}.optimizer.build({model}.trainable_variables)"
    at = python.at(load).line
    yield Remark(
        python.at(load),
        f'"{said(python.text(load.node), 60)}" reads no optimizer state before the optimizer is built',
        Lines(f"# before line {at}:\n{build}", at, at - 1),
        subject=model,
    )


def _told(script: Script, python: Python, train: Call, where: str) -> str:
    setting = f"resume_from_checkpoint={where}"
    line = in_line(script, python.at(train), setting, train, position=0)
    if isinstance(line, Lines):
        return line.before(f"    # line {line.first}")
    return f"{train.name}({setting})    # line {python.at(train).line}"


RULE = ProgramRule(
    id=ID,
    severity=Severity.WARN,
    why="the optimizer begins from nothing at every restart, so the loss jumps and training is not the same",
    look=look,
    on_runtime=Severity.WARN,
)
