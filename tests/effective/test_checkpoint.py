from __future__ import annotations

from typing import Any

import pytest

from tests.effective.objects import find_checkpoints, job, override, pods, runtime, trainjob
from webhook.model.pod import Checkpoint, DirectoryStatus, EffectiveJob, Raw, Storage, StorageKind
from webhook.model.release import Release

VARIABLES = ("CKPT_DIR", "CHECKPOINT_DIR")
NAME = {"fieldRef": {"fieldPath": "metadata.labels['jobset.sigs.k8s.io/jobset-name']"}}


def classify(job: EffectiveJob, container: Raw, mount: Raw | None, volume: Raw | None) -> Storage:
    return Storage(StorageKind.EPHEMERAL if mount is None else StorageKind.MANY_NODES, "")


def find(container: Any = None, trainer: Any = None, name: str = "run", **pod: Any) -> list[Checkpoint]:
    base = {"containers": [{"name": "node", "image": "i:1", **(container or {})}], **pod}
    run = trainjob(trainer, name) if name else trainjob(trainer)
    if not name:
        run["metadata"] = {"generateName": "run-"}
    return list(find_checkpoints(pods(runtime(job(pod=base)), run), VARIABLES, classify))


def one(container: Any = None, trainer: Any = None, name: str = "run", **pod: Any) -> Checkpoint:
    (checkpoint,) = find(container, trainer, name, **pod)
    return checkpoint


def env(*pairs: tuple[str, Any]) -> Any:
    return {
        "env": [
            {"name": name, "value": value} if isinstance(value, str) else {"name": name, "valueFrom": value}
            for name, value in pairs
        ]
    }


def mounts(*paths: str) -> Any:
    return {"volumeMounts": [{"name": f"v{index}", "mountPath": path} for index, path in enumerate(paths)]}


def test_the_first_variable_of_the_policy_counts() -> None:
    found = one(env(("CHECKPOINT_DIR", "/b"), ("CKPT_DIR", "/a")))
    assert (found.status, found.variable, found.directory) == (DirectoryStatus.DECLARED, "CKPT_DIR", "/a")


def test_an_empty_variable_declares_nothing() -> None:
    assert one(env(("CKPT_DIR", ""), ("CHECKPOINT_DIR", "/b"))).directory == "/b"
    assert one(env(("CKPT_DIR", ""))).status is DirectoryStatus.NONE


@pytest.mark.parametrize(
    ("written", "directory"),
    [
        ("/ckpt/", "/ckpt"),
        ("//ckpt//a/./b", "/ckpt/a/b"),
        ("/ckpt/../other", "/other"),
        ("/../..", "/"),
        ("file:///ckpt/x", "/ckpt/x"),
        ("FILE:///ckpt/x", "/ckpt/x"),
        ("file://localhost/ckpt/x", "/ckpt/x"),
    ],
)
def test_the_directory_is_normalised(written: str, directory: str) -> None:
    assert one(env(("CKPT_DIR", written))).directory == directory


def test_a_relative_directory_stands_below_workingdir() -> None:
    assert one({"workingDir": "/w", **env(("CKPT_DIR", "out/../ckpt"))}).directory == "/w/ckpt"
    assert one(env(("CKPT_DIR", "out"))).status is DirectoryStatus.UNRESOLVED


@pytest.mark.parametrize(
    ("address", "kind"),
    [
        ("s3://bucket/run", StorageKind.OBJECT_STORE),
        ("hdfs://name/run", StorageKind.OBJECT_STORE),
        ("ABFS://box@store/run", StorageKind.OBJECT_STORE),
        ("wandb://team/run", StorageKind.UNKNOWN),
    ],
)
def test_an_address_is_no_directory_of_the_pod(address: str, kind: StorageKind) -> None:
    found = one(env(("CKPT_DIR", address)))
    assert (found.directory, found.storage.kind, found.mount) == (address, kind, None)


