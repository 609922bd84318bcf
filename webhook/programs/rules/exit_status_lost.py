"""The program's failure does not reach the container's exit status, so nothing restarts it.

Symptom: the training crashed, and the TrainJob says Complete; no restart took place and no checkpoint was resumed.
Fix: let the shell end with the program's own status.
Bad:
    args:
    - |
      python train.py 2>&1 | tee train.log
Good:
    args:
    - |
      set -o pipefail
      python train.py 2>&1 | tee train.log
Reads: the shell text that the container starts with: pipelines, `||`, `&`, `set -e`, `set -o pipefail`, what comes
after.
Silent when: pipefail or errexit is set, the status is kept (`$?`, `PIPESTATUS`, `wait $pid` last), it only
prepares for the training that comes after it, or the shell's course is not told.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from webhook.model.finding import Severity
from webhook.model.rule import ProgramRule
from webhook.model.script import Lines, Place, Remark
from webhook.programs import Script
from webhook.programs.corrected import whole_line
from webhook.programs.flow import foremost, is_surely_training, trainings
from webhook.programs.shell import Command, Shell
from webhook.programs.values import said

ID = "exit-status-lost"
_REPORTS: Final = ("echo", "printf", "date", ":", "true")
_MOST: Final = 8
"""Programs of one container that are named: whoever loses the status of so many has seen how."""


def look(script: Script) -> Iterator[Remark]:
    shell = script.shell
    if shell is None or shell.faults or shell.uncertain:
        return
    said_so_far = 0
    for one in script.shells:
        if one is shell or not one.inline:
            found = foremost(list(trainings(script, one)))
            for at, (invocation, command) in enumerate(found):
                # What comes before the training prepares it; where that fails, the training does.
                if not is_surely_training(invocation) and any(is_surely_training(two) for two, _ in found[at + 1 :]):
                    continue
                remark = _judge(one, command, invocation.name)
                if remark is not None:
                    yield remark
                    said_so_far += 1
                    if said_so_far == _MOST:
                        return


def _judge(shell: Shell, command: Command, name: str) -> Remark | None:
    if _is_kept(shell):
        return None
    program = said(command.beginning, 48)
    if _only_reported(shell, command):
        return Remark(
            command.place,
            f'"{program}" is a condition, and what is done when it fails ends with 0',
            command.source,
            subject=name,
        )
    last = _last_of_block(shell, command)
    if last is not None:
        return _after(shell, command, program, last, name)
    if command.inside("function", "substitution", "test", "subshell", "for", "while", "!", "case") is not None:
        return _left_by_loop(shell, command, program, name)
    after = [
        other
        for other in shell.commands
        if other.statement > command.statement and other.words and other.inside("function", "substitution") is None
    ]
    piped = command.inside("pipeline")
    either = command.inside("||")
    if command.inside("&") is not None:
        waits = [other for other in after if other.name == "wait"]
        if waits and any(len(other.words) > 1 for other in waits):
            return None
        why = '"wait" without a process id ends with 0' if waits else "nothing waits for it"
        return Remark(
            command.place,
            f'"{program}" runs in the background and {why}',
            _taking_its_place(shell, command) if not waits else _instead(shell, waits[0], "wait $!"),
            subject=name,
        )
    if either is not None and either.index < either.size - 1:
        rest = [
            other
            for other in shell.commands
            if other.statement == command.statement and other is not command and other.place.line >= command.place.line
        ]
        if any(other.exits() or other.name == "exec" for other in rest) or _runs_again(rest, command):
            return None
        shorter = rest[0].source if rest else "true"
        return Remark(
            command.place,
            f'"{program}" is followed by "|| {said(shorter, 30)}", so its failure counts as success',
            _without_rest(shell, command),
            subject=name,
        )
    if piped is not None and piped.index < piped.size - 1 and not shell.pipefail:
        if shell.dialect not in ("bash", "zsh", "ksh"):
            fix = f"bash -o pipefail -c '...'    # {shell.dialect} may not know pipefail"
        else:
            line = shell.line(command.place) or command.source
            shown = "set -o pipefail\n" + whole_line(line, "# before this line")
            at = command.place.line
            # A line that another continues into this one has no room for a command of its own.
            before = shell.line(Place(command.place.field, command.place.index, at - 1))
            whole = f"set -o pipefail\n{line}"
            fix = shown if before.endswith(("\\", "|", "&&")) or not at else Lines(shown, at, at, whole=whole)
        end = next(
            (one for one in reversed(shell.commands) if one.statement == command.statement and one.words), command
        )
        return Remark(
            command.place,
            f'the status of "{program}" is lost in a pipeline that ends with "{end.name}"',
            fix,
            subject=name,
        )
    if after and not shell.errexit and command.name != "exec" and command.inside("if", "else") is None:
        if command.inside("&&") is not None:
            return None
        return _after(shell, command, program, after[-1], name)
    return None


def _after(shell: Shell, command: Command, program: str, last: Command, name: str) -> Remark:
    return Remark(
        command.place,
        f'after "{program}" comes "{said(last.source, 30)}", whose status counts instead',
        _first(shell, "set -e"),
        subject=name,
    )


def _first(shell: Shell, text: str) -> str:
    """A line before all others of the shell's text."""
    at = max(shell.place.line, 1)
    first = at + next((number for number, line in enumerate(shell.lines) if not line.startswith("#!")), 0)
    return Lines(f"{text}    # as the first line", first, first - 1, first, whole=text)


