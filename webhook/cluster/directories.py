"""Where a TrainJob writes its checkpoints, as the engine works it out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from webhook.cluster.objects import parse_run
from webhook.model.cluster import ClusterView
from webhook.model.policy import Policy
from webhook.model.release import infer_release
from webhook.model.request import Request

MOUNTED: Final = ""
"""The path of a claim that is mounted, with or without a checkpoint directory on it."""


def checkpoint_directories(view: ClusterView, trainjob: Mapping[str, Any], policy: Policy) -> Iterator[tuple[str, str]]:
    """Claim and path on it of every checkpoint directory of a TrainJob.

    The other claims of its pods come with the path ``MOUNTED``, which no directory has.
    """
    # Only rules about other runs ask, and what they need is above them: imported when they do.
    from webhook.decision import build_subject
    from webhook.storage.on_claim import path_on_claim

    run = parse_run(trainjob)
    request = Request("CREATE", "TrainJob", run.namespace, run.name, trainjob)
    subject = build_subject(request, view, policy, view.release() or infer_release(trainjob.get("spec")))
    told: set[str] = set()
    for checkpoint in subject.checkpoints:
        claim, path = checkpoint.storage.claim_name, path_on_claim(checkpoint)
        if claim is not None and path is not None:
            told.add(claim)
            yield claim, path
    if subject.effective is None or subject.claims_elsewhere:
        return
    for job in subject.effective.jobs:
        for volume in (*(job.pod.get("volumes") or ()), *job.claim_volumes):
            name = (volume.get("persistentVolumeClaim") or {}).get("claimName")
            if name and name not in told:
                told.add(name)
                yield name, MOUNTED
