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
Reads: TrainingArguments (and TRL's configurations), what is set in them later, the command line that fills them, and
every call of train() of a Trainer.
Silent when: the program reads `args.resume_from_checkpoint` itself; a train() is told to resume, or may be; no train()
is seen.
Source: transformers 5.24.0, training_args.py and trainer.py: nothing in the Trainer reads the argument.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from webhook.model.finding import Severity
from webhook.model.rule import ProgramRule
from webhook.model.script import Lines, Place, Remark
from webhook.programs import UNKNOWN, Call, Invocation, Python, Script, Value
from webhook.programs.corrected import in_line
from webhook.programs.frameworks.framework import call_setting
from webhook.programs.frameworks.hf_trainer import arguments_calls, is_trainer, resumed, train_calls
from webhook.programs.values import is_true, said

ID = "unused-resume-argument"
_NAME = "resume_from_checkpoint"


def look(script: Script) -> Iterator[Remark]:
    for python in script.pythons:
        if _NAME in python.source.code and not _is_read(python):
            yield from _in_text(script, python)
            yield from _set(script, python)
    for invocation in script.invocations:
        if invocation.python is not None:
            yield from _on_line(script, invocation, invocation.python)


def _is_read(python: Python) -> bool:
    """``args.resume_from_checkpoint`` anywhere but where it is given a value."""
    given = sum(1 for _ in _given(python))
    return python.source.code.count(f".{_NAME}") > given


def _given(python: Python) -> Iterator[tuple[Call | None, ast.Attribute, ast.expr]]:
    """``args.resume_from_checkpoint = value``, with the call that made ``args``."""
    made = {id(call.node): call for call in arguments_calls(python)}
    for statement, around in python.source.statements:
        if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
            target = statement.targets[0]
            if isinstance(target, ast.Attribute) and target.attr == _NAME:
                found = [made.get(id(one)) for one, _ in python.origins(target.value, around)]
                yield found[0] if len(found) == 1 else None, target, statement.value


def _set(script: Script, python: Python) -> Iterator[Remark]:
    trains = train_calls(python)
    if not trains or any(call.open_ended or _is_told(python, call) for call in trains):
        return
    for call, target, node in _given(python):
        if call is not None and not _is_nothing(python.value(node, call.around)):
            where = _directory(python, call)
            yield _remark(
                script, python.at(target), f"{python.text(target)} = {python.text(node)}", python, trains[0], where
            )


def _on_line(script: Script, invocation: Invocation, python: Python) -> Iterator[Remark]:
    """``--resume_from_checkpoint`` of a text that fills TrainingArguments by it and tells train() nothing."""
    flag = invocation.flags.get(_NAME)
    if flag is None or _is_nothing(flag.value) or _NAME in python.source.code:
        return
    parsed = {python.class_of(call.receiver, call.around).rpartition(".")[2] for call in _parsing(python)}
    trains = train_calls(python)
    if not parsed & {"HfArgumentParser", "TrlParser"} or not trains:
        return
    if any(call.open_ended or _is_told(python, call) for call in trains):
        return
    told = next((call.argument("args", 1) for call in python.source.calls if is_trainer(python, call.name)), None)
    named = python.text(told) if isinstance(told, ast.Name) else "training_args"
    yield _remark(script, flag.place, flag.name, python, trains[0], f"{named}.output_dir")


def _parsing(python: Python) -> Iterator[Call]:
    return python.methods("parse_args_into_dataclasses", "parse_args_and_config")


def _is_nothing(value: Value) -> bool:
    return value is None or is_true(value) is False


def _remark(script: Script, place: Place, given: str, python: Python, train: Call, where: str) -> Remark:
    line = python.at(train).line
    return Remark(
        place,
        f'"{said(given)}" is read by nobody: train() in line {line} is not told',
        _in_line(resumed(script, python, train, where), line),
        subject=_NAME,
    )


def _in_text(script: Script, python: Python) -> Iterator[Remark]:
    trains = train_calls(python)
    if not trains or any(call.open_ended or _is_told(python, call) for call in trains):
        return
    for call in arguments_calls(python):
        setting = call_setting(python, call, _NAME, None)
        value = setting.value
        if not setting.given or value is None or is_true(value) is False or not (setting.written or value is True):
            continue
        given = setting.written or str(value)
        where = _directory(python, call)
        train = trains[0]
        if value is True:
            fix = resumed(script, python, train, where)
        else:
            fix = in_line(script, python.at(train), f"{_NAME}={given}", train)
        yield Remark(
            setting.place,
            f'"{_NAME}={said(given)}" is read by nobody: train() in line {python.at(train).line} is not told',
            _in_line(fix, python.at(train).line),
            subject=_NAME,
        )


def _in_line(fix: str, line: int) -> str:
    remark = f"    # line {line}"
    return fix.before(remark) if isinstance(fix, Lines) else f"{fix}{remark}"


def _directory(python: Python, call: Call) -> str:
    out = call_setting(python, call, "output_dir", UNKNOWN, 0)
    return out.written or (f'"{out.value}"' if isinstance(out.value, str) else "")


def _is_told(python: Python, call: Call) -> bool:
    """Whether a train() is told to resume; what is known to be None is not."""
    node = call.argument(_NAME, 0)
    return node is not None and not all(
        isinstance(one, ast.Constant) and one.value is None for one, _ in python.origins(node, call.around)
    )


RULE = ProgramRule(
    id=ID,
    severity=Severity.WARN,
    why="every restart begins at step 0, with the checkpoints beside it",
    look=look,
    on_runtime=Severity.WARN,
)
