"""The program does with its files what the mount of a bucket under the directory cannot.

Symptom: the first save, or the second, ends with "Function not implemented" or "Operation not permitted": at os.replace
or os.rename, at open(path, "a"), or at a save over a file that is there.
Fix: save each checkpoint under a name of its own, rename nothing, append nothing; or keep checkpoints on a file system.
Bad:
    args:
    - |
      torch.save(state, path + ".tmp")
      os.replace(path + ".tmp", path)    # on a volume of s3.csi.aws.com
Good:
    args:
    - |
      torch.save(state, f"{out}/step_{step:08d}.pt")
Reads: the driver of the volume under the directory and its mount options; the program's calls that rename, append, or
save over one file.
Silent when: the directory lies elsewhere, or on a mount that can (Cloud Storage FUSE); the program is not read; the
mount option allow-overwrite is given (for a save over a file).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from webhook.model.finding import Finding, Severity
from webhook.model.pod import StorageKind
from webhook.model.rule import Rule
from webhook.model.script import Remark
from webhook.model.sign import ODD_CLAIMS
from webhook.model.subject import Subject
from webhook.programs import program_findings
from webhook.storage import cannot_do

if TYPE_CHECKING:
    from webhook.programs import Script
    from webhook.programs.names import Save

ID: Final = "bucket-mount"
_WHY: Final = "the save fails at the rename, so no checkpoint is ever whole and there is none to resume from"
_RENAMES: Final = ("os.replace", "os.rename", "os.renames", "shutil.move")
_FIX: Final = (
    'torch.save(state, f"{out}/step_{step:08d}.pt")    # one name for each save; nothing is renamed\n'
    "# or a directory on a file system: ask whoever runs the storage for a claim of one"
)
_APPENDING: Final = "the program dies at the first line that it appends, and again at every restart"
_OVER: Final = "the second save fails, so a restart has the first checkpoint or none"


def look(script: Script) -> Iterator[Remark]:
    for python in script.pythons:
        for call in python.calls(*_RENAMES):
            yield Remark(
                python.at(call),
                "the program renames what it saves, and Mountpoint for S3 under the directory cannot rename",
                _FIX,
                subject="rename",
            )
            return
    yield from _appends(script)
    if "overwrite" in script.launch.cannot:
        yield from _overwrites(script)


def _appends(script: Script) -> Iterator[Remark]:
    """``open(path, "a")`` and logs that do it, below the directory."""
    for python in script.pythons:
        for call in (*python.calls("open", "io.open"), *python.calls("logging.FileHandler")):
            handler = call.name == "logging.FileHandler"
            path = call.argument("filename" if handler else "file", 0)
            mode = python.argument(call, "mode", 1, "a" if handler else "r")
            if path is None or not isinstance(mode, str) or not ("a" in mode or "+" in mode):
                continue
            if _in_directory(script, python.value(path, call.around)):
                yield Remark(
                    python.at(call),
                    f'"{python.text(call.node)[:60]}" appends, and Mountpoint for S3 under the directory cannot append',
                    "# to a file outside of the directory, for example below /tmp",
                    subject="append",
                    why=_APPENDING,
                )
                return


def _overwrites(script: Script) -> Iterator[Remark]:
    """A loop that saves under one name, where the mount does not allow to write over a file."""
    from webhook.programs.flow import in_loop
    from webhook.programs.names import saves

    for save in saves(script):
        if _is_one_file(save) and in_loop(save.python, save.call) and _in_directory(script, save.value):
            yield Remark(
                save.python.at(save.call),
                f'"{save.name}" is saved again and again, and Mountpoint for S3 is not given allow-overwrite',
                f"{_FIX}\n# or allow-overwrite in the mountOptions of its volume",
                subject="overwrite",
                why=_OVER,
            )
            return


def _is_one_file(save: Save) -> bool:
    return save.function == "torch.save" and isinstance(save.value, str) and save.target is None


def _in_directory(script: Script, path: object) -> bool:
    from webhook.programs.program import lies_in

    return any(lies_in(path, place) for place in script.launch.directories)


def check(subject: Subject) -> Iterator[Finding]:
    on_bucket = {
        (checkpoint.job.name, checkpoint.container_name)
        for checkpoint in subject.checkpoints
        if checkpoint.storage.kind is StorageKind.OBJECT_STORE and cannot_do(checkpoint.storage)
    }
    if on_bucket:
        for finding in program_findings(subject.programs(), ID, look, _WHY):
            if (finding.job, finding.container) in on_bucket:
                yield finding


RULE = Rule(
    id=ID,
    severity=Severity.WARN,
    why=_WHY,
    check=check,
    on_runtime=Severity.WARN,
    when=ODD_CLAIMS,
)
