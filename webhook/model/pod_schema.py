"""The types of the fields of pods and their templates, for ``shape_schema`` (source: core/v1).

Annotations are evaluated at once here (no ``annotations`` future): msgspec resolving text costs twice the time."""

from typing import Annotated, Any

from msgspec import Meta, Struct, field

Int32 = Annotated[int, Meta(ge=-(2**31), le=2**31 - 1)]
Int64 = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
Strings = dict[str, str | None]
Quantities = dict[str, int | float | str | None]
Anything = dict[str, Any]


class Shape(Struct, rename="camel", gc=False):
    """Made, and thrown away at once."""


class Owner(Shape):
    api_version: str | None = None
    kind: str | None = None
    name: str | None = None
    uid: str | None = None
    controller: bool | None = None
    block_owner_deletion: bool | None = None


class Metadata(Shape):
    name: str | None = None
    generate_name: str | None = None
    namespace: str | None = None
    uid: str | None = None
    labels: Strings | None = None
    annotations: Strings | None = None
    deletion_timestamp: str | None = None
    creation_timestamp: str | None = None
    resource_version: str | None = None
    finalizers: list[str] | None = None
    owner_references: list[Owner] | None = None


class Reference(Shape):
    name: str | None = None
    key: str | None = None
    kind: str | None = None
    api_group: str | None = None
    namespace: str | None = None
    optional: bool | None = None


class FieldRef(Shape):
    field_path: str | None = None
    api_version: str | None = None


class ResourceRef(Shape):
    container_name: str | None = None
    resource: str | None = None
    divisor: int | float | str | None = None


class FileKey(Shape):
    volume_name: str | None = None
    path: str | None = None
    key: str | None = None
    optional: bool | None = None


class EnvSource(Shape):
    field_ref: FieldRef | None = None
    config_map_key_ref: Reference | None = None
    secret_key_ref: Reference | None = None
    resource_field_ref: ResourceRef | None = None
    file_key_ref: FileKey | None = None


class Env(Shape):
    name: str
    value: str | None = None
    value_from: EnvSource | None = None


class EnvFrom(Shape):
    prefix: str | None = None
    config_map_ref: Reference | None = None
    secret_ref: Reference | None = None


class Mount(Shape):
    name: str
    mount_path: str
    sub_path: str | None = None
    sub_path_expr: str | None = None
    read_only: bool | None = None
    recursive_read_only: str | None = None
    mount_propagation: str | None = None


class Device(Shape):
    name: str
    device_path: str


class Resources(Shape):
    limits: Quantities | None = None
    requests: Quantities | None = None
    claims: list[Strings] | None = None


class Capabilities(Shape):
    add: list[str] | None = None
    drop: list[str] | None = None


class Sysctl(Shape):
    name: str | None = None
    value: str | None = None


class WindowsOptions(Shape):
    gmsa_credential_spec: str | None = None
    gmsa_credential_spec_name: str | None = None
    host_process: bool | None = None
    run_as_user_name: str | None = None


class SecurityContext(Shape):
    run_as_user: Int64 | None = None
    run_as_group: Int64 | None = None
    run_as_non_root: bool | None = None
    read_only_root_filesystem: bool | None = None
    privileged: bool | None = None
    allow_privilege_escalation: bool | None = None
    capabilities: Capabilities | None = None
    fs_group: Int64 | None = None
    fs_group_change_policy: str | None = None
    supplemental_groups: list[Int64] | None = None
    supplemental_groups_policy: str | None = None
    sysctls: list[Sysctl] | None = None
    se_linux_options: Strings | None = None
    seccomp_profile: Strings | None = None
    app_armor_profile: Strings | None = None
    se_linux_change_policy: str | None = None
    windows_options: WindowsOptions | None = None
    proc_mount: str | None = None


class Exec(Shape):
    command: list[str] | None = None


class HttpGet(Shape):
    path: str | None = None
    port: int | str | None = None
    host: str | None = None
    scheme: str | None = None
    http_headers: list[Strings] | None = None


class Sleep(Shape):
    seconds: Int64 | None = None


class Grpc(Shape):
    port: Int32 | None = None
    service: str | None = None


class Handler(Shape):
    exec: Exec | None = None
    http_get: HttpGet | None = None
    sleep: Sleep | None = None
    tcp_socket: HttpGet | None = None


class Probe(Handler):
    grpc: Grpc | None = None
    termination_grace_period_seconds: Int64 | None = None
    initial_delay_seconds: Int32 | None = None
    timeout_seconds: Int32 | None = None
    period_seconds: Int32 | None = None
    success_threshold: Int32 | None = None
    failure_threshold: Int32 | None = None


class Port(Shape):
    name: str | None = None
    container_port: Int32 | None = None
    host_port: Int32 | None = None
    host_ip: str | None = field(default=None, name="hostIP")
    protocol: str | None = None


