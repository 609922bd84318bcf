"""An UPDATE of a runtime that changes a ``failurePolicy`` of ours is warned about, and nothing is filled in.

The field is immutable once it is there and the CRD refuses the change before ``/validate`` is called, so this is the
only place to say what to do about it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from webhook.model.cluster import Gap, Run
from webhook.model.default import Context, Default
from webhook.model.draft import Draft
from webhook.model.finding import Judged, Origin, Severity
from webhook.model.injected import read_added_to_runtime
from webhook.model.pod import Raw
from webhook.model.printable import shell_word

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
    label = f"{request.kind}/{request.name}"
    scope = f" -n {shell_word(request.namespace)}" if request.kind == "TrainingRuntime" and request.namespace else ""
    at = Origin(label, FIELD, "failurePolicy")
    runs = context.cluster.runs_of_runtime(request.kind, request.namespace, request.name)
    context.findings.append(
        Judged(
            RULE,
            Severity.WARN,
            at,
            f"failurePolicy is immutable: delete and create the runtime to turn {_text(old)} into {_text(new)}",
            "the API server refuses the change: JobSet's failurePolicy is immutable once it is there",
            f"{_waits(runs)}kubectl delete {request.kind.lower()} {shell_word(request.name)}{scope}\n"
            f"kubectl create{scope} -f <file of the runtime>",
            subject=FIELD,
        )
    )
    # The CRD's refusal hides everything but warning lines, and those are short: each run has a line of its own.
    if not isinstance(runs, Gap):
        context.findings.extend(_holder(at, request.kind, run, len(runs)) for run in runs[:NAMED])
        if len(runs) > NAMED:
            context.findings.append(_others(at, request.kind, len(runs) - NAMED))
    return False


def _holder(at: Origin, kind: str, run: Run, number: int) -> Judged:
    scope = f"-n {shell_word(run.namespace)}" if kind == "TrainingRuntime" else "-A"
    return Judged(
        RULE,
        Severity.WARN,
        at,
        f'TrainJob "{run.namespace}/{run.name}" holds the runtime: deletion waits for it',
        "a runtime stays, marked as deleted, until no TrainJob refers to it",
        f"kubectl delete trainjob {shell_word(run.name)} -n {shell_word(run.namespace)}   # once it has finished",
        subject=f"TrainJob/{run.namespace}/{run.name}",
        private=f"{run.namespace}/{run.name}",
        # The same for each of them, and lines that are the same are told once.
        counted=(
            f"{number} TrainJob{' holds' if number == 1 else 's hold'} the runtime: deletion waits",
            f"kubectl get trainjobs {scope}  # which they are, with your own rights",
        ),
    )


def _others(at: Origin, kind: str, number: int) -> Judged:
    return Judged(
        RULE,
        Severity.WARN,
        at,
        f"{number} more TrainJob{'s hold' if number > 1 else ' holds'} the runtime",
        "a runtime stays, marked as deleted, until no TrainJob refers to it",
        f"kubectl get trainjobs{' -A' if kind == 'ClusterTrainingRuntime' else ''}",
        subject="TrainJobs",
    )


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


def _waits(runs: Sequence[Run] | Gap) -> str:
    if isinstance(runs, Gap):
        return "# deletion waits until no TrainJob refers to the runtime\n"
    if not runs:
        return ""
    names = [f"{run.namespace}/{run.name}" for run in runs[:NAMED]]
    more = f" and {len(runs) - NAMED} more" if len(runs) > NAMED else ""
    return f"# deletion waits for the TrainJobs that hold it: {' '.join(names)}{more}\n"


DEFAULT: Final = Default("immutable_default", apply)
