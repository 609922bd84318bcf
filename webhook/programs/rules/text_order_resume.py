"""The newest checkpoint is chosen in text order, in which checkpoint-9 comes after checkpoint-100.

Symptom: after a restart the run goes on from an old step; the loss jumps back and the same work is done again.
Fix: order by the number in the name.
Bad:
    args:
    - |
      ckpts = sorted(glob.glob(f"{out}/checkpoint-*"))
      resume = ckpts[-1]
Good:
    args:
    - |
      ckpts = sorted(glob.glob(f"{out}/checkpoint-*"), key=lambda p: int(p.rsplit("-", 1)[1]))
      resume = ckpts[-1]
Reads: Python that takes the last of a directory's names, and `ls` and `sort` pipelines of the shell.
Silent when: a key makes it a number or a time; the names are padded with zeros, carry the time, or have no number; the
files are no checkpoints.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Final

from webhook.model.finding import Severity
from webhook.model.rule import ProgramRule
from webhook.model.script import Lines, Place, Remark
from webhook.programs import Python, Script
from webhook.programs.corrected import with_node
from webhook.programs.frameworks import find_uses
from webhook.programs.frameworks.lightning import names_unpadded
from webhook.programs.listing import Listing, Pick, name_of, picks
from webhook.programs.names import numbered_saves
from webhook.programs.pasted import with_import
from webhook.programs.shell import Command, Shell
from webhook.programs.values import pieces, said
from webhook.programs.words import words_in

ID = "text-order-resume"
_WORDS: Final = ("checkpoint", "ckpt", "step", "epoch", "iter")
_LEARNS: Final = frozenset(("backward", "fit", "learn", "train_batch", "step", "update"))
_EVALUATES: Final = frozenset(("eval", "evaluate", "predict", "generate", "no_grad", "inference_mode"))
_SUFFIXES: Final = (".pt", ".pth", ".ckpt")
_ORDERS: Final = ("sorted", "list", "tuple", "iter", "reversed")
_NUMBERS: Final = 'key=lambda p: [int(n) for n in re.findall(r"\\d+", os.path.basename(p))]'
"""All numbers of a name, in order: a name without any (``lost+found``) comes first, a rank or a loss behind the step
decides nothing."""


def look(script: Script) -> Iterator[Remark]:
    for python in script.pythons:
        for pick in picks(python):
            if _holds_steps(script, python, pick.names) and not _names_the_next(pick):
                yield _remark(python, pick)
    for shell in script.shells:
        yield from _in_shell(shell)


def _names_the_next(pick: Pick) -> bool:
    """The last of them is asked for to name one that does not exist: ``get_available_name()``."""
    scope = pick.around.scope if pick.around is not None else None
    name = getattr(scope.node, "name", "") if scope is not None else ""
    return not {"available", "next", "unique", "free"}.isdisjoint(words_in(name))


def _holds_steps(script: Script, python: Python, names: Listing) -> bool:
    """Whether the names are checkpoints' with a step number that is not padded."""
    name = name_of(names.pattern).lower() if names.glob else ""
    marks = " ".join((name, *names.marks)).lower()
    saves = numbered_saves(script)
    hugging = any(use.framework.id == "hf-trainer" for use in find_uses(script))
    if names.glob and "*" not in name and "?" not in name and "[" not in name:
        return False
    if "checkpoint" in marks and hugging:
        return True
    if (not names.glob or name.startswith("*")) and any(
        use.framework.id == "lightning" and use.python is python and names_unpadded(python) for use in find_uses(script)
    ):
        return not names.glob or name.endswith((".ckpt", "*"))
    said = [save for save in saves if _fits(name, save.name)] if names.glob else list(saves)
    if said:
        return any(save.text_order_fails for save in said)
    if saves or any(word in marks for word in ("time", "date", "best")):
        return False
    # Nothing in sight writes such names: they are told by the pattern alone.
    return not _only_evaluates(python) and (
        any(f"{word}{mark}*" in name or f"{word}*" in name for word in _WORDS for mark in ("-", "_", "=", "/"))
        or any(f"{word}{mark}" in names.marks for word in _WORDS for mark in ("-", "_"))
    )


def _only_evaluates(python: Python) -> bool:
    """Whether the text looks like an evaluation of what was trained elsewhere: no restart hangs on what it takes."""
    names = python.source.by_attr
    return not names.keys().isdisjoint(_EVALUATES) and not any(name in _LEARNS or "train" in name for name in names)


def _fits(pattern: str, name: str) -> bool:
    """Whether a name with ``*`` for its number may be one of a pattern's: beginnings and ends agree."""
    before, _, _ = pattern.partition("*")
    after = pattern.rpartition("*")[2]
    start, _, _ = name.lower().partition("*")
    end = name.lower().rpartition("*")[2]
    return (start.startswith(before) or before.startswith(start)) and (end.endswith(after) or after.endswith(end))


