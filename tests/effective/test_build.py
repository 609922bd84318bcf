from __future__ import annotations

import sys
from typing import Any

import pytest

from tests.effective.objects import env_of, job, only, override, pods, runtime, trainjob
from webhook.effective import build_trainer_pods
from webhook.model.release import Release

ALL = list(Release)
TORCH: Any = {"numNodes": 2, "torch": {}}
CLAIM: Any = {"name": "ckpt", "persistentVolumeClaim": {"claimName": "a"}}
MOUNT: Any = {"name": "ckpt", "mountPath": "/ckpt"}
PATCHES = "spec.runtimePatches[0].trainingRuntimeSpec.template.spec.replicatedJobs[0].template.spec.template.spec"
PATHS = {
    Release.V2_0: "spec.podSpecOverrides[0]",
    Release.V2_1: "spec.podTemplateOverrides[0].spec",
    Release.V2_2: PATCHES,
    Release.V2_3: PATCHES,
    Release.V2_4: PATCHES,
}
SHORTS = {
    Release.V2_0: "podSpecOverrides[0] job node",
    Release.V2_1: "podTemplateOverrides[0] job node",
    Release.V2_2: "runtimePatches[example.com/me] job node",
    Release.V2_3: "runtimePatches[example.com/me] job node",
    Release.V2_4: "runtimePatches[example.com/me] job node",
}


@pytest.mark.parametrize("release", ALL)
def test_an_override_is_merged_in_the_shape_that_the_release_serves(release: Release) -> None:
    patch = {"volumes": [CLAIM], "containers": [{"name": "node", "volumeMounts": [MOUNT]}]}
    found = only(pods(runtime(job()), trainjob(**override(release, patch)), release))
    assert found.pod["volumes"] == [CLAIM]
    assert found.pod["containers"][0]["volumeMounts"] == [MOUNT]
    volume = found.volume_origin("ckpt")
    assert (volume.object, volume.field) == ("TrainJob/run", f"{PATHS[release]}.volumes[0]")
    assert volume.short == f"{SHORTS[release]} volume ckpt"
    assert found.mount_origin("node", "/ckpt").field == f"{PATHS[release]}.containers[0].volumeMounts[0]"
    assert found.container_field_origin("node", "image").field == (
        "spec.template.spec.replicatedJobs[0].template.spec.template.spec.containers[0].image"
    )


@pytest.mark.parametrize("release", ALL)
def test_the_shapes_of_other_releases_are_not_read(release: Release) -> None:
    others = [other for other in ALL if other.override_field != release.override_field]
    spec: Any = {}
    for other in others:
        spec |= override(other, {"volumes": [CLAIM]})
    assert "volumes" not in only(pods(runtime(job()), trainjob(**spec), release)).pod


@pytest.mark.parametrize("release", ALL)
def test_what_the_crd_does_not_keep_is_pruned(release: Release) -> None:
    patch = {
        "hostNetwork": True,
        "terminationGracePeriodSeconds": 90,
        "containers": [{"name": "node", "image": "other:1", "command": ["x"]}],
    }
    found = only(pods(runtime(job()), trainjob(**override(release, patch)), release))
    assert "hostNetwork" not in found.pod
    assert found.pod["containers"][0]["image"] == "i:1"
    assert found.pod["terminationGracePeriodSeconds"] == (90 if release.at_least(Release.V2_3) else 30)
    assert found.container_field_origin("node", "command").object == "TrainJob/run"
    assert found.container_field_origin("node", "image").object == "TrainingRuntime/rt"


def test_runtime_alone_has_no_trainer_parts() -> None:
    rt = runtime(job(), policy=TORCH)
    alone = build_trainer_pods(None, rt, Release.V2_3)
    assert only(alone).pods == 2
    assert env_of(only(alone)) == {}
    assert alone.trainjob is None


def test_framework_variables_need_spec_trainer() -> None:
    rt = runtime(job(), policy=TORCH)
    assert env_of(only(pods(rt, trainjob()))) == {}
    assert list(env_of(only(pods(rt, trainjob({}))))) == [
        "PET_NNODES",
        "PET_NPROC_PER_NODE",
        "PET_NODE_RANK",
        "PET_MASTER_ADDR",
        "PET_MASTER_PORT",
    ]


