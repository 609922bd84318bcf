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
from webhook.model.finding import Judged, Origin, Severity
from webhook.model.injected import Added
from webhook.model.printable import shell_word
from webhook.model.release import OVERRIDE_FIELDS, Release

ENV: Final = ("spec", "trainer", "env")
SUSPEND: Final = ("spec", "suspend")
RULE: Final = "wedging-update"


def apply(draft: Draft, context: Context) -> bool:
    """See above."""
    added = context.recorded
    if added is None or context.request.old is None:
        return False
    old = Draft(context.request.old)
    volumes = _volumes_wanted(draft, added)
    if volumes:
        # Variables that name a directory on a volume that does not come with them would be worse than none.
        if not _overrides_may_change(draft, old, context.release):
            _warn(draft, context)
            return False
        if not place(draft, context.release, added.targets, added.volumes, added.mounts):
            return False
    variables = bool(added.env) and _trainer_may_change(old, context.release) and _env(draft, added)
    return volumes or variables


def _trainer_may_change(old: Draft, release: Release) -> bool:
    """From 2.2 ``spec.trainer`` is immutable once it is there."""
    return not release.at_least(Release.V2_2) or old.get(ENV[:-1]) is None


def _overrides_may_change(draft: Draft, old: Draft, release: Release) -> bool:
    """Only while the run is suspended (2.2 and later: before or after the UPDATE) and no pod of it is active."""
    suspended = draft.get(SUSPEND) is True
    if release.at_least(Release.V2_2):
        suspended = suspended or old.get(SUSPEND) is True
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


def _volumes_wanted(draft: Draft, added: Added) -> bool:
    """Whether volumes were lost, and the user has not mounted others in their place.

    Whatever override field the object has is looked at: it is one that is served, and the release may be a guess.
    """
    spec = draft.get(("spec",)) or {}
    fields = [field for field in OVERRIDE_FIELDS if field in spec]
    present: set[tuple[str, str]] = set()
    for field in fields:
        for pod in pods_of(spec, field):
            for job in pod.jobs:
                present.update((job, volume.get("name") or "") for volume in pod.raw.get("volumes") or ())
    if {(job, volume["name"]) for job in added.targets for volume in added.volumes} <= present:
        return False
    return not any(
        mounted_elsewhere(spec, field, (job,), container, mount)
        for field in fields
        for job, target in added.targets.items()
        for container in target.containers
        for mount in added.mounts
    )


def _warn(draft: Draft, context: Context) -> None:
    """2.0 and 2.1 refuse the volume in the UPDATE that resumes, and without it the JobSet stays suspended."""
    if draft.get(SUSPEND) is True:
        return
    request = context.request
    field = f"spec.{context.release.override_field}"
    name, namespace = shell_word(request.name), shell_word(request.namespace or "default")
    suspend = f"kubectl patch trainjob {name} -n {namespace} --type merge -p"
    context.findings.append(
        Judged(
            RULE,
            Severity.WARN,
            Origin(f"{request.kind}/{request.name}", field, field),
            "the checkpoint volume was lost and comes back only while the run is suspended",
            "JobSet refuses pods without the volume that it has, so the run does not resume and cannot be suspended",
            f'{suspend} \'{{"spec":{{"suspend":true}}}}\'\n{suspend} \'{{"spec":{{"suspend":false}}}}\'',
            subject="template",
        )
    )


DEFAULT: Final = Default("recover", apply)
