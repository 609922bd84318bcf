"""A checkpoint directory is declared, and the program writes its checkpoints elsewhere.

Symptom: the claim stays empty; after a restart nothing is found, since the pod's own file system went with it.
Fix: write where the variable says.
Bad:
    env:
    - {name: CKPT_DIR, value: /mnt/ckpt/run}
    args:
    - |
      TrainingArguments(output_dir="/workspace/out")
Good:
    args:
    - |
      TrainingArguments(output_dir=os.environ["CKPT_DIR"])
Reads: the directories that frameworks, flags and saves in a loop name, against the declared ones and their volume.
Silent when: the program mentions the declared directory as well; the directory is not absolute or not known; it is on
the same volume.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Final

from webhook.model.finding import Severity
from webhook.model.path import components
from webhook.model.rule import ProgramRule
from webhook.model.script import Place, Remark
from webhook.programs import Script, Value
from webhook.programs.corrected import with_node
from webhook.programs.flow import in_loop
from webhook.programs.frameworks import Setting, Use, find_uses, mended, unseen_directories
from webhook.programs.line import Flag
from webhook.programs.names import Save, saves
from webhook.programs.pasted import in_command, in_config, in_python, statement_of, with_import
from webhook.programs.program import lies_in
from webhook.programs.values import head, shown

ID = "directory-not-used"
_IDLE: Final = frozenset(
    (
        "cd",
        "pushd",
        "echo",
        "printf",
        "mkdir",
        "ls",
        "du",
        "df",
        "test",
        "[",
        "[[",
        "touch",
        "stat",
        "chmod",
        "chown",
        "find",
        "tree",
    )
)
"""Commands that put no checkpoint into a directory that they name."""


def look(script: Script) -> Iterator[Remark]:
    if not script.launch.directories or _mentions(script):
        return
    uses = list(find_uses(script))
    for use in uses:
        setting = use.directory
        if setting is None or not setting.given or (use.saves is not None and use.saves.value is False):
            continue
        if _is_elsewhere(script, setting.value):
            yield _remark(script, setting.place, script.placed(setting.value), _there(script, use, setting))
            return
    for flag in unseen_directories(script):
        if _is_elsewhere(script, flag.value, fast=True):
            yield _remark(script, flag.place, script.placed(flag.value), _flag_there(script, flag))
            return
    # A save that is written over each time is a checkpoint where no framework makes others.
    alone = all(use.directory is None for use in uses)
    for save in saves(script):
        if (save.numbered or alone) and in_loop(save.python, save.call) and _is_elsewhere(script, save.value):
            directory = head(script.placed(save.value)).rpartition("/")[0]
            yield _remark(script, save.python.at(save.call), directory, _save_there(script, save))
            return


def _flag_there(script: Script, flag: Flag) -> str:
    """The flag with the declared directory."""
    command = next((one.command for one in script.invocations if flag.place in one.places), None)
    mark = "=" if flag.raw.startswith(f"{flag.name}=") else " "
    return f"{flag.name}{mark}{in_command(script, command)}"


def _there(script: Script, use: Use, setting: Setting) -> str:
    """The setting with the declared directory, in the language that it is written in."""
    config = next((one for one in script.configs if setting.call is None and one.holds(setting.place)), None)
    if config is not None:
        return mended(script, setting, f"{setting.name}: {in_config(script, config)}", use)
    if use.python is not None and setting.call is not None:
        return with_import(use.python, mended(script, setting, f"{setting.name}={in_python(script)}", use), "os")
    variable = in_command(script, use.invocation.command if use.invocation is not None else None)
    mark = " " if setting.name.startswith("-") else "="
    fix = f"{setting.name}{mark}{variable}"
    if use.resume is not None and use.resume.name.startswith("-") and use.resume.value == setting.value:
        fix += f" {use.resume.name} {variable}"
    return mended(script, setting, fix, use)


def _save_there(script: Script, save: Save) -> str:
    """The save's statement with the same name below the declared directory."""
    python, path = save.python, save.python.text(save.path)
    last = path.rpartition("/")[2]
    own = isinstance(save.path, ast.JoinedStr) and "/" in path and last.count("{") == last.count("}")
    name = f"f{path[-1]}{last}" if own else f"os.path.basename({path})"
    there = f"os.path.join({in_python(script)}, {name})"
    stmt = statement_of(python, save.call.node)
    if stmt is None or stmt.lineno != save.path.lineno or stmt.end_lineno != save.path.end_lineno:
        return with_import(python, there, "os")
    return with_import(python, with_node(python, save.path, there), "os")


def _is_elsewhere(script: Script, value: Value, fast: bool = False) -> bool:
    """Whether a directory is known to be another than the declared ones; ``fast``: the fast tier is another too."""
    path = head(script.placed(value))
    if path.startswith("~/"):
        # The home of the container's user, where no volume is mounted at one.
        return not any(mount.startswith(("/root", "/home")) or mount == "/" for mount in script.launch.mounts)
    if not path.startswith("/") or "://" in path:
        return False
    launch = script.launch
    if any(lies_in(path, place) for place in (*launch.directories, *(() if fast else launch.fast))):
        return False
    # On the volume of the declared directory it is as safe, if not where one looks.
    under = [mount for mount in launch.mounts if any(lies_in(place, mount) for place in launch.directories)]
    deepest = max(under, key=len, default="")
    if deepest and lies_in(path, deepest):
        others = [mount for mount in launch.mounts if len(mount) > len(deepest) and lies_in(path, mount)]
        return bool(others)
    return True


def _mentions(script: Script) -> bool:
    """Whether the program or its shell names the declared directory, be it to copy to or to link."""
    places = script.launch.directories
    for python in script.pythons:
        if any(place in python.source.text for place in places):
            return True
        if any(python.env.get(name) in places for name in python.source.names):
            return True
    if any(
        lies_in(value, place) for invocation in script.invocations for value in invocation.arguments for place in places
    ):
        return True
    for shell in script.shells:
        for line in shell.lines:
            if any(place in line for place in places) and _acts(line):
                return True
    last = [parts[-1] for parts in map(components, places) if parts]
    for command in script.commands():
        if command.name in _IDLE:
            continue
        values = command.words
        if command.assigned:
            values += tuple(value for name, value in command.assigned.items() if name != script.launch.variable)
        for value in values:
            beginning = head(value)
            if any(name in beginning for name in last) and any(lies_in(value, place) for place in places):
                return True
    return False


def _acts(line: str) -> bool:
    """Whether a line of a shell text does more than to look at what it names, to make or to declare it."""
    first = line.split()[:1]
    return bool(first) and not first[0].startswith("#") and first[0] not in _IDLE and first[0] != "export"


def _remark(script: Script, place: Place, value: Value, fix: str) -> Remark:
    return Remark(
        place,
        f'checkpoints go to "{shown(head(value))}", and "{script.launch.directories[0]}" is declared',
        fix,
        subject=shown(head(value)),
        directory=head(value),
    )


RULE = ProgramRule(
    id=ID,
    severity=Severity.WARN,
    why="the checkpoints are not on the storage that was set up for them, so a restart begins at step 0",
    look=look,
    on_runtime=Severity.WARN,
)
