"""Every node writes the same names into one claim.

Symptom: checkpoints with mixed or torn files; "No such file or directory" when one node removes what another still
    writes.
Fix: let one process of the run write (save_on_each_node=False), or give each node a directory of its own.
Bad:
    args:
    - |
      TrainingArguments(output_dir=out, save_on_each_node=True)    # 2 nodes, one ReadWriteMany claim
Good:
    args:
    - |
      TrainingArguments(output_dir=out, save_on_each_node=False)
Reads: save_on_each_node in calls; the number of training pods; what lies under the directory.
Silent when: one pod trains; the directory is each pod's own (emptyDir, a node's disk, a path that depends on the pod);
    the setting is not true, or not known.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from webhook.model.finding import Finding, Severity
from webhook.model.pod import StorageKind
from webhook.model.rule import Rule
from webhook.model.script import Remark
from webhook.model.subject import Subject
from webhook.programs import program_findings
from webhook.programs.values import is_true

if TYPE_CHECKING:
    from webhook.programs import Script

ID: Final = "each-node-writes"
_WHY: Final = "nodes overwrite and remove each other's files while they save, so the newest checkpoint may be torn"
_SETTING: Final = "save_on_each_node"
_ARGUMENTS: Final = (
    "TrainingArguments",
    "Seq2SeqTrainingArguments",
    "SFTConfig",
    "DPOConfig",
    "GRPOConfig",
    "RewardConfig",
    "KTOConfig",
    "ORPOConfig",
)
_SHARED: Final = frozenset((StorageKind.MANY_NODES, StorageKind.OBJECT_STORE, StorageKind.ONE_NODE))


def look(script: Script) -> Iterator[Remark]:
    for python in script.pythons:
        for call in python.named(*_ARGUMENTS):
            if is_true(python.argument(call, _SETTING, default=False)):
                yield Remark(
                    python.at(call),
                    f'"{_SETTING}" is True, so every node writes the same names into the shared directory',
                    f"{_SETTING}=False",
                    subject=_SETTING,
                )
                return


def check(subject: Subject) -> Iterator[Finding]:
    if subject.effective is None or subject.effective.training_pods < 2:
        return
    programs = subject.programs()
    if all(program.remarks.get(ID) == () for program in programs):
        return
    shared = {
        (checkpoint.job.name, checkpoint.container_name)
        for checkpoint in subject.checkpoints
        if checkpoint.storage.kind in _SHARED and not checkpoint.per_pod and checkpoint.job.pods > 1
    }
    if shared:
        for finding in program_findings(programs, ID, look, _WHY):
            if (finding.job, finding.container) in shared:
                yield finding


RULE = Rule(
    id=ID,
    severity=Severity.WARN,
    why=_WHY,
    check=check,
    on_runtime=Severity.WARN,
)
