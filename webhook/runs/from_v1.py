"""``PyTorchJob`` and ``MPIJob`` of the Training Operator as a TrainJob with a TrainingRuntime of its own.

Every field is placed, or named as one that has no place. Pods keep what their template says; what the old operator gave
them (``MASTER_ADDR``, ``RANK``, ...) is given by variables. Read in the sources of training-operator v1.9.0
(``pkg/apis/kubeflow.org/v1``, ``pkg/controller.v1/pytorch/envvar.go``) and mpi-operator (``v2beta1``).
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from msgspec import Struct

from webhook.decision.in_force import in_named
from webhook.model.names import ANCESTOR_LABEL, API_VERSION, JOBSET_NAME_LABEL, LAST_APPLIED, MULTIKUEUE, TRAINER_STEP
from webhook.model.policy import Policy
from webhook.model.release import Release

Raw = dict[str, Any]

KINDS: Final = ("PyTorchJob", "MPIJob")
_LONGEST: Final = 50
_NAME: Final = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_SERVER_SET: Final = ("uid", "resourceVersion", "creationTimestamp", "generation", "managedFields", "selfLink")
_RUN_POLICY: Final = (
    "cleanPodPolicy",
    "ttlSecondsAfterFinished",
    "activeDeadlineSeconds",
    "backoffLimit",
    "schedulingPolicy",
    "suspend",
    "managedBy",
)
_SCHEDULING: Final = ("minAvailable", "queue", "minResources", "priorityClass", "scheduleTimeoutSeconds")
_ELASTIC: Final = (
    "minReplicas",
    "maxReplicas",
    "rdzvBackend",
    "rdzvPort",
    "rdzvHost",
    "rdzvId",
    "rdzvConf",
    "standalone",
    "nProcPerNode",
    "maxRestarts",
    "metrics",
)
_MPI: Final = (
    "slotsPerWorker",
    "cleanPodPolicy",
    "mpiReplicaSpecs",
    "mainContainer",
    "runPolicy",
    "sshAuthMountPath",
    "mpiImplementation",
    "launcherCreationPolicy",
    "runLauncherAsWorker",
)
_POLICIES: Final = ("Always", "OnFailure", "Never", "ExitCode")
_RESERVED: Final = ("PET_NNODES", "PET_NPROC_PER_NODE", "PET_NODE_RANK", "PET_MASTER_ADDR", "PET_MASTER_PORT")
_QUEUE: Final = "scheduling.volcano.sh/queue-name"
_PORT: Final = 23456
"""The Training Operator's own, where no container port is named ``pytorchjob-port``."""


class Found(Struct, frozen=True):
    """What is to be said of a field. ``weight``: ``bad`` (its value is none), ``lost`` (it has no place), ``note``."""

    field: str
    message: str
    weight: str = "lost"


class Converted(Struct, frozen=True):
    """The objects in the order to apply them, what has no place, and what is to be known."""

    objects: tuple[Raw, ...]
    found: tuple[Found, ...]


def is_v1_job(raw: Any) -> bool:
    """Whether it is one of the kinds that this module knows, of whatever version."""
    group = str(raw.get("apiVersion") or "").partition("/")[0] if isinstance(raw, Mapping) else ""
    return group == "kubeflow.org" and raw.get("kind") in KINDS


def convert_v1(raw: Mapping[str, Any], release: Release, namespace: str | None, policy: Policy) -> Converted:
    """The objects of a job, and what has no place."""
    made = _Conversion(raw, release, namespace, policy)
    objects = made.pytorch() if raw.get("kind") == "PyTorchJob" else made.mpi()
    return Converted(tuple(objects), tuple(made.found))