def _instead(shell: Shell, command: Command, text: str) -> str:
    line = shell.line(command.place)
    return Lines(text, command.place.line, command.place.line) if line == command.source else text


def _taking_its_place(shell: Shell, command: Command) -> str:
    """The command without its ``&``, in the shell's own place."""
    text = f"exec {command.source}"
    line = shell.line(command.place)
    if not line.startswith(command.source) or not line.endswith("&") or command.lines > 1:
        return text
    return Lines(text, command.place.line, command.place.line, whole=f"exec {line.rstrip('&').rstrip()}")


def _without_rest(shell: Shell, command: Command) -> str:
    """The line up to its ``||``."""
    line = shell.line(command.place)
    before, mark, _ = line.rpartition("||")
    if not mark or not before.startswith(command.source) or command.lines > 1 or line.count("||") > 1:
        return command.source
    return Lines(command.source, command.place.line, command.place.line, whole=before.rstrip())


def _last_of_block(shell: Shell, command: Command) -> Command | None:
    """``(program; echo done)``: what comes last in a block of which nothing but its own commands decides the status."""
    if [around.kind for around in command.around] not in (["subshell"], ["group"]) or command.name == "exec":
        return None
    block = [other for other in shell.commands if other.statement == command.statement and other.words]
    if shell.errexit or any(other.name in ("set", "trap", "wait", "exit", "exec") for other in block):
        return None
    after = block[block.index(command) + 1 :] if command in block else []
    return after[-1] if after and all(other.around == command.around for other in after) else None


def _only_reported(shell: Shell, command: Command) -> bool:
    """``if ! program; then echo failed; fi`` at the end, where nothing else looks at it."""
    test = command.inside("test")
    if test is None or test.name != "if" or command.inside("for", "while", "function", "||", "&&", "&", "pipeline"):
        return False
    rest = [other for other in shell.commands if other.statement >= command.statement and other is not command]
    return all(other.name in _REPORTS and other.inside("function") is None for other in rest)


def _left_by_loop(shell: Shell, command: Command, program: str, name: str) -> Remark | None:
    """``for ...; do program & done`` at the end, or a ``wait`` behind it that asks for no status."""
    kinds = [around.kind for around in command.around if around.kind != "group"]
    if kinds[-1:] != ["&"] or set(kinds[:-1]) != {"for"}:
        return None
    after = [other for other in shell.commands if other.words and other.statement > command.statement]
    waits = [other for other in shell.commands if other.name == "wait"]
    if waits != after or any(len(other.words) > 1 for other in waits):
        return None
    return Remark(
        command.place,
        f'"{program}" runs in the background and '
        + ('"wait" without a process id ends with 0' if waits else "nothing waits for it"),
        "pids+=($!)    # in the loop, and behind it:\nfor pid in ${pids[@]}; do wait $pid || exit 1; done",
        subject=name,
    )


def _is_kept(shell: Shell) -> bool:
    """Whether the text looks at a status anywhere: then it knows what it does."""
    return any("PIPESTATUS" in line or "pipestatus" in line for line in shell.lines) or (
        any("$?" in line for line in shell.lines) and _is_passed_on(shell)
    )


def _is_passed_on(shell: Shell) -> bool:
    """Whether a status that the text asks for decides how it ends.

    One that is only told (``echo $?``), or compared with one number (``[ $? -eq 124 ]``), is dropped elsewhere.
    """
    ends = any(command.exits() for command in shell.commands)
    names: set[str] = set()
    for line in shell.lines:
        if "$?" not in line or _is_told(line):
            continue
        if any(word in line for word in ("exit $?", "return $?", 'exit "$?"', "&& exit", "|| exit")):
            return True
        name, mark, _ = line.strip().partition("=$?")
        if mark and name.rpartition(" ")[2].isidentifier():
            names.add(name.rpartition(" ")[2])
        elif not _SOME.search(line) and (ends or not _ZERO.search(line)):
            return True
    return any(
        (f"${name}" in line or f"${{{name}" in line or (f"(({name}" in line.replace(" ", ""))) and not _is_told(line)
        for name in names
        for line in shell.lines
    )


def _is_told(line: str) -> bool:
    return line.strip().startswith(("echo", "printf", "log", "#"))


_SOME: Final = re.compile(r"\$\?\"? *(-eq|==|=|-ne|!=) *\"?[1-9]")
"""A status compared with one that is not 0."""
_ZERO: Final = re.compile(r"\$\?\"? *(-eq|-ne|==|=|!=|-gt|>) *\"?0")


def _runs_again(rest: list[Command], command: Command) -> bool:
    return any(other.name == command.name for other in rest)


RULE = ProgramRule(
    id=ID,
    severity=Severity.WARN,
    why="the Job counts as done after a crash, so it is never restarted and never resumes",
    look=look,
    on_runtime=Severity.WARN,
)
