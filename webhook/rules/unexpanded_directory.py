"""The directory, or the subPath or subPathExpr of its mount, keeps a literal $(VAR).

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
Reads: the directory's variable, subPath (which is never expanded) and subPathExpr of its mount, and the order of the
    variables in the effective environment of the container. With an unset variable in subPathExpr the kubelet starts no
    container at all (kubernetes pkg/kubelet/container/helpers.go, ``ExpandContainerVolumeMounts``).
Silent when: every $(VAR) in it is expanded.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial

from webhook.effective.expansion import Value, evaluate, expand, references, variable_value
from webhook.model.finding import Finding, Severity
from webhook.model.names import JOBSET_NAME_LABEL
from webhook.model.paste import to_yaml
from webhook.model.pod import CONTROLLERS, EMPTY, Checkpoint, Raw
from webhook.model.rule import Rule
from webhook.model.sign import NOT_PLAIN
from webhook.model.subject import Subject

_DEEPEST = 50
"""References that are followed, one variable's to the next one's; nobody writes more."""


def check(subject: Subject) -> Iterator[Finding]:
    for checkpoint in subject.checkpoints:
        if checkpoint.unset:
            yield from _unset(subject, checkpoint)
        if "$(" in ((checkpoint.mount or EMPTY).get("subPath") or ""):
            yield from _literal(subject, checkpoint)
        if not checkpoint.missing:
            continue
        written = checkpoint.written or checkpoint.directory
        for name in checkpoint.missing:
            place = _place(checkpoint, name)
            reason = "is not set in this container" if place is None else "stands later in the list"
            yield Finding(
                at=checkpoint.directory_origin(),
                problem=f'directory "{written}" keeps the text "$({name})": it {reason}',
                fix=partial(_fix, subject, checkpoint),
                at_most=checkpoint.at_most,
                job=checkpoint.job.name,
                container=checkpoint.container_name,
                subject=name,
            )


def _unset(subject: Subject, checkpoint: Checkpoint) -> Iterator[Finding]:
    mount = checkpoint.mount or {}
    env = [{"name": name, "value": "<value>"} for name in checkpoint.unset]
    receives = _receives(subject, checkpoint)
    names = " and ".join(f'"{name}"' for name in checkpoint.unset)
    verb = "is" if len(checkpoint.unset) == 1 else "are"
    yield Finding(
        at=checkpoint.mount_origin(),
        problem=(
            f'{names} in the subPathExpr of mount "{mount.get("mountPath")}" {verb} not set or empty in this container'
        ),
        fix=to_yaml({"spec": {"trainer": {"env": env}}} if receives else {"env": env}),
        at_most=checkpoint.at_most,
        job=checkpoint.job.name,
        container=checkpoint.container_name,
        subject="subPathExpr",
        why="the kubelet starts no such container (CreateContainerConfigError), so nothing runs and nothing resumes",
    )


def _literal(subject: Subject, checkpoint: Checkpoint) -> Iterator[Finding]:
    """A reference in ``subPath``: the kubelet expands ``subPathExpr`` alone."""
    mount, job, container = checkpoint.mount or EMPTY, checkpoint.job, checkpoint.container_name
    path, written = str(mount.get("mountPath")), str(mount.get("subPath"))
    known: dict[str, Value] = {}
    if subject.effective is not None:
        env = checkpoint.container.get("env") or ()
        known = evaluate(env, subject.effective, job, False, references(written))
    value = expand(written, known, False)
    text: dict[str, object] = {}
    if value.missing or value.per_pod or value.unknown:
        field = {"fieldRef": {"fieldPath": f"metadata.labels['{JOBSET_NAME_LABEL}']"}}
        text["env"] = [{"name": "TRAINJOB_NAME", "valueFrom": field}]
    expression = "$(TRAINJOB_NAME)" if text else written
    text["volumeMounts"] = [{"name": mount.get("name"), "mountPath": path, "subPathExpr": expression}]
    places = (place for _, own, place in job.written_mounts(container, path) if own.get("subPath"))
    yield Finding(
        at=next(places, checkpoint.mount_origin()),
        problem=f'mount "{path}" keeps the text of subPath "{written}", since subPathExpr alone is expanded',
        fix=to_yaml(text),
        at_most=checkpoint.at_most,
        job=job.name,
        container=container,
        subject="subPath",
    )


def _place(checkpoint: Checkpoint, name: str) -> int | None:
    for index, variable in enumerate(checkpoint.container.get("env") or ()):
        if variable.get("name") == name:
            return index
    return None


def _fix(subject: Subject, checkpoint: Checkpoint) -> str:
    """The variables in the order that expands; the bare value where ``spec.trainer.env`` cannot bring that order about,
    since the directory's variable has its place in the runtime's list or Trainer adds the other one behind it."""
    job, container, variable = checkpoint.job, checkpoint.container_name, checkpoint.variable
    known = {one.get("name"): one for one in checkpoint.container.get("env") or ()}
    names = _in_order(checkpoint, known)
    env = [dict(known.get(name) or {"name": name, "value": "<value>"}) for name in names]
    if variable is None:
        return to_yaml({"spec": {"trainer": {"env": env}}} if _receives(subject, checkpoint) else {"env": env})
    written = {"name": variable, "value": checkpoint.written or ""}
    if not _receives(subject, checkpoint) or subject.effective is None:
        return to_yaml({"env": [*env, written]})
    of_trainer = any(name in known and job.env_origin(container, name).object in CONTROLLERS for name in names)
    if not of_trainer and not job.keeps_place(container, variable):
        return to_yaml({"spec": {"trainer": {"env": [*env, written]}}})
    values: dict[str, Value] = {}
    for one in env:
        values[one["name"]] = variable_value(one, values, subject.effective, job, False)
    bare = expand(written["value"], values, False)
    if bare.unknown or bare.missing or bare.per_pod or "<" in bare.text.replace("<value>", ""):
        runtime = subject.effective.runtime_label
        return f'{to_yaml({"env": [*env, written]})}\n# in container "{container}" of {runtime}, and in this order'
    return to_yaml({"spec": {"trainer": {"env": [{"name": variable, "value": bare.text}]}}})


def _receives(subject: Subject, checkpoint: Checkpoint) -> bool:
    return subject.is_trainjob and checkpoint.job.receives_trainer


def _in_order(checkpoint: Checkpoint, known: Mapping[str, Raw]) -> list[str]:
    """The variables that the directory refers to, those that they refer to before them."""
    names: dict[str, None] = {}

    def add(text: str, above: tuple[str, ...]) -> None:
        for name in references(text.replace("$$", "")):
            if name not in names and name not in above and len(above) < _DEEPEST:
                add(str((known.get(name) or {}).get("value") or ""), (*above, name))
                names[name] = None

    add(checkpoint.written or "", (checkpoint.variable or "",))
    return list(names) or list(checkpoint.missing)


RULE = Rule(
    id="unexpanded-directory",
    severity=Severity.DENY,
    why="all runs share one directory with that literal name, so one overwrites or resumes from another's checkpoints",
    check=check,
    on_runtime=Severity.WARN,
    when=NOT_PLAIN,
)
