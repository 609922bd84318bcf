"""An UPDATE that loses the ``runtimePatches`` entry of a listed manager (Kueue) gets it back.

Without its entry Kueue never admits the run again, and Trainer refuses the UPDATE of a running one; a client that sends
its whole list does not know of it.
Fills: the entry as the old object has it, at its old index.
"""

from __future__ import annotations

from typing import Final

from webhook.model.default import Context, Default
from webhook.model.draft import Draft

ENTRIES: Final = ("spec", "runtimePatches")


def apply(draft: Draft, context: Context) -> bool:
    """See above."""
    managers = context.policy.restore_managers
    if not managers or context.request.old is None:
        return False
    changed = False
    for index, entry in enumerate((context.request.old.get("spec") or {}).get(ENTRIES[-1]) or ()):
        manager = entry.get("manager")
        if manager in managers and all(now.get("manager") != manager for now in draft.get(ENTRIES) or ()):
            draft.insert(ENTRIES, entry, index)
            changed = True
    return changed


DEFAULT: Final = Default("restore_managers", apply)
