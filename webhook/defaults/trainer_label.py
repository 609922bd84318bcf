"""A runtime that labels no job as the trainer gets the label, since Trainer drops ``spec.trainer`` without it.

Fills: label ``trainer.kubeflow.org/trainjob-ancestor-step: trainer`` of the one job that can carry it.
Silent when: some job carries it; none or several jobs have one replica and a container "node".
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from webhook.model.default import Context, Default
from webhook.model.draft import Draft
from webhook.model.injected import AddedToJob
from webhook.model.names import ANCESTOR_LABEL, TRAINER_STEP
from webhook.model.pod import Raw

JOBS: Final = ("spec", "template", "spec", "replicatedJobs")


def apply(draft: Draft, context: Context) -> bool:
    """See above."""
    able: list[int] = []
    jobs = draft.get(JOBS) or ()
    # Under MPI it is the launcher that Trainer starts the training from.
    only = "launcher" if draft.get(("spec", "mlPolicy", "mpi")) is not None else None
    for index, job in enumerate(jobs):
        step = _labels(job).get(ANCESTOR_LABEL)
        if step == TRAINER_STEP:
            return False
        if step is None and (only is None or job.get("name") == only) and _can_carry(job):
            able.append(index)
    if len(able) != 1:
        return False
    draft.set((*JOBS, able[0], "template", "metadata", "labels", ANCESTOR_LABEL), TRAINER_STEP)
    name = str(jobs[able[0]].get("name") or "")
    before = context.added_to_jobs.get(name, AddedToJob())
    context.added_to_jobs[name] = msgspec.structs.replace(before, label=TRAINER_STEP)
    return True


def _labels(job: Raw) -> Raw:
    labels: Raw = ((job.get("template") or {}).get("metadata") or {}).get("labels") or {}
    return labels


def _can_carry(job: Raw) -> bool:
    if (job.get("replicas") or 1) != 1:
        return False
    spec: Any = (job.get("template") or {}).get("spec") or {}
    containers = ((spec.get("template") or {}).get("spec") or {}).get("containers") or ()
    return any(container.get("name") == "node" for container in containers)


DEFAULT: Final = Default("trainer_label", apply)
