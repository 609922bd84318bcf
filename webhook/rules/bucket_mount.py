"""The program renames what it saves on a bucket whose mount cannot rename.

Symptom: the first save ends with "Function not implemented" or "Operation not permitted" at os.replace or os.rename.
Fix: save each checkpoint under a name of its own and rename nothing, or keep checkpoints on a file system.
Bad:
    args:
    - |
      torch.save(state, path + ".tmp")
      os.replace(path + ".tmp", path)    # on a volume of s3.csi.aws.com
Good:
    args:
    - |
      torch.save(state, f"{out}/step_{step:08d}.pt")
Reads: the driver of the volume under the directory; the program's calls that rename or move.
Silent when: the directory lies elsewhere, or on a mount that can rename (Cloud Storage FUSE); the program is not read.
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
from webhook.storage import driver_of

if TYPE_CHECKING:
    from webhook.programs import Script

ID: Final = "bucket-mount"
_WHY: Final = "the save fails at the rename, so no checkpoint is ever whole and there is none to resume from"
_CANNOT_RENAME: Final = frozenset(("s3.csi.aws.com",))
_RENAMES: Final = ("os.replace", "os.rename", "os.renames", "shutil.move")


def look(script: Script) -> Iterator[Remark]:
    for python in script.pythons:
        for call in python.calls(*_RENAMES):
            yield Remark(
                python.at(call),
                "the program renames what it saves, and Mountpoint for S3 under the directory cannot rename",
                'torch.save(state, f"{out}/step_{step:08d}.pt")    # one name for each save; nothing is renamed\n'
                "# or a directory on a file system: ask whoever runs the storage for a claim of one",
                subject="rename",
            )
            return


def check(subject: Subject) -> Iterator[Finding]:
    on_bucket = {
        (checkpoint.job.name, checkpoint.container_name)
        for checkpoint in subject.checkpoints
        if checkpoint.storage.kind is StorageKind.OBJECT_STORE and driver_of(checkpoint.storage) in _CANNOT_RENAME
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
