"""What was added to a TrainJob and lost while nobody answered comes back at the next UPDATE that may bring it.

JobSet refused to take it from the pods, so the JobSet still has it: with it back the TrainJob and its JobSet agree
again, and the run can be suspended and resumed.
Fills: what the record names and neither state of the object has, where the API server and Trainer let it be added.
Silent when: the field is immutable, or may not change now; the user has written something else at its place.
"""

from __future__ import annotations

from typing import Final

from webhook.model.default import Context, Default
from webhook.model.draft import Draft
from webhook.model.entries import find, mounted_elsewhere, place, pods_of
from webhook.model.injected import Added
from webhook.model.release import Release

ENV: Final = ("spec", "trainer", "env")


def apply(draft: Draft, context: Context) -> bool:
    """See above."""
    added = context.recorded
    if added is None or context.request.old is None:
        return False
    old = Draft(context.request.old)
    changed = False
    if added.env and _trainer_may_change(old, context.release):
        changed = _env(draft, added)
    if added.volumes and added.targets and _overrides_may_change(draft, old, context.release):
        changed = _volumes(draft, context.release, added) or changed
    return changed


def _trainer_may_change(old: Draft, release: Release) -> bool:
    """From 2.2 ``spec.trainer`` is immutable once it is there."""
    return not release.at_least(Release.V2_2) or old.get(ENV[:-1]) is None


def _overrides_may_change(draft: Draft, old: Draft, release: Release) -> bool:
    """Only while the run is suspended (2.2 and later: before or after the UPDATE) and no pod of it is active."""
    suspended = draft.get(("spec", "suspend")) is True
    if release.at_least(Release.V2_2):
        suspended = suspended or old.get(("spec", "suspend")) is True
    return suspended and not any(job.get("active") for job in draft.get(("status", "jobsStatus")) or ())


def _env(draft: Draft, added: Added) -> bool:
    changed = False
    for index, variable in enumerate(added.env):
        env = draft.get(ENV)
        if find(env, variable["name"]) is not None:
            continue
        # One refers to another, so it has to stand before those that follow it in the record.
        after = [at for later in added.env[index + 1 :] if (at := find(env, later["name"])) is not None]
        draft.insert(ENV, variable, min(after, default=None))
        changed = True
    return changed


def _volumes(draft: Draft, release: Release, added: Added) -> bool:
    field = release.override_field
    spec = draft.get(("spec",)) or {}
    present: set[tuple[str, str]] = set()
    for pod in pods_of(spec, field):
        for job in pod.jobs:
            present.update((job, volume.get("name") or "") for volume in pod.raw.get("volumes") or ())
    wanted = {(job, volume["name"]) for job in added.targets for volume in added.volumes}
    if wanted <= present:
        return False
    for job, target in added.targets.items():
        for container in target.containers:
            for mount in added.mounts:
                if mounted_elsewhere(spec, field, (job,), container, mount):
                    return False
    return place(draft, release, added.targets, added.volumes, added.mounts)


DEFAULT: Final = Default("recover", apply)