def _remark(python: Python, pick: Pick) -> Remark:
    if pick.order == "none":
        problem = f'"{said(python.text(pick.node))}" takes a checkpoint in no order at all'
    elif pick.order == "digit":
        problem = f'"{said(python.text(pick.node))}" compares a single digit of a checkpoint\'s name'
    else:
        problem = f'"{said(python.text(pick.node))}" takes the newest checkpoint in text order, "9" after "100"'
    return Remark(python.at(pick.node), problem, _corrected(python, pick), subject=python.text(pick.names.node))


def _corrected(python: Python, pick: Pick) -> str:
    """The line with ``max(names, key=<number>)`` in place of what takes the wrong name."""
    node, source = pick.node, python.source
    if pick.looped:
        names = node.args[0] if isinstance(node, ast.Call) and node.args else node
        best = with_node(python, node, f"sorted({source.source(names)}, {_NUMBERS})")
        return with_import(python, best, "os", "re")
    default = ""
    if isinstance(node, ast.Call) and not isinstance(node.func, ast.Attribute):
        base = node.args[0]
        given = [one.value for one in node.keywords if one.arg == "default"] or node.args[1:]
        default = f", default={source.source(given[0])}" if given else ""
    else:
        taken = node.func if isinstance(node, ast.Call) else node
        base = taken.value if isinstance(taken, ast.Attribute | ast.Subscript) else node
    while isinstance(base, ast.Call) and base.args and source.dotted(base.func)[0] in _ORDERS:
        base = base.args[0]
    best = f"max({source.source(base)}, {_NUMBERS}{default})"
    line = source.lines[node.lineno - 1]
    if node.lineno == node.end_lineno and line.isascii():
        best = (line[: node.col_offset] + best + line[node.end_col_offset :]).strip()
        at = python.at(node).line
        return with_import(python, Lines(best, at, at), "os", "re")
    return with_import(python, best, "os", "re")


def _in_shell(shell: Shell) -> Iterator[Remark]:
    if not shell.has("tail", "head") or not shell.has("ls", "find"):
        return
    pipeline: list[Command] = []
    for command in (*shell.commands, None):
        part = command.inside("pipeline") if command is not None else None
        if command is not None and part is not None and part.index == len(pipeline) and command.words:
            pipeline.append(command)
            if part.index + 1 < part.size:
                continue
        remark = _judge(shell, pipeline) if len(pipeline) > 1 else None
        if remark is not None:
            yield remark
        pipeline = []


def _judge(shell: Shell, pipeline: list[Command]) -> Remark | None:
    """``ls -d DIR/checkpoint-* | sort | tail -1`` and its kin."""
    first, last = pipeline[0], pipeline[-1]
    if first.name not in ("ls", "find") or last.name not in ("tail", "head"):
        return None
    names = {command.name for command in pipeline[1:-1]}
    if not names <= {"sort", "grep", "xargs"} or not _takes_one(last):
        return None
    targets = [
        "".join(piece if isinstance(piece, str) else "*" for piece in pieces(word))
        for word in first.words[1:]
        if not str(word).startswith("-")
    ]
    told = " ".join(target.rpartition("/")[2] for target in targets).lower()
    told += " ".join(
        str(word).lower() for command in pipeline[1:-1] if command.name == "grep" for word in command.words
    )
    if not any(word in told for word in _WORDS) and not any(suffix in told for suffix in _SUFFIXES):
        return None
    letters = _letters(first)
    sorts = [command for command in pipeline if command.name == "sort"]
    if sorts:
        options = _letters(sorts[-1])
        if options & set("VnghMkR") or any("version" in str(word) or "sort=" in str(word) for word in sorts[-1].words):
            return None
        backwards = "r" in options
    else:
        if first.name == "find" or letters & set("tvUcuS") or any("sort=" in str(word) for word in first.words):
            return None
        backwards = "r" in letters
    if backwards != (last.name == "head"):
        return None
    shown = " | ".join(command.source for command in pipeline)
    fixed = " | ".join(
        command.source for command in pipeline if command.name not in ("sort", "tail", "head") and command is not last
    )
    return Remark(
        last.place,
        f'"{said(shown)}" takes the newest checkpoint in text order, "9" after "100"',
        _in_line(shell, last.place, first.source, last.source, f"{fixed} | sort -V | tail -n 1"),
        subject=shown[:80],
    )


def _in_line(shell: Shell, place: Place, first: str, last: str, fixed: str) -> str:
    """The line with another pipeline between these two commands; that alone where it has more lines."""
    line = shell.line(place)
    start, end = line.find(first), line.rfind(last)
    if not 0 <= start < end:
        return fixed
    return Lines((line[:start] + fixed + line[end + len(last) :]).strip(), place.line, place.line)


def _takes_one(command: Command) -> bool:
    words = [str(word) for word in command.words[1:]]
    return words in (["-1"], ["-n1"], ["-n", "1"], ["-n", "-1"], ["-n-1"], ["--lines=1"])


def _letters(command: Command) -> set[str]:
    return {
        letter
        for word in command.words[1:]
        if isinstance(word, str) and word[:1] == "-" and word[:2] != "--"
        for letter in word[1:]
    }


RULE = ProgramRule(
    id=ID,
    severity=Severity.WARN,
    why="the run goes back to an older step and does the work since then again, without a word in the log",
    look=look,
    on_runtime=Severity.WARN,
)
