"""Whether JobSet and the Job API will take what Trainer builds: they refuse it after admission, in silence.

Read from kubernetes 1.36.3 and from JobSet 0.8.2 to 0.12.0. What an older API server refuses and 1.36 takes is not
reported, and what Trainer's own webhook and the CRDs refuse is left to them.
"""

from __future__ import annotations

from collections.abc import Iterator

from webhook.effective.buildable.containers import Paste, is_foreign, refused_containers
from webhook.effective.buildable.jobsets import refused_jobset
from webhook.effective.buildable.pods import refused_job, refused_pod
from webhook.effective.buildable.refusal import Refusal
from webhook.effective.buildable.volumes import refused_volumes, sources_of
from webhook.model.pod import EffectiveSet
from webhook.model.release import Release

__all__ = ["Refusal", "find_refusals", "is_foreign", "sources_of"]


def find_refusals(effective: EffectiveSet, paste: Paste) -> Iterator[Refusal]:
    """Every reason to refuse, besides volumes with two sources and ``podFailurePolicy`` beside ``OnFailure``.

    ``paste`` turns a job's name and PodSpec fields into text to paste.
    """
    yield from refused_jobset(effective)
    templates = _templates(effective)
    for job in effective.jobs:
        yield from refused_volumes(job)
        yield from refused_containers(job, templates, paste)
        yield from refused_pod(job)
        yield from refused_job(job)


def _templates(effective: EffectiveSet) -> frozenset[str]:
    if not effective.jobset_spec.get("volumeClaimPolicies") or not effective.release.at_least(Release.V2_2):
        return frozenset()
    return frozenset(
        (template.get("metadata") or {}).get("name") or ""
        for policy in effective.jobset_spec.get("volumeClaimPolicies") or ()
        for template in policy.get("templates") or ()
    )
