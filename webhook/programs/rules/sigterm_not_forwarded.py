"""A shell is the container's first process, and the program that it starts never hears SIGTERM.

Symptom: on preemption, eviction or suspend the pod stays in Terminating until the grace period is over, and the
checkpoint that the program writes on SIGTERM is not there.
Fix: let the program take the shell's place with exec.
Bad:
    command: [bash, -c]
    args:
    - |
      python train.py 2>&1
Good:
    command: [bash, -c]
    args:
    - |
      exec python train.py 2>&1
Reads: the shell text that the container starts with: `exec`, `trap`, pipelines, redirections, what comes last.
Silent when: exec starts the program; a trap passes the signal on while the shell waits; an init (tini, dumb-init) comes
first; bash execs by itself, as it does with the last command of a -c text where that is simple and not redirected.
Source: bash 5.2, dash 0.5.12 under `-c`, tried: bash replaces itself by the last simple command without redirections,
dash by none; with a redirection, in a pipeline or in an `if` both stay. Bash older than 5.1 stays for `a && b` too.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from webhook.model.finding import Severity
from webhook.model.rule import ProgramRule
from webhook.model.script import Lines, Remark
from webhook.programs import Invocation, Script
from webhook.programs.corrected import LONGEST
from webhook.programs.flow import foremost, trainings
from webhook.programs.shell import Command, Shell
from webhook.programs.values import said

ID = "sigterm-not-forwarded"
_MOST: Final = 8
"""Trainings of one shell that are looked at, from the last."""
_HANDLER: Final = "trap 'kill -TERM $pid; wait $pid' TERM\nwait $pid"
_QUICK: Final = frozenset(("echo", "printf", "date", "true", ":", "exit", "disown", "unset", "export", "set", "cd"))
"""Commands that end at once."""


def look(script: Script) -> Iterator[Remark]:
    shell = script.shell
    if shell is None or shell.faults:
        return
    for one in script.shells:
        if one is shell or not one.inline:
            yield from _in_shell(script, one)


def _in_shell(script: Script, shell: Shell) -> Iterator[Remark]:
    """Of the last training; and where that takes the shell's place, of the last before it that does not."""
    found = foremost(list(trainings(script, shell)))[-_MOST:]
    if not found:
        return
    waits = shell.has("wait")
    if any(_passes_on(handler, shell) for other, handler in shell.traps() if _hears(other)) and waits:
        return
    last, _ = found[-1]
    for at, (invocation, command) in enumerate(reversed(found)):
        if at and not (invocation.launchers or invocation.tool or invocation.file == last.file):
            continue
        if command.inside("substitution", "test") is not None or not _is_run(shell, command):
            return
        if command.inside("for", "while") is not None and command.inside("&") is not None and not waits:
            return
        if command.name == "exec" and command.inside("pipeline", "&", "subshell") is None:
            continue
        kept = _kept(shell, command)
        if kept:
            yield Remark(
                command.place,
                f'{shell.dialect} {kept} "{_short(invocation, command)}", so SIGTERM never reaches it',
                _fix(shell, command),
                subject=invocation.name,
            )
            return


def _is_run(shell: Shell, command: Command) -> bool:
    """Whether it stands in no function, or in one that this text calls itself, in the shell that stays."""
    function = command.inside("function")
    return function is None or any(
        other.inside("function", "substitution", "subshell", "&", "pipeline") is None
        for other in shell.named(function.name)
    )


def _kept(shell: Shell, command: Command) -> str:
    """How the shell stays the first process, in words; ``""`` where it does not or may not."""
    if command.inside("pipeline") is not None:
        return "stays before the pipeline of"
    if command.inside("&") is not None:
        # With nothing after it that takes time the shell is gone at once, which is another fault (exit-status-lost).
        after = [other for other in shell.commands if other.statement > command.statement and other.words]
        return "" if all(other.name in _QUICK for other in after) else "stays beside"
    trapped = shell.has("trap")
    if not shell.inline or command.redirected or trapped or command.around:
        plain = shell.inline and not command.redirected and not trapped
        only_lists = all(around.kind in ("&&", "||", ";") for around in command.around)
        if (
            plain
            and only_lists
            and _is_last(shell, command)
            and all(one.index == one.size - 1 for one in command.around)
        ):
            return "(older than 5.1) stays before" if shell.dialect == "bash" else "stays before"
        return "stays before"
    if shell.dialect == "bash":
        if not _is_last(shell, command) or shell.trailing or command.words[:1] in (("eval",), ("time",)):
            return "stays before"
        line = command.line
        beside = any(
            other.line == line and other.inside("substitution") is None
            for other in shell.commands
            if other is not command
        )
        return "(older than 5.1) stays before" if beside else ""
    return "stays before" if shell.statements > 1 else ""


def _is_last(shell: Shell, command: Command) -> bool:
    return command.statement == shell.statements - 1


def _hears(command: Command) -> bool:
    return any(str(word).upper().removeprefix("SIG") in ("TERM", "15") for word in command.words[2:])


def _passes_on(handler: str, shell: Shell) -> bool:
    """Whether a handler hands the signal on: it kills, or calls a function of this text that does more than wait."""
    words = handler.replace(";", " ").split()
    if "kill" in words or "pkill" in words:
        return True
    called = {word for word in words if word in shell.functions}
    return any(
        command.name not in _WAITS and (around := command.inside("function")) is not None and around.name in called
        for command in shell.commands
        if command.words
    )


