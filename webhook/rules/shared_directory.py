"""Another unfinished TrainJob writes to the same directory of the same claim.

Symptom: a run resumes from another run's checkpoint, or two runs overwrite each other's files.
Fix: give each run a directory of its own.
Bad:
    env:
    - name: CKPT_DIR
      value: /mnt/ckpt
Good:
    env:
    - name: TRAINJOB_NAME
      valueFrom:
        fieldRef:
          fieldPath: metadata.labels['jobset.sigs.k8s.io/jobset-name']
    - name: CKPT_DIR
      value: /mnt/ckpt/$(TRAINJOB_NAME)
Reads: claim, subPath and directory of this run and of the unfinished TrainJobs of the namespace.
Silent when: no other run is known to write there, or the directory is known to a running pod alone; this run is
    finished itself.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from functools import partial

from webhook.model.cluster import Gap, RunDirectory
from webhook.model.finding import Finding, Severity
from webhook.model.paste import to_yaml
from webhook.model.pod import Checkpoint
from webhook.model.printable import shell_word
from webhook.model.rule import Rule
from webhook.model.subject import Subject
from webhook.storage import path_on_claim


def check(subject: Subject) -> Iterator[Finding]:
    if subject.claims_elsewhere:
        return
    told: set[tuple[str, str]] = set()
    for checkpoint in subject.checkpoints:
        claim = checkpoint.storage.claim_name
        if claim is None or (path := path_on_claim(checkpoint)) is None or (claim, path) in told:
            continue
        named, count = _others(subject, claim, path)
        if count and not subject.finished:
            told.add((claim, path))
            more = f" and {count - len(named)} more" if count > len(named) else ""
            plural = "s" if count == 1 else ""
            names = " and ".join(f'"{name}"' for name in named)
            runs = "other TrainJob writes" if count == 1 else "other TrainJobs write"
            yield Finding(
                at=checkpoint.directory_origin(),
                problem=(
                    f'TrainJob {names}{more} write{plural} to directory "{checkpoint.directory}" of claim "{claim}" too'
                ),
                fix=partial(_fix, subject, checkpoint),
                private=f"TrainJob {names}{more}",
                counted=(
                    f'{count} {runs} to directory "{checkpoint.directory}" of claim "{claim}" too',
                    partial(_listing, subject, checkpoint),
                ),
                at_most=checkpoint.at_most,
                job=checkpoint.job.name,
                container=checkpoint.container_name,
                subject=claim,
            )


def _others(subject: Subject, claim: str, path: str) -> tuple[list[str], int]:
    """The first two other runs by name, and how many there are; looks at no more of a long list than it must."""
    known = subject.cluster.directories(subject.namespace, claim, path)
    if isinstance(known, Gap) or not known:
        return [], 0
    # The view may hold this very object; from files one with generateName goes by that.
    name = subject.request.name
    at = bisect_left(known, name, key=_name)
    itself = at < len(known) and known[at].run.name == name
    return [other.run.name for other in known[:3] if other.run.name != name][:2], len(known) - itself


def _name(directory: RunDirectory) -> str:
    return directory.run.name


def _listing(subject: Subject, checkpoint: Checkpoint) -> str:
    listing = f"# which they are, with your own rights: kubectl get trainjobs -n {shell_word(subject.namespace)}"
    return f"{_fix(subject, checkpoint)}\n{listing}"


def _fix(subject: Subject, checkpoint: Checkpoint) -> str:
    name = (subject.request.object.get("metadata") or {}).get("name") or "<run>"
    env = [{"name": checkpoint.variable, "value": f"{(checkpoint.directory or '').rstrip('/')}/{name}"}]
    if checkpoint.variable is None:
        return f"{checkpoint.flag or 'directory'}: {env[0]['value']}"
    return to_yaml({"spec": {"trainer": {"env": env}}} if checkpoint.job.receives_trainer else {"env": env})


RULE = Rule(
    id="shared-directory",
    severity=Severity.WARN,
    why="the runs delete and overwrite each other's checkpoints, and one may resume from the other's",
    check=check,
)