def test_trainer_env_keeps_known_places_and_wins() -> None:
    base = {"containers": [{"name": "node", "env": [{"name": "A", "value": "1"}, {"name": "B", "value": "1"}]}]}
    rt = runtime(job(pod=base), policy={"torch": {}})
    run = trainjob({"env": [{"name": "C", "value": "2"}, {"name": "A", "value": "2"}]})
    found = only(pods(rt, run))
    assert list(env_of(found))[:4] == ["A", "B", "C", "PET_NNODES"]
    assert env_of(found)["A"] == "2"
    assert str(found.env_origin("node", "A")) == "TrainJob/run spec.trainer.env[1]"
    assert str(found.env_origin("node", "PET_NNODES")) == "Trainer"
    runtimes = found.env_origin("node", "B")
    assert runtimes.field == "spec.template.spec.replicatedJobs[0].template.spec.template.spec.containers[0].env[1]"


def test_jax_variables_stand_before_trainer_env() -> None:
    found = only(pods(runtime(job(), policy={"jax": {}}), trainjob({"env": [{"name": "A", "value": "1"}]})))
    assert list(env_of(found)) == ["JAX_NUM_PROCESSES", "JAX_PROCESS_ID", "JAX_COORDINATOR_ADDRESS", "A"]


def test_without_the_label_spec_trainer_is_dropped() -> None:
    rt = runtime(job(label=None), job("other", label=None), policy=TORCH)
    found = pods(rt, trainjob({"image": "mine:1", "numNodes": 4, "env": [{"name": "A", "value": "1"}]}))
    first = found.jobs[0]
    assert (first.pod["containers"][0]["image"], first.pods, first.trains) == ("i:1", 1, False)
    assert env_of(first) == {}
    assert not first.receives_trainer


def test_the_only_job_without_a_label_trains() -> None:
    assert only(pods(runtime(job(label=None)), trainjob())).trains
    assert not only(pods(runtime(job(label="model-initializer")), trainjob())).trains


@pytest.mark.parametrize(("nodes", "expected"), [(None, 2), (5, 5), (0, 0)])
def test_numnodes_replaces_the_runtimes(nodes: int | None, expected: int) -> None:
    trainer: Any = {} if nodes is None else {"numNodes": nodes}
    assert only(pods(runtime(job(), policy=TORCH), trainjob(trainer))).pods == expected


def test_numnodes_counts_without_any_policy_too() -> None:
    assert only(pods(runtime(job(parallelism=4)), trainjob())).pods == 4
    assert only(pods(runtime(job(parallelism=4)), trainjob({"numNodes": 3}))).pods == 3


def test_replicas_multiply_the_pods_of_an_unlabelled_job() -> None:
    raw = job(label=None, parallelism=3)
    raw["replicas"] = 2
    found = only(pods(runtime(raw), trainjob()))
    assert (found.pods, found.replicas) == (6, 2)


def test_2_0_gives_every_labelled_job_the_same_pods() -> None:
    rt = runtime(job("first"), job("second"), policy=TORCH)
    counts = {release: [found.pods for found in pods(rt, trainjob({"numNodes": 5}), release).jobs] for release in ALL}
    assert counts[Release.V2_0] == [5, 5]
    assert counts[Release.V2_1] == counts[Release.V2_3] == [5, 2]


def test_command_empty_erases_and_args_alone_keep_the_command() -> None:
    base = {"containers": [{"name": "node", "command": ["python"], "args": ["old"]}]}
    erased = only(pods(runtime(job(pod=base)), trainjob({"command": []}))).pod["containers"][0]
    assert "command" not in erased
    assert erased["args"] == ["old"]
    found = only(pods(runtime(job(pod=base)), trainjob({"args": ["new"]})))
    assert found.pod["containers"][0]["command"] == ["python"]
    assert found.pod["containers"][0]["args"] == ["new"]
    assert found.container_field_origin("node", "args").field == "spec.trainer.args"


