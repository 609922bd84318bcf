"""The directory, or the subPathExpr of its mount, keeps a literal $(VAR).

Symptom: a directory with a literal $(RUN) in its name appears on the claim, and all runs write into it.
Fix: define the variable, and before the one that uses it: the kubelet expands only what stands earlier in the list.
Bad:
    env:
    - name: CKPT_DIR
      value: /mnt/ckpt/$(RUN)
    - name: RUN
      value: digits-7
Good:
    env:
    - name: RUN
      value: digits-7
    - name: CKPT_DIR
      value: /mnt/ckpt/$(RUN)
Reads: the directory's variable, the subPathExpr of its mount, and the order of the variables in the effective
    environment of the container. With an unset variable in subPathExpr the kubelet starts no container at all
    (kubernetes pkg/kubelet/container/helpers.go, ``ExpandContainerVolumeMounts``).
Silent when: every $(VAR) in it is expanded.
"""

from __future__ import annotations

from collections.abc import Iterator

from webhook.model.finding import Finding, Severity
from webhook.model.paste import to_yaml
from webhook.model.pod import Checkpoint
from webhook.model.rule import Rule
from webhook.model.sign import NOT_PLAIN
from webhook.model.subject import Subject


def check(subject: Subject) -> Iterator[Finding]:
    for checkpoint in subject.checkpoints:
        if checkpoint.unset:
            yield from _unset(subject, checkpoint)
        if not checkpoint.missing:
            continue
        written = checkpoint.written or checkpoint.directory
        for name in checkpoint.missing:
            place = _place(checkpoint, name)
            reason = "is not set in this container" if place is None else "stands later in the list"
            yield Finding(
                at=checkpoint.directory_origin(),
                problem=f'directory "{written}" keeps the text "$({name})": "{name}" {reason}',
                fix=_fix(subject, checkpoint, name, place),
                at_most=checkpoint.at_most,
                job=checkpoint.job.name,
                container=checkpoint.container_name,
                subject=name,
            )


def _unset(subject: Subject, checkpoint: Checkpoint) -> Iterator[Finding]:
    mount = checkpoint.mount or {}
    env = [{"name": name, "value": "<value>"} for name in checkpoint.unset]
    receives = subject.is_trainjob and checkpoint.job.receives_trainer
    names = " and ".join(f'"{name}"' for name in checkpoint.unset)
    verb = "is" if len(checkpoint.unset) == 1 else "are"
    yield Finding(
        at=checkpoint.mount_origin(),
        problem=(
            f'mount "{mount.get("mountPath")}" has subPathExpr "{mount.get("subPathExpr")}", '
            f"and {names} {verb} not set (or empty) in this container"
        ),
        fix=to_yaml({"spec": {"trainer": {"env": env}}} if receives else {"env": env}),
        at_most=checkpoint.at_most,
        job=checkpoint.job.name,
        container=checkpoint.container_name,
        subject="subPathExpr",
        why="the kubelet starts no such container (CreateContainerConfigError), so nothing runs and nothing resumes",
    )


def _place(checkpoint: Checkpoint, name: str) -> int | None:
    for index, variable in enumerate(checkpoint.container.get("env") or ()):
        if variable.get("name") == name:
            return index
    return None


def _fix(subject: Subject, checkpoint: Checkpoint, name: str, place: int | None) -> str:
    """Both variables in the order that expands, where spec.trainer.env keeps them together."""
    missing: dict[str, object] = {"name": name, "value": "<value>"}
    if place is not None:
        missing = dict(checkpoint.container["env"][place])
    env = [missing]
    if checkpoint.variable is not None:
        env.append({"name": checkpoint.variable, "value": checkpoint.written or ""})
    if subject.is_trainjob and checkpoint.job.receives_trainer:
        text = to_yaml({"spec": {"trainer": {"env": env}}})
        hint = "# a name that the runtime sets too keeps the runtime's place: choose a name of its own then"
        return f"{text}\n{hint}" if place is not None else text
    return to_yaml({"env": env})


RULE = Rule(
    id="unexpanded-directory",
    severity=Severity.DENY,
    why="all runs share one directory with that literal name, so one overwrites or resumes from another's checkpoints",
    check=check,
    on_runtime=Severity.WARN,
    when=NOT_PLAIN,
)
