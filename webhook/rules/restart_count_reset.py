"""The finished JobSet is deleted after its TTL, and Trainer makes a new one with a fresh restart count.

Symptom: a run that has used up its restarts begins again, and again, after its time to live.
Fix: leave ttlSecondsAfterFinished out, or delete finished TrainJobs yourself.
Bad:
    template:
      spec:
        ttlSecondsAfterFinished: 3600
Good:
    template:
      spec:
        failurePolicy: {maxRestarts: 3}    # and no ttlSecondsAfterFinished
Reads: `ttlSecondsAfterFinished` of the runtime's JobSet and the Trainer release.
Silent when: no TTL is set; Trainer 2.0, which leaves a finished TrainJob alone; 2.4, where `Failed` is
    final.
"""

from __future__ import annotations

from collections.abc import Iterator

from webhook.model.finding import Finding, Origin, Severity
from webhook.model.printable import shell_word
from webhook.model.release import Release
from webhook.model.rule import Rule
from webhook.model.sign import TTL
from webhook.model.subject import Subject

_FIELD = "ttlSecondsAfterFinished"


def check(subject: Subject) -> Iterator[Finding]:
    effective = subject.effective
    if effective is None or (ttl := effective.jobset_spec.get(_FIELD)) is None:
        return
    # The controller of 2.0 returns at once for a finished TrainJob; that of 2.1 never looks; 2.2 and later look after
    # they have taken the Failed condition away, which 2.4 does no more.
    if effective.release is Release.V2_0 or effective.release.at_least(Release.V2_4):
        return
    which = "a finished" if effective.release is Release.V2_1 else "a failed"
    kind, _, name = effective.runtime_label.partition("/")
    scope = f" -n {shell_word(subject.namespace)}" if kind == "TrainingRuntime" else ""
    remove = f'[{{"op":"remove","path":"/spec/template/spec/{_FIELD}"}}]'
    if subject.is_trainjob or subject.request.operation == "UPDATE":
        fix = f"kubectl patch {kind.lower()} {shell_word(name)}{scope} --type json -p '{remove}'"
    else:
        fix = f"# leave out {_FIELD}: {ttl}"
    yield Finding(
        Origin(effective.runtime_label, f"spec.template.spec.{_FIELD}", _FIELD),
        f"Trainer {effective.release.value} makes {which} run's JobSet anew {ttl} s after its end",
        fix,
        subject=_FIELD,
    )


RULE = Rule(
    id="restart-count-reset",
    severity=Severity.WARN,
    why="the run that used up its restarts starts again with a count of 0, so maxRestarts never ends it",
    check=check,
    on_runtime=Severity.DENY,
    when=TTL,
)