def test_resources_are_replaced_before_2_3_and_merged_from_then_on() -> None:
    base = {"containers": [{"name": "node", "resources": {"limits": {"cpu": "4", "memory": "8Gi"}}}]}
    rt = runtime(job(pod=base), policy={"torch": {}})
    run = trainjob({"resourcesPerNode": {"limits": {"cpu": 2, "nvidia.com/gpu": 1}}})
    old = only(pods(rt, run, Release.V2_2)).pod["containers"][0]["resources"]
    new = only(pods(rt, run, Release.V2_3)).pod["containers"][0]["resources"]
    assert old == {"limits": {"cpu": 2, "nvidia.com/gpu": 1}}
    assert new == {"limits": {"cpu": 2, "memory": "8Gi", "nvidia.com/gpu": 1}}
    dropped = only(pods(runtime(job(pod=base)), run, Release.V2_3)).pod["containers"][0]["resources"]
    assert dropped == base["containers"][0]["resources"]


@pytest.mark.parametrize(
    ("release", "policy", "trainer", "expected"),
    [
        (Release.V2_3, {}, {}, "4"),
        (Release.V2_3, {}, {"numProcPerNode": 3}, "3"),
        (Release.V2_3, {}, {"resourcesPerNode": {"limits": {"nvidia.com/gpu": "2"}}}, "auto"),
        (Release.V2_3, {}, {"resourcesPerNode": {"requests": {"cpu": "2500m"}}}, "3"),
        (Release.V2_1, {"numProcPerNode": "cpu"}, {"resourcesPerNode": {"limits": {"cpu": 2, "gpu": 1}}}, "2"),
        (Release.V2_1, {"numProcPerNode": 7}, {}, "7"),
        (Release.V2_0, {}, {}, "auto"),
        (Release.V2_0, {}, {"resourcesPerNode": {}}, "1"),
        (Release.V2_0, {}, {"resourcesPerNode": {"requests": {"cpu": 3}}}, "3"),
        (Release.V2_0, {}, {"resourcesPerNode": {"limits": {"nvidia.com/gpu": 2}}}, "1"),
        (Release.V2_0, {"numProcPerNode": "cpu"}, {"resourcesPerNode": {"limits": {"cpu": 5}}}, "5"),
    ],
)
def test_processes_per_node(release: Release, policy: Any, trainer: Any, expected: str) -> None:
    base = {"containers": [{"name": "node", "resources": {"limits": {"cpu": "4"}}}]}
    found = only(pods(runtime(job(pod=base), policy={"torch": policy}), trainjob(trainer), release))
    assert env_of(found)["PET_NPROC_PER_NODE"] == expected


TUNED: Any = {
    "containers": [{"name": "node", "command": ["tune", "run", "output_dir=/out", "tokenizer.path=/t", "x=1"]}]
}


@pytest.mark.parametrize(
    ("release", "trainer", "expected"),
    [
        (
            Release.V2_3,
            {"resourcesPerNode": {"limits": {"nvidia.com/gpu": 1}}},
            ["full_finetune_single_device", "--config", "llama3_2/1B_full_single_device"],
        ),
        (
            Release.V2_3,
            {"resourcesPerNode": {"limits": {"nvidia.com/gpu": 2}}},
            [
                "--rdzv_endpoint=run-node-0-0.run:29500",
                "full_finetune_distributed",
                "--config",
                "llama3_2/1B_full",
            ],
        ),
        (
            Release.V2_3,
            {"numProcPerNode": 2, "args": ["model.lora_attn_modules=[q]", "model.quantize_base=False"]},
            ["--rdzv_endpoint=run-node-0-0.run:29500", "lora_finetune_distributed", "--config", "llama3_2/1B_lora"],
        ),
        (
            Release.V2_2,
            {"numProcPerNode": 1, "args": ["model.quantize_base=False"]},
            ["lora_finetune_single_device", "--config", "llama3_2/1B_qlora_single_device"],
        ),
        (
            Release.V2_0,
            {"numProcPerNode": 1, "args": ["model.quantize_base=True"]},
            ["full_finetune_single_device", "--config", "llama3_2/1B_full_single_device"],
        ),
        (
            Release.V2_3,
            {"numNodes": 2, "numProcPerNode": 1},
            [
                "--rdzv_endpoint=run-node-0-0.run:29500",
                "full_finetune_distributed",
                "--config",
                "llama3_2/1B_full_multinode",
            ],
        ),
    ],
)
def test_torchtune_rewrites_its_command(release: Release, trainer: Any, expected: list[str]) -> None:
    run = trainjob({"command": ["tune", "run"], **trainer})
    run["spec"]["runtimeRef"]["name"] = "torchtune-llama3.2-1b"
    found = only(pods(runtime(job(pod=TUNED), policy={"torch": {}}), run, release))
    settings = ["output_dir=/out", "tokenizer.path=/t"]
    assert found.pod["containers"][0]["command"] == ["tune", "run", *expected, *settings]
    assert "PET_MASTER_ADDR" not in env_of(found)


