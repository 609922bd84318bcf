"""Whether the rules would deny what the defaults propose: one judgement of a claim, whoever put it there.

Only the rules about the claim under the directory are asked. What else is wrong with the object was so before, and says
nothing against a claim.
"""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from webhook.decision.counted import Counted
from webhook.decision.severity import weigh
from webhook.decision.subject import build_draft
from webhook.model.cluster import ClusterView
from webhook.model.default import Refused
from webhook.model.finding import Severity
from webhook.model.pod import Raw
from webhook.model.policy import Policy
from webhook.model.release import Release
from webhook.model.request import Request
from webhook.model.sign import signs_of
from webhook.rules import RULES
from webhook.storage import claim_signs

_IDS: Final = frozenset(
    (
        "node-local-checkpoint",
        "read-only-checkpoint",
        "missing-claim",
        "unusable-claim",
        "claim-not-shared",
        "unbindable-claim",
    )
)
_ABOUT_CLAIMS: Final = tuple(rule for rule in RULES if rule.id in _IDS)


def by_rules(request: Request, cluster: ClusterView, policy: Policy, release: Release) -> Refused:
    """The question that the defaults ask of a TrainJob's draft: id and fact of the first denial, None without one.

    Neither the namespace's mode nor an exception nor a dry-run counts: the same object gets the same patch.
    """

    def refused(obj: Raw, path: str | None) -> tuple[str, str] | None:
        subject = build_draft(replace(request, object=obj, dry_run=False), Counted(cluster), policy, release, path)
        if subject is None:
            return None
        signs = signs_of(subject) | claim_signs(subject)
        for rule in _ABOUT_CLAIMS:
            if rule.when & signs:
                for finding in rule.check(subject):
                    weight = weigh(rule, finding, subject)
                    if weight is not None and weight.enforced is Severity.DENY:
                        return rule.id, finding.problem
        return None

    return refused