_WAITS: Final = frozenset(("wait", "echo", "printf", "date", "exit", "return", "sleep", "sync", "true", ":", "trap"))
"""What a handler does that hands no signal on: ``trap 'wait' TERM`` leaves the program without it."""


def _short(invocation: Invocation, command: Command) -> str:
    return said(command.beginning, 48)


def _fix(shell: Shell, command: Command) -> str:
    """The command's own lines, with as little as possible changed in them."""
    first = command.place.line
    lines = shell.written(command.place, command.lines)
    if not lines:
        return f"exec {command.source}"
    start = (command.source or " ".join(command.raw[:1])).split(maxsplit=1)[0]
    column = lines[0].find(start)
    before = lines[0][:column] if column >= 0 else ""
    piped = command.inside("pipeline") is not None
    if command.inside("for", "while") is not None and command.inside("&") is not None:
        return "# before the loop:\ntrap 'kill -TERM $(jobs -p); wait' TERM"
    after = any(other.statement > command.statement and other.words for other in shell.commands)
    waits = command.inside("&", "for", "while", "function") is not None or after
    if piped:
        return _piped(shell, command, lines, waits)
    if waits and not _ends_so(command, lines):
        own = command.source if len(command.source) <= LONGEST else "..."
        return f"# in line {first}, as a command of its own:\n{own} & pid=$!\n{_HANDLER}"
    if waits:
        ends = lines[-1].rstrip().rstrip(";&").rstrip()
        if column >= 0 and before.strip() and not _is_assignment(before):
            ends = ends if len(lines) > 1 else ends[:column] + "exec " + ends[column:]
        handler = f" & pid=$!\n{_HANDLER}"
        whole = [*lines[:-1], ends]
        if sum(len(line.strip()) for line in whole) <= LONGEST:
            return Lines("\n".join(_dedented(whole)) + handler, first, first + len(lines) - 1)
        last = first + len(lines) - 1
        shown = ends.strip() if len(ends.strip()) <= LONGEST else "..."
        where = f"# line {last}, the last of the command:" if len(lines) > 1 else f"# the end of line {last}:"
        return Lines(f"{where}\n{shown}{handler}", last, last, first, whole=ends.strip() + handler)
    line = lines[0].strip()
    if command.name == "eval":
        fixed = line.replace("eval ", "eval exec ", 1)
    elif command.words[:1] == ("time",):
        fixed = line.replace("time ", "exec ", 1)
    else:
        fixed = (before + "exec " + lines[0][column:]).strip() if column >= 0 else f"exec {line}"
    if len(line) > LONGEST:
        return Lines(f"exec {_cut(line[len(before.lstrip()) :])}    # in line {first}", first, first, whole=fixed)
    return Lines(fixed, first, first)


def _ends_so(command: Command, lines: list[str]) -> bool:
    """Whether nothing but redirections stands behind the command in its line."""
    last = command.raw[-1] if command.raw else command.source
    if len(lines) > 1 or last not in lines[0]:
        return len(lines) > 1
    rest = lines[0].rpartition(last)[2].strip().removesuffix("&").removesuffix(";").strip()
    return not rest or (rest.lstrip("012&")[:1] in "<>" and not any(mark in rest for mark in (";", "&&", "|")))


def _cut(text: str) -> str:
    """The words of a line that a message has room for."""
    words = text.split(" ")
    while len(words) > 1 and len(" ".join(words)) > LONGEST - 4:
        words.pop()
    return " ".join(words) + " ..."


def _is_assignment(before: str) -> bool:
    """``CUDA_VISIBLE_DEVICES=0`` in front of the command."""
    return all("=" in word for word in before.split())


def _dedented(lines: list[str]) -> list[str]:
    indent = len(lines[0]) - len(lines[0].lstrip())
    return [line[indent:] if not line[:indent].strip() else line.lstrip() for line in lines]


def _piped(shell: Shell, command: Command, lines: list[str], waits: bool) -> str:
    """In bash what follows the pipe reads from a process of its own, and the program takes the shell's place."""
    own = command.source.removesuffix("&").rstrip().removeprefix("exec ")
    others = [
        other
        for other in shell.commands
        if other.statement == command.statement and other is not command and other.inside("pipeline") is not None
    ]
    rest = " | ".join(other.source for other in others)
    same = len(lines) == 1 and all(other.place.line == command.place.line for other in others)
    if shell.dialect == "bash" and rest and same and len(lines[0].strip()) <= LONGEST:
        own = f"{own} > >({rest}) 2>&1"
        handler = f" & pid=$!\n{_HANDLER}"
        text = f"{own}{handler}" if waits else f"exec {own}"
        return Lines(text, command.place.line, command.place.line)
    if shell.dialect == "bash":
        output = f"exec > >({rest}) 2>&1" if rest and len(rest) <= LONGEST else "exec > >(cat) 2>&1"
        return f"# before this line, and the command behind exec, without its pipe:\n{output}"
    return f"exec {own}" if len(own) <= LONGEST else "# exec before the command, without its pipe"


RULE = ProgramRule(
    id=ID,
    severity=Severity.WARN,
    why="nothing is flushed when the pod is stopped, so the work since the last checkpoint is lost every time",
    look=look,
    on_runtime=Severity.WARN,
)
