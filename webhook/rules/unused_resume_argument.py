"""TrainingArguments is told to resume, and train() is not: the Trainer does not read that argument.

Symptom: resume_from_checkpoint is set, and every restart begins at step 0.
Fix: give it to train().
Bad:
    args:
    - |
      args = TrainingArguments(output_dir=out, resume_from_checkpoint=True)
      Trainer(model=model, args=args).train()
Good:
    args:
    - |
      args = TrainingArguments(output_dir=out)
      Trainer(model=model, args=args).train(resume_from_checkpoint=get_last_checkpoint(out))
Reads: TrainingArguments (and TRL's configurations) and every call of train() of a Trainer.
Silent when: the program reads `args.resume_from_checkpoint` itself; a train() is told to resume, or may be; no train()
is seen.
Source: transformers 5.24.0, training_args.py and trainer.py: nothing in the Trainer reads the argument.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from webhook.frameworks.hf_trainer import arguments_calls, train_calls
from webhook.model.finding import Finding, Severity
from webhook.model.rule import Rule
from webhook.model.script import Remark
from webhook.model.subject import Subject
from webhook.script import Call, Python, Script, program_findings
from webhook.script.values import is_true, said

ID = "unused-resume-argument"
_NAME = "resume_from_checkpoint"


def look(script: Script) -> Iterator[Remark]:
    for python in script.pythons:
        if _NAME in python.source.code and f".{_NAME}" not in python.source.code:
            yield from _in_text(python)


def _in_text(python: Python) -> Iterator[Remark]:
    trains = train_calls(python)
    if not trains or any(call.open_ended or _is_told(python, call) for call in trains):
        return
    for call in arguments_calls(python):
        node = call.argument(_NAME)
        if node is None:
            continue
        value = python.value(node, call.around)
        if value is None or is_true(value) is False:
            continue
        given = python.text(node)
        out = call.argument("output_dir", 0)
        where = python.text(out) if out is not None else "<output_dir>"
        wanted = given if value is not True else f"get_last_checkpoint({where})"
        train = trains[0].name if not trains[0].name.startswith("()") else "trainer.train"
        fix = f"{train}({_NAME}={wanted})"
        if wanted.startswith("get_last"):
            fix = f"from transformers.trainer_utils import get_last_checkpoint\n{fix}"
        yield Remark(
            python.at(node),
            f'"{_NAME}={said(given)}" is read by nobody: train() in line {python.at(trains[0]).line} is not told',
            fix,
            subject=_NAME,
        )


def _is_told(python: Python, call: Call) -> bool:
    """Whether a train() is told to resume; what is known to be None is not."""
    node = call.argument(_NAME, 0)
    return node is not None and not all(
        isinstance(one, ast.Constant) and one.value is None for one, _ in python.origins(node, call.around)
    )


def check(subject: Subject) -> Iterator[Finding]:
    return program_findings(subject, ID, look)


RULE = Rule(
    id=ID,
    severity=Severity.WARN,
    why="every restart begins at step 0, with the checkpoints beside it",
    check=check,
    on_runtime=Severity.WARN,
    reads_program=True,
)