class Lifecycle(Shape):
    post_start: Handler | None = None
    pre_stop: Handler | None = None
    stop_signal: str | None = None


class ExitCodes(Shape):
    container_name: str | None = None
    operator: str | None = None
    values: list[Int32] | None = None


class RestartRule(Shape):
    action: str | None = None
    exit_codes: ExitCodes | None = None


class Container(Shape):
    name: str
    image: str | None = None
    command: list[str] | None = None
    args: list[str] | None = None
    working_dir: str | None = None
    env: list[Env] | None = None
    env_from: list[EnvFrom] | None = None
    volume_mounts: list[Mount] | None = None
    volume_devices: list[Device] | None = None
    resources: Resources | None = None
    restart_policy: str | None = None
    restart_policy_rules: list[RestartRule] | None = None
    security_context: SecurityContext | None = None
    lifecycle: Lifecycle | None = None
    ports: list[Port] | None = None
    image_pull_policy: str | None = None
    termination_message_policy: str | None = None
    termination_message_path: str | None = None
    stdin: bool | None = None
    stdin_once: bool | None = None
    tty: bool | None = None
    resize_policy: list[Strings] | None = None
    liveness_probe: Probe | None = None
    readiness_probe: Probe | None = None
    startup_probe: Probe | None = None


class Expression(Shape):
    key: str | None = None
    operator: str | None = None
    values: list[str] | None = None


class Selector(Shape):
    match_labels: Strings | None = None
    match_expressions: list[Expression] | None = None


class ClaimSpec(Shape):
    access_modes: list[str] | None = None
    storage_class_name: str | None = None
    volume_name: str | None = None
    volume_mode: str | None = None
    resources: Resources | None = None
    selector: Selector | None = None
    data_source: Strings | None = None
    data_source_ref: Strings | None = None
    volume_attributes_class_name: str | None = None


class ClaimTemplate(Shape):
    api_version: str | None = None
    kind: str | None = None
    status: Anything | None = None
    metadata: Metadata | None = None
    spec: ClaimSpec | None = None


class ClaimSource(Shape):
    claim_name: str | None = None
    read_only: bool | None = None


class EmptyDir(Shape):
    medium: str | None = None
    size_limit: int | float | str | None = None


class Ephemeral(Shape):
    volume_claim_template: ClaimTemplate | None = None


class Item(Shape):
    key: str | None = None
    path: str | None = None
    mode: Int32 | None = None
    field_ref: FieldRef | None = None
    resource_field_ref: ResourceRef | None = None


class Source(Shape):
    """Any other volume source: the fields that have one type wherever they stand."""

    name: str | None = None
    secret_name: str | None = None
    optional: bool | None = None
    items: list[Item] | None = None
    default_mode: Int32 | None = None
    path: str | None = None
    type: str | None = None
    server: str | None = None
    driver: str | None = None
    read_only: bool | None = None
    fs_type: str | None = None
    volume_attributes: Strings | None = None
    volume_handle: str | None = None
    options: Strings | None = None
    reference: str | None = None
    pull_policy: str | None = None
    repository: str | None = None
    share_name: str | None = None
    endpoints: str | None = None
    monitors: list[str] | None = None
    secret_ref: Reference | None = None
    node_publish_secret_ref: Reference | None = None
    user: str | None = None
    pool: str | None = None
    keyring: str | None = None
    image: str | None = None
    secret_file: str | None = None
    volume: str | None = None
    registry: str | None = None
    tenant: str | None = None
    group: str | None = None
    gateway: str | None = None
    system: str | None = None
    volume_name: str | None = None
    volume_namespace: str | None = None
    volume_path: str | None = None
    revision: str | None = None
    directory: str | None = None
    kind: str | None = None
    disk_name: str | None = None
    disk_uri: str | None = field(default=None, name="diskURI")
    volume_id: str | None = field(default=None, name="volumeID")
    pd_id: str | None = field(default=None, name="pdID")
    pd_name: str | None = None
    partition: Int32 | None = None
    lun: Int32 | None = None
    target_portal: str | None = None
    portals: list[str] | None = None
    iqn: str | None = None
    wwids: list[str] | None = None
    target_wwns: list[str] | None = field(default=None, name="targetWWNs")


class Token(Shape):
    audience: str | None = None
    expiration_seconds: Int64 | None = None
    path: str | None = None


class Projection(Shape):
    config_map: Source | None = None
    secret: Source | None = None
    downward_api: Source | None = field(default=None, name="downwardAPI")
    service_account_token: Token | None = None


class Projected(Shape):
    sources: list[Projection] | None = None
    default_mode: Int32 | None = None


