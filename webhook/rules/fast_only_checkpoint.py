"""The program saves into the fast tier alone, which goes with the pod.

Symptom: within one pod the run resumes; after a restart on another pod the fast directory is empty and it starts at 0.
Fix: save into the durable directory as well, less often.
Bad:
    args:
    - |
      torch.save(state, os.environ["CKPT_FAST_DIR"] + "/latest.pt")
Good:
    args:
    - |
      torch.save(state, os.environ["CKPT_FAST_DIR"] + "/latest.pt")
      if step % 1000 == 0:
          torch.save(state, f"{os.environ['CKPT_DIR']}/step_{step}.pt")
Reads: where the program and its framework save, and `CKPT_FAST_DIR`.
Silent when: there is no fast tier; a save goes elsewhere, or may go where nobody sees it; a part of the program is
    unseen; files are copied or moved.
"""

from __future__ import annotations

from collections.abc import Iterator

from webhook.frameworks import find_uses
from webhook.model.finding import Finding, Severity
from webhook.model.rule import Rule
from webhook.model.script import Place, Remark
from webhook.model.subject import Subject
from webhook.script import Script, Text, Value, program_findings
from webhook.script.names import saves

ID = "fast-only-checkpoint"
_MOVES = ("copy", "copy2", "copyfile", "copytree", "move", "rename", "replace", "link", "symlink", "upload_file", "put")
_MOVING_COMMANDS = frozenset(("cp", "mv", "rsync", "ln", "rclone", "aws", "gsutil", "tar"))


def look(script: Script) -> Iterator[Remark]:
    fast = script.launch.fast
    if not fast or not script.whole or script.unread or _copies(script):
        return
    first: tuple[Place, str] | None = None
    for place, written, value in _destinations(script):
        if not _is_under(value, fast):
            return
        first = first or (place, written)
    if first is None:
        return
    durable = script.launch.directories[0] if script.launch.directories else "<the durable directory>"
    yield Remark(
        first[0],
        f'every save goes to the fast tier "{fast[0]}", which is gone with the pod',
        f"# beside {first[1]}, less often: the same into {durable}",
        subject=fast[0],
    )


def _destinations(script: Script) -> Iterator[tuple[Place, str, Value]]:
    """Every place that something is saved to: where it stands, as it is written, and its value."""
    for save in saves(script):
        yield save.python.at(save.call), save.python.text(save.path), save.value
    for use in find_uses(script):
        if use.directory is not None and (use.saves is None or use.saves.value is not False):
            yield use.directory.place, use.directory.written or use.directory.name, use.directory.value


def _is_under(value: Value, directories: tuple[str, ...]) -> bool:
    """Whether a path lies there for sure; what is not known may lie anywhere."""
    start = value.parts[0] if isinstance(value, Text) else value
    if not isinstance(start, str):
        return False
    return any(start == one or start.startswith(one + "/") for one in directories)


def _copies(script: Script) -> bool:
    for python in script.pythons:
        if any(True for _ in python.named(*_MOVES)):
            return True
    return any(command.name in _MOVING_COMMANDS for command in script.commands())


def check(subject: Subject) -> Iterator[Finding]:
    return program_findings(subject, ID, look)


RULE = Rule(
    id=ID,
    severity=Severity.WARN,
    why="a new pod finds an empty fast directory and nothing else, so the run starts again at step 0",
    check=check,
    on_runtime=Severity.WARN,
    reads_program=True,
)
