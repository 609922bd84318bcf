"""What a check of this package reports: one reason why JobSet or the Job API will not take the pods."""

from __future__ import annotations

from msgspec import Struct

from webhook.model.finding import Origin


class Refusal(Struct, frozen=True):
    """One reason. ``by`` is who refuses: ``JobSet``, ``the Job API``, ...; the other fields are those of a finding.

    ``mendable`` says that a TrainJob can still mend it, so that a runtime alone is not at fault. ``unsure`` says that
    it depends on something that admission cannot see (a feature gate), so that it is no reason to deny. ``why``
    replaces the rule's words where nobody refuses anything.
    """

    by: str
    at: Origin
    problem: str
    fix: str
    job: str = ""
    container: str = ""
    subject: str = ""
    mendable: bool = False
    unsure: bool = False
    why: str | None = None


CONTROLLER = "Trainer's controller"
JOB_API = "the Job API"
JOBSET = "JobSet"
TRAINER_API = "Trainer"
POD_API = "the Pod API"
"""Refuses what the Job API takes in a template (``validatePodMetadataAndSpec``)."""
UNSERVED = "without a controller of that name nobody makes the pods, so the run never starts and nothing says so"
CLAIM_API = "the PersistentVolumeClaim API"


def under(origin: Origin, field: str, short: str = "") -> Origin:
    """A field below the place of ``origin``."""
    return Origin(origin.object, f"{origin.field}.{field}", f"{origin.short} {short or field}".strip())
