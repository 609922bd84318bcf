"""The directory, or the subPath of its mount, changes with every pod.

Symptom: every restart finds an empty directory of a new name; the old ones fill the claim.
Fix: name the directory after the run, not after the pod.
Bad:
    env:
    - name: POD_NAME
      valueFrom: {fieldRef: {fieldPath: metadata.name}}
    - name: CKPT_DIR
      value: /mnt/ckpt/$(POD_NAME)
Good:
    env:
    - name: TRAINJOB_NAME
      valueFrom: {fieldRef: {fieldPath: "metadata.labels['jobset.sigs.k8s.io/jobset-name']"}}
    - name: CKPT_DIR
      value: /mnt/ckpt/$(TRAINJOB_NAME)
Reads: downward API fields that the directory or the mount's subPathExpr depends on.
Silent when: nothing in it changes from one pod of a run to the next.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from webhook.model.finding import Finding, Severity
from webhook.model.names import JOBSET_NAME_LABEL
from webhook.model.paste import to_yaml
from webhook.model.pod import Checkpoint
from webhook.model.rule import Rule
from webhook.model.sign import NOT_PLAIN
from webhook.model.subject import Subject


def check(subject: Subject) -> Iterator[Finding]:
    for checkpoint in subject.checkpoints:
        if not checkpoint.per_pod:
            continue
        fields = ", ".join(f'"{field}"' for field in checkpoint.per_pod)
        directory = checkpoint.directory or checkpoint.written or ""
        in_directory = checkpoint.directory is None or any(f"<{field}>" in directory for field in checkpoint.per_pod)
        if in_directory:
            at = checkpoint.directory_origin()
            problem = f'directory "{directory}" changes with every pod: it depends on {fields}'
        else:
            at = checkpoint.mount_origin()
            expression = (checkpoint.mount or {}).get("subPathExpr") or (checkpoint.mount or {}).get("subPath")
            problem = f'subPathExpr "{expression}" of the mount changes with every pod: it depends on {fields}'
        yield Finding(
            at=at,
            problem=problem,
            fix=partial(_fix, subject, checkpoint, in_directory),
            at_most=checkpoint.at_most,
            job=checkpoint.job.name,
            container=checkpoint.container_name,
            subject="directory" if in_directory else "subPathExpr",
        )


def _fix(subject: Subject, checkpoint: Checkpoint, in_directory: bool) -> str:
    """A name that all pods of the run have in common: the TrainJob's, by the label that JobSet gives them."""
    field = {"fieldRef": {"fieldPath": f"metadata.labels['{JOBSET_NAME_LABEL}']"}}
    env: list[dict[str, object]] = [{"name": "TRAINJOB_NAME", "valueFrom": field}]
    if not in_directory:
        path = (checkpoint.mount or {}).get("mountPath")
        mount = {"name": (checkpoint.mount or {}).get("name"), "mountPath": path, "subPathExpr": "$(TRAINJOB_NAME)"}
        return to_yaml({"env": env, "volumeMounts": [mount]})
    stable, variable = (checkpoint.directory or "").split("<", 1)[0], checkpoint.variable
    if variable is None:
        return to_yaml({"env": env}) + f"\n# and {stable}$(TRAINJOB_NAME) as the directory"
    text = to_yaml({"env": [*env, {"name": variable, "value": f"{stable}$(TRAINJOB_NAME)"}]})
    job, container, effective = checkpoint.job, checkpoint.container_name, subject.effective
    if effective is None or not subject.is_trainjob or not job.receives_trainer:
        return text
    if not job.keeps_place(container, variable):
        return text
    # From spec.trainer.env the new variable would come behind the runtime's, which is to refer to it.
    if not effective.trainjob:
        return f'{text}\n# in container "{container}" of {effective.runtime_label}, and in this order'
    return to_yaml({"spec": {"trainer": {"env": [{"name": variable, "value": f"{stable}{effective.trainjob}"}]}}})


RULE = Rule(
    id="per-attempt-directory",
    severity=Severity.DENY,
    why="a restarted pod looks into a directory of its own that is empty, so the run starts again at step 0",
    check=check,
    on_runtime=Severity.WARN,
    when=NOT_PLAIN,
)
