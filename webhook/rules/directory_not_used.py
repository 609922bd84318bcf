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

from collections.abc import Iterator

from webhook.frameworks import find_uses, mended
from webhook.model.finding import Finding, Severity
from webhook.model.rule import Rule
from webhook.model.script import Place, Remark
from webhook.model.subject import Subject
from webhook.script import Script, Value, program_findings
from webhook.script.flow import in_loop
from webhook.script.names import saves
from webhook.script.program import lies_in
from webhook.script.values import head, shown

ID = "directory-not-used"


def look(script: Script) -> Iterator[Remark]:
    if not script.launch.directories or _mentions(script):
        return
    for use in find_uses(script):
        setting = use.directory
        if setting is None or not setting.given or (use.saves is not None and use.saves.value is False):
            continue
        if _is_elsewhere(script, setting.value):
            quoted = setting.name if setting.name.startswith("-") else f"{setting.name}="
            variable = "$CKPT_DIR" if setting.name.startswith("-") else 'os.environ["CKPT_DIR"]'
            fix = f"{quoted} {variable}".replace("= ", "=")
            if use.resume is not None and use.resume.name.startswith("-") and use.resume.value == setting.value:
                fix += f" {use.resume.name} {variable}"
            fix = mended(script, setting, fix, use)
            yield _remark(script, setting.place, setting.value, fix)
            return
    for save in saves(script):
        if save.numbered and in_loop(save.python, save.call) and _is_elsewhere(script, save.value):
            directory = head(save.value).rpartition("/")[0]
            yield _remark(script, save.python.at(save.call), directory, 'os.path.join(os.environ["CKPT_DIR"], ...)')
            return


def _is_elsewhere(script: Script, value: Value) -> bool:
    path = head(value)
    if not path.startswith("/") or "://" in path:
        return False
    launch = script.launch
    if any(lies_in(path, place) for place in (*launch.directories, *launch.fast)):
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
    for shell in script.shells:
        for line in shell.lines:
            if any(place in line for place in places):
                return True
        for command in shell.commands:
            values = (*command.words, *command.assigned.values())
            if any(lies_in(value, place) for value in values for place in places):
                return True
    return any(
        lies_in(value, place) for invocation in script.invocations for value in invocation.arguments for place in places
    )


def _remark(script: Script, place: Place, value: Value, fix: str) -> Remark:
    return Remark(
        place,
        f'checkpoints go to "{shown(head(value))}", and "{script.launch.directories[0]}" is declared',
        fix,
        subject=shown(head(value)),
        directory=head(value),
    )


def check(subject: Subject) -> Iterator[Finding]:
    return program_findings(subject, ID, look)


RULE = Rule(
    id=ID,
    severity=Severity.WARN,
    why="the checkpoints are not on the storage that was set up for them, so a restart begins at step 0",
    check=check,
    on_runtime=Severity.WARN,
    reads_program=True,
)