def mpi(**policy: Any) -> Any:
    return runtime(
        job("launcher"), job("node", label=None), policy={"numNodes": 1, "mpi": {"runLauncherAsNode": True, **policy}}
    )


def test_mpi_adds_keys_hostfile_and_variables() -> None:
    launcher, node = pods(mpi(), trainjob({"numNodes": 4, "env": [{"name": "A", "value": "1"}]})).jobs
    assert (launcher.pods, node.pods) == (1, 3)
    assert (launcher.trains, node.trains) == (True, True)
    assert [volume["name"] for volume in launcher.pod["volumes"]] == ["mpi-ssh-auth", "mpi-hostfile"]
    assert [volume["name"] for volume in node.pod["volumes"]] == ["mpi-ssh-auth"]
    assert launcher.pod["containers"][0]["volumeMounts"][0]["mountPath"] == "/root/.ssh"
    assert list(env_of(launcher)) == [
        "OMPI_MCA_orte_default_hostfile",
        "OMPI_MCA_orte_keep_fqdn_hostnames",
        "OMPI_MCA_orte_set_default_slots",
        "OMPI_MCA_plm_rsh_args",
        "A",
    ]
    assert env_of(node) == {"A": "1"}
    assert str(launcher.volume_origin("mpi-hostfile")) == "Trainer"
    assert launcher.container_origin("node").object == "TrainingRuntime/rt"


def test_mpi_in_2_0_gives_the_workers_no_env() -> None:
    _, node = pods(mpi(), trainjob({"env": [{"name": "A", "value": "1"}]}), Release.V2_0).jobs
    assert env_of(node) == {}
    assert not node.receives_trainer


def test_mpi_slots_follow_the_gpus_from_2_1_on() -> None:
    run = trainjob({"resourcesPerNode": {"limits": {"nvidia.com/gpu": 4}}})
    slots = {release: env_of(pods(mpi(), run, release).jobs[0])["OMPI_MCA_orte_set_default_slots"] for release in ALL}
    assert (slots[Release.V2_0], slots[Release.V2_1], slots[Release.V2_3]) == ("1", "4", "4")


def test_mpi_has_prte_variables_and_the_image_on_every_pod_from_2_4_on() -> None:
    """As the release notes of 2.4.0 say."""
    run = trainjob({"image": "mine:1", "env": [{"name": "PRTE_MCA_prte_set_default_slots", "value": "9"}]})
    for as_node in (False, True):
        old, older = pods(mpi(runLauncherAsNode=as_node), run, Release.V2_3).jobs
        launcher, node = pods(mpi(runLauncherAsNode=as_node), run, Release.V2_4).jobs
        added = {name: value for name, value in env_of(launcher).items() if name not in env_of(old)}
        assert added == {
            "PRTE_MCA_prte_default_hostfile": "/etc/mpi/hostfile",
            "PRTE_MCA_prte_keep_fqdn_hostnames": "false",
            "PRTE_MCA_plm_ssh_args": "-o ConnectionAttempts=10",
        }
        assert env_of(launcher)["PRTE_MCA_prte_set_default_slots"] == "9"
        assert [one.pod["containers"][0]["image"] for one in (launcher, node)] == ["mine:1", "mine:1"]
        assert older.pod["containers"][0]["image"] != "mine:1"
        assert str(node.container_field_origin("node", "image")) == "TrainJob/run spec.trainer.image"
        assert env_of(node) == env_of(older)


def test_mpi_without_openmpi_comes_to_nothing() -> None:
    assert pods(mpi(mpiImplementation="Intel"), trainjob({})).jobs == ()


