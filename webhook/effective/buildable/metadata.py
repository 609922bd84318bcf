"""Labels and annotations of JobSets, Jobs and pods that the API server refuses (``ValidateObjectMeta``)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from webhook.effective.buildable.refusal import Refusal, under
from webhook.effective.buildable.syntax import is_label_value, is_qualified_name
from webhook.model.finding import Origin
from webhook.model.pod import Raw

_JOBS_OWN: Final = frozenset(
    ("batch.kubernetes.io/job-name", "batch.kubernetes.io/controller-uid", "job-name", "controller-uid")
)
"""Labels that the Job API gives the pods itself and does not take from others."""


def refused_metadata(by: str, at: Origin, whose: str, metadata: Raw, job: str = "") -> Iterator[Refusal]:
    """Faults of ``metadata``, which stands at ``at`` and becomes that of ``whose`` (pod, Job, JobSet)."""
    for key, value in (metadata.get("labels") or {}).items():
        if not is_qualified_name(key) or not is_label_value(value or ""):
            yield Refusal(
                by,
                under(at, "labels"),
                f'{whose} label "{key}: {value}" is no label',
                f"{key}: <at most 63 of A-Z, a-z, 0-9, -, _ and .>",
                job=job,
                subject=f"{whose} label {key}",
            )
        elif whose == "pod" and key in _JOBS_OWN:
            yield Refusal(
                by,
                under(at, "labels"),
                f'pod label "{key}" is one that the Job API sets itself',
                f"# no {key}",
                job=job,
                subject=f"{whose} label {key}",
            )
    for key in metadata.get("annotations") or ():
        if not is_qualified_name(key.lower()):
            yield Refusal(
                by,
                under(at, "annotations"),
                f'{whose} annotation "{key}" has a key that is no name',
                "<domain>/<name>: <value>",
                job=job,
                subject=f"{whose} annotation {key}",
            )
