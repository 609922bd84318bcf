"""The checkpoint directory has a name that is new at every start.

Symptom: beside each other lie run-20250101-120000, run-20250101-130000, ..., each with the first few checkpoints.
Fix: name the directory after the run, not after the time of its start.
Bad:
    args:
    - |
      export CKPT_DIR="/mnt/ckpt/$(date +%s)"
Good:
    args:
    - |
      export CKPT_DIR="/mnt/ckpt/$RUN_NAME"
Reads: the directories that frameworks, flags, shell variables and saves name: time, random numbers, uuid, process id,
host; ms-swift's add_version.
Silent when: it is a log's, a run's name or one per save; the program looks through the directories above for the
newest; the variable is set only under a condition.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Final

from webhook.model.finding import Severity
from webhook.model.rule import ProgramRule
from webhook.model.script import Place, Remark
from webhook.programs import Call, Python, Script, Text, Unknown, Value
from webhook.programs.corrected import in_line, with_node
from webhook.programs.flow import in_loop
from webhook.programs.frameworks import find_uses, mended
from webhook.programs.listing import listing
from webhook.programs.names import Save, saves
from webhook.programs.pasted import in_python, with_import
from webhook.programs.python import Binding
from webhook.programs.values import head, is_true, join, pieces, said, shown

ID = "timestamped-directory"
_FLAGS: Final = (
    "output_dir",
    "save",
    "save_dir",
    "save_path",
    "checkpoint_dir",
    "checkpoint_path",
    "ckpt_dir",
    "default_root_dir",
    "trainer.default_root_dir",
    "trainer.default_local_dir",
    "training_args.output_dir",
    "hydra.run.dir",
    "ckpt_output_dir",
)
_VARIABLES: Final = ("CKPT", "CHECKPOINT", "OUTPUT_DIR", "SAVE_DIR", "OUT_DIR", "SAVE_PATH")


def look(script: Script) -> Iterator[Remark]:
    seen: set[Place] = set()
    for remark in (
        *_of_uses(script),
        *_of_flags(script),
        *_of_variables(script),
        *_of_saves(script),
        *_of_swift(script),
    ):
        if remark.place not in seen:
            seen.add(remark.place)
            yield remark


def _of_uses(script: Script) -> Iterator[Remark]:
    for use in find_uses(script):
        setting = use.directory
        if setting is None or not setting.given or (use.saves is not None and use.saves.value is False):
            continue
        source = _fresh(script, setting.value) or _counted(use.python, setting.value)
        if source and (use.python is None or not _chosen_above(use.python, setting.value)):
            fix = mended(script, setting, _same(script, setting.name, setting.value), use)
            yield _remark(setting.place, setting.name, source, fix, setting.name)


def _of_flags(script: Script) -> Iterator[Remark]:
    for invocation in script.invocations:
        if invocation.command is not None and invocation.command.inside("if", "else", "case", "for", "while"):
            continue
        for name in _FLAGS:
            flag = invocation.flags.get(name)
            if flag is None:
                continue
            source = _fresh(script, flag.value)
            if source and not _looked_up(script, flag.value):
                fix = in_line(script, flag.place, _same(script, flag.name, flag.value))
                yield _remark(flag.place, flag.name, source, fix, flag.name)


def _of_variables(script: Script) -> Iterator[Remark]:
    """``export CKPT_DIR="$CKPT_DIR/$(date +%s)"``."""
    for command in script.commands():
        if not command.assigned or command.inside("if", "else", "case", "for", "while", "||", "&&", "function"):
            continue
        for name, value in command.assigned.items():
            source = _fresh(script, value)
            if source and any(word in name for word in _VARIABLES) and not _looked_up(script, value):
                if script.launch.directories and not script.on_volume(value) and head(value):
                    continue
                fix = in_line(script, command.place, _same(script, name, value))
                yield _remark(command.place, name, source, fix, name)


def _of_saves(script: Script) -> Iterator[Remark]:
    told: set[str] = set()
    for save in saves(script):
        if not isinstance(save.value, Text) or not in_loop(save.python, save.call):
            continue
        directory = _above(save.value)
        source = _fresh(script, directory) or _counted(save.python, directory)
        if not source or _per_save(save.python, source) or _chosen_above(save.python, directory):
            continue
        if script.counts(save.value) and source not in told:
            told.add(source)
            path = save.python.text(save.path)
            yield _remark(save.python.at(save.call), path, source, _in_text(script, save, directory, source), path)


def _in_text(script: Script, save: Save, directory: Value, source: str) -> str:
    """The assignment that brings the piece in, with what is the same at every start."""
    python = save.python
    known = _known(script, directory)
    same = in_python(script) if known in script.launch.directories else f'"{known}"'
    found = [
        binding.value
        for (_, name), bindings in python.source.bindings.items()
        for binding in bindings
        if len(bindings) == 1 and isinstance(binding.value, ast.expr) and _is_path(python, binding, source, known)
    ]
    fix = with_node(python, found[0], same) if len(found) == 1 else f"# the directory, the same at every start:\n{same}"
    return with_import(python, fix, "os") if "os." in same else fix


def _is_path(python: Python, binding: Binding, source: str, known: str) -> bool:
    """Whether a name gets the path above the piece and the piece with it."""
    value = python.value(binding.value, binding.around)
    return isinstance(value, Text) and source in python.text(binding.value) and head(value).startswith(known)


def _of_swift(script: Script) -> Iterator[Remark]:
    """ms-swift's ``add_version``, which is on by default: ``output_dir/v0-20250101-120000``.

    Read in ms-swift 4.6.0: arguments/sft_args.py and utils/utils.py (``add_version_to_work_dir``).
    """
    for invocation in script.invocations:
        if invocation.tool != "swift" or invocation.arguments[:1] not in (("sft",), ("pt",), ("rlhf",)):
            continue
        version, out = invocation.flag("add_version"), invocation.flag("output_dir")
        off = version is not None and is_true(version.value) is not True
        if off or out is None or not script.counts(out.value) or _looked_up(script, out.value):
            continue
        if "resume_from_checkpoint" in invocation.flags or not all(
            isinstance(one, str) for one in invocation.arguments
        ):
            continue
        yield Remark(
            version.place if version is not None else out.place,
            f'"{out.name} {shown(out.value)}" gets a new "v0-<time>" at every start, and saves into that',
            "--add_version false",
            subject="add_version",
        )


def _above(value: Text) -> Value:
    """The directory part of a path with unknown pieces."""
    parts = list(value.parts)
    while parts:
        last = parts[-1]
        if isinstance(last, str) and "/" in last:
            parts[-1] = last.rpartition("/")[0]
            break
        parts.pop()
    return Text(tuple(parts)) if parts else ""


def _fresh(script: Script, value: Value) -> str:
    """The piece of a path that differs at every start, as written; ``""`` where none does."""
    if isinstance(value, str):
        return "${now:...}" if "${now:" in value else ""
    for piece in pieces(value):
        if isinstance(piece, Unknown) and (
            piece.kind == "fresh" or (piece.kind == "host" and not script.launch.stable_hostname)
        ):
            return piece.source or "the time"
    return ""


def _counted(python: Python | None, value: Value) -> str:
    """The piece that counts what the directory above holds, as ``len(glob(f"{out}/*"))``: one more at every start.

    What another directory holds, such as a data set's, does not grow by a start.
    """
    above: list[Value] = []
    for piece in pieces(value):
        if isinstance(piece, Unknown) and piece.kind == "count" and python is not None:
            place = head(join(above)).rpartition("/")[0]
            for call in _counts(python):
                found = listing(python, call.node.args[0], call.around)
                listed = head(found.pattern).rstrip("/*") if found is not None else ""
                if place and listed == place and in_loop(python, call) is False:
                    return python.text(call.node)
        above.append(piece)
    return ""


def _counts(python: Python) -> list[Call]:
    return [call for call in python.source.calls if call.name == "len" and len(call.node.args) == 1]


def _inner(node: ast.expr) -> ast.expr:
    """What ``list(...)`` and ``sorted(...)`` are made of."""
    while isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.args:
        if node.func.id not in ("list", "sorted"):
            break
        node = node.args[0]
    return node


def _per_save(python: Python, source: str) -> bool:
    """Whether the piece is made anew at every save: its call stands in a loop."""
    return any(
        in_loop(python, call) is not False for call in python.source.calls if shown(python.text(call.node)) == source
    )


def _chosen_above(python: Python, directory: Value) -> bool:
    """Whether the program lists the directories above: it may look for the newest of them."""
    above = head(directory).rpartition("/")[0]
    counted = {id(_inner(call.node.args[0])) for call in _counts(python)}
    for name in ("glob", "iglob", "listdir", "scandir", "iterdir", "rglob", "walk"):
        for call in python.source.by_attr.get(name, ()):
            if id(call.node) in counted:
                continue
            found = listing(python, call.node, call.around)
            place = head(found.pattern) if found is not None else ""
            if not place or not above or place.startswith(above) or above.startswith(place.rstrip("/")):
                return True
    return False


def _looked_up(script: Script, value: Value) -> bool:
    """The same in the shell: ``ls`` or ``find`` of the directory above."""
    above = head(value).rstrip("/")
    for command in script.commands():
        if command.name in ("ls", "find"):
            for word in command.words[1:]:
                place = head(word).rstrip("/*")
                if place and (above.startswith(place) or place.startswith(above)) and above:
                    return True
    return any(_chosen_above(python, value) for python in script.pythons)


def _known(script: Script, value: Value) -> str:
    known = head(value).partition("${now")[0].rstrip("/-_.") or "/mnt/ckpt"
    return f"{known}/run" if known in script.launch.mounts or known == "/mnt/ckpt" else known


def _same(script: Script, name: str, value: Value) -> str:
    """The setting with what is known of the directory before the piece that differs."""
    known = _known(script, value)
    if name.startswith("--"):
        known = f"{name} {known}"
    elif name.isupper() or "." in name:
        known = f"{name}={known}"
    elif name:
        known = f'{name}="{known}"'
    return f"{known}    # the same at every start"


def _remark(place: Place, name: str, source: str, fix: str, subject: str) -> Remark:
    return Remark(
        place,
        f'"{said(name, 38)}" holds "{said(source, 34)}", so every start saves into a new directory',
        fix,
        subject=subject,
    )


RULE = ProgramRule(
    id=ID,
    severity=Severity.WARN,
    why="a restart looks into an empty directory and begins at step 0; the old checkpoints stay and fill the claim",
    look=look,
    on_runtime=Severity.WARN,
)
