"""No checkpoint directory is declared.

Symptom: nobody knows where the run saves, or whether it does.
Fix: say where the checkpoints go, on a mount of a claim.
Bad:
    trainer:
      command: [torchrun, train.py]
Good:
    trainer:
      command: [torchrun, train.py]
      env:
      - name: CKPT_DIR
        value: /mnt/ckpt/digits
Reads: the directories found in the containers that train; the namespace's label checkpoint-guard.io/require.
Silent when: one is declared, or a framework's flag names one; there is no runtime to look at; nothing trains.
"""

from __future__ import annotations

from collections.abc import Iterator

from webhook.model.finding import Finding, Severity
from webhook.model.paste import to_yaml
from webhook.model.pod import DirectoryStatus, EffectiveJob
from webhook.model.rule import Rule
from webhook.model.sign import NOT_PLAIN
from webhook.model.subject import Subject


def check(subject: Subject) -> Iterator[Finding]:
    effective = subject.effective
    if effective is None or any(found.status is not DirectoryStatus.NONE for found in subject.checkpoints):
        return
    for job in effective.jobs:
        if job.trains:
            yield _finding(subject, job)
            return


def _finding(subject: Subject, job: EffectiveJob) -> Finding:
    variables = subject.policy.directory.variables
    containers = job.training_containers()
    name = str(containers[0].get("name") or "") if containers else ""
    env = [{"name": variables[0], "value": f"{subject.policy.defaults.path}/<run>"}]
    if job.receives_trainer:
        fix = to_yaml({"spec": {"trainer": {"env": env}}})
    else:
        fix = to_yaml({"env": env}) + f'\n# in container "{name}" of job "{job.name}" of the runtime'
    demanded = f', and namespace "{subject.namespace}" requires one' if subject.require else ""
    return Finding(
        at=job.container_origin(name),
        problem=f'container "{name}" of job "{job.name}" has no {" or ".join(variables)}{demanded}',
        fix=fix,
        required=subject.require,
        job=job.name,
        container=name,
        subject="directory",
    )


RULE = Rule(
    id="undeclared-checkpoint",
    severity=Severity.AUDIT,
    why="nothing says where checkpoints go, so whether the run can resume is not known",
    check=check,
    when=NOT_PLAIN,
)
