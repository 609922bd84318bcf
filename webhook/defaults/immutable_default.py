"""An UPDATE of a runtime that changes a ``failurePolicy`` of ours is warned about, and nothing is filled in.

The field is immutable once it is there and the CRD refuses the change before ``/validate`` is called, so this is the
only place to say what to do about it.
"""

from __future__ import annotations

from typing import Any, Final

from webhook.model.cluster import Gap
from webhook.model.default import Context, Default
from webhook.model.draft import Draft
from webhook.model.finding import Judged, Origin, Severity
from webhook.model.injected import read_added_to_runtime
from webhook.model.pod import Raw

RULE: Final = "immutable-default"
POLICY: Final = ("spec", "template", "spec", "failurePolicy")
FIELD: Final = "spec.template.spec.failurePolicy"
NAMED: Final = 5
"""How many TrainJobs a message names."""


def apply(draft: Draft, context: Context) -> bool:
    """See above."""
    request = context.request
    added = read_added_to_runtime(request.old, request.object)
    if added is None or added.max_restarts is None or request.old is None:
        return False
    old, new = Draft(request.old).get(POLICY), draft.get(POLICY)
    if old is None or new is None or old.get("maxRestarts") != added.max_restarts or _filled(old) == _filled(new):
        return False
    setting = context.policy.rules.get(RULE, "warn")
    if setting == "off":
        return False
    severity = Severity.AUDIT if setting == "audit" else Severity.WARN
    label = f"{request.kind}/{request.name}"
    scope = f" -n {request.namespace}" if request.kind == "TrainingRuntime" and request.namespace else ""
    context.findings.append(
        Judged(
            RULE,
            severity,
            Origin(label, FIELD, "failurePolicy"),
            f"failurePolicy {_text(old)} was filled in at creation and cannot become {_text(new)}",
            "the API server refuses the change: JobSet's failurePolicy is immutable once it is there",
            f"{_holders(context)}kubectl delete {request.kind.lower()} {request.name}{scope}\n"
            f"kubectl create{scope} -f <file of the runtime>",
            subject=FIELD,
        )
    )
    return False


def _filled(policy: Raw) -> dict[str, Any]:
    """As the CRD fills it in, which objects from files are not."""
    return {"restartStrategy": "Recreate", **{key: value for key, value in policy.items() if value is not None}}


def _text(policy: Raw) -> str:
    """In words, without what the CRD fills in: ``"maxRestarts: 3, rules: 1 item"``."""
    parts: list[str] = []
    for key, value in sorted(policy.items()):
        if isinstance(value, list):
            value = f"{len(value)} item{'s' if len(value) != 1 else ''}"
        if value is not None and (key, value) != ("restartStrategy", "Recreate"):
            parts.append(f"{key}: {value}")
    return f'"{", ".join(parts)}"'


def _holders(context: Context) -> str:
    request = context.request
    runs = context.cluster.runs_of_runtime(request.kind, request.namespace, request.name)
    if isinstance(runs, Gap):
        return "# deletion waits until no TrainJob refers to the runtime\n"
    if not runs:
        return ""
    names = [f"{run.namespace}/{run.name}" for run in runs]
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return f"# deletion waits for the TrainJobs that hold it: {' '.join(names[:NAMED])}{more}\n"


DEFAULT: Final = Default("immutable_default", apply)
