"""TrainJob + runtime -> the Jobs that come of them, in Trainer's own order of stages.

template -> overrides -> framework and ``spec.trainer`` -> JobSet. Inputs are read and shared, never changed.
"""

from __future__ import annotations

from typing import Any, Final

from webhook.effective.limits import jobs_too_many_to_merge, may_be_too_many
from webhook.effective.overrides import Override, overrides_of
from webhook.effective.ports import built_ports
from webhook.effective.strategic_merge import merge_free, merge_pod
from webhook.effective.template import (
    DATASET,
    LAUNCHER,
    MODEL,
    NODE,
    Prepared,
    Shape,
    Template,
    node_index,
    prepare,
    shape_of,
)
from webhook.effective.trainer import (
    TORCHTUNE,
    UnbuildableError,
    flux_command,
    flux_pod,
    jax_env,
    merged_resources,
    mpi_mounts,
    mpi_volumes,
    openmpi_env,
    processes_per_node,
    torch_env,
    torchtune_command,
    upsert,
    upsert_before,
    written_env,
    xgboost_env,
)
from webhook.model.budget import MERGED, Cut
from webhook.model.cluster import Runtime
from webhook.model.finding import Origin
from webhook.model.names import ANCESTOR_LABEL, TRAINER_STEP
from webhook.model.pod import EMPTY, TRAINER, EffectiveJob, EffectiveSet, Layer, Metadata, Raw, Stopped
from webhook.model.release import Release

_OWN_CONTROLLER: Final = "trainer.kubeflow.org/trainjob-controller"


def build_trainer_pods(trainjob: Raw | None, runtime: Runtime, release: Release) -> EffectiveSet:
    """The Jobs and pods of a TrainJob with this runtime in this release; without a TrainJob, of the runtime alone.

    Fields that this code knows have their CRD's types or are absent or null. Where Trainer or JobSet would refuse the
    pair, the pods are what they would have been; ``jobs`` is empty where Trainer's controller stops before the JobSet.
    """
    prepared: Prepared | None = runtime.prepared.get(release)
    if prepared is None:
        prepared = runtime.prepared[release] = prepare(runtime, release)
    if trainjob is None:
        return prepared.alone
    metadata = trainjob.get("metadata") or EMPTY
    spec = trainjob.get("spec") or EMPTY
    given = metadata.get("name") or ""
    generate_name = "" if given else metadata.get("generateName") or ""
    managed_by = spec.get("managedBy")
    stopped = None
    cut: tuple[Cut, ...] = ()
    try:
        jobs, cut = _jobs(prepared, spec, given or generate_name)
    except UnbuildableError as error:
        jobs, stopped = (), error.stopped
    return EffectiveSet(
        release,
        jobs,
        prepared.failure_policy,
        prepared.jobset_spec,
        prepared.label,
        metadata.get("namespace") or "default",  # as everything without one is taken to be
        given,
        generate_name,
        _jobset_metadata(prepared, spec, given or generate_name),
        bool(managed_by) and managed_by != _OWN_CONTROLLER and release.at_least(Release.V2_3),
        stopped,
        cut,
    )


def _jobset_metadata(prepared: Prepared, spec: Raw, name: str) -> tuple[Metadata, ...]:
    """``spec.labels`` and ``spec.annotations`` exist in 2.0 and 2.1."""
    if prepared.release.at_least(Release.V2_2) or not (spec.get("labels") or spec.get("annotations")):
        return prepared.alone.metadata
    own = {field: spec.get(field) for field in ("labels", "annotations")}
    return (*prepared.alone.metadata, Metadata("JobSet", Origin(f"TrainJob/{name}", "spec", ""), own))


