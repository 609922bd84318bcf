"""The types of the fields that we read, for ``shape.check_shape`` alone, which imports this at its first call.

Source: the CRDs of Trainer 2.0 to 2.4 and core/v1. Only types, and what all releases require of list items (their
keys): everything else that the API server refuses, it says itself. A field that is absent or null is right. Listed is
what all four releases have, but for what hardly anybody writes; what is not listed is not looked at.

Annotations are evaluated at once here (no ``annotations`` future): msgspec resolving text costs twice the time.
"""

from msgspec import field

from webhook.model.pod_schema import (
    Anything,
    ClaimSpec,
    ClaimTemplate,
    Env,
    ExitCodes,
    Expression,
    Int32,
    Int64,
    Metadata,
    NodeSelector,
    Pod,
    PodTemplate,
    Quantities,
    Reference,
    Resources,
    Selector,
    Shape,
    Source,
    Strings,
)


class Condition(Shape):
    type: str | None = None
    status: str | None = None
    reason: str | None = None
    message: str | None = None


class PodFailureRule(Shape):
    action: str | None = None
    on_exit_codes: ExitCodes | None = None
    on_pod_conditions: list[Condition] | None = None


class PodFailurePolicy(Shape):
    rules: list[PodFailureRule] | None = None


class SuccessRule(Shape):
    succeeded_count: Int32 | None = None
    succeeded_indexes: str | None = None


class JobSuccessPolicy(Shape):
    rules: list[SuccessRule] | None = None


class Job(Shape):
    parallelism: Int32 | None = None
    completions: Int32 | None = None
    completion_mode: str | None = None
    backoff_limit: Int32 | None = None
    backoff_limit_per_index: Int32 | None = None
    max_failed_indexes: Int32 | None = None
    active_deadline_seconds: Int64 | None = None
    ttl_seconds_after_finished: Int32 | None = None
    pod_replacement_policy: str | None = None
    managed_by: str | None = None
    suspend: bool | None = None
    manual_selector: bool | None = None
    selector: Selector | None = None
    pod_failure_policy: PodFailurePolicy | None = None
    success_policy: JobSuccessPolicy | None = None
    template: PodTemplate | None = None


class JobTemplate(Shape):
    metadata: Metadata | None = None
    spec: Job | None = None


class DependsOn(Shape):
    name: str | None = None
    status: str | None = None


class ReplicatedJob(Shape):
    name: str
    group_name: str | None = None
    replicas: Int32 | None = None
    template: JobTemplate | None = None
    depends_on: list[DependsOn] | None = None


class FailureRule(Shape):
    name: str | None = None
    action: str | None = None
    target_replicated_jobs: list[str] | None = None
    on_job_failure_reasons: list[str] | None = None
    on_job_failure_message_patterns: list[str] | None = None


class FailurePolicy(Shape):
    max_restarts: Int32 | None = None
    restart_strategy: str | None = None
    rules: list[FailureRule] | None = None


class Retention(Shape):
    when_deleted: str | None = None


class VolumeClaimPolicy(Shape):
    templates: list[ClaimTemplate] | None = None
    retention_policy: Retention | None = None


class JobSetPart(Shape):
    """What a JobSetSpec and a runtimePatch's part of one have in common."""

    replicated_jobs: list[ReplicatedJob] | None = None


class SuccessPolicy(Shape):
    operator: str | None = None
    target_replicated_jobs: list[str] | None = None


class StartupPolicy(Shape):
    startup_policy_order: str | None = None


class Network(Shape):
    subdomain: str | None = None
    enable_dns_hostnames: bool | None = field(default=None, name="enableDNSHostnames")
    publish_not_ready_addresses: bool | None = None


class Coordinator(Shape):
    replicated_job: str | None = None
    job_index: Int64 | None = None
    pod_index: Int64 | None = None


class JobSet(JobSetPart):
    failure_policy: FailurePolicy | None = None
    success_policy: SuccessPolicy | None = None
    startup_policy: StartupPolicy | None = None
    network: Network | None = None
    coordinator: Coordinator | None = None
    managed_by: str | None = None
    suspend: bool | None = None
    ttl_seconds_after_finished: Int32 | None = None
    volume_claim_policies: list[VolumeClaimPolicy] | None = None


class JobSetTemplate(Shape):
    metadata: Metadata | None = None
    spec: JobSet | None = None


class Elastic(Shape):
    min_nodes: Int32 | None = None
    max_nodes: Int32 | None = None
    max_restarts: Int32 | None = None
    metrics: list[Anything] | None = None


class Injection(Shape):
    job_name: str | None = None
    container_names: list[str] | None = None


class EnvInjection(Shape):
    targets: list[Injection] | None = None


class Torch(Shape):
    num_proc_per_node: int | str | None = None
    elastic_policy: Elastic | None = None
    env_injection: EnvInjection | None = None


