"""A runtime without a restart budget gets one, since JobSet ends the run at the first failed Job otherwise.

Fills: ``failurePolicy.maxRestarts``, also beside what a ``failurePolicy`` says already. On UPDATE only where ``spec``
changes (controllers write finalizers) and neither state has a ``failurePolicy``: it is immutable once it is there.
Silent when: it is there, 0 included.
"""

from __future__ import annotations

from typing import Final

from webhook.model.default import Context, Default
from webhook.model.draft import Draft

POLICY: Final = ("spec", "template", "spec", "failurePolicy")
FIELD: Final = "maxRestarts"


def apply(draft: Draft, context: Context) -> bool:
    """See above."""
    wanted = context.policy.defaults.max_restarts
    there = draft.get(POLICY)
    if wanted <= 0 or (there is not None and there.get(FIELD) is not None):
        return False
    if not draft.get(("spec", "template", "spec", "replicatedJobs")):
        return False
    if context.request.operation == "UPDATE":
        old = Draft(context.request.old or {})
        if there is not None or old.get(POLICY) is not None or draft.get(("spec",)) == old.get(("spec",)):
            return False
    if there is None:
        draft.set(POLICY, {FIELD: wanted})
    else:
        draft.set((*POLICY, FIELD), wanted)
    context.max_restarts_added = wanted
    return True


DEFAULT: Final = Default("restart_budget", apply)
