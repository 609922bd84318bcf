"""An UPDATE of a runtime that loses what we had added gets it back.

Client-side apply sends whole lists, so applying the same file again drops our values; in Trainer 2.0 to 2.2 any change
of the pod template keeps the runtime's suspended runs from ever resuming.
Fills: what the record names, the old object has with the recorded value, and the new object lacks; the record itself.
Silent when: the user wrote another value, or changed ours before.
"""

from __future__ import annotations

from typing import Any, Final

from webhook.model.default import Context, Default
from webhook.model.draft import Draft
from webhook.model.entries import find
from webhook.model.injected import AddedToJob, read_added_to_runtime
from webhook.model.names import ANCESTOR_LABEL, INJECTED, TRAINER_STEP
from webhook.model.pod import Raw

TEMPLATE: Final = ("spec", "template", "spec")
JOBS: Final = (*TEMPLATE, "replicatedJobs")
POLICY: Final = (*TEMPLATE, "failurePolicy")
RECORD: Final = ("metadata", "annotations", INJECTED)


def apply(draft: Draft, context: Context) -> bool:
    """See above."""
    added = read_added_to_runtime(context.request.old, context.request.object)
    if added is None or context.request.old is None:
        return False
    old = Draft(context.request.old)
    edits = len(draft.patch)
    if draft.get(RECORD) is None and (text := old.get(RECORD)) is not None:
        draft.set(RECORD, text)
    if added.max_restarts is not None:
        _policy(draft, old.get(POLICY), added.max_restarts)
    for name, of_job in added.jobs.items():
        before, now = find(old.get(JOBS), name), find(draft.get(JOBS), name)
        if before is not None and now is not None:
            _job(draft, now, Draft(old.get((*JOBS, before))), of_job)
    return len(draft.patch) > edits


def _policy(draft: Draft, old: Any, recorded: int) -> None:
    """It is immutable, so it comes back just as it was or not at all."""
    if old is None or old.get("maxRestarts") != recorded:
        return
    now = draft.get(POLICY)
    if now is not None:
        if now.get("maxRestarts") is None:
            draft.set((*POLICY, "maxRestarts"), recorded)
    elif old.keys() <= {"maxRestarts", "restartStrategy"}:
        # The CRD itself fills in the strategy. What more there is was the user's, who now takes it away.
        draft.set(POLICY, old)


def _job(draft: Draft, index: int, old: Draft, added: AddedToJob) -> None:
    values: tuple[tuple[tuple[str, ...], int | str | None], ...] = (
        (("template", "spec", "backoffLimit"), added.backoff_limit),
        (
            ("template", "spec", "template", "spec", "terminationGracePeriodSeconds"),
            added.termination_grace_period_seconds,
        ),
        (("template", "metadata", "labels", ANCESTOR_LABEL), added.label),
    )
    for path, value in values:
        if value is None or old.get(path) != value or draft.get((*JOBS, index, *path)) is not None:
            continue
        if path[-1] == ANCESTOR_LABEL and not _may_carry(draft, index):
            continue
        draft.set((*JOBS, index, *path), value)


def _may_carry(draft: Draft, index: int) -> bool:
    """Trainer refuses the label on a job without container "node"; the user may have given it to another job, too."""
    for job in draft.get(JOBS):
        labels: Raw = ((job.get("template") or {}).get("metadata") or {}).get("labels") or {}
        if labels.get(ANCESTOR_LABEL) == TRAINER_STEP:
            return False
    return find(draft.get((*JOBS, index, "template", "spec", "template", "spec", "containers")), "node") is not None


DEFAULT: Final = Default("put_back_runtime", apply)
