"""The Jobs of a runtime that train get ``backoffLimit: 0``, so that a failed rank restarts all of them through JobSet.

With 0 a run whose node is lost waits until that node is back or declared gone; with retries, a run of one pod gets a
new one elsewhere. Policy ``defaults.backoffLimit``: ``multi-node`` fills in 0 where a retry of one pod helps nobody,
since the runtime's own ``numNodes`` is above 1; ``keep`` fills in nothing.

Fills: ``backoffLimit`` of each job that trains.
Silent when: it is there; the policy leaves it as it is; restarts are in place, which needs the highest limit;
``backoffLimitPerIndex`` is there, which says that ranks are meant to retry alone.
"""

from __future__ import annotations

from typing import Final

import msgspec

from webhook.model.default import Context, Default
from webhook.model.draft import Draft
from webhook.model.injected import AddedToJob
from webhook.model.policy import RetryChoice

TEMPLATE: Final = ("spec", "template", "spec")


def apply(draft: Draft, context: Context) -> bool:
    """See above."""
    if draft.get((*TEMPLATE, "failurePolicy", "restartStrategy")) == "InPlaceRestart":
        return False
    wanted = wanted_limit(context.policy.defaults.backoff_limit, draft.get(("spec", "mlPolicy", "numNodes")))
    if wanted is None:
        return False
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


def wanted_limit(chosen: int | RetryChoice, nodes: object) -> int | None:
    """What a policy asks for in a runtime of so many nodes; None for nothing."""
    if isinstance(chosen, int):
        return chosen
    return 0 if chosen == "multi-node" and isinstance(nodes, int) and nodes > 1 else None


DEFAULT: Final = Default("backoff_limit", apply)