def _jobs(prepared: Prepared, spec: Raw, name: str) -> tuple[tuple[EffectiveJob, ...], tuple[Cut, ...]]:
    label = f"TrainJob/{name}"
    shape = prepared.shape
    overrides: dict[str, list[Override]] = {}
    if spec.get(prepared.release.override_field):
        overrides = overrides_of(spec, label, prepared.release)
        relabels = False
        for entries in overrides.values():
            for entry in entries:
                if entry.labels:
                    relabels = True
        if relabels:
            shape = _relabelled(prepared, overrides)
    left_out: frozenset[str] = frozenset()
    cost = 0
    if overrides and may_be_too_many(overrides):
        left_out, cost = jobs_too_many_to_merge(
            [(job.name, shape.trains[index], job.pod) for index, job in enumerate(prepared.jobs)],
            {name: [entry.layer.pod for entry in entries] for name, entries in overrides.items()},
        )
    trainer = spec.get("trainer")
    counts = _pods(prepared, shape, trainer)
    plan = _Plan(prepared, shape, spec, trainer, label, name, counts)
    # Then only overrides, the number of pods and spec.trainer tell a job from that of the runtime alone.
    plain = prepared.plain and shape is prepared.shape and plan.initializer is None
    jobs: list[EffectiveJob] = []
    for index, job in enumerate(prepared.jobs):
        if plain and not shape.receives[index] and job.name not in overrides and counts[index] == shape.counts[index]:
            jobs.append(prepared.alone.jobs[index])
            continue
        if job.name in left_out:
            continue
        pod = job.pod
        node = job.node
        labels = job.labels
        layers = [job.layer]
        metadata: tuple[Metadata, ...] = ()
        if overrides and job.name in overrides:
            for entry in overrides[job.name]:
                layers.append(entry.layer)
                if entry.layer.pod:
                    pod = merge_pod(pod, entry.layer.pod)
                    if "containers" in entry.layer.pod:
                        node = node_index(pod)
                if entry.labels:
                    labels = merge_free(labels, entry.labels)
                if entry.metadata:
                    metadata += entry.metadata
        ancestor = shape.ancestors[index]
        if shape.receives[index] or plan.adds_to(job.name):
            pod = _trained(plan, index, job, pod, node, layers)
        if prepared.injections:
            pod = _injected(plan, index, job, pod, layers)
        if plan.initializer is not None and ancestor in (DATASET, MODEL):
            pod = _initialized(plan, ancestor, pod, layers)
        replicas = job.replicas
        if ancestor in (TRAINER_STEP, DATASET, MODEL):
            replicas = 1
        jobs.append(
            EffectiveJob(
                job.name,
                counts[index] * replicas,
                shape.trains[index],
                job.backoff_limit,
                job.spec,
                pod,
                tuple(layers),
                job.origin,
                shape.receives[index],
                job.explicit_backoff_limit,
                labels,
                replicas,
                _claim_volumes(prepared, pod, name) if prepared.claim_layer is not None else (),
                prepared.claim_layer,
                metadata,
            )
        )
    if not left_out:
        return tuple(jobs), ()
    more = f"(their overrides merge {cost} entries, and {MERGED} is the most)"
    return tuple(jobs), (Cut(f"job {more}", len(prepared.jobs), len(jobs)),)


def _relabelled(prepared: Prepared, overrides: dict[str, list[Override]]) -> Shape:
    """The shape with labels that runtimePatches add to job templates (2.2 and later)."""
    ancestors: list[str | None] = []
    for job in prepared.jobs:
        labels = job.labels
        for entry in overrides.get(job.name) or ():
            labels = merge_free(labels, entry.labels)
        ancestors.append(labels.get(ANCESTOR_LABEL))
    return shape_of(
        prepared.jobs,
        tuple(ancestors),
        prepared.num_nodes if prepared.has_policy else None,
        prepared.mpi is not None,
        prepared.launcher_as_node and prepared.release is not Release.V2_0,
    )


def _pods(prepared: Prepared, shape: Shape, trainer: Raw | None) -> list[int]:
    """Pods of one Job, for each job, with ``spec.trainer.numNodes``."""
    counts = list(shape.counts)
    nodes = None if trainer is None else trainer.get("numNodes")
    if prepared.mpi is not None:
        if nodes is not None:
            for index, job in enumerate(prepared.jobs):
                if job.name == NODE:
                    counts[index] = max(nodes - 1, 1) if prepared.launcher_as_node else nodes
                    break
    elif nodes is not None and shape.first >= 0:
        counts[shape.first] = nodes
    if prepared.release is Release.V2_0 and shape.first >= 0:
        # Its JobSet builder gives every labelled job the pods of the first one.
        for index, ancestor in enumerate(shape.ancestors):
            if ancestor == TRAINER_STEP:
                counts[index] = counts[shape.first]
    return counts