@pytest.mark.parametrize(
    ("paths", "under"),
    [
        (("/", "/ckpt", "/ckpt/run"), "/ckpt/run"),
        (("/ckpt/run/", "/ckpt"), "/ckpt/run/"),
        (("/ckp", "/ckpt/runs"), None),
        (("/ckpt/", "/data"), "/ckpt/"),
        (("/ckpt", "/ckpt/"), "/ckpt/"),
        (("/",), "/"),
        ((), None),
    ],
)
def test_the_longest_mount_by_whole_components_lies_under_it(paths: tuple[str, ...], under: str | None) -> None:
    found = one({**env(("CKPT_DIR", "/ckpt/run")), **mounts(*paths)})
    assert (None if found.mount is None else found.mount["mountPath"]) == under


def test_references_expand_from_earlier_variables_alone() -> None:
    found = one(env(("RUN", "r1"), ("CKPT_DIR", "/ckpt/$(RUN)")))
    assert (found.directory, found.written, found.status) == ("/ckpt/r1", "/ckpt/$(RUN)", DirectoryStatus.DECLARED)
    late = one(env(("CKPT_DIR", "/ckpt/$(RUN)"), ("RUN", "r1")))
    assert (late.status, late.missing, late.directory) == (DirectoryStatus.UNEXPANDED, ("RUN",), "/ckpt/$(RUN)")
    nested = one(env(("BASE", "/ckpt/$(NOBODY)"), ("CKPT_DIR", "$(BASE)/x")))
    assert nested.missing == ("NOBODY",)


def test_a_doubled_dollar_is_an_escape() -> None:
    found = one(env(("RUN", "r1"), ("CKPT_DIR", "/ckpt/$$(RUN)")))
    assert (found.directory, found.missing) == ("/ckpt/$(RUN)", ())


def test_the_jobset_name_is_the_trainjobs() -> None:
    variables = env(("RUN", NAME), ("CKPT_DIR", "/ckpt/$(RUN)"))
    assert one(variables, name="sft").directory == "/ckpt/sft"
    generated = one(variables, name="")
    assert (generated.directory, generated.status, generated.per_pod) == (
        "/ckpt/run-<generated>",
        DirectoryStatus.DECLARED,
        (),
    )


@pytest.mark.parametrize(
    "field",
    [
        "metadata.name",
        "metadata.uid",
        "status.podIP",
        "spec.nodeName",
        "metadata.labels['jobset.sigs.k8s.io/restart-attempt']",
    ],
)
def test_fields_that_change_with_every_pod_are_told(field: str) -> None:
    found = one(env(("POD", {"fieldRef": {"fieldPath": field}}), ("CKPT_DIR", "/ckpt/$(POD)")))
    assert (found.per_pod, found.directory) == ((field,), f"/ckpt/<{field}>")
    by_path = one(
        {
            **env(("POD", {"fieldRef": {"fieldPath": field}}), ("CKPT_DIR", "/ckpt")),
            "volumeMounts": [{"name": "v", "mountPath": "/ckpt", "subPathExpr": "runs/$(POD)"}],
        }
    )
    assert by_path.per_pod == (field,)


def test_the_rank_is_stable() -> None:
    rank = {"fieldRef": {"fieldPath": "metadata.annotations['batch.kubernetes.io/job-completion-index']"}}
    found = one(env(("RANK", rank), ("CKPT_DIR", "/ckpt/$(RANK)")))
    assert (found.status, found.per_pod) == (DirectoryStatus.DECLARED, ())


def test_the_namespace_is_known() -> None:
    found = one(env(("NS", {"fieldRef": {"fieldPath": "metadata.namespace"}}), ("CKPT_DIR", "/ckpt/$(NS)")))
    assert found.directory == "/ckpt/team"


