"""Whether an object that unfinished runs need may be deleted, in a namespace that asks for protection."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Literal

from webhook.decision.in_force import in_namespace
from webhook.decision.severity import EXEMPT, PUT_BACK_ONLY, mode_of
from webhook.model.cluster import ClusterView, Run
from webhook.model.deletion import Deletion
from webhook.model.finding import Judged, Origin, Severity
from webhook.model.names import ALLOW_DELETE
from webhook.model.policy import Policy
from webhook.model.printable import shell_word
from webhook.model.request import Request
from webhook.model.verdict import Decision

RULE: Final = "needed-by-run"
"""The id of the finding; no rule file stands behind it."""

_NAMED: Final = 2
_WHY: Final[Mapping[str, str]] = {
    "PersistentVolumeClaim": "the checkpoints go with the claim, so the run starts again at step 0 or never",
    "ConfigMap": "Trainer builds the run's pods from this copy of its runtime, so the run cannot go on as it was",
}
_RUNTIME_WHY: Final = (
    "Trainer refuses every change of a run without its runtime: it can neither be resumed nor suspended"
)


def judge_deletion(
    deletion: Deletion, needed_by: Sequence[Run], count: int, view: ClusterView, policy: Policy
) -> Decision:
    """The verdict. ``needed_by`` are unfinished runs that are sure to need it, ``count`` how many there may be in all.

    Without any the object may go. The mode is that of the first run's namespace.
    """
    if deletion.passes or not needed_by:
        return Decision("allow", policy_hash=policy.hash)
    first = needed_by[0]
    policy = in_namespace(policy, first.namespace, view)
    asked = Request(
        "UPDATE", deletion.kind, first.namespace, deletion.name, {}, None, deletion.user, deletion.groups, uid="x"
    )
    mode = mode_of(asked, view, policy)
    if mode in ("off", EXEMPT):
        return Decision("allow", mode=mode, policy_hash=policy.hash)
    severity = Severity.AUDIT if mode in PUT_BACK_ONLY else Severity.WARN if mode == "warn" else Severity.DENY
    verdict: Literal["allow", "warn", "deny"] = "allow"
    if severity is not Severity.AUDIT:
        verdict = "deny" if severity is Severity.DENY else "warn"
    finding = _finding(deletion, needed_by, max(count, len(needed_by)), severity)
    return Decision(verdict, (finding,), mode=mode, policy_hash=policy.hash)


def _finding(deletion: Deletion, needed_by: Sequence[Run], count: int, severity: Severity) -> Judged:
    namespace = needed_by[0].namespace
    named = [f'"{run.name}"' for run in needed_by[:_NAMED]]
    more = f" and {count - len(named)} more" if count > len(named) else ""
    verb = "needs" if count == 1 else "need"
    plural = "TrainJob" if count == 1 else "TrainJobs"
    delete = f"kubectl delete trainjob {shell_word(needed_by[0].name)} -n {namespace}"
    let_go = _let_go(deletion)
    return Judged(
        RULE,
        severity,
        Origin(f"{deletion.kind}/{deletion.name}", "", ""),
        f"unfinished {plural} {' and '.join(named) if not more else ', '.join(named)}{more} {verb} it",
        _WHY.get(deletion.kind, _RUNTIME_WHY),
        f"# delete the TrainJob first\n{delete}\n{let_go}",
        subject=deletion.name,
        private=", ".join(f"{run.namespace}/{run.name}" for run in needed_by[:_NAMED]),
        counted=(
            f"{count} unfinished {plural} of namespace {namespace} {verb} it",
            f"# delete the TrainJob first; with your own rights: ckptguard runs -n {namespace} --wide\n{let_go}",
        ),
    )


def _let_go(deletion: Deletion) -> str:
    where = f" -n {deletion.namespace}" if deletion.namespace else ""
    kind = "pvc" if deletion.kind == "PersistentVolumeClaim" else deletion.kind.lower()
    return (
        "# or let it go all the same\n"
        f"kubectl annotate {kind} {shell_word(deletion.name)}{where} {ALLOW_DELETE}=true --overwrite"
    )
