"""The rules, in the order of the report: an explicit tuple, so that a rule is in the catalogue or it is nowhere."""

from __future__ import annotations

from typing import Final

from webhook.model.rule import Rule
from webhook.rules.claim_deleted_with_job import RULE as CLAIM_DELETED_WITH_JOB
from webhook.rules.claim_not_shared import RULE as CLAIM_NOT_SHARED
from webhook.rules.claim_too_small import RULE as CLAIM_TOO_SMALL
from webhook.rules.ephemeral_checkpoint import RULE as EPHEMERAL_CHECKPOINT
from webhook.rules.missing_claim import RULE as MISSING_CLAIM
from webhook.rules.node_local_checkpoint import RULE as NODE_LOCAL_CHECKPOINT
from webhook.rules.per_attempt_directory import RULE as PER_ATTEMPT_DIRECTORY
from webhook.rules.read_only_checkpoint import RULE as READ_ONLY_CHECKPOINT
from webhook.rules.shared_directory import RULE as SHARED_DIRECTORY
from webhook.rules.unbindable_claim import RULE as UNBINDABLE_CLAIM
from webhook.rules.undeclared_checkpoint import RULE as UNDECLARED_CHECKPOINT
from webhook.rules.unexpanded_directory import RULE as UNEXPANDED_DIRECTORY
from webhook.rules.unresolved_directory import RULE as UNRESOLVED_DIRECTORY
from webhook.rules.unusable_claim import RULE as UNUSABLE_CLAIM
from webhook.rules.unwritable_claim import RULE as UNWRITABLE_CLAIM
from webhook.rules.zone_split import RULE as ZONE_SPLIT

RULES: Final[tuple[Rule, ...]] = (
    EPHEMERAL_CHECKPOINT,
    NODE_LOCAL_CHECKPOINT,
    READ_ONLY_CHECKPOINT,
    MISSING_CLAIM,
    UNUSABLE_CLAIM,
    CLAIM_NOT_SHARED,
    UNBINDABLE_CLAIM,
    ZONE_SPLIT,
    CLAIM_DELETED_WITH_JOB,
    CLAIM_TOO_SMALL,
    UNWRITABLE_CLAIM,
    SHARED_DIRECTORY,
    PER_ATTEMPT_DIRECTORY,
    UNEXPANDED_DIRECTORY,
    UNRESOLVED_DIRECTORY,
    UNDECLARED_CHECKPOINT,
)
