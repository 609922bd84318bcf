"""A review to report on: one of everything that a report has to say."""

from __future__ import annotations

from webhook.model.finding import Judged, Origin, Severity
from webhook.model.script import ProgramFact
from webhook.model.verdict import Facts
from webhook.reports.review import Fault, Place, Review, Reviewed

NASTY = 'volume "a\x1b[31m<&\x00\ud800" is "gone"'
"""What a user can put into a name and a report has to survive."""

LINES = {"spec.trainer.env[0]": 12}


def locate(origin: Origin) -> Place | None:
    """Only fields of the TrainJob stand in a file."""
    line = LINES.get(origin.field)
    return Place("jobs/a b.yaml", line) if line else None


DENIAL = Judged(
    "ephemeral-checkpoint",
    Severity.DENY,
    Origin("TrainJob/bad", "spec.trainer.env[0]", "env CKPT_DIR"),
    NASTY,
    "the run starts again at step 0",
    "- name: ckpt\n  persistentVolumeClaim:\n    claimName: train-ckpt\n",
    subject="ckpt",
    private="/srv/secret on node-7",
)
WARNING = Judged(
    "short-grace",
    Severity.WARN,
    Origin("TrainingRuntime/r", "spec.template", "grace"),
    "terminationGracePeriodSeconds is 30",
    "no time to flush",
    "terminationGracePeriodSeconds: 60",
)
AUDIT = Judged(
    "unresolved-directory", Severity.AUDIT, Origin("TrainJob/bad", "spec.x", "x"), "from a Secret", "unknown", "none"
)
BAD = Reviewed(
    "TrainJob",
    "team",
    "bad",
    "CREATE",
    Place("jobs/a b.yaml", 3),
    "deny",
    (DENIAL, WARNING, AUDIT),
    Facts(2, "/ckpt/run", "ckpt", None, "ephemeral", ProgramFact("not-found", "/code/a.py", None, "why")),
    ({"op": "add", "path": "/spec/x", "value": {"z": 1}},),
    {"spec": {"trainer": {}}},
    {"spec": {"trainer": {}, "x": {"z": 1}}},
    locate,
)
GOOD = Reviewed("ClusterTrainingRuntime", "", "torch", "UPDATE", Place("-", 1), "allow")
FAULT = Fault("/abs/broken.yaml", 'key "a" stands twice', 7, "spec.a")
LOST = Fault(None, "nothing to review")
REVIEW = Review((BAD, GOOD), (FAULT, LOST), ("jobs/a b.yaml:9: Deployment/x is not ours",))
