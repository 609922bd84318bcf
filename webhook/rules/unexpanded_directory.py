"""The directory, or the subPath or subPathExpr of its mount, keeps a literal $(VAR), or ${VAR} or another spelling.

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
    What a shell or a template would put in (${VAR}, $VAR, $(date), {{ var }}) stays as it is, and is warned of: the
    kubelet knows $(VAR) alone.
Silent when: every $(VAR) in it is expanded, and there is no other spelling; the program expands variables by itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Final

from webhook.effective.expansion import Value, evaluate, expand, references, variable_value
from webhook.model.finding import Finding, Severity
from webhook.model.names import JOBSET_NAME_LABEL
from webhook.model.paste import to_yaml
from webhook.model.pod import CONTROLLERS, EMPTY, Checkpoint, Raw
from webhook.model.rule import Rule
from webhook.model.sign import NOT_PLAIN
from webhook.model.subject import Subject

_SPELLED: Final = (
    r"\$\{[^}]{0,200}\}|\$\([^)]{0,200}\)|\$[A-Za-z_][A-Za-z0-9_]{0,200}|`[^`]{0,200}`|\{\{[^}]{0,200}\}\}"
    r"|%[A-Za-z_][A-Za-z0-9_]{0,200}%"
)
_EXPANDS: Final = ("expandvars", "envsubst", "eval ")
"""A program that puts variables in by itself."""
_DEEPEST = 50
"""References that are followed, one variable's to the next one's; nobody writes more."""


def check(subject: Subject) -> Iterator[Finding]:
    for checkpoint in subject.checkpoints:
        if checkpoint.unset:
            yield from _unset(subject, checkpoint)
        sub_path = (checkpoint.mount or EMPTY).get("subPath") or ""
        if "$(" in sub_path or _looks_like_one(sub_path):
            yield from _literal(subject, checkpoint)
        elif in_expression := _looks_like_one(checkpoint.sub_path or ""):
            yield from _literal(subject, checkpoint, in_expression)
        if (literal := _kept(checkpoint)) is not None:
            yield _spelled(subject, checkpoint, literal)
        if not checkpoint.missing:
            continue
        written = checkpoint.written or checkpoint.directory
        for name in checkpoint.missing:
            if not name.isidentifier():
                yield _spelled(subject, checkpoint, f"$({name})")
                continue
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


def _kept(checkpoint: Checkpoint) -> str | None:
    """The first part of the directory that looks like a reference and is none to the kubelet."""
    directory = checkpoint.directory or checkpoint.written or ""
    if not any(mark in directory for mark in ("$", "`", "{{", "%")):
        return None
    words = (*(checkpoint.container.get("command") or ()), *(checkpoint.container.get("args") or ()))
    if any(isinstance(word, str) and any(one in word for one in _EXPANDS) for word in words):
        return None
    return _looks_like_one(directory, checkpoint.missing) or None


def _looks_like_one(text: str, told: tuple[str, ...] = ()) -> str:
    """The first part that looks like a reference, but for the ``$(VAR)`` that are ``told`` already; ``""`` for none."""
    if not any(mark in text for mark in ("$", "`", "{{", "%")):
        return ""
    from re import finditer

    for found in finditer(_SPELLED, text):
        if found.group()[:2] != "$(" or found.group()[2:-1] not in told:
            return str(found.group())
    return ""


def _spelled(subject: Subject, checkpoint: Checkpoint, literal: str) -> Finding:
    """``${RUN}``, ``$RUN``, ``$(date)``, ``{{ run }}``: a shell or a template would put something in, the kubelet does
    not."""
    written = checkpoint.written or checkpoint.directory or ""
    known = {one.get("name"): one for one in checkpoint.container.get("env") or ()}
    whole = literal.strip("$(){}`% ")
    if literal[:2] == "${":  # ${VAR:-other}
        whole = "".join(letter if letter.isalnum() or letter == "_" else " " for letter in whole).partition(" ")[0]
    escaped = f"$${literal[1:]}"
    if escaped in written:
        return _told(subject, checkpoint, literal, written.replace(escaped, literal), ())
    if whole in known and whole != checkpoint.variable:
        return _told(subject, checkpoint, literal, written.replace(literal, f"$({whole})"), (dict(known[whole]),))
    own: dict[str, object] = {
        "name": "TRAINJOB_NAME",
        "valueFrom": {"fieldRef": {"fieldPath": f"metadata.labels['{JOBSET_NAME_LABEL}']"}},
    }
    if written.startswith(literal):
        return _told(subject, checkpoint, literal, f"{subject.policy.defaults.path}/$(TRAINJOB_NAME)", (own,))
    return _told(subject, checkpoint, literal, written.replace(literal, "$(TRAINJOB_NAME)"), (own,))


def _told(
    subject: Subject, checkpoint: Checkpoint, literal: str, written: str, env: tuple[dict[str, object], ...]
) -> Finding:
    if checkpoint.variable is None:
        flag = checkpoint.flag or ""
        fix = f"{flag} {written}" if flag.startswith("-") else f"{flag}={written}"
        fix = f"# the argument: {fix}\n{to_yaml({'env': list(env)})}" if env else f"# the argument: {fix}"
    else:
        whole = {"env": [*env, {"name": checkpoint.variable, "value": written}]}
        fix = to_yaml({"spec": {"trainer": whole}} if _receives(subject, checkpoint) else whole)
    return Finding(
        at=checkpoint.directory_origin(),
        problem=(
            f'directory "{checkpoint.written or checkpoint.directory}" keeps the text "{literal}": '
            "the kubelet expands $(VAR) alone"
        ),
        fix=fix,
        at_most=Severity.WARN if literal[:2] != "$(" else checkpoint.at_most,
        job=checkpoint.job.name,
        container=checkpoint.container_name,
        subject=literal,
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


def _literal(subject: Subject, checkpoint: Checkpoint, in_expression: str = "") -> Iterator[Finding]:
    """A reference in ``subPath``: the kubelet expands ``subPathExpr`` alone, and ``$(VAR)`` alone in that."""
    mount, job, container = checkpoint.mount or EMPTY, checkpoint.job, checkpoint.container_name
    field = "subPathExpr" if in_expression else "subPath"
    path, written = str(mount.get("mountPath")), str(mount.get(field))
    known: dict[str, Value] = {}
    if subject.effective is not None:
        env = checkpoint.container.get("env") or ()
        known = evaluate(env, subject.effective, job, False, references(written))
    value = expand(written, known, False)
    text: dict[str, object] = {}
    if value.missing or value.per_pod or value.unknown or _looks_like_one(value.text):
        name = {"fieldRef": {"fieldPath": f"metadata.labels['{JOBSET_NAME_LABEL}']"}}
        text["env"] = [{"name": "TRAINJOB_NAME", "valueFrom": name}]
    expression = "$(TRAINJOB_NAME)" if text else written
    text["volumeMounts"] = [{"name": mount.get("name"), "mountPath": path, "subPathExpr": expression}]
    places = (place for _, own, place in job.written_mounts(container, path) if own.get(field))
    yield Finding(
        at=next(places, checkpoint.mount_origin()),
        problem=f'mount "{path}" keeps the text "{in_expression}" of subPathExpr: the kubelet expands $(VAR) alone'
        if in_expression
        else f'mount "{path}" keeps the text of subPath "{written}", since subPathExpr alone is expanded',
        fix=to_yaml(text),
        at_most=checkpoint.at_most,
        job=job.name,
        container=container,
        subject=field,
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
