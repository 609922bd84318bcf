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
from typing import Final

from webhook.model.finding import Severity
from webhook.model.rule import ProgramRule
from webhook.model.script import Remark
from webhook.programs import Call, Python, Script
from webhook.programs.flow import in_loop, is_no_start, trainings
from webhook.programs.frameworks import Setting, Use, find_uses, mended
from webhook.programs.frameworks.hf_trainer import resume_nodes, resumed
from webhook.programs.loads import loads
from webhook.programs.names import saves
from webhook.programs.pasted import with_import
from webhook.programs.program import lies_in
from webhook.programs.shell import Shell
from webhook.programs.values import is_true, said

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
        yield from _of_own_file(script, python)
    for shell in script.shells:
        yield from _ends_without(script, shell)
    for use in find_uses(script):
        if use.framework.id == "lightning" and use.resume is not None and _is_own_file(script, use, use.resume):
            yield Remark(
                use.resume.place,
                f'"{said(use.resume.written, 60)}" fails where it is not there, as on the first start',
                _if_there(script, use.resume, use.python),
                subject=use.resume.name,
            )
        if use.framework.id != "hf-trainer" and use.resume is not None and _demands(use, use.resume):
            yield Remark(
                use.resume.place,
                f'"{use.resume.written or use.resume.name}" fails where there is no checkpoint, as on the first start',
                use.resume_fix or use.framework.resume_fix,
                subject=use.resume.name,
            )


def _of_own_file(script: Script, python: Python) -> Iterator[Remark]:
    """``torch.load(LAST)`` at the start of a program that writes that very file in its loop, and asks for nothing."""
    mine = {
        save.value
        for save in saves(script)
        if save.python is python and isinstance(save.value, str) and save.value and in_loop(python, save.call)
    }
    if not mine or any(word in python.source.by_attr for word in _ASKS):
        return
    for load in loads(script):
        if load.python is not python or load.function != "torch.load" or load.value not in mine:
            continue
        if (
            is_no_start(python, load.call)
            or in_loop(python, load.call) is not False
            or load.call.inside("try", "function")
        ):
            continue
        if not all(is_true(python.value(test, load.call.around)) is way for test, way in load.call.guards()):
            continue
        text = python.text(load.call.node)
        yield Remark(
            python.at(load.call),
            f'"{said(text)}" fails where there is no checkpoint, as on the first start',
            f"if os.path.exists({python.text(load.path) if load.path is not None else 'path'}):    # around the load",
            subject=text,
        )
        return


_ASKS: Final = (
    "exists",
    "isfile",
    "isdir",
    "is_file",
    "is_dir",
    "listdir",
    "glob",
    "iglob",
    "iterdir",
    "scandir",
    "stat",
)


def _is_own_file(script: Script, use: Use, resume: Setting) -> bool:
    """A path in the run's own directory that nothing asks for: Lightning's ``fit`` raises where it is not there."""
    value = resume.value
    if not isinstance(value, str) or "/" not in value or "://" in value or use.python is None or resume.call is None:
        return False
    mine = [str(use.directory.value)] if use.directory is not None and isinstance(use.directory.value, str) else []
    if not any(lies_in(value, place) for place in (*script.launch.directories, *mine)) or "/version_" in value:
        return False
    node = resume.call.argument(resume.name)
    origins = use.python.origins(node, resume.call.around) if node is not None else []
    return len(origins) == 1 and not _guarded(use.python, resume.call, origins[0][0])


def _if_there(script: Script, resume: Setting, python: Python | None) -> str:
    fix = mended(script, resume, f"{resume.name}={resume.written} if os.path.exists({resume.written}) else None")
    return with_import(python, fix, "os") if python is not None else fix


def _ends_without(script: Script, shell: Shell) -> Iterator[Remark]:
    """``if [ -z "$last" ]; then exit 1; fi`` before the training, where ``last`` is what a directory has: the first
    start has none."""
    found = [command for _, command in trainings(script, shell)] if shell.has("exit") else []
    if not found:
        return
    listed = {
        name
        for command in shell.commands
        for name in command.assigned
        if not command.words and any(word in command.source for word in ("$(ls ", "$(find ", "`ls "))
        if any(word in command.source.lower() for word in ("ckpt", "checkpoint", "step", "epoch", "resume"))
    }
    for command in shell.named("exit"):
        around = command.inside("if")
        if around is None or command.words[1:2] in ((), ("0",)):
            continue
        if command.statement >= found[-1].statement or command.inside("function", "substitution") is not None:
            continue
        test = around.name.replace('"', "").replace("{", "").replace("}", "")
        name = next((one for one in listed if f"-z ${one} " in f"{test} "), None)
        if name is not None:
            yield Remark(
                command.place,
                f'"{said(command.source)}" ends the first start, which has no checkpoint in "${name}" yet',
                f'# start without one: ${{{name}:+--resume_from_checkpoint "${name}"}}',
                subject=name,
            )
            return


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