def test_xgboost_counts_workers_by_gpu() -> None:
    run = trainjob({"numNodes": 2, "resourcesPerNode": {"limits": {"nvidia.com/gpu": 3}}})
    found = only(pods(runtime(job(), policy={"xgboost": {}}), run))
    assert env_of(found)["DMLC_NUM_WORKER"] == "6"
    assert env_of(only(pods(runtime(job(), policy={"xgboost": {}}), run, Release.V2_1))) == {}


def test_flux_wraps_the_command_and_adds_its_parts() -> None:
    rt = runtime(job(), policy={"flux": {}})
    found = only(pods(rt, trainjob({"numNodes": 2, "command": ["python", "t.py"], "args": ["-x"]})))
    node = found.pod["containers"][0]
    assert node["command"] == ["/bin/bash", "/etc/flux-config/entrypoint.sh", "python t.py -x"]
    assert "args" not in node
    assert [container["name"] for container in found.pod["initContainers"]] == ["flux-installer"]
    assert "shared-memory" in [volume["name"] for volume in found.pod["volumes"]]
    older = only(pods(rt, trainjob({"numNodes": 2}), Release.V2_2))
    assert "shared-memory" not in [volume["name"] for volume in older.pod["volumes"]]


@pytest.mark.parametrize("trainer", [None, {}])
def test_flux_without_numnodes_comes_to_nothing(trainer: Any) -> None:
    assert pods(runtime(job(), policy={"flux": {}}), trainjob(trainer)).jobs == ()


def test_jax_without_a_label_comes_to_nothing_in_2_2() -> None:
    rt = runtime(job(label=None), policy={"jax": {}})
    assert pods(rt, trainjob({}), Release.V2_2).jobs == ()
    assert len(pods(rt, trainjob({}), Release.V2_3).jobs) == 1


def test_torch_variables_can_be_injected_into_other_containers_in_2_3() -> None:
    base = {
        "initContainers": [{"name": "check", "image": "i:1"}],
        "containers": [{"name": "node", "image": "i:1"}, {"name": "side", "image": "i:1"}],
    }
    targets = [{"jobName": "node", "containerNames": ["check", "side"]}]
    rt = runtime(job(pod=base), policy={"torch": {"envInjection": {"targets": targets}}})
    found = only(pods(rt, trainjob({})))
    assert "PET_MASTER_ADDR" in env_of(found, 1)
    assert found.pod["initContainers"][0]["env"]
    assert str(found.env_origin("side", "PET_NNODES")) == "Trainer"
    assert env_of(only(pods(rt, trainjob({}), Release.V2_2)), 1) == {}
    targets[0]["containerNames"] = ["nobody"]
    rt.prepared.clear()
    assert pods(rt, trainjob({})).jobs == ()


def test_injected_variables_stand_before_those_of_an_initializer() -> None:
    name = "model-initializer"
    steps = job(name, {"containers": [{"name": name, "image": "i:1"}]}, name)
    targets = [{"jobName": name, "containerNames": [name]}]
    rt = runtime(steps, job(), policy={"torch": {"envInjection": {"targets": targets}}})
    asked = {"storageUri": "hf://m", "env": [{"name": "PET_NNODES", "value": "mine"}]}
    found = env_of(pods(rt, trainjob({}, initializer={"model": asked})).jobs[0])
    assert (next(iter(found)), found["PET_NNODES"], [*found][-1]) == ("PET_NNODES", "mine", "STORAGE_URI")


def test_an_initializers_secret_without_a_name_reaches_the_pod() -> None:
    name = "model-initializer"
    steps = job(name, {"containers": [{"name": name, "image": "i:1"}]}, name)
    found = pods(runtime(steps, job()), trainjob(initializer={"model": {"secretRef": {}}})).jobs[0]
    assert found.pod["containers"][0]["envFrom"] == [{"secretRef": {"name": ""}}]


def test_trainer_env_does_not_carry_files() -> None:
    file = {"fileKeyRef": {"volumeName": "v", "path": "f", "key": "K"}}
    found = only(pods(runtime(job()), trainjob({"env": [{"name": "A", "valueFrom": file}]})))
    assert env_of(found) == {"A": {}}


