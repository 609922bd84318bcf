"""Whatever well-typed objects come: no exception, no change to them, and the same answer from a warm runtime."""

from __future__ import annotations

import copy
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.effective.objects import find_checkpoints
from webhook.effective import build_trainer_pods
from webhook.model.cluster import Runtime
from webhook.model.pod import EffectiveJob, Raw, Storage, StorageKind
from webhook.model.release import Release
from webhook.reports.pods import origins, pods_result, render_pods, stored_pod

LABEL = "trainer.kubeflow.org/trainjob-ancestor-step"
NAMES = st.sampled_from(["node", "launcher", "a", "ckpt", "model-initializer", "dataset-initializer", "", "é$(A)"])
TEXTS = st.sampled_from(
    ["", "/ckpt", "/ckpt/", "$(A)/x", "$$(B)", "rel", "s3://b", "$(", "--output_dir", "tune", "run"]
)
NUMBERS = st.integers(min_value=-3, max_value=7)


def maybe(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | strategy


def record(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """An object with any of the fields, each possibly null."""
    return st.fixed_dictionaries({}, optional={name: maybe(value) for name, value in fields.items()})


def lists(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.lists(strategy, max_size=3)


QUANTITIES = st.sampled_from([1, 2, "3", "500m", "1Gi", "x", ""])
RESOURCES = record(
    limits=st.dictionaries(st.sampled_from(["cpu", "nvidia.com/gpu"]), QUANTITIES),
    requests=st.dictionaries(st.sampled_from(["cpu", "memory"]), QUANTITIES),
)
SOURCES = record(
    fieldRef=record(fieldPath=st.sampled_from(["metadata.name", "metadata.labels['x']", "x['", ""])),
    configMapKeyRef=record(name=NAMES, key=NAMES),
)
VARIABLES = record(name=st.sampled_from(["CKPT_DIR", "A", "B", "PET_NNODES"]), value=TEXTS, valueFrom=SOURCES)
MOUNTS = record(name=NAMES, mountPath=TEXTS, subPath=TEXTS, subPathExpr=TEXTS, readOnly=st.booleans())
VOLUMES = record(
    name=NAMES,
    emptyDir=record(sizeLimit=QUANTITIES, medium=TEXTS),
    persistentVolumeClaim=record(claimName=NAMES, readOnly=st.booleans()),
    ephemeral=record(volumeClaimTemplate=record(spec=record(resources=RESOURCES))),
)
CONTAINERS = record(
    name=NAMES,
    image=TEXTS,
    command=lists(TEXTS),
    args=lists(TEXTS),
    env=lists(VARIABLES),
    envFrom=lists(record(prefix=TEXTS)),
    volumeMounts=lists(MOUNTS),
    workingDir=TEXTS,
    restartPolicy=st.sampled_from(["Always"]),
    resources=RESOURCES,
)
PODS = record(
    volumes=lists(VOLUMES),
    containers=lists(CONTAINERS),
    initContainers=lists(CONTAINERS),
    restartPolicy=st.sampled_from(["Never", "OnFailure"]),
    terminationGracePeriodSeconds=NUMBERS,
    nodeSelector=st.dictionaries(NAMES, TEXTS, max_size=2),
    tolerations=lists(record(key=NAMES)),
)
METADATA = record(labels=record(**{LABEL: st.sampled_from(["trainer", "model-initializer", "x"])}), name=NAMES)
JOBS = record(
    name=NAMES,
    replicas=NUMBERS,
    template=record(
        metadata=METADATA,
        spec=record(
            parallelism=NUMBERS,
            backoffLimit=NUMBERS,
            backoffLimitPerIndex=NUMBERS,
            template=record(metadata=METADATA, spec=PODS),
        ),
    ),
)
POLICIES = record(
    numNodes=NUMBERS,
    torch=record(
        numProcPerNode=st.sampled_from(["auto", "cpu", 3]),
        envInjection=record(targets=lists(record(jobName=NAMES, containerNames=lists(NAMES)))),
    ),
    mpi=record(numProcPerNode=NUMBERS, runLauncherAsNode=st.booleans(), sshAuthMountPath=TEXTS),
    jax=record(),
    xgboost=record(),
    flux=record(numProcPerNode=NUMBERS),
)
RUNTIMES = record(
    metadata=record(name=NAMES, namespace=NAMES),
    spec=record(
        mlPolicy=POLICIES,
        template=record(
            spec=record(
                replicatedJobs=lists(JOBS),
                failurePolicy=record(maxRestarts=NUMBERS),
                volumeClaimPolicies=lists(record(templates=lists(record(metadata=record(name=NAMES))))),
            )
        ),
    ),
)
TARGETS = lists(record(name=NAMES))
TRAINJOBS = record(
    metadata=record(name=NAMES, generateName=NAMES, namespace=NAMES),
    spec=record(
        runtimeRef=record(name=NAMES),
        managedBy=NAMES,
        trainer=record(
            image=TEXTS,
            command=st.just(["tune", "run"]) | lists(TEXTS),
            args=lists(TEXTS),
            env=lists(VARIABLES),
            numNodes=NUMBERS,
            numProcPerNode=NUMBERS,
            resourcesPerNode=RESOURCES,
        ),
        initializer=record(
            model=record(storageUri=TEXTS, env=lists(VARIABLES), secretRef=record(name=NAMES)), dataset=record()
        ),
        podSpecOverrides=lists(record(targetJobs=TARGETS, volumes=lists(VOLUMES), containers=lists(CONTAINERS))),
        podTemplateOverrides=lists(record(targetJobs=TARGETS, spec=PODS)),
        runtimePatches=lists(
            record(
                manager=NAMES,
                trainingRuntimeSpec=record(template=record(spec=record(replicatedJobs=lists(JOBS)))),
            )
        ),
    ),
)


def classify(job: EffectiveJob, container: Raw, mount: Raw | None, volume: Raw | None) -> Storage:
    return Storage(StorageKind.UNKNOWN, "")


@settings(max_examples=200, deadline=None)
@given(run=st.none() | TRAINJOBS, raw=RUNTIMES, release=st.sampled_from(list(Release)))
def test_any_well_typed_pair_is_built_and_left_alone(run: Any, raw: Any, release: Release) -> None:
    before = copy.deepcopy((run, raw))
    runtime = Runtime("TrainingRuntime", "team", "rt", raw, {})
    effective = build_trainer_pods(run, runtime, release)
    checkpoints = find_checkpoints(effective, ("CKPT_DIR",), classify)
    result = pods_result("TrainJob", "team", "run", effective)
    assert "".join(render_pods("TrainJob run", effective, checkpoints, True))
    for checkpoint in checkpoints:
        assert checkpoint.directory_origin().object
        assert checkpoint.volume_origin().object
    assert (run, raw) == before
    again = build_trainer_pods(run, runtime, release)
    assert pods_result("TrainJob", "team", "run", again) == result


@settings(max_examples=100, deadline=None)
@given(run=TRAINJOBS, raw=RUNTIMES, release=st.sampled_from(list(Release)))
def test_the_report_tells_the_origins_that_findings_tell(run: Any, raw: Any, release: Release) -> None:
    effective = build_trainer_pods(run, Runtime("TrainingRuntime", "team", "rt", raw, {}), release)
    for job in effective.jobs:
        pod = stored_pod(job)
        told = origins(job, pod)
        for index, volume in enumerate(pod["volumes"]):
            if volume.get("name"):
                assert told[f"/volumes/{index}"] == job.volume_origin(volume["name"])
        for kind in ("containers", "initContainers"):
            for index, container in enumerate(pod[kind]):
                for place, variable in enumerate(container.get("env") or ()):
                    if container.get("name") and variable.get("name"):
                        wanted = job.env_origin(container["name"], variable["name"])
                        assert told[f"/{kind}/{index}/env/{place}"].object == wanted.object
