"""The first stage: what can be told of the pods from the runtime alone, worked out once per runtime and release."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from msgspec import Struct

from webhook.effective.ports import built_ports
from webhook.model.cluster import Runtime
from webhook.model.finding import Origin
from webhook.model.names import ANCESTOR_LABEL, TRAINER_STEP
from webhook.model.pod import EMPTY, EffectiveJob, EffectiveSet, Layer, Metadata, Raw
from webhook.model.release import Release

NODE: Final = "node"
LAUNCHER: Final = "launcher"
DATASET: Final = "dataset-initializer"
MODEL: Final = "model-initializer"

DEFAULT_GRACE: Final = 30
"""``terminationGracePeriodSeconds`` of core/v1."""
_MAX_INT32: Final = 2147483647


class Template(Struct, frozen=True):
    """One replicatedJob of the runtime.

    ``parallelism`` is what counts where no mlPolicy does. ``node`` is the index of container ``node``, -1 without one.
    """

    name: str
    labels: Raw
    spec: Raw
    pod: Raw
    layer: Layer
    origin: Origin
    parallelism: int
    backoff_limit: int
    explicit_backoff_limit: bool
    replicas: int
    node: int


class Shape(Struct, frozen=True):
    """What follows from the jobs' labels; one entry a job.

    ``counts`` is the pods of one Job before ``spec.trainer.numNodes`` is looked at, ``receives`` says whether
    ``spec.trainer`` reaches the job. ``first`` is the first job labelled trainer, -1 without one.
    """

    ancestors: tuple[str | None, ...]
    trains: tuple[bool, ...]
    receives: tuple[bool, ...]
    counts: tuple[int, ...]
    first: int


class Prepared(Struct, frozen=True):
    """A runtime in one release. The policies are None where the runtime has none or the release does not know them.

    ``limits`` and ``requests`` are those that Trainer takes GPU and CPU counts from. ``tune`` are the settings that
    torchtune's command carries over. ``claim_places`` are the ``volumeClaimPolicies`` templates with their places.
    ``injections`` are the targets of torch's ``envInjection``. ``alone`` is the runtime without a TrainJob; ``plain``
    says that nothing but a TrainJob's own words reaches jobs that are not labelled.
    """

    release: Release
    label: str
    has_policy: bool
    num_nodes: int
    torch: Raw | None
    mpi: Raw | None
    jax: Raw | None
    xgboost: Raw | None
    flux: Raw | None
    launcher_as_node: bool
    jobs: tuple[Template, ...]
    shape: Shape
    limits: Raw
    requests: Raw
    tune: tuple[str, ...]
    failure_policy: Raw | None
    jobset_spec: Raw
    claim_places: Mapping[str, str]
    claim_layer: Layer | None
    injections: tuple[Raw, ...]
    plain: bool
    alone: EffectiveSet


_TORCHTUNE_KEPT: Final = ("output_dir", "tokenizer.path", "checkpointer.checkpoint_dir", "tokenizer.merges_file")


def prepare(runtime: Runtime, release: Release) -> Prepared:
    """Everything that is the same for all TrainJobs of the runtime. Reads ``runtime.raw``, never changes it."""
    spec = runtime.raw.get("spec") or EMPTY
    policy = spec.get("mlPolicy")
    ml: Raw = policy or EMPTY
    jobset = (spec.get("template") or EMPTY).get("spec") or EMPTY
    newer = release.at_least(Release.V2_2)
    places: dict[str, str] = {}
    if newer:
        for at, claim_policy in enumerate(jobset.get("volumeClaimPolicies") or ()):
            for index, template in enumerate(claim_policy.get("templates") or ()):
                name = (template.get("metadata") or EMPTY).get("name") or ""
                places.setdefault(f"volume {name}", f"volumeClaimPolicies[{at}].templates[{index}]")
    elif jobset.get("volumeClaimPolicies"):
        jobset = {field: value for field, value in jobset.items() if field != "volumeClaimPolicies"}
    jobs = tuple(_template(runtime.label, index, job) for index, job in enumerate(jobset.get("replicatedJobs") or ()))
    num_nodes = ml.get("numNodes")
    num_nodes = 1 if num_nodes is None else num_nodes
    torch, mpi, flux = ml.get("torch"), ml.get("mpi"), ml.get("flux") if newer else None
    injections: tuple[Raw, ...] = ()
    if torch is not None and release.at_least(Release.V2_3):
        injections = tuple((torch.get("envInjection") or EMPTY).get("targets") or ())
    launcher_as_node = bool(mpi is not None and mpi.get("runLauncherAsNode"))
    shape = shape_of(
        jobs,
        tuple(job.labels.get(ANCESTOR_LABEL) for job in jobs),
        num_nodes if policy is not None else None,
        mpi is not None,
        launcher_as_node and release is not Release.V2_0,
    )
    limits, requests = _resources(jobs, shape)
    claim_layer = Layer(runtime.label, "spec.template.spec", "", EMPTY, places=places) if places else None
    failure_policy = jobset.get("failurePolicy")
    if release is Release.V2_0 and failure_policy and failure_policy.get("rules"):
        # Its CRD prunes the patterns, so such a rule matches any message.
        rules = [
            {field: value for field, value in rule.items() if field != "onJobFailureMessagePatterns"}
            for rule in failure_policy["rules"]
        ]
        failure_policy = {**failure_policy, "rules": rules}
    framework = "torch" in ml or (newer and ("jax" in ml or "xgboost" in ml))
    namespace = (runtime.raw.get("metadata") or EMPTY).get("namespace") or runtime.namespace
    alone = EffectiveSet(
        release,
        tuple(
            EffectiveJob(
                job.name,
                job.replicas * shape.counts[index],
                shape.trains[index],
                job.backoff_limit,
                job.spec,
                _with_own_port(job) if index == shape.first and framework else job.pod,
                (job.layer,),
                job.origin,
                shape.receives[index],
                job.explicit_backoff_limit,
                job.labels,
                job.replicas,
                (),
                claim_layer,
            )
            for index, job in enumerate(jobs)
        ),
        failure_policy,
        jobset,
        runtime.label,
        namespace if runtime.kind == "TrainingRuntime" else "",
        metadata=(
            (Metadata("JobSet", Origin(runtime.label, "spec.template.metadata", ""), metadata),)
            if (metadata := (spec.get("template") or EMPTY).get("metadata"))
            else ()
        ),
    )
    return Prepared(
        release,
        runtime.label,
        policy is not None,
        num_nodes,
        torch,
        mpi,
        ml.get("jax") if newer else None,
        ml.get("xgboost") if newer else None,
        flux,
        launcher_as_node,
        jobs,
        shape,
        limits,
        requests,
        _torchtune_settings(jobs, shape, release),
        failure_policy,
        jobset,
        places,
        claim_layer,
        injections,
        not (mpi is not None or flux is not None or injections or places),
        alone,
    )


def shape_of(
    jobs: tuple[Template, ...],
    ancestors: tuple[str | None, ...],
    num_nodes: int | None,
    mpi: bool,
    env_to_node: bool,
) -> Shape:
    """What follows from the jobs' labels (``newRuntimeInfo``, ``WithPodSet``).

    ``num_nodes`` is None without an mlPolicy. A job trains that is labelled trainer, under MPI job ``node`` too;
    without any label the only job. ``spec.trainer`` reaches the labelled jobs, its env with
    ``env_to_node`` also job ``node``.
    """
    labelled = [ancestor == TRAINER_STEP for ancestor in ancestors]
    trains: list[bool] = []
    receives: list[bool] = []
    counts: list[int] = []
    alone = len(jobs) == 1 and ancestors[0] is None
    for job, own in zip(jobs, labelled, strict=True):
        trains.append(own or alone or (mpi and job.name == NODE))
        receives.append(own or (env_to_node and job.name == NODE))
        count = num_nodes if own and num_nodes is not None else job.parallelism
        counts.append(count if count > 1 else 1)
    first = labelled.index(True) if True in labelled else -1
    return Shape(ancestors, tuple(trains), tuple(receives), tuple(counts), first)


def _template(label: str, index: int, job: Raw) -> Template:
    name = job.get("name") or ""
    template = job.get("template") or EMPTY
    labels = (template.get("metadata") or EMPTY).get("labels") or EMPTY
    ancestor = labels.get(ANCESTOR_LABEL)
    spec = template.get("spec") or EMPTY
    raw = (spec.get("template") or EMPTY).get("spec") or EMPTY
    grace = raw.get("terminationGracePeriodSeconds")
    pod = {
        **raw,
        "restartPolicy": raw.get("restartPolicy") or "OnFailure",
        "terminationGracePeriodSeconds": DEFAULT_GRACE if grace is None else grace,
    }
    at = f"spec.template.spec.replicatedJobs[{index}].template.spec"
    explicit = spec.get("backoffLimit")
    default = 6 if spec.get("backoffLimitPerIndex") is None else _MAX_INT32
    parallelism = spec.get("parallelism")
    # An initializer's and a labelled job's replicas are set to 1; 0 is left out of the JSON, and the CRD makes it 1.
    replicas = 1 if ancestor in (TRAINER_STEP, DATASET, MODEL) else job.get("replicas") or 1
    return Template(
        name,
        labels,
        spec,
        pod,
        Layer(label, f"{at}.template.spec", f"job {name}", raw),
        Origin(label, at, f"job {name}"),
        1 if parallelism is None else parallelism,
        default if explicit is None else explicit,
        explicit is not None,
        replicas,
        node_index(raw),
    )


def _with_own_port(job: Template) -> Raw:
    """The pod with the port of Trainer among those of container ``node``, as it is for any TrainJob with a trainer."""
    if job.node < 0 or not (ports := job.pod["containers"][job.node].get("ports")):
        return job.pod
    built = built_ports(ports, True)
    if len({port.get("containerPort") for port in built}) < len(built):
        return job.pod  # right as long as no TrainJob has a trainer, or wrong as it stands
    containers = list(job.pod["containers"])
    containers[job.node] = {**containers[job.node], "ports": built}
    return {**job.pod, "containers": containers}


def node_index(pod: Raw) -> int:
    """The index of container ``node``, -1 without one."""
    for index, container in enumerate(pod.get("containers") or ()):
        if container.get("name") == NODE:
            return index
    return -1


def _resources(jobs: tuple[Template, ...], shape: Shape) -> tuple[Raw, Raw]:
    """Limits and requests of the container that Trainer counts GPUs of (``ExtractResourcePerNodeFromRuntime``)."""
    for job, ancestor in zip(jobs, shape.ancestors, strict=True):
        if (job.name == NODE or ancestor == TRAINER_STEP) and job.node >= 0:
            resources: Raw = job.pod["containers"][job.node].get("resources") or EMPTY
            return resources.get("limits") or EMPTY, resources.get("requests") or EMPTY
    return EMPTY, EMPTY


def _torchtune_settings(jobs: tuple[Template, ...], shape: Shape, release: Release) -> tuple[str, ...]:
    kept = _TORCHTUNE_KEPT[:3] if release is Release.V2_0 else _TORCHTUNE_KEPT
    found: list[Any] = []
    for job, ancestor in zip(jobs, shape.ancestors, strict=True):
        if ancestor == TRAINER_STEP:
            for container in job.pod.get("containers") or ():
                if container.get("name") == NODE:
                    found.extend(item for item in container.get("command") or () if item.split("=", 1)[0] in kept)
    return tuple(found)