@pytest.mark.parametrize(
    "source",
    [
        {"configMapKeyRef": {"name": "c", "key": "k"}},
        {"secretKeyRef": {"name": "c", "key": "k"}},
        {"resourceFieldRef": {"resource": "limits.cpu"}},
        {"fieldRef": {"fieldPath": "metadata.labels['somebodys']"}},
    ],
)
def test_what_admission_cannot_read_is_unresolved(source: Any) -> None:
    for variables in (env(("CKPT_DIR", source)), env(("X", source), ("CKPT_DIR", "/ckpt/$(X)"))):
        found = one(variables)
        assert (found.status, found.directory, found.variable) == (DirectoryStatus.UNRESOLVED, None, "CKPT_DIR")
        assert found.storage.kind is StorageKind.UNKNOWN


def test_env_from_may_define_what_nothing_else_does() -> None:
    from_map = {"envFrom": [{"configMapRef": {"name": "c"}}]}
    assert one(from_map).status is DirectoryStatus.UNRESOLVED
    assert one({"envFrom": [{"prefix": "AWS_", "secretRef": {"name": "c"}}]}).status is DirectoryStatus.NONE
    assert one({**from_map, **env(("CKPT_DIR", "/a"))}).status is DirectoryStatus.DECLARED
    assert one({**from_map, **env(("CKPT_DIR", "/a/$(X)"))}).status is DirectoryStatus.UNRESOLVED


@pytest.mark.parametrize(
    ("container", "directory", "flag"),
    [
        ({"args": ["--output_dir", "/out"]}, "/out", "--output_dir"),
        ({"args": ["--output-dir=/out/"]}, "/out", "--output-dir"),
        ({"command": ["tune", "run", "output_dir=/out"]}, "/out", "output_dir"),
        ({"command": ["python", "pretrain.py", "--save", "/ckpt", "--load", "/old"]}, "/ckpt", "--save"),
        (
            {"command": ["bash", "-c"], "args": ["torchrun x.py --output_dir /ckpt && echo done"]},
            "/ckpt",
            "--output_dir",
        ),
        ({"args": ["torchrun x.py \\\n  --save_dir='/ckpt'"]}, "/ckpt", "--save_dir"),
        ({"args": ["--output_dir", "/a", "--output_dir", "/b"]}, "/b", "--output_dir"),
        ({"workingDir": "/w", "args": ["--output_dir", "out"]}, "/w/out", "--output_dir"),
        ({"args": ["--output_dir=$(ROOT)/x"], **env(("ROOT", "/r"))}, "/r/x", "--output_dir"),
    ],
)
def test_a_flag_infers_a_directory(container: Any, directory: str, flag: str) -> None:
    found = one(container)
    assert (found.status, found.directory, found.flag) == (DirectoryStatus.INFERRED, directory, flag)


@pytest.mark.parametrize(
    "words",
    [
        ["--save_total_limit", "3"],
        ["--output_dir"],
        ["--output_dir", "--other"],
        ["bash", "-c", "x --output_dir $HOME/ckpt"],
        ["bash", "-c", "# x --output_dir /ckpt"],
        ["--save-interval=/x"],
        ["--output_dir=$(NOBODY)/x"],
        ["--output_dir=s3://b/x"],
    ],
)
def test_what_is_no_directory_infers_nothing(words: list[str]) -> None:
    assert one({"args": words}).status is DirectoryStatus.NONE


def test_an_inferred_directory_is_told_where_it_was_written() -> None:
    found = one({"args": ["old"]}, {"args": ["train.py", "--output_dir=/out"]})
    assert str(found.directory_origin()) == "TrainJob/run spec.trainer.args[1]"
    in_runtime = one({"args": ["x", "--output_dir", "/out"]})
    assert in_runtime.directory_origin().field.endswith("containers[0].args[2]")


def test_a_variable_counts_before_a_flag() -> None:
    assert one({"args": ["--output_dir=/out"], **env(("CKPT_DIR", "/ckpt"))}).directory == "/ckpt"


