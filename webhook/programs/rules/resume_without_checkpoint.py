"""The program demands a checkpoint to resume from, and the first start has none.

Symptom: the very first start fails with "No valid checkpoint found", and so does every retry.
Fix: look first, and hand on None where there is no checkpoint.
Bad:
    args:
    - |
      trainer.train(resume_from_checkpoint=True)
Good:
    args:
    - |
      trainer.train(resume_from_checkpoint=get_last_checkpoint(args.output_dir))
Reads: what the framework is told to resume from.
Silent when: a condition or a try stands around it; for the framework it means "if there is one"; the value is not
known.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from webhook.model.finding import Severity
from webhook.model.rule import ProgramRule
from webhook.model.script import Remark
from webhook.programs import Call, Python, Script
from webhook.programs.frameworks import Setting, Use, find_uses
from webhook.programs.frameworks.hf_trainer import resume_nodes, resumed

ID = "resume-without-checkpoint"


def look(script: Script) -> Iterator[Remark]:
    for python in script.pythons:
        for call, node in resume_nodes(python):
            if python.value(node, call.around) is True and not _guarded(python, call, node):
                yield Remark(
                    python.at(node),
                    f'"{_line(call)}" fails where there is no checkpoint, as on the first start',
                    _fix(script, python, call, node),
                    subject=_line(call),
                )
    for use in find_uses(script):
        if use.framework.id != "hf-trainer" and use.resume is not None and _demands(use, use.resume):
            yield Remark(
                use.resume.place,
                f'"{use.resume.written or use.resume.name}" fails where there is no checkpoint, as on the first start',
                use.resume_fix or use.framework.resume_fix,
                subject=use.resume.name,
            )


def _demands(use: Use, resume: Setting) -> bool:
    if use.framework.resumes_if_any or not resume.given or resume.value is not True:
        return False
    if use.invocation is not None:
        command = use.invocation.command
        return command is None or command.inside("if", "else", "&&", "||", "case", "function") is None
    return use.call is None or not any(True for _ in use.call.guards())


def _guarded(python: Python, call: Call, node: ast.expr) -> bool:
    """Whether the call, or the assignment that says True, stands under a condition or in a try."""
    if any(True for _ in call.guards()) or call.inside("try"):
        return True
    for _, around in python.origins(node, call.around):
        here = around
        while here is not None:
            if here.kind in ("if", "try", "except", "while", "for"):
                return True
            here = here.outer
    return False


def _line(call: Call) -> str:
    return f"{call.attr}(resume_from_checkpoint=True)"


def _fix(script: Script, python: Python, call: Call, node: ast.expr) -> str:
    where = ""
    for use in find_uses(script):
        if use.python is python and use.directory is not None and use.directory.given:
            where = use.directory.written or where
    return resumed(script, python, call, where, node)


RULE = ProgramRule(
    id=ID,
    severity=Severity.WARN,
    why="the first start fails and uses up the restarts, so the run never gets to a checkpoint",
    look=look,
    on_runtime=Severity.WARN,
)