@pytest.mark.parametrize(
    ("written", "built"),
    [
        ([(80, "")], [(29500, "")]),
        ([(80, "a")], [(80, "a"), (29500, "")]),
        ([(29500, "rdzv")], [(29500, "")]),
        ([(80, "a"), (81, "")], [(80, "a"), (29500, "")]),
        ([(80, ""), (81, "")], [(81, ""), (81, "")]),
    ],
)
def test_trainers_port_takes_the_place_of_one_without_a_name(written: Any, built: Any) -> None:
    ports = [{"containerPort": number, **({"name": name} if name else {})} for number, name in written]
    pod = {"containers": [{"name": "node", "image": "i:1", "ports": ports}]}
    found = only(pods(runtime(job(pod=pod), policy=TORCH), trainjob({})))
    assert [(port["containerPort"], port.get("name", "")) for port in found.pod["containers"][0]["ports"]] == built
    alone = only(pods(runtime(job(pod=pod), policy=TORCH), None)).pod["containers"][0]["ports"]
    twice = built[0] == built[-1] and len(built) > 1
    assert alone == (ports if twice else found.pod["containers"][0]["ports"])


def test_an_empty_implementation_of_mpi_is_none() -> None:
    rt = runtime(job("launcher"), job(label=None), policy={"mpi": {"mpiImplementation": ""}})
    assert pods(rt, trainjob({})).jobs == ()


def test_2_0_prunes_the_patterns_of_failure_rules() -> None:
    rule = {"name": "oom", "action": "FailJobSet", "onJobFailureMessagePatterns": ["OOM.*"]}
    rt = runtime(job(), failurePolicy={"maxRestarts": 1, "rules": [rule]})
    kept = {release: (pods(rt, trainjob(), release).failure_policy or {})["rules"] for release in ALL}
    assert kept[Release.V2_0] == [{"name": "oom", "action": "FailJobSet"}]
    assert kept[Release.V2_1] == kept[Release.V2_3] == [rule]


def test_flux_in_2_2_does_not_look_at_the_runtimes_command() -> None:
    written = {"containers": [{"name": "node", "image": "i:1", "command": ["python", "t.py"]}]}
    rt = runtime(job(pod=written), policy={"flux": {}})
    words = [only(pods(rt, trainjob({"numNodes": 1}), release)) for release in (Release.V2_2, Release.V2_3)]
    assert [found.pod["containers"][0]["command"][2] for found in words] == ["", "python t.py"]


def test_initializers_get_uri_env_and_secret() -> None:
    steps = job(
        "model-initializer", {"containers": [{"name": "model-initializer", "image": "i:1"}]}, "model-initializer"
    )
    asked = {"storageUri": "hf://m", "env": [{"name": "T", "value": "1"}], "secretRef": {"name": "token"}}
    found = pods(runtime(steps, job()), trainjob(initializer={"model": asked})).jobs[0]
    container = found.pod["containers"][0]
    assert env_of(found) == {"STORAGE_URI": "hf://m", "T": "1"}
    assert container["envFrom"] == [{"secretRef": {"name": "token"}}]
    name = "model-initializer"
    assert found.env_origin(name, "STORAGE_URI").field == "spec.initializer.model.storageUri"
    assert found.env_origin(name, "T").field == "spec.initializer.model.env[0]"


def test_a_runtime_patch_can_take_the_label_away() -> None:
    spec = override(Release.V2_3, {"volumes": [CLAIM]})
    template = spec["runtimePatches"][0]["trainingRuntimeSpec"]["template"]["spec"]["replicatedJobs"][0]["template"]
    template["metadata"] = {"labels": {"$patch": "replace"}}
    built = only(pods(runtime(job(), policy=TORCH), trainjob({"env": [{"name": "A", "value": "1"}]}, **spec)))
    assert not built.receives_trainer
    assert built.metadata[0].raw == {"labels": {}}


def test_a_label_can_come_from_a_runtime_patch() -> None:
    spec = override(Release.V2_3, {"volumes": [CLAIM]})
    template = spec["runtimePatches"][0]["trainingRuntimeSpec"]["template"]["spec"]["replicatedJobs"][0]["template"]
    template["metadata"] = {"labels": {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}}
    rt = runtime(job(label=None), job("other", label=None), policy=TORCH)
    found = pods(rt, trainjob({"image": "mine:1"}, **spec)).jobs[0]
    assert (found.trains, found.pods, found.receives_trainer) == (True, 2, True)
    assert found.pod["containers"][0]["image"] == "mine:1"


