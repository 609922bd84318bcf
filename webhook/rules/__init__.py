"""The rules, in the order of the report: an explicit tuple, so that a rule is in the catalogue or it is nowhere."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from webhook.model.finding import Finding, Severity
from webhook.model.rule import Rule
from webhook.model.subject import Subject
from webhook.programs import program_findings
from webhook.programs.rules import PROGRAM_RULES, module_of, program_rule
from webhook.rules.bucket_annotation_missing import RULE as BUCKET_ANNOTATION_MISSING
from webhook.rules.bucket_mount import RULE as BUCKET_MOUNT
from webhook.rules.cached_writes import RULE as CACHED_WRITES
from webhook.rules.claim_deleted_with_job import RULE as CLAIM_DELETED_WITH_JOB
from webhook.rules.claim_not_shared import RULE as CLAIM_NOT_SHARED
from webhook.rules.claim_too_small import RULE as CLAIM_TOO_SMALL
from webhook.rules.claims_on_worker_cluster import RULE as CLAIMS_ON_WORKER_CLUSTER
from webhook.rules.each_node_writes import RULE as EACH_NODE_WRITES
from webhook.rules.env_in_override import RULE as ENV_IN_OVERRIDE
from webhook.rules.ephemeral_checkpoint import RULE as EPHEMERAL_CHECKPOINT
from webhook.rules.judged_in_part import RULE as JUDGED_IN_PART
from webhook.rules.lost_by_kueue import RULE as LOST_BY_KUEUE
from webhook.rules.missing_claim import RULE as MISSING_CLAIM
from webhook.rules.missing_trainer_label import RULE as MISSING_TRAINER_LABEL
from webhook.rules.no_restart_budget import RULE as NO_RESTART_BUDGET
from webhook.rules.node_local_checkpoint import RULE as NODE_LOCAL_CHECKPOINT
from webhook.rules.not_rehearsed import RULE as NOT_REHEARSED
from webhook.rules.per_attempt_directory import RULE as PER_ATTEMPT_DIRECTORY
from webhook.rules.pods_retry_alone import RULE as PODS_RETRY_ALONE
from webhook.rules.read_only_checkpoint import RULE as READ_ONLY_CHECKPOINT
from webhook.rules.restart_count_reset import RULE as RESTART_COUNT_RESET
from webhook.rules.restart_ruled_out import RULE as RESTART_RULED_OUT
from webhook.rules.shared_directory import RULE as SHARED_DIRECTORY
from webhook.rules.short_grace import RULE as SHORT_GRACE
from webhook.rules.unbindable_claim import RULE as UNBINDABLE_CLAIM
from webhook.rules.unbounded_restarts import RULE as UNBOUNDED_RESTARTS
from webhook.rules.unbuildable_pod import RULE as UNBUILDABLE_POD
from webhook.rules.undeclared_checkpoint import RULE as UNDECLARED_CHECKPOINT
from webhook.rules.unexpanded_directory import RULE as UNEXPANDED_DIRECTORY
from webhook.rules.unknown_field import RULE as UNKNOWN_FIELD
from webhook.rules.unknown_override_target import RULE as UNKNOWN_OVERRIDE_TARGET
from webhook.rules.unknown_runtime import RULE as UNKNOWN_RUNTIME
from webhook.rules.unresolved_directory import RULE as UNRESOLVED_DIRECTORY
from webhook.rules.unserved_override import RULE as UNSERVED_OVERRIDE
from webhook.rules.unusable_claim import RULE as UNUSABLE_CLAIM
from webhook.rules.unwritable_claim import RULE as UNWRITABLE_CLAIM
from webhook.rules.volume_source_clash import RULE as VOLUME_SOURCE_CLASH
from webhook.rules.wedging_update import RULE as WEDGING_UPDATE
from webhook.rules.zone_split import RULE as ZONE_SPLIT


def _about_programs(rule_id: str, severity: Severity) -> Rule:
    """A rule about programs, as one about pods. Its file is imported when it is asked: most jobs have no program."""

    def check(subject: Subject) -> Iterator[Finding]:
        rule = program_rule(rule_id)
        return program_findings(subject.programs(), rule_id, rule.look, rule.why)

    check.__module__ = module_of(rule_id)
    return Rule(rule_id, severity, "", check, severity, reads_program=True)


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
    CACHED_WRITES,
    BUCKET_ANNOTATION_MISSING,
    BUCKET_MOUNT,
    EACH_NODE_WRITES,
    SHARED_DIRECTORY,
    PER_ATTEMPT_DIRECTORY,
    UNEXPANDED_DIRECTORY,
    UNRESOLVED_DIRECTORY,
    UNDECLARED_CHECKPOINT,
    UNKNOWN_RUNTIME,
    VOLUME_SOURCE_CLASH,
    UNBUILDABLE_POD,
    MISSING_TRAINER_LABEL,
    ENV_IN_OVERRIDE,
    UNKNOWN_OVERRIDE_TARGET,
    UNSERVED_OVERRIDE,
    UNKNOWN_FIELD,
    NO_RESTART_BUDGET,
    UNBOUNDED_RESTARTS,
    PODS_RETRY_ALONE,
    RESTART_RULED_OUT,
    RESTART_COUNT_RESET,
    WEDGING_UPDATE,
    LOST_BY_KUEUE,
    SHORT_GRACE,
    CLAIMS_ON_WORKER_CLUSTER,
    NOT_REHEARSED,
    *(_about_programs(*entry) for entry in PROGRAM_RULES.items()),
    # The last: it tells what the others were not shown.
    JUDGED_IN_PART,
)
