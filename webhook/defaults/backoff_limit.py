"""The Jobs of a runtime that train get ``backoffLimit: 0``, so that a failed rank restarts all of them through JobSet.

Fills: ``backoffLimit`` of each job that trains.
Silent when: it is there; restarts are in place, which needs the highest limit; ``backoffLimitPerIndex`` is there, which
says that ranks are meant to retry alone.
"""

from __future__ import annotations

from typing import Final

import msgspec

from webhook.model.default import Context, Default
from webhook.model.draft import Draft
from webhook.model.injected import AddedToJob

TEMPLATE: Final = ("spec", "template", "spec")


def apply(draft: Draft, context: Context) -> bool:
    """See above."""
    if draft.get((*TEMPLATE, "failurePolicy", "restartStrategy")) == "InPlaceRestart":
        return False
    wanted = context.policy.defaults.backoff_limit
    changed = False
    trains = {job.name for job in context.build(draft.object).jobs if job.trains}
    for index, raw in enumerate(draft.get((*TEMPLATE, "replicatedJobs")) or ()):
        name = raw.get("name") or ""
        spec = (raw.get("template") or {}).get("spec") or {}
        if name not in trains or "backoffLimitPerIndex" in spec or spec.get("backoffLimit") is not None:
            continue
        draft.set((*TEMPLATE, "replicatedJobs", index, "template", "spec", "backoffLimit"), wanted)
        before = context.added_to_jobs.get(name, AddedToJob())
        context.added_to_jobs[name] = msgspec.structs.replace(before, backoff_limit=wanted)
        changed = True
    return changed


DEFAULT: Final = Default("backoff_limit", apply)