class _Plan:
    """What one TrainJob asks of all of its jobs, worked out before the first is built."""

    __slots__ = (
        "args",
        "command",
        "counts",
        "env",
        "flux_env",
        "initializer",
        "label",
        "name",
        "prepared",
        "processes",
        "shape",
        "targets",
        "torchtune",
        "trainer",
    )

    def __init__(
        self, prepared: Prepared, shape: Shape, spec: Raw, trainer: Raw | None, label: str, name: str, counts: list[int]
    ) -> None:
        self.prepared = prepared
        self.shape = shape
        self.trainer = trainer
        self.label = label
        self.name = name
        self.counts = counts
        self.initializer = spec.get("initializer")
        self.env: list[Raw] = []
        self.command: Any = None
        self.args: Any = None
        self.processes: int | str = "auto"
        self.torchtune = False
        self.targets: dict[Any, dict[Any, None]] | None = None
        """Job -> the containers that envInjection names in it; None before anybody asked."""
        first = shape.first
        if trainer is not None:
            variables = trainer.get("env")
            if variables:
                self.env = written_env(variables)
            self.command = trainer.get("command")
            self.args = trainer.get("args")
        if prepared.torch is not None:
            self.processes = processes_per_node(prepared, trainer)
            if self.command == TORCHTUNE and trainer is not None and first >= 0 and prepared.jobs[first].node >= 0:
                self.torchtune = True
                ref = (spec.get("runtimeRef") or EMPTY).get("name") or ""
                self.command = torchtune_command(prepared, trainer, counts[first], self.processes, name, ref)
        if prepared.flux is not None:
            if trainer is None or trainer.get("numNodes") is None:
                raise UnbuildableError("Flux needs spec.trainer.numNodes", _no_nodes_for_flux(prepared, label))
            container: Raw = EMPTY
            if first >= 0 and prepared.jobs[first].node >= 0:
                container = prepared.jobs[first].pod["containers"][prepared.jobs[first].node]
            self.flux_env = container.get("env") or ()
            # 2.2 does not look at the runtime's command.
            self.command = flux_command(container if prepared.release.at_least(Release.V2_3) else EMPTY, trainer)
            self.args = None
        if prepared.jax is not None and first < 0 and prepared.release is Release.V2_2:
            raise UnbuildableError("JAX needs a job labelled trainer", _no_job_for_jax(prepared))

    def adds_to(self, job: str) -> bool:
        """Whether a framework adds to the job whatever its labels say."""
        if self.prepared.mpi is not None:
            return job in (NODE, LAUNCHER)
        return self.prepared.flux is not None and job == NODE

    def gives_image(self, job: str) -> bool:
        """Whether ``spec.trainer.image`` reaches the job whatever its labels say: MPI's launcher and nodes from 2.4 on.

        Source: the release notes of 2.4.0; its sources were not read.
        """
        prepared = self.prepared
        return prepared.mpi is not None and prepared.release.at_least(Release.V2_4) and job in (NODE, LAUNCHER)


def _no_nodes_for_flux(prepared: Prepared, label: str) -> Stopped:
    """``generateFluxEntrypoint`` reads ``spec.trainer.numNodes`` without looking whether it is there, and panics."""
    at = Origin(label, "spec.trainer.numNodes", "spec.trainer.numNodes")
    problem = "spec.trainer.numNodes is absent, and Trainer's controller panics over a Flux runtime without it"
    return Stopped(at, problem, f"spec:\n  trainer:\n    numNodes: {max(prepared.num_nodes, 1)}")


def _no_job_for_jax(prepared: Prepared) -> Stopped:
    """2.2's ``EnforceMLPolicy`` looks at the pods of the trainer without asking whether there are any, and panics."""
    index = next((at for at, job in enumerate(prepared.jobs) if job.node >= 0), 0)
    field = f"spec.template.spec.replicatedJobs[{index}].template.metadata.labels"
    problem = f'no job has label "{ANCESTOR_LABEL}: {TRAINER_STEP}", and Trainer 2.2\'s controller panics over JAX then'
    return Stopped(Origin(prepared.label, field, "labels"), problem, f"labels:\n  {ANCESTOR_LABEL}: {TRAINER_STEP}")


def _other_mpi(prepared: Prepared) -> Stopped:
    name = (prepared.mpi or EMPTY).get("mpiImplementation")
    at = Origin(prepared.label, "spec.mlPolicy.mpi.mpiImplementation", "mlPolicy.mpi.mpiImplementation")
    return Stopped(at, f'mpiImplementation is "{name}", and Trainer runs OpenMPI alone', "mpiImplementation: OpenMPI")


