"""What a volume source is worth to a checkpoint: the tables of kinds and provisioners, and the judgement of claims."""

from webhook.storage.binding import binding_candidates, class_of, is_bound, is_taken, mismatch
from webhook.storage.claims import describe, hostnames
from webhook.storage.instead import claim_instead, free_name, modes_needed, named_claim, new_claim, override_at, size_of
from webhook.storage.kinds import classify
from webhook.storage.offers import NewClaim, claim_offered, needed_size, offered_claims, plan_claim, size_annotation
from webhook.storage.on_claim import path_on_claim
from webhook.storage.reach import applies_group, cannot_do, driver_of, inline_reach, is_attached, provisioner_reach
from webhook.storage.sources import SOURCES, source_of
from webhook.storage.staged import staged
from webhook.storage.together import on_one_node, pod_annotation
from webhook.storage.uses import Use, claim_signs, claim_uses, volume_uses

__all__ = [
    "SOURCES",
    "NewClaim",
    "Use",
    "applies_group",
    "binding_candidates",
    "cannot_do",
    "claim_instead",
    "claim_offered",
    "claim_signs",
    "claim_uses",
    "class_of",
    "classify",
    "describe",
    "driver_of",
    "free_name",
    "hostnames",
    "inline_reach",
    "is_attached",
    "is_bound",
    "is_taken",
    "mismatch",
    "modes_needed",
    "named_claim",
    "needed_size",
    "new_claim",
    "offered_claims",
    "on_one_node",
    "override_at",
    "path_on_claim",
    "plan_claim",
    "pod_annotation",
    "provisioner_reach",
    "size_annotation",
    "size_of",
    "source_of",
    "staged",
    "volume_uses",
]
