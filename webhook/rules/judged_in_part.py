"""The object holds more than one review looks at, so a part of it was not judged.

Symptom: a TrainJob is refused because it or its runtime has very many jobs, volumes, mounts or claims.
Fix: leave out what the run does not need; ask whoever runs checkpoint-guard where it does need all of it.
Bad:
    volumes:    # and 20,000 more
    - name: ckpt
      persistentVolumeClaim:
        claimName: train-ckpt
Good:
    volumes:    # those that the containers mount
    - name: ckpt
      persistentVolumeClaim:
        claimName: train-ckpt
Reads: the number of jobs, volumes, mounts, overrides and claims; webhook/model/budget.py has the limits.
Silent when: everything was looked at. A program that was not read is program-not-read.
"""

from __future__ import annotations

from collections.abc import Iterator

from webhook.model.budget import CUT, FINDINGS, LOOKUPS, Cut
from webhook.model.finding import Finding, Origin, Severity
from webhook.model.rule import Rule
from webhook.model.subject import Subject


def check(subject: Subject) -> Iterator[Finding]:
    for cut in () if subject.effective is None else subject.effective.cut:
        yield _finding(subject, f"{cut.kept} of {cut.found} {_plural(cut)} were looked at", cut.what)
    if (asked := getattr(subject.cluster, "lookups", 0)) > LOOKUPS:
        yield _finding(subject, f"{LOOKUPS} of {asked} claims were looked up, which is the most", "claim")
    for rule in subject.memo.get(CUT, ()):
        yield _finding(subject, f'rule "{rule}" has more than {FINDINGS} findings', f"rule {rule}")


def _plural(cut: Cut) -> str:
    what, _, more = cut.what.partition(" ")
    return f"{what}s {more}".rstrip()


def _finding(subject: Subject, fact: str, what: str) -> Finding:
    # What is reviewed from files keeps nobody from submitting it, and what exists already must be able to go on.
    here = subject.request.operation == "UPDATE" or not subject.request.uid
    return Finding(
        Origin(subject.label, "spec", "spec"),
        fact,
        f"# fewer {what.partition(' ')[0]}s, in {subject.label} or its runtime; the limits are in docs/operations.md"
        if not what.startswith("rule ")
        else "# mend those that are told, then the rest is told",
        at_most=Severity.WARN if here else None,
        subject=what,
    )


RULE = Rule(
    id="judged-in-part",
    severity=Severity.DENY,
    why="what was not looked at may keep the run from coming back, and nothing would say so",
    check=check,
    on_runtime=Severity.DENY,
)
