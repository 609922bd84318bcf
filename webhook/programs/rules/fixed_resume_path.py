"""Every restart resumes from one checkpoint that is written down, not from the newest.

Symptom: after a second restart the run goes back to the same step again and again.
Fix: look for the newest checkpoint at every start.
Bad:
    args:
    - |
      trainer.train(resume_from_checkpoint="/mnt/ckpt/run/checkpoint-500")
Good:
    args:
    - |
      trainer.train(resume_from_checkpoint=get_last_checkpoint("/mnt/ckpt/run"))
Reads: what a framework or a flag named "resume" is told to resume from, with variables put in.
Silent when: the path names a directory of checkpoints or has no number; it is chosen among others; it is not known;
it holds initial weights.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Final

from webhook.model.finding import Severity
from webhook.model.rule import ProgramRule
from webhook.model.script import Lines, Place, Remark
from webhook.programs import UNKNOWN, Python, Script, Value
from webhook.programs.corrected import in_line, looked_for, with_node
from webhook.programs.frameworks import find_uses, told
from webhook.programs.frameworks.hf_trainer import resume_nodes, resumed
from webhook.programs.line import Flag
from webhook.programs.loads import loads
from webhook.programs.names import numbered_saves
from webhook.programs.pasted import folder_of, newest_of, pattern_of, quoted, with_import
from webhook.programs.program import Invocation
from webhook.programs.python import Around
from webhook.programs.values import head, shown

ID = "fixed-resume-path"
_WORDS: Final = ("checkpoint", "ckpt", "step", "epoch", "iter", "global_step")


def look(script: Script) -> Iterator[Remark]:
    for python in script.pythons:
        for call, node in resume_nodes(python):
            if _is_one(value := _only(python, node, call.around)):
                yield _remark(python.at(node), value, resumed(script, python, call, f'"{_parent(value)}"', node))
    for use in find_uses(script):
        if use.framework.id != "hf-trainer" and use.resume is not None and _is_one(use.resume.value):
            yield _remark(use.resume.place, use.resume.value, told(script, use.resume, use.framework.resume_fix))
    known = {use.resume.place for use in find_uses(script) if use.resume is not None}
    for invocation in script.invocations:
        for name, flag in invocation.flags.items():
            if "resume" in name and flag.place not in known and (_is_one(flag.value) or _is_name_of_one(flag.value)):
                yield _remark(flag.place, flag.value, _newest_of_flag(script, invocation, flag))
    yield from _loaded(script)
    yield from _begun_from(script)


def _newest_of_flag(script: Script, invocation: Invocation, flag: Flag) -> str:
    """The flag with what the shell finds before the command."""
    parent = _parent(flag.value)
    if not parent:
        return f"# {flag.name}: the name of the newest, or without it where the program looks for that itself"
    kind = str(flag.value).rstrip("/").rpartition("/")[2].rstrip("0123456789")
    before = f"last=$(ls -d {quoted(parent)}/{quoted(kind)}* | sort -V | tail -n 1)"
    if invocation.command is None:
        return looked_for(script, invocation, before, f'${{last:+{flag.name} "$last"}}')
    line = in_line(script, flag.place, f'{flag.name} "$last"', None, invocation)
    if isinstance(line, Lines) and flag.place.line == invocation.command.place.line:
        return line.behind(before)
    there = f'# and in line {flag.place.line}: {flag.name} "$last"'
    return f"# before line {invocation.command.place.line}:\n{before}\n{there}"


def _loaded(script: Script) -> Iterator[Remark]:
    """``torch.load("/ckpt/step_1000.pt")`` beside saves of ``/ckpt/step_{n}.pt``: no other load, no choice."""
    saves = numbered_saves(script)
    found = loads(script)
    if not saves or len({id(load.call) for load in found}) != 1:
        return
    load = found[0]
    value = _only(load.python, load.path, load.call.around) if load.path is not None else UNKNOWN
    name = next((one.name for one in saves if _parent(head(one.value)) == _parent(value)), "")
    if _is_one(value) and name:
        numbered = next(one for one in saves if one.name == name)
        folder = folder_of(load.python, numbered, load.call.line) or f'"{_parent(value)}"'
        newest = newest_of(folder, pattern_of(numbered)[0] or name)
        fix = with_node(load.python, load.path, newest) if load.path is not None else newest
        yield _remark(load.python.at(load.call), value, with_import(load.python, fix, "glob", "os"))


def _begun_from(script: Script) -> Iterator[Remark]:
    """``PPO.load("/ckpt/rl_model_10000_steps")`` of Stable-Baselines3, beside the callback that saves more of them."""
    for use in find_uses(script):
        if use.framework.id != "stable-baselines3" or use.python is None:
            continue
        for call in use.python.methods("load"):
            node = call.argument("path", 0)
            value = _only(use.python, node, call.around) if node is not None else UNKNOWN
            if call.name.startswith("stable_baselines3.") and _is_one(value):
                yield _remark(use.python.at(call), value, use.resume_fix or use.framework.resume_fix)
                return


def _only(python: Python, node: ast.expr, around: Around | None) -> Value:
    """The one value that it may have but for none at all (``path if os.path.exists(path) else None``)."""
    found = [
        one for one in python.origins(node, around) if not (isinstance(one[0], ast.Constant) and one[0].value is None)
    ]
    return python.value(*found[0]) if len(found) == 1 else UNKNOWN


def _is_one(value: Value) -> bool:
    """Whether a path names one checkpoint of many: a number behind a word, or alone, in its last component."""
    if not isinstance(value, str) or "/" not in value or "://" in value:
        return False
    if any(part.startswith("version_") and part[8:].isdecimal() for part in value.split("/")):
        return True  # Lightning makes another at every start
    last = value.rstrip("/").rpartition("/")[2].lower()
    counted = last.removesuffix(".zip").removesuffix("_steps")
    if counted != last and counted[-1:].isdecimal():
        return True  # Stable-Baselines3's ``rl_model_10000_steps.zip``
    for suffix in (".pt", ".pth", ".ckpt", ".bin", ".safetensors"):
        last = last.removesuffix(suffix)
    letters = last.rstrip("0123456789")
    if letters == last:
        return "step=" in last or "epoch=" in last
    if letters == "":
        return len(last) > 1
    return letters.rstrip("-_=").endswith(_WORDS)


def _is_name_of_one(value: Value) -> bool:
    """``checkpoint-100``, which the program looks for in its own directory."""
    return isinstance(value, str) and value.startswith("checkpoint") and _is_one(f"./{value}")


def _parent(value: Value) -> str:
    return value.rstrip("/").rpartition("/")[0] if isinstance(value, str) else ""


def _remark(place: Place, value: Value, fix: str) -> Remark:
    return Remark(place, f'every restart resumes from "{shown(value)}", however far it got', fix, subject=shown(value))


RULE = ProgramRule(
    id=ID,
    severity=Severity.WARN,
    why="a second restart goes back to the same step as the first, so the work since then is done again each time",
    look=look,
    on_runtime=Severity.WARN,
)
