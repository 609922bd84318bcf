"""The program saves checkpoints and never reads one, or reads from elsewhere than it saves to.

Symptom: every restart begins at step 0, and the old checkpoints are written over or pile up.
Fix: at the start, look for the newest checkpoint and load it.
Bad:
    args:
    - |
      trainer = Trainer(model=model, args=TrainingArguments(output_dir="/mnt/ckpt/run"))
      trainer.train()
Good:
    args:
    - |
      trainer = Trainer(model=model, args=TrainingArguments(output_dir="/mnt/ckpt/run"))
      trainer.train(resume_from_checkpoint=get_last_checkpoint("/mnt/ckpt/run"))
Reads: what the program saves and where, every call that could load, and the frameworks' own settings.
Silent when: anything that could load is called or imported; a part of the program is not seen; it saves elsewhere than
in the checkpoint directory or a mounted volume.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Final

from webhook.model.finding import Severity
from webhook.model.rule import ProgramRule
from webhook.model.script import Lines, Remark
from webhook.programs import Call, Python, Script, Value
from webhook.programs.back import may_load
from webhook.programs.flow import in_loop, loop_learns
from webhook.programs.frameworks import Use, find_calls, find_uses, mended, told
from webhook.programs.frameworks.framework import call_setting
from webhook.programs.frameworks.hf_trainer import arguments_calls, resumed, train_calls
from webhook.programs.names import Save, saves
from webhook.programs.pasted import loop_of
from webhook.programs.readback import goes_somewhere
from webhook.programs.restored import restored
from webhook.programs.values import head, said, shown

ID = "never-resumed"
_ARGUMENT: Final = "resume_from_checkpoint"


def look(script: Script) -> Iterator[Remark]:
    for use in find_uses(script):
        if use.framework.id == "hf-trainer" and use.python is not None:
            yield from _hugging_face(script, use, use.python)
        elif use.framework.loads_directory:
            yield from _from_elsewhere(script, use)
        elif use.python is not None:
            yield from _not_told(script, use, use.python)
    if not find_uses(script):
        yield from _plain(script)


def _hugging_face(script: Script, use: Use, python: Python) -> Iterator[Remark]:
    trains = train_calls(python)
    if not trains or any(_is_told(python, call) for call in trains):
        return
    if use.saves is None or use.saves.value is not True or use.directory is None:
        return
    if not script.counts(use.directory.value) and not (script.launch.directories and not head(use.directory.value)):
        return
    # What unused-resume-argument says of it is nearer to what was meant.
    if any(call_setting(python, call, _ARGUMENT, None).given for call in arguments_calls(python)):
        return
    if f".{_ARGUMENT}" in python.source.code or (use.invocation is not None and _ARGUMENT in use.invocation.flags):
        return
    if _loads_itself(python):
        return
    train = trains[0]
    name = train.name if not train.name.startswith("()") else "trainer.train"
    known = use.directory.value
    where = use.directory.written or (f'"{known}"' if isinstance(known, str) else "")
    yield Remark(
        python.at(train),
        f'"{name}()" never resumes from what is saved into "{_said(use.directory.value)}"',
        resumed(script, python, train, where),
        subject=name,
    )


def _is_told(python: Python, call: Call) -> bool:
    """Whether a train() is told anything: a resume that is known to be None is as good as none."""
    resume = call.argument(_ARGUMENT, 0)
    others = len(call.node.args) > 1 or any(one.arg not in (_ARGUMENT, "trial") for one in call.node.keywords)
    if others or resume is None:
        return others
    # An argument of the program's own that is None by default is resume-not-asked-for's.
    return not all(
        isinstance(one, ast.Constant) and one.value is None for one, _ in python.origins(resume, call.around)
    )


def _loads_itself(python: Python) -> bool:
    """Whether the text looks for checkpoints in a way of its own, such as a callback or ``from_pretrained(last)``."""
    text = python.source.code
    return (
        "get_last_checkpoint" in text
        or "load_state" in text
        or "_load_from_checkpoint" in text
        or _ONE_OF_THEM.search(text) is not None
    )


_ONE_OF_THEM: Final = re.compile(r"checkpoint-[^a-zA-Z]")
"""A name as the Trainer gives it: ``checkpoint-*``, ``checkpoint-{step}``; not ``--checkpoint-dir``."""


def _not_told(script: Script, use: Use, python: Python) -> Iterator[Remark]:
    """Lightning's ``fit(model)`` without ``ckpt_path``, XGBoost's ``train()`` without ``xgb_model`` and the like."""
    resume, directory = use.resume, use.directory
    keras = use.framework.id == "keras" and use.call is not None and not use.call.open_ended
    if resume is None or resume.value is not None or (use.partial and not keras):
        return
    if directory is None or not (directory.given or script.wants_checkpoints):
        return
    if directory.given and not script.counts(directory.value):
        return
    if use.saves is not None and use.saves.value is False:
        return
    if not keras and any(
        word in python.source.code for word in ("load_from_checkpoint", "resume", "restore", "ckpt_path=", "torch.load")
    ):
        return
    yield Remark(
        resume.place,
        f'"{resume.name}" is {"None" if resume.given else "absent"}, so what is saved into '
        f'"{_said(directory.value)}" is never read',
        told(script, resume, use.resume_fix or use.framework.resume_fix, python),
        subject=resume.name,
    )


def _from_elsewhere(script: Script, use: Use) -> Iterator[Remark]:
    """Megatron's ``--load A --save B``."""
    if use.resume is None or use.directory is None or not use.resume.given or not use.directory.given:
        return
    loaded, saved = use.resume.value, use.directory.value
    if not isinstance(loaded, str) or not isinstance(saved, str) or loaded.rstrip("/") == saved.rstrip("/"):
        return
    if loaded in ("", "none", "None"):
        return
    yield Remark(
        use.resume.place,
        f'"{use.resume.name} {shown(loaded)}" reads elsewhere than "{use.directory.name} {shown(saved)}" writes',
        mended(script, use.resume, f"{use.resume.name} {saved}", use),
        subject=use.resume.name,
    )


def _plain(script: Script) -> Iterator[Remark]:
    if may_load(script):
        return
    for save in saves(script):
        if not in_loop(save.python, save.call) or not loop_learns(save.python):
            continue
        if not script.counts(save.value) and not goes_somewhere(script, save):
            continue
        path = save.python.text(save.path)
        yield Remark(
            save.python.at(save.call),
            f'the program saves "{said(path)}" and never loads it',
            _fix(script, save),
            subject=path,
        )
        return


def _fix(script: Script, save: Save) -> str:
    by_hand = next((use for use in find_calls(script) if use.call is save.call), None)
    if by_hand is not None and by_hand.resume_fix:
        return _before_loop(save, by_hand.resume_fix)
    return restored(script, save)


def _before_loop(save: Save, text: str) -> str:
    loop = loop_of(save.call)
    if loop is None:
        return f"# before the loop:\n{text}"
    line = save.python.at(loop).line
    return Lines(f"# before line {line}:\n{text}", line, line - 1)


def _said(value: Value) -> str:
    return shown(value) if isinstance(value, str) else shown(head(value)) + "..."


RULE = ProgramRule(
    id=ID,
    severity=Severity.WARN,
    why="every restart begins at step 0, whatever was saved",
    look=look,
    on_runtime=Severity.WARN,
)