class _Conversion:
    """One job on its way. ``found`` collects what has no place."""

    def __init__(self, raw: Mapping[str, Any], release: Release, namespace: str | None, policy: Policy) -> None:
        self.raw: Raw = copy.deepcopy(dict(raw))
        self.release = release
        self.found: list[Found] = []
        self.spec = self._map(self.raw, "spec", "")
        self.run_policy: Raw = {}
        self.metadata = self._metadata(namespace)
        self.policy = in_named(policy, str(self.metadata.get("namespace") or ""))
        self.template: Raw = {}
        self.template_metadata: Raw = {}
        self.pod_group: Raw | None = None
        for key in self.raw:
            if key not in ("apiVersion", "kind", "metadata", "spec", "status"):
                self.lost(str(key), f"is no field of a {raw.get('kind')}")

    # -- what is said --------------------------------------------------------------------------------------------

    def lost(self, field: str, why: str) -> None:
        self.found.append(Found(field, why))

    def bad(self, field: str, why: str) -> None:
        self.found.append(Found(field, why, "bad"))

    def note(self, field: str, what: str) -> None:
        self.found.append(Found(field, what, "note"))

    def _map(self, raw: Mapping[str, Any], key: str, above: str) -> Raw:
        value = raw.get(key)
        if value is None:
            return {}
        if not isinstance(value, dict):
            self.bad(f"{above}.{key}".lstrip("."), "is no map")
            return {}
        return value

    def _strangers(self, raw: Mapping[str, Any], known: Sequence[str], above: str, what: str) -> None:
        for key in raw:
            if key not in known:
                self.lost(f"{above}.{key}", f"is no field of {what}")

    def _number(self, raw: Mapping[str, Any], key: str, above: str, least: int = 0) -> int | None:
        value = raw.get(key)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            self.bad(f"{above}.{key}", f'"{value}" is no number of at least {least}')
            return None
        return value

    # -- metadata and runPolicy ----------------------------------------------------------------------------------

    def _metadata(self, namespace: str | None) -> Raw:
        given = self._map(self.raw, "metadata", "")
        out: Raw = {}
        for key, value in given.items():
            if key in ("name", "generateName", "labels"):
                out[key] = value
            elif key == "annotations":
                kept = {name: text for name, text in (value or {}).items() if name != LAST_APPLIED}
                out |= {"annotations": kept} if kept else {}
            elif key not in (*_SERVER_SET, "namespace"):
                self.lost(f"metadata.{key}", "has no place: it belongs to the old object")
        name = given.get("name") or str(given.get("generateName") or "").rstrip("-")
        if not isinstance(name, str) or not _NAME.fullmatch(name) or len(name) > _LONGEST:
            said = "is absent" if not name else f'"{name}" is no name of a TrainJob'
            self.bad("metadata.name", f"{said}: a-z, 0-9 and -, a letter first, at most {_LONGEST} characters")
        where = namespace or given.get("namespace")
        if where:
            out["namespace"] = where
        self.name = str(name or "")
        return {key: out[key] for key in ("name", "generateName", "namespace", "labels", "annotations") if key in out}

    def _budget(self, replicas: Mapping[str, Raw], above: str, extra: int | None, field: str) -> int:
        """``maxRestarts``, out of the replicas' restart policies and what limits them."""
        told = {kind: str(one.get("restartPolicy") or "") for kind, one in replicas.items()}
        for kind, text in told.items():
            if text not in ("", *_POLICIES):
                self.bad(f"{above}.{kind}.restartPolicy", f'"{text}" is none of {", ".join(_POLICIES)}')
            elif text == "ExitCode":
                self.lost(
                    f"{above}.{kind}.restartPolicy",
                    "ExitCode (restart after 128 to 255 alone) has no place: every failure counts, up to maxRestarts",
                )
        limit = self._number(self.run_policy, "backoffLimit", "spec.runPolicy")
        budget = extra if limit is None else limit
        default = "Never" if self.raw.get("kind") == "MPIJob" else "OnFailure"
        never = all((text or default) == "Never" for text in told.values())
        # mpi-operator's launcher is a Job, which makes a new pod even so (six times where nothing else is said).
        of_a_job = self.raw.get("kind") == "MPIJob" and (
            limit is not None or str(self.raw.get("apiVersion")).endswith("/v2beta1")
        )
        if never and not of_a_job:
            if budget:
                self.note(field, "did nothing beside restartPolicy Never: maxRestarts is 0")
            return 0
        if budget is not None:
            return budget
        chosen = max(self.policy.defaults.max_restarts, 1)
        self.note(above, f"had no limit of restarts; failurePolicy.maxRestarts: {chosen}")
        return chosen

    def _policies(self, spec: Raw, pods: int, mpi: bool) -> None:
        """Everything of runPolicy but the budget, which ``_budget`` has read."""
        run = self.run_policy
        self._strangers(run, _RUN_POLICY, "spec.runPolicy", "a runPolicy")
        clean = run.get("cleanPodPolicy")
        if clean == "All":
            self.lost(
                "spec.runPolicy.cleanPodPolicy",
                "All has no place: finished pods stay until the TrainJob is deleted (or ttlSecondsAfterFinished)",
            )
        elif clean not in (None, "", "None", "Running"):
            self.bad("spec.runPolicy.cleanPodPolicy", f'"{clean}" is none of All, Running, None')
        elif clean == "None" and mpi:
            self.note("spec.runPolicy.cleanPodPolicy", "None: the workers' pods end with the launcher all the same")
        deadline = self._number(run, "activeDeadlineSeconds", "spec.runPolicy", 1)
        if deadline is not None:
            if self.release.at_least(Release.V2_2):
                spec["activeDeadlineSeconds"] = deadline
            else:
                self.lost("spec.runPolicy.activeDeadlineSeconds", f"has no place in Trainer {self.release.value}")
        ttl = self._number(run, "ttlSecondsAfterFinished", "spec.runPolicy")
        if ttl is not None:
            self.template["ttlSecondsAfterFinished"] = ttl
        suspend = run.get("suspend")
        if isinstance(suspend, bool):
            spec["suspend"] = suspend
        elif suspend is not None:
            self.bad("spec.runPolicy.suspend", f'"{suspend}" is neither true nor false')
        managed = run.get("managedBy")
        if managed == MULTIKUEUE:
            spec["managedBy"] = managed
        elif managed not in (None, "", "kubeflow.org/training-operator", "kubeflow.org/mpi-operator"):
            self.lost("spec.runPolicy.managedBy", f'"{managed}" has no place: Trainer knows {MULTIKUEUE} alone')
        self._scheduling(pods)

    def _scheduling(self, pods: int) -> None:
        """Gang scheduling: Volcano where the pods name it, else the coscheduling plugin."""
        above = "spec.runPolicy.schedulingPolicy"
        given = self._map(self.run_policy, "schedulingPolicy", "spec.runPolicy")
        if "schedulingPolicy" not in self.run_policy or not given:
            return
        self._strangers(given, _SCHEDULING, above, "a schedulingPolicy")
        volcano = any(pod.get("schedulerName") == "volcano" for pod in self._pod_specs())
        least = self._number(given, "minAvailable", above)
        if least is not None and least != pods:
            self.lost(f"{above}.minAvailable", f"{least} has no place: Trainer waits for all {pods} pods")
        if given.get("minResources"):
            self.lost(f"{above}.minResources", "has no place: Trainer works them out of the pods")
        if given.get("priorityClass"):
            for pod in self._pod_specs():
                if pod.setdefault("priorityClassName", given["priorityClass"]) != given["priorityClass"]:
                    self.lost(f"{above}.priorityClass", f'the pods say "{pod["priorityClassName"]}" already')
        timeout = self._number(given, "scheduleTimeoutSeconds", above, 1)
        if volcano and self.release.at_least(Release.V2_1):
            self.pod_group = {"volcano": {}}
            if timeout is not None:
                self.lost(f"{above}.scheduleTimeoutSeconds", "has no place under Volcano")
            if given.get("queue"):
                self.template_metadata = {"annotations": {_QUEUE: str(given["queue"])}}
            return
        if given.get("queue"):
            self.lost(f"{above}.queue", "has no place but under Volcano (schedulerName: volcano) from Trainer 2.1 on")
        self.pod_group = {"coscheduling": {} if timeout is None else {"scheduleTimeoutSeconds": timeout}}

    def _pod_specs(self) -> list[Raw]:
        jobs = self.template.get("replicatedJobs") or ()
        return [job["template"]["spec"]["template"]["spec"] for job in jobs]

    # -- pods ----------------------------------------------------------------------------------------------------

    def _replicas(self, field: str, known: Sequence[str]) -> dict[str, Raw]:
        given = self._map(self.spec, field, "spec")
        out: dict[str, Raw] = {}
        for kind, one in given.items():
            at = f"spec.{field}.{kind}"
            proper = str(kind)[:1].upper() + str(kind)[1:]
            if proper not in known:
                self.bad(at, f"is none of {' and '.join(known)}")
            elif not isinstance(one, dict):
                self.bad(at, "is no map")
            else:
                self._strangers(one, ("replicas", "template", "restartPolicy"), at, "a replica")
                out[proper] = one
        return out

    def _pod(self, replica: Raw, at: str, main: str | None) -> tuple[Raw, Raw]:
        """The pod template, its main container named ``node``, and that container."""
        template = self._map(replica, "template", at)
        self._strangers(template, ("metadata", "spec"), f"{at}.template", "a pod template")
        metadata = self._map(template, "metadata", f"{at}.template")
        for key in metadata:
            if key not in ("labels", "annotations", "name", "creationTimestamp", "namespace"):
                self.lost(f"{at}.template.metadata.{key}", "has no place in the pods of a Job")
        kept = {key: metadata[key] for key in ("labels", "annotations") if metadata.get(key)}
        spec = self._map(template, "spec", f"{at}.template")
        if spec.pop("restartPolicy", None) is not None:
            self.note(f"{at}.template.spec.restartPolicy", "counted for nothing: that of the replica does")
        for key in ("hostname", "subdomain"):
            if spec.pop(key, None) is not None:
                self.lost(f"{at}.template.spec.{key}", "has no place: JobSet sets it for each pod")
        # A pod that fails is not started alone, which would leave the others waiting: the whole run is.
        spec["restartPolicy"] = "Never"
        containers = [one for one in spec.get("containers") or () if isinstance(one, dict)]
        if not containers:
            self.bad(f"{at}.template.spec.containers", "has no container")
            containers = [{}]
            spec["containers"] = containers
        chosen = next((one for one in containers if one.get("name") == main), containers[0])
        if main is not None and len(containers) > 1 and chosen.get("name") != main:
            self.note(
                f"{at}.template.spec.containers",
                f'none is named "{main}": the first is taken for the one that trains',
            )
        for other in (*containers, *(spec.get("initContainers") or ())):
            if other is not chosen and isinstance(other, dict) and other.get("name") == "node":
                self.bad(f"{at}.template.spec.containers", '"node" has to be the name of the one that trains')
        if len(containers) > 1:
            self.note(
                f"{at}.template.spec.containers",
                "beside the one that trains hold the Job up: make them initContainers with restartPolicy: Always",
            )
        chosen["name"] = "node"
        chosen_first = {"name": "node", **{key: value for key, value in chosen.items() if key != "name"}}
        chosen.clear()
        chosen.update(chosen_first)
        return ({"metadata": kept} if kept else {}) | {"spec": spec}, chosen

    def _job(self, name: str, pod: Raw, trains: bool) -> Raw:
        template: Raw = {"spec": {"backoffLimit": 0, "template": pod}}
        if trains:
            template = {"metadata": {"labels": {ANCESTOR_LABEL: TRAINER_STEP}}, **template}
        return {"name": name, "template": template}

    def _objects(self, spec: Raw, ml_policy: Raw, framework: str) -> list[Raw]:
        metadata: Raw = {"name": self.name}
        if "namespace" in self.metadata:
            metadata["namespace"] = self.metadata["namespace"]
        metadata["labels"] = {"trainer.kubeflow.org/framework": framework}
        runtime_spec: Raw = {"mlPolicy": ml_policy}
        if self.pod_group is not None:
            runtime_spec["podGroupPolicy"] = self.pod_group
        template: Raw = {"spec": self.template}
        if self.template_metadata:
            template = {"metadata": self.template_metadata, **template}
        runtime_spec["template"] = template
        reference = {"apiGroup": "trainer.kubeflow.org", "kind": "TrainingRuntime", "name": self.name}
        return [
            {"apiVersion": API_VERSION, "kind": "TrainingRuntime", "metadata": metadata, "spec": runtime_spec},
            {
                "apiVersion": API_VERSION,
                "kind": "TrainJob",
                "metadata": self.metadata,
                "spec": {"runtimeRef": reference, **spec},
            },
        ]

    # -- PyTorchJob ----------------------------------------------------------------------------------------------

    def pytorch(self) -> list[Raw]:
        self._strangers(
            self.spec, ("runPolicy", "elasticPolicy", "pytorchReplicaSpecs", "nprocPerNode"), "spec", "a PyTorchJob"
        )
        if self.raw.get("apiVersion") != "kubeflow.org/v1":
            self.bad("apiVersion", f'"{self.raw.get("apiVersion")}" is not known for a PyTorchJob: kubeflow.org/v1')
        above = "spec.pytorchReplicaSpecs"
        self.run_policy = self._map(self.spec, "runPolicy", "spec")
        replicas = self._replicas("pytorchReplicaSpecs", ("Master", "Worker"))
        if not replicas:
            self.bad(above, "has neither Master nor Worker")
            replicas = {"Worker": {}}
        counts = {kind: self._number(one, "replicas", f"{above}.{kind}") for kind, one in replicas.items()}
        nodes = sum(1 if count is None else count for count in counts.values())
        if (counts.get("Master") or 1) > 1:
            self.bad(f"{above}.Master.replicas", "is more than 1: a PyTorchJob has one master")
        elastic = self._map(self.spec, "elasticPolicy", "spec")
        self._elastic(elastic, nodes)
        budget = self._budget(
            replicas, above, self._number(elastic, "maxRestarts", "spec.elasticPolicy"), "spec.runPolicy"
        )
        first, *others = replicas
        made = {kind: self._pod(one, f"{above}.{kind}", "pytorch") for kind, one in replicas.items()}
        pod, container = made[first]
        for other in others:
            for path in differences(pod, made[other][0]):
                self.lost(
                    f"{above}.{other}.template{path}",
                    f"differs from the {first}'s, and one job trains them all: the {first}'s is taken",
                )
        trainer: Raw = {"numNodes": nodes}
        processes = self._processes(elastic)
        if processes is not None:
            trainer["numProcPerNode"] = processes
        for key in ("image", "command", "args"):
            if container.get(key):
                trainer[key] = container.pop(key)
        if "image" not in trainer:
            self.bad(f"{above}.{first}.template.spec.containers[0].image", "is absent")
        if container.get("resources"):
            trainer["resourcesPerNode"] = container.pop("resources")
        self._variables(container, nodes, processes, "Master" in replicas, f"{above}.{first}")
        # Trainer takes an image for granted in its runtimes.
        container["image"] = trainer.get("image", "")
        self.template = {
            "failurePolicy": {"maxRestarts": budget},
            "replicatedJobs": [self._job("node", pod, True)],
        }
        spec: Raw = {"trainer": trainer}
        self._policies(spec, nodes, False)
        return self._objects(spec, {"numNodes": nodes, "torch": {}}, "torch")

    def _elastic(self, elastic: Raw, nodes: int) -> None:
        above = "spec.elasticPolicy"
        self._strangers(elastic, _ELASTIC, above, "an elasticPolicy")
        for key in ("minReplicas", "maxReplicas"):
            count = self._number(elastic, key, above)
            if count is not None and count != nodes:
                self.lost(f"{above}.{key}", f"{count} has no place: Trainer runs a fixed number of nodes, here {nodes}")
        for key in ("rdzvHost", "rdzvId", "rdzvConf", "metrics"):
            if elastic.get(key):
                self.lost(
                    f"{above}.{key}", "has no place" + ("" if key == "metrics" else ": Trainer makes the rendezvous")
                )
        backend = elastic.get("rdzvBackend")
        if backend == "c10d":
            self.note(
                f"{above}.rdzvBackend", "c10d: torchrun takes PET_MASTER_ADDR and PET_MASTER_PORT, as Trainer sets them"
            )
        elif backend:
            self.lost(f"{above}.rdzvBackend", f'"{backend}" has no place: Trainer makes the rendezvous itself')
        if elastic.get("rdzvPort"):
            self.note(f"{above}.rdzvPort", "Trainer chooses the port itself (29400)")
        if elastic.get("standalone") and nodes != 1:
            self.lost(f"{above}.standalone", "has no place")

    def _processes(self, elastic: Raw) -> int | None:
        given = self.spec.get("nprocPerNode")
        at = "spec.nprocPerNode"
        if given is None and elastic.get("nProcPerNode") is not None:
            given, at = elastic["nProcPerNode"], "spec.elasticPolicy.nProcPerNode"
        if given is None or given in ("auto", "gpu"):
            return None  # as Trainer does by itself: one for each GPU
        if str(given).isdecimal() and int(given) > 0:
            return int(given)
        self.lost(
            at, f'"{given}" has no place: Trainer {self.release.value} takes a number, or works it out of the GPUs'
        )
        return None

    def _variables(self, container: Raw, nodes: int, processes: int | None, master: bool, at: str) -> None:
        """What the Training Operator gave each pod, for programs that are not started by torchrun."""
        env = [one for one in container.get("env") or () if isinstance(one, dict)]
        for index, one in enumerate(env):
            if one.get("name") in _RESERVED:
                self.lost(f"{at}.template.spec.containers[0].env[{index}]", f"{one['name']} is Trainer's own")
        env = [one for one in env if one.get("name") not in _RESERVED]
        if master:
            port = next(
                (
                    one.get("containerPort")
                    for one in container.get("ports") or ()
                    if isinstance(one, dict) and one.get("name") == "pytorchjob-port"
                ),
                _PORT,
            )
            run = {"fieldRef": {"fieldPath": f"metadata.labels['{JOBSET_NAME_LABEL}']"}}
            rank = {"fieldRef": {"fieldPath": "metadata.annotations['batch.kubernetes.io/job-completion-index']"}}
            given: list[Raw] = [
                {"name": "TRAINJOB_NAME", "valueFrom": run},
                {"name": "MASTER_ADDR", "value": "$(TRAINJOB_NAME)-node-0-0.$(TRAINJOB_NAME)"},
                {"name": "MASTER_PORT", "value": str(port)},
                {"name": "WORLD_SIZE", "value": str(nodes * (processes or 1))},
                {"name": "RANK", "valueFrom": rank},
            ]
            known = {one.get("name") for one in env}
            # Before the user's own, so that these may refer to them as they could.
            env = [one for one in given if one["name"] not in known] + env
        if env:
            container["env"] = env

    # -- MPIJob --------------------------------------------------------------------------------------------------

    def mpi(self) -> list[Raw]:
        above = "spec.mpiReplicaSpecs"
        self._strangers(self.spec, _MPI, "spec", "an MPIJob")
        version = str(self.raw.get("apiVersion") or "").partition("/")[2]
        if version not in ("v1", "v2beta1"):
            self.bad("apiVersion", f'"{self.raw.get("apiVersion")}" is not known for an MPIJob: v1 or v2beta1')
        self.run_policy = dict(self._map(self.spec, "runPolicy", "spec"))
        if self.spec.get("cleanPodPolicy") is not None:
            self.run_policy.setdefault("cleanPodPolicy", self.spec["cleanPodPolicy"])
        replicas = self._replicas("mpiReplicaSpecs", ("Launcher", "Worker"))
        launcher = replicas.get("Launcher")
        if launcher is None:
            self.bad(f"{above}.Launcher", "is absent: nothing would start the program")
            launcher = {}
        if (self._number(launcher, "replicas", f"{above}.Launcher") or 1) > 1:
            self.bad(f"{above}.Launcher.replicas", "is more than 1: an MPIJob has one launcher")
        worker = replicas.get("Worker")
        workers = 0
        if worker is not None:
            count = self._number(worker, "replicas", f"{above}.Worker")
            workers = 1 if count is None else count
        both = bool(self.spec.get("runLauncherAsWorker")) or not workers
        nodes = workers + 1 if both else workers
        slots = self._number(self.spec, "slotsPerWorker", "spec", 1) or 1
        budget = self._budget({"Launcher": launcher}, above, None, "spec.runPolicy.backoffLimit")
        main = str(self.spec.get("mainContainer") or "")
        pod, container = self._pod(launcher, f"{above}.Launcher", main or "mpi")
        jobs: list[Raw] = []
        if worker is not None and workers:
            theirs, node = self._pod(worker, f"{above}.Worker", main or "mpi")
            self._sshd(node, theirs, version, f"{above}.Worker")
            jobs.append(self._job("node", theirs, False))
        lead = self._job("launcher", pod, True)
        if jobs and self.spec.get("launcherCreationPolicy") != "AtStartup":
            lead = {"name": "launcher", "dependsOn": [{"name": "node", "status": "Ready"}], **lead}
        jobs.append(lead)
        path = self.spec.get("sshAuthMountPath") or _home(container, pod)
        mpi: Raw = {"numProcPerNode": slots, "mpiImplementation": "OpenMPI", "sshAuthMountPath": path}
        if self.spec.get("mpiImplementation") not in (None, "", "OpenMPI"):
            self.lost(
                "spec.mpiImplementation", f'"{self.spec["mpiImplementation"]}" has no place: Trainer knows OpenMPI'
            )
        mpi["runLauncherAsNode"] = both
        if not container.get("image"):
            self.bad(f"{above}.Launcher.template.spec.containers[0].image", "is absent")
        self.template = {
            "failurePolicy": {"maxRestarts": budget},
            "successPolicy": {"operator": "All", "targetReplicatedJobs": ["launcher"]},
            "network": {"publishNotReadyAddresses": True},
            "replicatedJobs": jobs,
        }
        spec: Raw = {"trainer": {"numNodes": max(nodes, 1)}}
        self._policies(spec, workers + 1, True)
        return self._objects(spec, {"numNodes": 1, "mpi": mpi}, "mpi")

    def _sshd(self, container: Raw, pod: Raw, version: str, at: str) -> None:
        """Trainer reaches the workers by ssh; the operator of v1 did it by exec, and its workers only slept."""
        field = f"{at}.template.spec.containers[0]"
        if container.get("command") or container.get("args"):
            text = " ".join(map(str, [*(container.get("command") or ()), *(container.get("args") or ())]))
            if "sshd" not in text:
                self.note(field, "has to end in sshd in the foreground: Trainer's launcher reaches it by ssh")
            return
        if version == "v2beta1":
            self.note(field, "starts sshd (the operator's own default command)")
        else:
            self.note(
                field, "starts sshd now, which its image has to have (ssh in the launcher's): v1 went by kubectl exec"
            )
        container["command"] = ["/usr/sbin/sshd"]
        container["args"] = ["-De"]
        if version == "v1" and _home(container, pod).startswith("/root"):
            # Who is not root has sshd at a port that the image's own configuration says.
            container.setdefault("readinessProbe", {"tcpSocket": {"port": 22}, "initialDelaySeconds": 5})


def _home(container: Mapping[str, Any], pod: Mapping[str, Any]) -> str:
    """Where ssh looks for its keys: root's home, or that of the user of the images of MPI Operator and Trainer."""
    for context in (container.get("securityContext"), (pod.get("spec") or {}).get("securityContext")):
        if isinstance(context, Mapping) and context.get("runAsUser") is not None:
            return "/root/.ssh" if context["runAsUser"] == 0 else "/home/mpiuser/.ssh"
    return "/root/.ssh"


def differences(one: Any, other: Any, at: str = "") -> Iterator[str]:
    """Paths at which two values differ, as they stand in ``other``."""
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        for key in {**other, **one}:
            yield from differences(one.get(key), other.get(key), f"{at}.{key}")
    elif isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        for index, (left, right) in enumerate(zip(one, other, strict=True)):
            yield from differences(left, right, f"{at}[{index}]")
    elif one != other:
        yield at
