"""The claim under the directory cannot hold the checkpoints.

Symptom: a save fails with "No space left on device", and the newest checkpoint is half written.
Fix: ask for room for one checkpoint more than the program keeps.
Bad:
    metadata:
      annotations: {checkpoint-guard.io/checkpoint-size: 80Gi}    # and a claim of 100Gi
Good:
    metadata:
      annotations: {checkpoint-guard.io/checkpoint-size: 80Gi}    # and a claim of 320Gi for three copies
Reads: annotation checkpoint-size, else model-params and the policy's table; the claim's capacity, else its request.
The copies that the program keeps are counted, and one that is being written; where they are not known, one is taken.
Silent when: no annotation says a size, or the claim is absent, unknown, or large enough.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

from webhook.model.cluster import Claim, PersistentVolume
from webhook.model.finding import Finding, Measure, Origin, Severity
from webhook.model.names import CHECKPOINT_SIZE, MODEL_PARAMS
from webhook.model.printable import shell_word
from webhook.model.rule import Rule
from webhook.model.script import Remark
from webhook.model.sign import SIZED
from webhook.model.size import format_at_least, format_bytes
from webhook.model.subject import Subject
from webhook.programs.values import as_number
from webhook.storage import Use, claim_uses, needed_size, new_claim, size_annotation

if TYPE_CHECKING:
    from webhook.programs import Script

KEPT = 1
"""Copies that a program keeps at least."""
_COPIES = "kept-copies"


def check(subject: Subject) -> Iterator[Finding]:
    written = size_annotation(subject)
    if written is None:
        return
    owner, key, text = written
    if key == MODEL_PARAMS and not subject.policy.checkpoint_sizes:
        return
    size = needed_size(subject)
    if size is None:
        example = "80Gi" if key == CHECKPOINT_SIZE else "7B"
        yield Finding(
            at=Origin(owner, f'metadata.annotations["{key}"]', f"annotation {key}"),
            problem=f'"{text}" is no {"size" if key == CHECKPOINT_SIZE else "number of parameters"}',
            fix=f'metadata:\n  annotations:\n    {key}: "{example}"',
            why="whether the claim can hold the checkpoints was not checked",
            subject=key,
        )
        return
    kept = _kept(subject)
    need = size * (kept + 1)
    for use in claim_uses(subject):
        claim = use.claim
        if use.checkpoint is None or not isinstance(claim, Claim):
            continue
        has = _capacity(use, claim)
        if has is None or has >= need:
            continue
        yield Finding(
            at=use.origin(),
            problem=(
                f'claim "{claim.name}" has {format_bytes(has)}, '
                + (f"{kept + 1} checkpoints" if kept > KEPT else "checkpoints")
                + f" of {format_bytes(size)} need {format_at_least(need)}"
                + ("" if kept > KEPT else " at least")
            ),
            fix=partial(_fix, subject, use, claim, format_at_least(need)),
            at_most=use.at_most,
            job=use.job,
            container=use.container,
            subject=claim.name,
            measure=Measure(has, "B", floor=need),
        )


def _kept(subject: Subject) -> int:
    """The copies that the programs keep: the most that any of them says."""
    most = KEPT
    for program in subject.programs():
        remarks = program.remarks.get(_COPIES)
        if remarks is None:
            remarks = tuple(_copies(program.read()))
            program.remarks[_COPIES] = remarks
        most = max([most, *(int(remark.subject) for remark in remarks)])
    return most


def _copies(script: Script) -> Iterator[Remark]:
    """The number of each framework's setting, kept with what the rules said of the program."""
    from webhook.programs.frameworks import find_calls, find_uses

    for use in (*find_uses(script), *find_calls(script)):
        number = as_number(use.keep.value) if use.keep is not None else None
        if use.keep is not None and number is not None and 0 < number < 1000:
            yield Remark(use.keep.place, "", "", subject=str(int(number)))


def _capacity(use: Use, claim: Claim) -> int | None:
    if isinstance(use.storage.volume, PersistentVolume) and use.storage.volume.capacity is not None:
        return use.storage.volume.capacity
    return claim.capacity if claim.bound and claim.capacity is not None else claim.request


def _fix(subject: Subject, use: Use, claim: Claim, need: str) -> str:
    if use.template:
        return f'resources: {{requests: {{storage: {need}}}}}\n# in the volumeClaimPolicies template "{use.name}"'
    if not claim.bound:
        named = {} if claim.storage_class is None else {"storageClassName": claim.storage_class}
        text = new_claim(subject.namespace, claim.name, list(claim.access_modes), need, named)
        return f"{text}\n# a claim that is still Pending cannot change: it has to be created anew"
    patch = f'{{"spec":{{"resources":{{"requests":{{"storage":"{need}"}}}}}}}}'
    return (
        f"kubectl patch pvc {shell_word(claim.name)} -n {shell_word(subject.namespace)} --type merge -p '{patch}'\n"
        "# works where the class has allowVolumeExpansion: true; else create a claim of that size"
    )


RULE = Rule(
    id="claim-too-small",
    severity=Severity.WARN,
    why="the disk fills up while a checkpoint is written, which kills the run and leaves a torn checkpoint",
    check=check,
    on_runtime=Severity.WARN,
    when=SIZED,
)
