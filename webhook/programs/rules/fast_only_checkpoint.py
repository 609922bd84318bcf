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
Reads: where the program and its framework save, and `CKPT_FAST_DIR`; frameworks that keep checkpoints on the node.
Silent when: there is no fast tier; a save goes elsewhere, or may go where nobody sees it; a part of the program is
    unseen; files are copied, moved or uploaded, or another program is started that may do so.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from webhook.model.finding import Severity
from webhook.model.rule import ProgramRule
from webhook.model.script import Place, Remark
from webhook.programs import Call, Python, Script, Text, Value
from webhook.programs.frameworks import Use, find_calls, find_uses, mended
from webhook.programs.names import saves
from webhook.programs.pasted import with_import

ID = "fast-only-checkpoint"
_COPIES: Final = ("copy", "copy2", "copyfile", "copytree", "move", "put", "rsync", "sync")
_RENAMES: Final = ("rename", "renames", "replace", "link", "symlink", "symlink_to")
_STARTS: Final = (
    "os.system",
    "os.popen",
    "os.execvp",
    "os.spawnvp",
    "subprocess.run",
    "subprocess.Popen",
    "subprocess.call",
    "subprocess.check_call",
    "subprocess.check_output",
    "subprocess.getoutput",
)
_SENT: Final = ("upload", "push_to", "log_artifact", "log_model", "log_checkpoint", "save_to_hub", "sync_", "backup")
"""Parts of a name that sends files away."""
_MOVING_COMMANDS: Final = frozenset(("cp", "mv", "rsync", "ln", "rclone", "aws", "gsutil", "tar", "scp", "azcopy"))


def look(script: Script) -> Iterator[Remark]:
    yield from _on_the_node(script)
    fast = script.launch.fast
    if not fast or not script.whole or script.unread or _copies(script):
        return
    first: tuple[Place, Use | None] | None = None
    for place, use, value in _destinations(script):
        if not _is_under(script.placed(value), fast):
            return
        first = first or (place, use)
    if first is None:
        return
    durable = script.launch.directories[0] if script.launch.directories else "<the durable directory>"
    yield Remark(
        first[0],
        f'every save goes to the fast tier "{fast[0]}", which is gone with the pod',
        _fix(script, first[1], fast[0], durable),
        subject=fast[0],
    )


def _on_the_node(script: Script) -> Iterator[Remark]:
    """A framework that keeps checkpoints on the node, or in its memory, and nothing beside it that is durable."""
    uses = (*find_uses(script), *find_calls(script))
    fast = next((use for use in uses if use.fast), None)
    if fast is None or not script.whole or script.unread or _copies(script):
        return
    if any(save.function not in _ITS_OWN for save in saves(script)):
        return
    if any(use.framework is not fast.framework and not use.framework.by_hand for use in uses):
        return
    yield Remark(
        fast.place,
        f"{fast.framework.title} keeps every save on the node, and nothing saves beside it",
        _BESIDE.get(fast.framework.id, fast.framework.every_fix),
        subject=fast.framework.id,
    )


_ITS_OWN: Final = ("save_checkpoint",)
_BESIDE: Final = {
    "nvidia-resiliency": "# every tenth save into the durable directory too, with torch.distributed.checkpoint:\n"
    'dcp.save(state, checkpoint_id=os.path.join(os.environ["CKPT_DIR"], f"step_{step:08d}"))'
}


def _fix(script: Script, use: Use | None, fast: str, durable: str) -> str:
    """The framework's directory; in a program that saves by itself a copy, which it can make less often."""
    setting = use.directory if use is not None else None
    if setting is None:
        copies = f'shutil.copytree("{fast}", "{durable}", dirs_exist_ok=True)'
        copies = f"# after every tenth save, by one process:\n{copies}"
        return with_import(script.pythons[0], copies, "shutil") if script.pythons else copies
    value = f"{setting.name} {durable}" if setting.name.startswith("-") else f'{setting.name}="{durable}"'
    return mended(script, setting, value, use)


def _destinations(script: Script) -> Iterator[tuple[Place, Use | None, Value]]:
    """Every place that something is saved to: where it stands, the framework that does it, and its value."""
    for save in saves(script):
        yield save.python.at(save.call), None, save.value
    for use in find_uses(script):
        if use.directory is not None and (use.saves is None or use.saves.value is not False):
            yield use.directory.place, use, use.directory.value


def _is_under(value: Value, directories: tuple[str, ...]) -> bool:
    """Whether a path lies there for sure; what is not known may lie anywhere."""
    start = value.parts[0] if isinstance(value, Text) else value
    if not isinstance(start, str):
        return False
    return any(start == one or start.startswith(one + "/") for one in directories)


def _copies(script: Script) -> bool:
    """Whether anything may take files out of the fast tier; a new name within it takes none."""
    for python in script.pythons:
        if any(True for _ in python.calls(*_STARTS)):
            return True
        if any(_leads_out(script, python, call) for call in python.named(*_COPIES, *_RENAMES)):
            return True
        names = (
            *python.source.by_attr,
            *(keyword.arg or "" for call in python.source.calls for keyword in call.node.keywords),
        )
        if any(word in name for name in names for word in _SENT):
            return True
    return any(shell.has(*_MOVING_COMMANDS) for shell in script.shells)


def _leads_out(script: Script, python: Python, call: Call) -> bool:
    """Whether a copy or a new name lies elsewhere, or may; ``x.copy()`` and a text's ``replace`` are none of files."""
    given = call.node.args
    if (call.attr == "copy" and not given) or (call.attr == "replace" and len(given) > 1 and call.name != "os.replace"):
        return False
    target = python.value(given[min(1, len(given) - 1)], call.around) if given else None
    return target is None or not _is_under(script.placed(target), script.launch.fast)


RULE = ProgramRule(
    id=ID,
    severity=Severity.WARN,
    why="a new pod finds an empty fast directory and nothing else, so the run starts again at step 0",
    look=look,
    on_runtime=Severity.WARN,
)
