"""The rules, in the order of the report: an explicit tuple, so that a rule is in the catalogue or it is nowhere."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from typing import Final

from webhook.model.finding import Finding, Severity
from webhook.model.rule import Rule
from webhook.model.subject import Subject
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


def _about_programs(name: str, severity: Severity = Severity.WARN) -> Rule:
    """A rule about programs. Its file is imported when it is asked: most jobs have no program that could be read."""
    module = f"webhook.rules.{name.replace('-', '_')}"

    def check(subject: Subject) -> Iterator[Finding]:
        return import_module(module).RULE.check(subject)  # type: ignore[no-any-return]

    check.__module__ = module
    return Rule(name, severity, "", check, severity, reads_program=True)


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
    _about_programs("text-order-resume"),
    _about_programs("resume-without-checkpoint"),
    _about_programs("resume-not-asked-for"),
    _about_programs("unused-resume-argument"),
    _about_programs("fixed-resume-path"),
    _about_programs("never-resumed"),
    _about_programs("never-saved"),
    _about_programs("optimizer-not-restored"),
    _about_programs("exit-status-lost"),
    _about_programs("weights-only-checkpoint"),
    _about_programs("overwritten-output"),
    _about_programs("overwritten-checkpoint"),
    _about_programs("single-checkpoint-kept"),
    _about_programs("unlimited-checkpoints"),
    _about_programs("timestamped-directory"),
    _about_programs("directory-not-used"),
    _about_programs("unguarded-rank-write"),
    _about_programs("ranks-resume-apart"),
    _about_programs("sigterm-not-forwarded"),
    _about_programs("no-flush-on-sigterm", Severity.AUDIT),
    _about_programs("fast-only-checkpoint"),
    _about_programs("gathered-shards", Severity.AUDIT),
    _about_programs("fixed-world-size", Severity.AUDIT),
    _about_programs("save-interval", Severity.AUDIT),
    _about_programs("program-not-read", Severity.AUDIT),
    # The last: it tells what the others were not shown.
    JUDGED_IN_PART,
)