def _trained(plan: _Plan, index: int, job: Template, pod: Raw, node: int, layers: list[Layer]) -> Raw:
    """The pod with what the framework adds and with ``spec.trainer``; their layers are appended."""
    prepared, trainer, shape = plan.prepared, plan.trainer, plan.shape
    labelled = shape.ancestors[index] == TRAINER_STEP
    first = index == shape.first
    added: list[Raw] = []
    after = False
    volumes: list[Raw] = []
    mounts: list[Raw] = []
    installer: Raw | None = None
    if first and trainer is not None and node >= 0:
        if prepared.torch is not None:
            added = torch_env(plan.counts[index], str(plan.processes), plan.name, plan.torchtune)
            after = True
        elif prepared.jax is not None:
            added = jax_env(plan.counts[index], plan.name)
        elif prepared.xgboost is not None:
            added = xgboost_env(prepared, trainer, plan.counts[index], plan.name)
            after = True
    if prepared.mpi is not None and (job.name == NODE or job.name == LAUNCHER):
        launcher = job.name == LAUNCHER
        volumes = mpi_volumes(prepared, launcher, plan.name)
        if node >= 0:
            mounts = mpi_mounts(prepared, launcher)
            if launcher:
                if prepared.mpi.get("mpiImplementation") not in (None, "OpenMPI"):
                    raise UnbuildableError("MPI has to be OpenMPI", _other_mpi(prepared))
                added = openmpi_env(prepared, trainer)
    elif prepared.flux is not None and job.name == NODE and trainer is not None:
        volumes, mounts, installer = flux_pod(prepared, plan.flux_env, trainer, plan.name)
    if not added and not volumes and trainer is None:
        return pod
    out = dict(pod)
    adds: dict[str, Any] = {}
    if volumes:
        adds["volumes"] = volumes
        out["volumes"] = _upsert_volumes(pod.get("volumes") or (), volumes)
    if installer is not None:
        adds["initContainers"] = [installer]
        out["initContainers"] = [*(pod.get("initContainers") or ()), installer]
    if node >= 0:
        containers = list(pod["containers"])
        container = dict(containers[node])
        mine: dict[str, Any] = {"name": NODE}
        if added:
            mine["env"] = added
        if mounts:
            mine["volumeMounts"] = mounts
            container["volumeMounts"] = _upsert_mounts(container.get("volumeMounts") or (), mounts)
        own = plan.env if shape.receives[index] else ()
        if added and after and own:
            container["env"] = upsert_before(container.get("env") or (), own, added)
        elif added or own:
            container["env"] = upsert(container.get("env") or (), added, own)
        if added and container.get("ports") and prepared.mpi is None:
            container["ports"] = built_ports(container["ports"], True)
        if trainer is not None and trainer.get("image") is not None and (labelled or plan.gives_image(job.name)):
            container["image"] = trainer["image"]
        if labelled and trainer is not None:
            if plan.command is not None:
                _put(container, "command", plan.command)
                if prepared.flux is not None:
                    mine["command"] = plan.command
            if plan.args is not None:
                _put(container, "args", plan.args)
        if trainer is not None:
            asked = trainer.get("resourcesPerNode")
            if asked is not None and shape.receives[index] and _takes_resources(prepared, job.name, labelled):
                resources = merged_resources(prepared, container.get("resources"), asked)
                if resources is not None:
                    container["resources"] = resources
        if len(mine) > 1:
            adds["containers"] = [mine]
        containers[node] = container
        out["containers"] = containers
    if adds:
        layers.append(Layer(TRAINER, "", "", adds))
    if trainer is not None and node >= 0 and (shape.receives[index] or plan.gives_image(job.name)):
        words: dict[str, Any] = {**trainer, "name": NODE}
        if not labelled:
            reaching = ("name", *(_ENV_FIELDS if shape.receives[index] else ()))
            reaching = (*reaching, "image") if plan.gives_image(job.name) else reaching
            words = {field: words[field] for field in reaching if field in words}
        layers.append(Layer(plan.label, "spec.trainer", "spec.trainer", {"containers": [words]}, True))
    return out


_ENV_FIELDS: Final = ("env", "resourcesPerNode")
"""What reaches job ``node`` under MPI's runLauncherAsNode."""


def _takes_resources(prepared: Prepared, job: str, labelled: bool) -> bool:
    """2.3 drops resourcesPerNode without an mlPolicy."""
    if prepared.release.at_least(Release.V2_3):
        return prepared.has_policy
    return labelled or (prepared.launcher_as_node and job == NODE)


def _put(container: dict[str, Any], field: str, words: Any) -> None:
    """A list given empty erases the runtime's."""
    if words:
        container[field] = words
    else:
        container.pop(field, None)


