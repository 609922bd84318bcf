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
from functools import partial
from typing import Any, Final

from webhook.effective.overrides import overrides_of
from webhook.model.finding import Finding, Severity
from webhook.model.paste import shown_value, to_yaml
from webhook.model.pod import Layer, Raw
from webhook.model.rule import Rule
from webhook.model.sign import CONTAINERS
from webhook.model.subject import Subject

_INITIALIZERS: Final = {"dataset-initializer": "dataset", "model-initializer": "model"}


def check(subject: Subject) -> Iterator[Finding]:
    if not subject.is_trainjob or not subject.spec.get(subject.release.override_field):
        return
    own = subject.label
    for job, layers in _layers(subject):
        for layer in layers:
            if layer.is_trainer or layer.object != own:
                continue
            for index, container in enumerate(layer.pod.get("containers") or ()):
                env = container.get("env")
                if not env:
                    continue
                name = container.get("name") or ""
                if name == "node" or name in _INITIALIZERS:
                    listed = ", ".join(f'"{variable.get("name")}"' for variable in env[:4])
                    more = f" and {len(env) - 4} more" if len(env) > 4 else ""
                    yield Finding(
                        layer.at(f"containers[{index}].env", short=f"env of {name}"),
                        f'an override sets {listed}{more} on container "{name}" of job "{job}"',
                        partial(_fix, subject, job, name, env),
                        job=job,
                        container=name,
                        subject="env",
                    )


def _layers(subject: Subject) -> Iterator[tuple[str, Sequence[Layer]]]:
    """What each job is made of; of an unknown runtime the overrides alone."""
    if subject.effective is not None and subject.effective.jobs:
        for job in subject.effective.jobs:
            yield job.name, job.layers
    else:
        for name, found in overrides_of(subject.spec, subject.label, subject.release).items():
            yield name, [override.layer for override in found]


def _fix(subject: Subject, job: str, container: str, env: Sequence[Raw]) -> str:
    return f"{_where_it_belongs(subject, job, container, env)}\n# and out of {subject.release.override_field}"


def _where_it_belongs(subject: Subject, job: str, container: str, env: Sequence[Raw]) -> str:
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
    if not variable.get("value"):
        return dict(variable)
    return {**variable, "value": shown_value(str(variable.get("name")), variable["value"])}


RULE = Rule(
    id="env-in-override",
    severity=Severity.DENY,
    why="Trainer refuses the TrainJob, and its message does not say where the variables belong",
    check=check,
    when=CONTAINERS,
    reads_pods_only=True,
)