@pytest.mark.parametrize(("said", "namespace"), [({}, "default"), ({"namespace": "team"}, "team")])
def test_a_trainjob_without_a_namespace_is_in_the_default_one(said: Any, namespace: str) -> None:
    run = trainjob()
    run["metadata"] = {"name": "run", **said}
    assert pods(runtime(job()), run).namespace == namespace


@pytest.mark.parametrize("release", ALL)
def test_claim_templates_become_volumes_where_they_are_mounted(release: Release) -> None:
    policies = [{"templates": [{"metadata": {"name": "other"}}, {"metadata": {"name": "ckpt"}}]}]
    base = {"containers": [{"name": "node", "image": "i:1", "volumeMounts": [MOUNT]}]}
    effective = pods(runtime(job(pod=base), volumeClaimPolicies=policies), trainjob(), release)
    found = only(effective)
    if not release.at_least(Release.V2_2):
        assert found.claim_volumes == ()
        assert effective.template("ckpt") is None
        return
    assert found.claim_volumes == ({"name": "ckpt", "persistentVolumeClaim": {"claimName": "ckpt-run"}},)
    assert "volumes" not in found.pod
    assert str(found.volume_origin("ckpt")) == (
        "TrainingRuntime/rt spec.template.spec.volumeClaimPolicies[0].templates[1]"
    )


def test_defaults_of_jobset_and_job() -> None:
    found = only(pods(runtime(job()), trainjob()))
    assert found.pod["restartPolicy"] == "OnFailure"
    assert found.pod["terminationGracePeriodSeconds"] == 30
    assert (found.backoff_limit, found.explicit_backoff_limit) == (6, False)
    written = only(pods(runtime(job(backoffLimit=0)), trainjob()))
    assert (written.backoff_limit, written.explicit_backoff_limit) == (0, True)
    assert only(pods(runtime(job(backoffLimitPerIndex=1)), trainjob())).backoff_limit == 2147483647


def test_what_depends_on_the_runtime_alone_is_kept_with_it() -> None:
    rt = runtime(job(), policy=TORCH)
    first = pods(rt, trainjob())
    assert set(rt.prepared) == {Release.V2_3}
    second = pods(rt, trainjob())
    assert only(first).layers[0] is only(second).layers[0]


def test_a_multikueue_job_is_built_and_marked_in_2_3() -> None:
    run = trainjob(managedBy="kueue.x-k8s.io/multikueue")
    assert pods(runtime(job()), run, Release.V2_3).elsewhere
    assert not pods(runtime(job()), run, Release.V2_2).elsewhere
    assert pods(runtime(job()), run, Release.V2_3).jobs


def test_cost_grows_with_the_input_alone() -> None:
    def calls(count: int) -> int:
        pod = {"volumes": [{"name": f"v{index}", "emptyDir": {}} for index in range(count)]}
        many: Any = {"podTemplateOverrides": [{"targetJobs": [{"name": "node"}], "spec": pod} for _ in range(3)]}
        many["trainer"] = {"env": [{"name": f"E{index}", "value": "$(E0)"} for index in range(count)]}
        rt = runtime(job(pod={"containers": [{"name": "node"}], **pod}), policy=TORCH)
        counted = 0

        def count_calls(frame: object, event: str, argument: object) -> None:
            nonlocal counted
            counted += 1

        sys.setprofile(count_calls)
        try:
            pods(rt, trainjob(**many), Release.V2_1)
        finally:
            sys.setprofile(None)
        return counted

    # Counted, since seconds say more of the machine than of the code; the list operations inside are seen as calls.
    assert calls(20_000) < 12 * calls(2_000)


def test_an_absurd_number_of_overrides_is_not_followed() -> None:
    entries = [
        {"targetJobs": [{"name": "node"}], "spec": {"volumes": [{"name": f"v{index}", "emptyDir": {}}]}}
        for index in range(20_000)
    ]
    assert pods(runtime(job()), trainjob(podTemplateOverrides=entries), Release.V2_1).jobs == ()
    few = trainjob(podTemplateOverrides=entries[:64])
    assert len(only(pods(runtime(job()), few, Release.V2_1)).pod["volumes"]) == 64
