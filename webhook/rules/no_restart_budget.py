"""Nothing restarts the run: the first failed Job ends it.

Symptom: the first failed pod, or the first drained node, ends the run: the TrainJob is Failed.
Fix: give the JobSet restarts, in the runtime: a TrainJob cannot carry them.
Bad:
    template:
      spec:
        replicatedJobs: []
Good:
    template:
      spec:
        failurePolicy:
          maxRestarts: 3
        replicatedJobs: []
Reads: `failurePolicy.maxRestarts` of the runtime, and the rule that answers an ordinary failure. Where the TrainJob or
    its namespace declares a path by annotation, retries are wanted: a denial.
Silent when: the runtime is unknown; no job trains; a rule restarts without counting; a rule ends the run
    (restart-ruled-out).
"""

from __future__ import annotations

from collections.abc import Iterator

from webhook.effective.restarts import ORDINARY, first_rule, restarts_left
from webhook.model.finding import Finding, Origin, Severity
from webhook.model.names import PATH
from webhook.model.printable import shell_word
from webhook.model.rule import Rule
from webhook.model.sign import RESTARTS
from webhook.model.subject import Subject


def check(subject: Subject) -> Iterator[Finding]:
    effective = subject.effective
    if effective is None:
        return
    policy = effective.failure_policy
    if policy is not None and (policy.get("maxRestarts") or 0) > 0:
        return
    job = next((job for job in effective.jobs if job.trains), None)
    if job is None or restarts_left(policy, job.name) > 0:
        return
    answer = first_rule(policy, job.name, ORDINARY)
    if answer is not None and answer[1].get("action") == "FailJobSet":
        return
    label = effective.runtime_label
    kind, _, name = label.partition("/")
    wanted = subject.policy.defaults.max_restarts
    field = "failurePolicy" if policy is None else "failurePolicy.maxRestarts"
    if policy is None:
        problem = "failurePolicy is absent, so maxRestarts is 0"
    else:
        problem = "maxRestarts is 0" if "maxRestarts" in policy else "failurePolicy has no maxRestarts, so it is 0"
    yaml = f"failurePolicy:\n  maxRestarts: {wanted}"
    scope = f" -n {shell_word(subject.namespace)}" if kind == "TrainingRuntime" else ""
    if not subject.is_trainjob and subject.request.operation == "CREATE":
        fix = yaml
    elif policy is None:
        patch = f'{{"spec":{{"template":{{"spec":{{"failurePolicy":{{"maxRestarts":{wanted}}}}}}}}}}}'
        fix = f"kubectl patch {kind.lower()} {shell_word(name)}{scope} --type merge -p '{patch}'"
    else:
        fix = (
            f"{yaml}\n# failurePolicy cannot be changed in place: "
            f"kubectl delete {kind.lower()} {shell_word(name)}{scope}, then create it anew"
        )
    path = subject.declared_path()
    yield Finding(
        Origin(label, f"spec.template.spec.{field}", field),
        problem,
        fix,
        raised=None if path is None else Severity.DENY,
        subject="failurePolicy",
        why=None
        if path is None
        else f'annotation {PATH} "{path}" asks for a run that comes back, and the first failed Job ends it',
    )


RULE = Rule(
    id="no-restart-budget",
    severity=Severity.WARN,
    why="the first failed Job ends the run, and nobody starts it again from its last checkpoint",
    check=check,
    on_runtime=Severity.DENY,
    when=RESTARTS,
)