def _upsert_volumes(volumes: Any, added: list[Raw]) -> list[Raw]:
    return upsert(volumes, added)


def _upsert_mounts(mounts: Any, added: list[Raw]) -> list[Raw]:
    """Mounts at a known path are replaced, others go to the end."""
    out = list(mounts)
    places: dict[Any, int] = {}
    for index, mount in enumerate(out):
        places.setdefault(mount.get("mountPath"), index)
    for mount in added:
        at = places.setdefault(mount["mountPath"], len(out))
        out[at : at + 1] = [mount]
    return out


def _initialized(plan: _Plan, step: str, pod: Raw, layers: list[Layer]) -> Raw:
    """The pod of an initializer with ``spec.initializer``."""
    field = "dataset" if step == DATASET else "model"
    asked = (plan.initializer or EMPTY).get(field)
    if asked is None:
        return pod
    for index, container in enumerate(pod.get("containers") or ()):
        if container.get("name") == step:
            changed = dict(container)
            uri = asked.get("storageUri")
            stored: list[Raw] = [] if uri is None else [{"name": "STORAGE_URI", "value": uri}]
            own = written_env(asked.get("env") or ())
            if stored or own:
                changed["env"] = upsert(container.get("env") or (), stored, own)
            if (secret := asked.get("secretRef")) is not None:
                changed["envFrom"] = [
                    *(container.get("envFrom") or ()),
                    {"secretRef": {"name": secret.get("name") or ""}},
                ]
            containers = list(pod["containers"])
            containers[index] = changed
            at = f"spec.initializer.{field}"
            if stored:
                stored_layer = {"containers": [{"name": step, "env": stored}]}
                layers.append(Layer(plan.label, at, at, stored_layer, True, {"env STORAGE_URI": "storageUri"}))
            layers.append(
                Layer(plan.label, at, at, {"containers": [{"name": step, "env": asked.get("env") or ()}]}, True)
            )
            return {**pod, "containers": containers}
    return pod


def _injected(plan: _Plan, index: int, job: Template, pod: Raw, layers: list[Layer]) -> Raw:
    """The pod with ``PET_*`` in the containers that ``mlPolicy.torch.envInjection`` names (2.3)."""
    nodes = plan.counts[plan.shape.first] if plan.shape.first >= 0 else 1
    if plan.targets is None:
        known = {other.name for other in plan.prepared.jobs}
        plan.targets = {}
        for target in plan.prepared.injections:
            for name in target.get("containerNames") or ():
                if (named := target.get("jobName")) not in known:
                    raise UnbuildableError("envInjection names a job that the runtime does not have")
                # A name that is there again changes nothing.
                plan.targets.setdefault(named, {})[name] = None
    if targets := plan.targets.get(job.name):
        places: dict[Any, tuple[str, int]] = {}
        for kind in ("initContainers", "containers"):
            for at in range(len(pod.get(kind) or ()) - 1, -1, -1):
                places[pod[kind][at].get("name")] = kind, at
        lists: dict[str, list[Raw]] = {}
        injected: list[Layer] = []
        for name in targets:
            env = torch_env(nodes, str(plan.processes), plan.name, False)
            if name not in places:
                raise UnbuildableError("envInjection names a container that the runtime does not have")
            kind, at = places[name]
            containers = lists.setdefault(kind, list(pod[kind]) if kind not in lists else [])
            container = containers[at]
            own = kind == "containers" and name == NODE and plan.shape.receives[index]
            taken = {variable.get("name") for variable in plan.env} if own else set()
            env = [variable for variable in env if variable["name"] not in taken]
            containers[at] = {**container, "env": upsert(container.get("env") or (), env)}
            injected.append(Layer(TRAINER, "", "", {kind: [{"name": name, "env": env}]}))
        pod = {**pod, **lists}
        layers[1:1] = reversed(injected)
    return pod


def _claim_volumes(prepared: Prepared, pod: Raw, name: str) -> tuple[Raw, ...]:
    """The volumes that JobSet adds for claim templates that a container of the job mounts (``addVolumes``)."""
    mounted = {
        mount.get("name")
        for kind in ("containers", "initContainers")
        for container in pod.get(kind) or ()
        for mount in container.get("volumeMounts") or ()
    }
    volumes: list[Raw] = []
    for place in prepared.claim_places:
        template = place.removeprefix("volume ")
        if template in mounted:
            claim = {"claimName": f"{template}-{name}"}
            volumes.append({"name": template, "persistentVolumeClaim": claim})
    return tuple(volumes)