class Mpi(Shape):
    num_proc_per_node: Int32 | None = None
    mpi_implementation: str | None = None
    ssh_auth_mount_path: str | None = None
    run_launcher_as_node: bool | None = None


class Flux(Shape):
    num_proc_per_node: Int32 | None = None


class MlPolicy(Shape):
    num_nodes: Int32 | None = None
    torch: Torch | None = None
    mpi: Mpi | None = None
    flux: Flux | None = None
    jax: Anything | None = None
    xgboost: Anything | None = None


class Coscheduling(Shape):
    schedule_timeout_seconds: Int32 | None = None


class NetworkTopology(Shape):
    mode: str | None = None
    highest_tier_allowed: Int64 | None = None


class Volcano(Shape):
    network_topology: NetworkTopology | None = None


class PodGroupPolicy(Shape):
    coscheduling: Coscheduling | None = None
    volcano: Volcano | None = None


class RuntimeSpec(Shape):
    ml_policy: MlPolicy | None = None
    pod_group_policy: PodGroupPolicy | None = None
    template: JobSetTemplate | None = None


class TypeMeta(Shape):
    api_version: str | None = None
    kind: str | None = None
    metadata: Metadata | None = None


class TrainingRuntime(TypeMeta):
    spec: RuntimeSpec | None = None


class Initializer(Shape):
    storage_uri: str | None = None
    env: list[Env] | None = None
    secret_ref: Reference | None = None


class Initializers(Shape):
    dataset: Initializer | None = None
    model: Initializer | None = None


class Trainer(Shape):
    image: str | None = None
    command: list[str] | None = None
    args: list[str] | None = None
    env: list[Env] | None = None
    num_nodes: Int32 | None = None
    resources_per_node: Resources | None = None
    num_proc_per_node: int | str | None = None


class TargetJob(Shape):
    name: str | None = None


class PodSpecOverride(Pod, kw_only=True):
    target_jobs: list[TargetJob] | None = None


class PodTemplateOverride(Shape):
    target_jobs: list[TargetJob] | None = None
    metadata: Metadata | None = None
    spec: Pod | None = None


class PatchTemplate(Shape):
    metadata: Metadata | None = None
    spec: JobSetPart | None = None


class PatchSpec(Shape):
    template: PatchTemplate | None = None


class RuntimePatch(Shape):
    manager: str
    time: str | None = None
    training_runtime_spec: PatchSpec | None = None


class TrainJobSpec(Shape):
    runtime_ref: Reference | None = None
    initializer: Initializers | None = None
    trainer: Trainer | None = None
    labels: Strings | None = None
    annotations: Strings | None = None
    pod_spec_overrides: list[PodSpecOverride] | None = None
    pod_template_overrides: list[PodTemplateOverride] | None = None
    runtime_patches: list[RuntimePatch] | None = None
    suspend: bool | None = None
    managed_by: str | None = None
    active_deadline_seconds: Int64 | None = None


class TrainJobStatus(Shape):
    conditions: list[Condition] | None = None
    jobs_status: list[Anything] | None = None


class TrainJob(TypeMeta):
    spec: TrainJobSpec | None = None
    status: TrainJobStatus | None = None


class ClaimStatus(Shape):
    phase: str | None = None
    capacity: Quantities | None = None


class PersistentVolumeClaim(TypeMeta):
    spec: ClaimSpec | None = None
    status: ClaimStatus | None = None


class RequiredAffinity(Shape):
    required: NodeSelector | None = None


class VolumeSpec(Shape):
    access_modes: list[str] | None = None
    capacity: Quantities | None = None
    storage_class_name: str | None = None
    volume_mode: str | None = None
    mount_options: list[str] | None = None
    claim_ref: Reference | None = None
    node_affinity: RequiredAffinity | None = None
    csi: Source | None = None
    local: Source | None = None
    host_path: Source | None = None
    nfs: Source | None = None
    flex_volume: Source | None = None


class PersistentVolume(TypeMeta):
    spec: VolumeSpec | None = None
    status: ClaimStatus | None = None


class TopologyTerm(Shape):
    match_label_expressions: list[Expression] | None = None


class StorageClass(TypeMeta):
    provisioner: str | None = None
    volume_binding_mode: str | None = None
    mount_options: list[str] | None = None
    parameters: Strings | None = None
    allowed_topologies: list[TopologyTerm] | None = None


class Namespace(TypeMeta):
    pass


class ConfigMap(TypeMeta):
    data: Strings | None = None


KINDS: dict[str, type[Shape]] = {
    "TrainJob": TrainJob,
    "TrainingRuntime": TrainingRuntime,
    "ClusterTrainingRuntime": TrainingRuntime,
    "PersistentVolumeClaim": PersistentVolumeClaim,
    "PersistentVolume": PersistentVolume,
    "StorageClass": StorageClass,
    "Namespace": Namespace,
    "ConfigMap": ConfigMap,
}
