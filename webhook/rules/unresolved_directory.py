"""The directory comes from a place that admission cannot read.

Symptom: nothing by itself: the directory cannot be judged at admission.
Fix: write the directory into the manifest, where it is no secret.
Bad:
    env:
    - name: CKPT_DIR
      valueFrom: {configMapKeyRef: {name: paths, key: ckpt}}
Good:
    env:
    - name: CKPT_DIR
      value: /mnt/ckpt/digits
Reads: how the directory's variable gets its value.
Silent when: the value is known, or nothing declares a directory.
"""

from __future__ import annotations

from collections.abc import Iterator

from webhook.model.finding import Finding, Severity
from webhook.model.pod import Checkpoint, DirectoryStatus
from webhook.model.rule import Rule
from webhook.model.sign import NOT_PLAIN
from webhook.model.subject import Subject


def check(subject: Subject) -> Iterator[Finding]:
    for checkpoint in subject.checkpoints:
        if checkpoint.status is not DirectoryStatus.UNRESOLVED:
            continue
        variable = checkpoint.variable or subject.policy.directory.variables[0]
        yield Finding(
            at=checkpoint.directory_origin(),
            problem=f'"{variable}" {_source(checkpoint, variable)}',
            fix=f'env:\n- name: {variable}\n  value: "{subject.policy.defaults.path}/<run>"',
            job=checkpoint.job.name,
            container=checkpoint.container_name,
            subject=variable,
        )


def _source(checkpoint: Checkpoint, variable: str) -> str:
    for entry in checkpoint.container.get("env") or ():
        if entry.get("name") == variable:
            for kind, body in (entry.get("valueFrom") or {}).items():
                if isinstance(body, dict):
                    named = body.get("name") or body.get("fieldPath") or body.get("resource") or body.get("key")
                    return f'comes from {kind} "{named}", which admission cannot read'
            if "$" in (checkpoint.written or ""):
                return f'is "{checkpoint.written}", and admission cannot read all of its variables'
            return f'is "{checkpoint.written}", relative to the working directory that the image sets'
    return "may come from envFrom, which admission cannot read"


RULE = Rule(
    id="unresolved-directory",
    severity=Severity.AUDIT,
    why="whether the checkpoints outlive the pod was not judged",
    check=check,
    on_runtime=Severity.AUDIT,
    when=NOT_PLAIN,
)
