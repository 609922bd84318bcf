"""The run restarts more often than the policy allows, so a broken script loops.

Symptom: a script with a mistake in it restarts for days and holds its nodes.
Fix: set a number of restarts that faults of the hardware can reasonably need.
Bad:
    failurePolicy:
      maxRestarts: 1000
Good:
    failurePolicy:
      maxRestarts: 5
Reads: `failurePolicy.maxRestarts` and the rule that answers an ordinary failure; `limits.maxRestarts` of the policy.
Silent when: no job trains; restarts without a count answer other reasons than an ordinary failure.
"""

from __future__ import annotations

from collections.abc import Iterator

from webhook.effective.restarts import ORDINARY, UNBOUNDED, first_rule
from webhook.model.finding import Finding, Measure, Origin, Severity
from webhook.model.rule import Rule
from webhook.model.sign import RESTARTS
from webhook.model.subject import Subject


def check(subject: Subject) -> Iterator[Finding]:
    effective = subject.effective
    if effective is None or (policy := effective.failure_policy) is None:
        return
    ceiling = subject.policy.limits.max_restarts
    stored = subject.is_trainjob or subject.request.operation == "UPDATE"
    anew = "\n# failurePolicy cannot be changed in place: delete the runtime and create it anew" if stored else ""
    path = "spec.template.spec.failurePolicy"
    count = policy.get("maxRestarts") or 0
    measure = Measure(count, "restarts", ceiling=ceiling)
    if not measure.kept:
        yield Finding(
            Origin(effective.runtime_label, f"{path}.maxRestarts", "failurePolicy.maxRestarts"),
            f"maxRestarts is {count}, and the policy's ceiling is {ceiling}",
            f"failurePolicy:\n  maxRestarts: {ceiling}{anew}",
            subject="maxRestarts",
            measure=measure,
        )
    if not policy.get("rules"):
        return
    for job in effective.jobs:
        if job.trains and (found := first_rule(policy, job.name, ORDINARY)) and found[1].get("action") in UNBOUNDED:
            index, rule = found
            yield Finding(
                Origin(effective.runtime_label, f"{path}.rules[{index}].action", f"failurePolicy.rules[{index}]"),
                f'rule "{rule.get("name") or index}" restarts job "{job.name}" after any failure without counting',
                f"action: RestartJobSet{anew}",
                job=job.name,
                subject="rules",
            )


RULE = Rule(
    id="unbounded-restarts",
    severity=Severity.WARN,
    why="a script that fails at each start holds its nodes for ever, and no checkpoint gets any further",
    check=check,
    on_runtime=Severity.DENY,
    when=RESTARTS,
)