def test_origins_of_directory_mount_and_volume() -> None:
    volume = {"name": "ckpt", "persistentVolumeClaim": {"claimName": "a"}}
    patch = {
        "volumes": [volume],
        "containers": [{"name": "node", "volumeMounts": [{"name": "ckpt", "mountPath": "/c"}]}],
    }
    run = trainjob({"env": [{"name": "CKPT_DIR", "value": "/c/x"}]}, **override(Release.V2_1, patch))
    effective = pods(runtime(job()), run, Release.V2_1)
    (found,) = find_checkpoints(effective, VARIABLES, classify)
    assert found.volume == volume
    assert str(found.directory_origin()) == "TrainJob/run spec.trainer.env[0]"
    assert str(found.volume_origin()) == "TrainJob/run spec.podTemplateOverrides[0].spec.volumes[0]"
    assert str(found.mount_origin()) == "TrainJob/run spec.podTemplateOverrides[0].spec.containers[0].volumeMounts[0]"


def test_without_a_mount_the_place_is_the_container_and_not_spec_trainer() -> None:
    found = one(None, {"env": [{"name": "CKPT_DIR", "value": "/ckpt"}]})
    assert found.mount is None
    assert found.storage.kind is StorageKind.EPHEMERAL
    assert str(found.volume_origin()) == (
        "TrainingRuntime/rt spec.template.spec.replicatedJobs[0].template.spec.template.spec.containers[0]"
    )


def test_a_claim_template_has_a_mount_and_no_volume() -> None:
    base = {"containers": [{"name": "node", **env(("CKPT_DIR", "/ckpt")), **mounts("/ckpt")}]}
    rt = runtime(job(pod=base), volumeClaimPolicies=[{"templates": [{"metadata": {"name": "v0"}}]}])
    (found,) = find_checkpoints(pods(rt, trainjob()), VARIABLES, classify)
    assert found.mount is not None
    assert found.volume is None


def test_a_native_sidecar_counts_where_it_mounts_the_directory_from_another_volume() -> None:
    def sidecar(volume: str, path: str, restart: str = "Always") -> Any:
        return {
            "initContainers": [
                {"name": "sync", "restartPolicy": restart, "volumeMounts": [{"name": volume, "mountPath": path}]}
            ]
        }

    trainer = {**env(("CKPT_DIR", "/ckpt/run")), **mounts("/ckpt")}
    _, beside = find(trainer, **sidecar("other", "/ckpt/"))
    assert (beside.container_name, beside.directory) == ("sync", "/ckpt/run")
    assert beside.mount is not None
    assert len(find(trainer, **sidecar("v0", "/ckpt"))) == 1
    assert len(find(trainer, **sidecar("other", "/durable"))) == 1
    assert len(find(trainer, **sidecar("other", "/ckpt", "Never"))) == 1
    assert len(find({**env(("CKPT_DIR", "/a/b/c")), **mounts("/a/b")}, **sidecar("other", "/a"))) == 1


def test_under_mpi_the_launchers_directory_is_looked_for_in_the_workers() -> None:
    worker = {"containers": [{"name": "node", **mounts("/ckpt")}]}
    rt = runtime(job("launcher"), job("node", worker, None), policy={"mpi": {}})
    run = trainjob({"env": [{"name": "CKPT_DIR", "value": "/ckpt/x"}]})
    launcher, node = find_checkpoints(pods(rt, run), VARIABLES, classify)
    assert launcher.mount is None
    assert (node.job.name, node.directory) == ("node", "/ckpt/x")
    assert node.mount is not None
    assert str(node.directory_origin()) == "TrainJob/run spec.trainer.env[0]"


def test_jobs_that_do_not_train_have_no_directory() -> None:
    rt = runtime(job("data", label="dataset-initializer"), job())
    found = find_checkpoints(pods(rt, trainjob()), VARIABLES, classify)
    assert [checkpoint.job.name for checkpoint in found] == ["node"]


def test_a_value_that_grows_without_end_is_not_followed() -> None:
    steps: list[tuple[str, Any]] = [("V0", "x" * 100)]
    steps += [(f"V{index}", f"$(V{index - 1})$(V{index - 1})") for index in range(1, 200)]
    found = one(env(*steps, ("CKPT_DIR", "/ckpt/$(V199)")))
    assert found.status is DirectoryStatus.UNRESOLVED
