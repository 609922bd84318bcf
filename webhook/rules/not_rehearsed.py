"""The run was never rehearsed as it is, or its rehearsal did not resume. Asked where the policy names this rule.

Symptom: the first preemption, after days, shows that the program does not come back.
Fix: ckptguard rehearse --write job.yaml -- COMMAND, which notes the verdict in annotation
    checkpoint-guard.io/rehearsed.
Bad:
    metadata:
      name: digits
Good:
    metadata:
      name: digits
      annotations:
        checkpoint-guard.io/rehearsed: b96fb0a37ca0ef64;verdict=resumed;at=2026-12-01
Reads: the annotation, and image, command, arguments, variables and runtime of the containers that train.
Silent when: the policy does not set it (rules: {not-rehearsed: warn}); no more pods train than the policy lets go
    unrehearsed (limits: {unrehearsedNodes: 4}); the pods are not known; the run is over, or a rehearsal itself. It is
    advice and no proof: whoever writes the file can write the annotation.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from webhook.effective.rehearsed import fingerprint, read_annotation
from webhook.model.finding import Finding, Origin, Severity
from webhook.model.names import REHEARSAL_OF, REHEARSED
from webhook.model.rule import Rule
from webhook.model.sign import REHEARSALS
from webhook.model.subject import Subject

_ID: Final = "not-rehearsed"
_FIX: Final = "ckptguard rehearse --write <file> -- <the command that trains>"


def check(subject: Subject) -> Iterator[Finding]:
    if _ID not in subject.policy.rules or not subject.is_trainjob or subject.effective is None or subject.finished:
        return
    if subject.effective.training_pods <= subject.policy.limits.unrehearsed_nodes:
        return
    wanted = fingerprint(subject.effective, subject.policy.directory.variables)
    if wanted is None:
        return
    annotations = (subject.request.object.get("metadata") or {}).get("annotations") or {}
    if annotations.get(REHEARSAL_OF):
        return  # a rehearsal cannot have been rehearsed
    text = annotations.get(REHEARSED)
    if not isinstance(text, str) or not text:
        yield _finding(subject, "no rehearsal of this run is noted")
        return
    noted = read_annotation(text)
    when = f" on {noted.at}" if noted.at else ""
    if noted.fingerprint != wanted:
        yield _finding(subject, f"what was rehearsed{when} had another image, command, argument, variable or runtime")
    elif noted.verdict != "resumed":
        yield _finding(subject, f'the rehearsal{when} said "{noted.verdict or "nothing"}", and not "resumed"')


def _finding(subject: Subject, problem: str) -> Finding:
    at = Origin(subject.label, f'metadata.annotations["{REHEARSED}"]', f"annotation {REHEARSED}")
    return Finding(at=at, problem=problem, fix=_FIX, subject="rehearsal")


RULE = Rule(
    id=_ID,
    severity=Severity.WARN,
    why="whether the program comes back is found out at the first interruption, after days",
    check=check,
    when=REHEARSALS,
)
