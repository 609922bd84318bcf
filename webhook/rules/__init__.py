"""The rules, in the order of the report: an explicit tuple, so that a rule is in the catalogue or it is nowhere."""

from __future__ import annotations

from typing import Final

from webhook.model.rule import Rule
from webhook.rules.claim_deleted_with_job import RULE as CLAIM_DELETED_WITH_JOB
from webhook.rules.claim_not_shared import RULE as CLAIM_NOT_SHARED
from webhook.rules.claim_too_small import RULE as CLAIM_TOO_SMALL
from webhook.rules.claims_on_worker_cluster import RULE as CLAIMS_ON_WORKER_CLUSTER
from webhook.rules.directory_not_used import RULE as DIRECTORY_NOT_USED
from webhook.rules.env_in_override import RULE as ENV_IN_OVERRIDE
from webhook.rules.ephemeral_checkpoint import RULE as EPHEMERAL_CHECKPOINT
from webhook.rules.exit_status_lost import RULE as EXIT_STATUS_LOST
from webhook.rules.fast_only_checkpoint import RULE as FAST_ONLY_CHECKPOINT
from webhook.rules.fixed_resume_path import RULE as FIXED_RESUME_PATH
from webhook.rules.fixed_world_size import RULE as FIXED_WORLD_SIZE
from webhook.rules.gathered_shards import RULE as GATHERED_SHARDS
from webhook.rules.lost_by_kueue import RULE as LOST_BY_KUEUE
from webhook.rules.missing_claim import RULE as MISSING_CLAIM
from webhook.rules.missing_trainer_label import RULE as MISSING_TRAINER_LABEL
from webhook.rules.never_resumed import RULE as NEVER_RESUMED
from webhook.rules.never_saved import RULE as NEVER_SAVED
from webhook.rules.no_flush_on_sigterm import RULE as NO_FLUSH_ON_SIGTERM
from webhook.rules.no_restart_budget import RULE as NO_RESTART_BUDGET
from webhook.rules.node_local_checkpoint import RULE as NODE_LOCAL_CHECKPOINT
from webhook.rules.optimizer_not_restored import RULE as OPTIMIZER_NOT_RESTORED
from webhook.rules.overwritten_checkpoint import RULE as OVERWRITTEN_CHECKPOINT
from webhook.rules.overwritten_output import RULE as OVERWRITTEN_OUTPUT
from webhook.rules.per_attempt_directory import RULE as PER_ATTEMPT_DIRECTORY
from webhook.rules.pods_retry_alone import RULE as PODS_RETRY_ALONE
from webhook.rules.program_not_read import RULE as PROGRAM_NOT_READ
from webhook.rules.ranks_resume_apart import RULE as RANKS_RESUME_APART
from webhook.rules.read_only_checkpoint import RULE as READ_ONLY_CHECKPOINT
from webhook.rules.restart_count_reset import RULE as RESTART_COUNT_RESET
from webhook.rules.restart_ruled_out import RULE as RESTART_RULED_OUT
from webhook.rules.resume_not_asked_for import RULE as RESUME_NOT_ASKED_FOR
from webhook.rules.resume_without_checkpoint import RULE as RESUME_WITHOUT_CHECKPOINT
from webhook.rules.save_interval import RULE as SAVE_INTERVAL
from webhook.rules.shared_directory import RULE as SHARED_DIRECTORY
from webhook.rules.short_grace import RULE as SHORT_GRACE
from webhook.rules.sigterm_not_forwarded import RULE as SIGTERM_NOT_FORWARDED
from webhook.rules.single_checkpoint_kept import RULE as SINGLE_CHECKPOINT_KEPT
from webhook.rules.text_order_resume import RULE as TEXT_ORDER_RESUME
from webhook.rules.timestamped_directory import RULE as TIMESTAMPED_DIRECTORY
from webhook.rules.unbindable_claim import RULE as UNBINDABLE_CLAIM
from webhook.rules.unbounded_restarts import RULE as UNBOUNDED_RESTARTS
from webhook.rules.unbuildable_pod import RULE as UNBUILDABLE_POD
from webhook.rules.undeclared_checkpoint import RULE as UNDECLARED_CHECKPOINT
from webhook.rules.unexpanded_directory import RULE as UNEXPANDED_DIRECTORY
from webhook.rules.unguarded_rank_write import RULE as UNGUARDED_RANK_WRITE
from webhook.rules.unknown_override_target import RULE as UNKNOWN_OVERRIDE_TARGET
from webhook.rules.unknown_runtime import RULE as UNKNOWN_RUNTIME
from webhook.rules.unlimited_checkpoints import RULE as UNLIMITED_CHECKPOINTS
from webhook.rules.unresolved_directory import RULE as UNRESOLVED_DIRECTORY
from webhook.rules.unserved_override import RULE as UNSERVED_OVERRIDE
from webhook.rules.unusable_claim import RULE as UNUSABLE_CLAIM
from webhook.rules.unused_resume_argument import RULE as UNUSED_RESUME_ARGUMENT
from webhook.rules.unwritable_claim import RULE as UNWRITABLE_CLAIM
from webhook.rules.volume_source_clash import RULE as VOLUME_SOURCE_CLASH
from webhook.rules.wedging_update import RULE as WEDGING_UPDATE
from webhook.rules.weights_only_checkpoint import RULE as WEIGHTS_ONLY_CHECKPOINT
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
    UNKNOWN_RUNTIME,
    VOLUME_SOURCE_CLASH,
    UNBUILDABLE_POD,
    MISSING_TRAINER_LABEL,
    ENV_IN_OVERRIDE,
    UNKNOWN_OVERRIDE_TARGET,
    UNSERVED_OVERRIDE,
    NO_RESTART_BUDGET,
    UNBOUNDED_RESTARTS,
    PODS_RETRY_ALONE,
    RESTART_RULED_OUT,
    RESTART_COUNT_RESET,
    WEDGING_UPDATE,
    LOST_BY_KUEUE,
    SHORT_GRACE,
    CLAIMS_ON_WORKER_CLUSTER,
    TEXT_ORDER_RESUME,
    RESUME_WITHOUT_CHECKPOINT,
    RESUME_NOT_ASKED_FOR,
    UNUSED_RESUME_ARGUMENT,
    FIXED_RESUME_PATH,
    NEVER_RESUMED,
    NEVER_SAVED,
    OPTIMIZER_NOT_RESTORED,
    EXIT_STATUS_LOST,
    WEIGHTS_ONLY_CHECKPOINT,
    OVERWRITTEN_OUTPUT,
    OVERWRITTEN_CHECKPOINT,
    SINGLE_CHECKPOINT_KEPT,
    UNLIMITED_CHECKPOINTS,
    TIMESTAMPED_DIRECTORY,
    DIRECTORY_NOT_USED,
    UNGUARDED_RANK_WRITE,
    RANKS_RESUME_APART,
    SIGTERM_NOT_FORWARDED,
    NO_FLUSH_ON_SIGTERM,
    FAST_ONLY_CHECKPOINT,
    GATHERED_SHARDS,
    FIXED_WORLD_SIZE,
    SAVE_INTERVAL,
    PROGRAM_NOT_READ,
)
