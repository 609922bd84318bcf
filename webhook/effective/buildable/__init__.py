"""Whether JobSet and the Job API will take what Trainer builds: they refuse it after admission, in silence.

Read from kubernetes 1.36.3 and from JobSet 0.8.2 to 0.12.0. What an older API server refuses and 1.36 takes is not
reported, and what Trainer's own webhook and the CRDs refuse is left to them.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Any, Final

from webhook.effective.buildable.containers import is_foreign, parts_of_containers, refused_containers
from webhook.effective.buildable.jobsets import refused_coordinator, refused_jobset, refused_names, refused_templates
from webhook.effective.buildable.metadata import refused_metadata
from webhook.effective.buildable.mounts import Paste, no_paste
from webhook.effective.buildable.pods import depends_on_pods, refused_job, refused_pod
from webhook.effective.buildable.refusal import CONTROLLER, JOB_API, JOBSET, Refusal
from webhook.effective.buildable.volumes import parts_of_volumes, refused_volumes, sources_of
from webhook.effective.template import Prepared
from webhook.model.pod import EffectiveSet
from webhook.model.release import Release

__all__ = ["CONTROLLER", "Refusal", "find_refusals", "is_foreign", "sources_of"]


def find_refusals(effective: EffectiveSet, paste: Paste, prepared: dict[Any, Any] | None = None) -> Iterator[Refusal]:
    """Every reason to refuse, besides volumes with two sources and ``podFailurePolicy`` beside ``OnFailure``.

    ``paste`` turns a job's name and PodSpec fields into text to paste. ``prepared`` is the runtime's cache.
    """
    if (stopped := effective.stopped) is not None:
        yield Refusal(CONTROLLER, stopped.at, stopped.problem, stopped.fix, subject="controller")
    sound = _sound_parts(effective, prepared)
    if id(effective.jobset_spec) not in sound:
        yield from refused_jobset(effective)
    for part in effective.metadata:
        yield from refused_metadata(JOBSET, part.origin, part.of, part.raw)
    if effective.trainjob is not None:
        yield from refused_names(effective)
        if effective.jobset_spec.get("coordinator"):
            yield from refused_coordinator(effective)
    templates: frozenset[str] = frozenset()
    if effective.jobset_spec.get("volumeClaimPolicies") and effective.release.at_least(Release.V2_2):
        yield from refused_templates(effective)
        templates = _template_names(effective)
    for job in effective.jobs:
        if id(job) in sound:
            continue
        for part in job.metadata:
            yield from refused_metadata(JOB_API, part.origin, part.of, part.raw, job.name)
        if id(job.pod) not in sound:
            if id(job.pod.get("volumes")) not in sound:
                yield from refused_volumes(job, sound)
            yield from refused_containers(job, templates, paste, sound, effective.release)
            yield from refused_pod(job, sound)
        if id(job.spec) not in sound or not 0 <= job.pods <= _FEW:
            yield from refused_job(job)


_FEW: Final = 1000
_NOTHING: Final[frozenset[Any]] = frozenset()
_SOUND: Final = {release.value: f"sound {release.value}" for release in Release}


def _sound_parts(effective: EffectiveSet, prepared: dict[Any, Any] | None) -> frozenset[int]:
    """Identities of what the runtime wrote and is right whatever a TrainJob says: the pods share these parts with it.

    The cache lives in the runtime, which holds the parts, so no identity is ever given to something else.
    """
    if prepared is None:
        return _NOTHING
    key = _SOUND[effective.release._value_]
    if (found := prepared.get(key)) is None:
        runtime: Prepared | None = prepared.get(effective.release)
        if runtime is None:
            return _NOTHING
        parts = list(_parts_of(runtime.alone))
        # By an alias in YAML one part may stand in several jobs: it has to be right in each.
        wrong = {part for part, right in parts if not right}
        found = prepared[key] = frozenset(part for part, right in parts if right and part not in wrong)
    return found


def _parts_of(alone: EffectiveSet) -> Iterator[tuple[int, bool]]:
    """Identities of parts, and whether they are right."""
    yield id(alone.jobset_spec), next(refused_jobset(alone), None) is None
    templates = _template_names(alone) if alone.release.at_least(Release.V2_2) else _NOTHING
    for job in alone.jobs:
        yield from parts_of_volumes(job)
        yield from parts_of_containers(job)
        in_pod = next(refused_pod(job, _NOTHING), None) is None
        if context := job.pod.get("securityContext"):
            yield id(context), in_pod
        in_parts = chain(
            refused_volumes(job, _NOTHING), refused_containers(job, templates, no_paste, _NOTHING, alone.release)
        )
        right = in_pod and next(in_parts, None) is None
        yield id(job.pod), right
        in_job = next(refused_job(job), None) is None
        yield id(job.spec), in_job and not depends_on_pods(job)
        yield id(job), right and in_job


def _template_names(effective: EffectiveSet) -> frozenset[str]:
    return frozenset(
        (template.get("metadata") or {}).get("name") or ""
        for policy in effective.jobset_spec.get("volumeClaimPolicies") or ()
        for template in policy.get("templates") or ()
    )
