"""The pods of a runtime that train get a grace period that is long enough to write a last checkpoint.

Fills: ``terminationGracePeriodSeconds`` of each job that trains.
Silent when: it is there, however short.
"""

from __future__ import annotations

from typing import Final

import msgspec

from webhook.model.default import Context, Default
from webhook.model.draft import Draft
from webhook.model.injected import AddedToJob

JOBS: Final = ("spec", "template", "spec", "replicatedJobs")
FIELD: Final = "terminationGracePeriodSeconds"


def apply(draft: Draft, context: Context) -> bool:
    """See above."""
    wanted = context.policy.defaults.termination_grace_period_seconds
    changed = False
    trains = {job.name for job in context.build(draft.object).jobs if job.trains}
    for index, raw in enumerate(draft.get(JOBS) or ()):
        name = raw.get("name") or ""
        path = (*JOBS, index, "template", "spec", "template", "spec", FIELD)
        if name not in trains or draft.get(path) is not None:
            continue
        draft.set(path, wanted)
        before = context.added_to_jobs.get(name, AddedToJob())
        context.added_to_jobs[name] = msgspec.structs.replace(before, termination_grace_period_seconds=wanted)
        changed = True
    return changed


DEFAULT: Final = Default("grace_period", apply)
