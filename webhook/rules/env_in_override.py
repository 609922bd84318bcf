"""An override sets variables on `node` or on an initializer, and Trainer refuses that without saying where they belong.

Symptom: Trainer refuses the TrainJob: env of this container may not be set in an override.
Fix: put the variables of node into spec.trainer.env, those of an initializer into spec.initializer.
Bad:
    podTemplateOverrides:
    - targetJobs: [{name: node}]
      spec:
        containers:
        - name: node
          env:
          - {name: CKPT_DIR, value: /mnt/ckpt}
Good:
    trainer:
      env:
      - {name: CKPT_DIR, value: /mnt/ckpt}
Reads: `containers[].env` of every override in the field that the release serves.
Silent when: the variables are on another container, on an init container, or in `spec.trainer.env`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from webhook.effective.overrides import overrides_of
from webhook.model.finding import Finding, Severity
from webhook.model.paste import to_yaml
from webhook.model.pod import Raw
from webhook.model.rule import Rule
from webhook.model.subject import Subject

_INITIALIZERS: Final = {"dataset-initializer": "dataset", "model-initializer": "model"}
_SECRET: Final = ("KEY", "TOKEN", "SECRET", "PASSW", "CREDENTIAL")


def check(subject: Subject) -> Iterator[Finding]:
    if not subject.is_trainjob or not subject.spec.get(subject.release.override_field):
        return
    for job, overrides in overrides_of(subject.spec, subject.label, subject.release).items():
        for override in overrides:
            for index, container in enumerate(override.layer.pod.get("containers") or ()):
                name, env = container.get("name") or "", container.get("env")
                if env and (name == "node" or name in _INITIALIZERS):
                    listed = ", ".join(f'"{variable.get("name")}"' for variable in env[:4])
                    more = f" and {len(env) - 4} more" if len(env) > 4 else ""
                    yield Finding(
                        override.layer.at(f"containers[{index}].env", short=f"env of {name}"),
                        f'an override sets {listed}{more} on container "{name}" of job "{job}"',
                        _fix(subject, job, name, env),
                        job=job,
                        container=name,
                        subject="env",
                    )


def _fix(subject: Subject, job: str, container: str, env: Sequence[Raw]) -> str:
    variables = [_variable(variable) for variable in env]
    if part := _INITIALIZERS.get(container):
        return to_yaml({"spec": {"initializer": {part: {"env": variables}}}})
    built = subject.effective.job(job) if subject.effective is not None else None
    if subject.effective is None or built is None or built.receives_trainer:
        return to_yaml({"spec": {"trainer": {"env": variables}}})
    place = f"{subject.effective.runtime_label} {built.job_origin.field}.template.spec.containers, container node"
    return f"# spec.trainer.env does not reach job {job}: in {place}\n{to_yaml({'env': variables})}"


def _variable(variable: Raw) -> dict[str, Any]:
    """The variable as written, without a value that may be a secret: messages end up in logs."""
    shown = dict(variable)
    name, value = str(variable.get("name") or ""), str(variable.get("value") or "")
    if len(value) > 80 or (any(word in name.upper() for word in _SECRET) and value):
        shown["value"] = "<as it is>"
    return shown


RULE = Rule(
    id="env-in-override",
    severity=Severity.DENY,
    why="Trainer refuses the TrainJob, and its message does not say where the variables belong",
    check=check,
)