class Volume(Shape):
    name: str
    persistent_volume_claim: ClaimSource | None = None
    empty_dir: EmptyDir | None = None
    config_map: Source | None = None
    secret: Source | None = None
    host_path: Source | None = None
    ephemeral: Ephemeral | None = None
    projected: Projected | None = None
    downward_api: Source | None = field(default=None, name="downwardAPI")
    csi: Source | None = None
    nfs: Source | None = None
    image: Source | None = None
    git_repo: Source | None = None
    iscsi: Source | None = None
    fc: Source | None = None
    rbd: Source | None = None
    cephfs: Source | None = None
    glusterfs: Source | None = None
    azure_file: Source | None = None
    azure_disk: Source | None = None
    aws_elastic_block_store: Source | None = None
    gce_persistent_disk: Source | None = None
    cinder: Source | None = None
    vsphere_volume: Source | None = None
    flex_volume: Source | None = None
    flocker: Source | None = None
    quobyte: Source | None = None
    portworx_volume: Source | None = None
    photon_persistent_disk: Source | None = None
    scale_io: Source | None = field(default=None, name="scaleIO")
    storageos: Source | None = None


class Term(Shape):
    match_expressions: list[Expression] | None = None
    match_fields: list[Expression] | None = None


class NodeSelector(Shape):
    node_selector_terms: list[Term] | None = None


class PreferredTerm(Shape):
    weight: Int32 | None = None
    preference: Term | None = None


class NodeAffinity(Shape):
    required_during_scheduling_ignored_during_execution: NodeSelector | None = None
    preferred_during_scheduling_ignored_during_execution: list[PreferredTerm] | None = None


class PodTerm(Shape):
    topology_key: str | None = None
    label_selector: Selector | None = None
    namespace_selector: Selector | None = None
    namespaces: list[str] | None = None
    match_label_keys: list[str] | None = None
    mismatch_label_keys: list[str] | None = None


class WeightedPodTerm(Shape):
    weight: Int32 | None = None
    pod_affinity_term: PodTerm | None = None


class PodAffinity(Shape):
    required_during_scheduling_ignored_during_execution: list[PodTerm] | None = None
    preferred_during_scheduling_ignored_during_execution: list[WeightedPodTerm] | None = None


class Affinity(Shape):
    node_affinity: NodeAffinity | None = None
    pod_affinity: PodAffinity | None = None
    pod_anti_affinity: PodAffinity | None = None


class Spread(Shape):
    max_skew: Int32 | None = None
    min_domains: Int32 | None = None
    topology_key: str | None = None
    when_unsatisfiable: str | None = None
    label_selector: Selector | None = None
    match_label_keys: list[str] | None = None
    node_affinity_policy: str | None = None
    node_taints_policy: str | None = None


class DnsConfig(Shape):
    nameservers: list[str] | None = None
    searches: list[str] | None = None
    options: list[Strings] | None = None


class HostAlias(Shape):
    ip: str | None = None
    hostnames: list[str] | None = None


class Toleration(Shape):
    key: str | None = None
    operator: str | None = None
    value: str | None = None
    effect: str | None = None
    toleration_seconds: Int64 | None = None


class SchedulingGroup(Shape):
    pod_group_name: str | None = None


class Pod(Shape):
    containers: list[Container] | None = None
    init_containers: list[Container] | None = None
    volumes: list[Volume] | None = None
    restart_policy: str | None = None
    termination_grace_period_seconds: Int64 | None = None
    active_deadline_seconds: Int64 | None = None
    security_context: SecurityContext | None = None
    node_selector: Strings | None = None
    affinity: Affinity | None = None
    tolerations: list[Toleration] | None = None
    scheduling_gates: list[Reference] | None = None
    image_pull_secrets: list[Reference] | None = None
    service_account_name: str | None = None
    host_network: bool | None = None
    share_process_namespace: bool | None = None
    subdomain: str | None = None
    hostname: str | None = None
    hostname_override: str | None = None
    scheduling_group: SchedulingGroup | None = None
    priority_class_name: str | None = None
    runtime_class_name: str | None = None
    preemption_policy: str | None = None
    dns_policy: str | None = None
    dns_config: DnsConfig | None = None
    ephemeral_containers: list[Container] | None = None
    host_aliases: list[HostAlias] | None = None
    host_pid: bool | None = field(default=None, name="hostPID")
    host_ipc: bool | None = field(default=None, name="hostIPC")
    host_users: bool | None = None
    set_hostname_as_fqdn: bool | None = field(default=None, name="setHostnameAsFQDN")
    enable_service_links: bool | None = None
    automount_service_account_token: bool | None = None
    node_name: str | None = None
    scheduler_name: str | None = None
    service_account: str | None = None
    priority: Int32 | None = None
    overhead: Quantities | None = None
    os: Strings | None = None
    readiness_gates: list[Strings] | None = None
    resource_claims: list[Strings] | None = None
    resources: Resources | None = None
    topology_spread_constraints: list[Spread] | None = None


class PodTemplate(Shape):
    metadata: Metadata | None = None
    spec: Pod | None = None
