"""The variables that a TrainJob gets where a claim is mounted and no directory declared."""

from __future__ import annotations

from typing import Any

import pytest

from tests.defaults.world import (
    TRAINJOB_NAME,
    claim,
    container,
    env,
    fill,
    injected,
    job,
    mounting,
    mpi_runtime,
    runtime,
    trainjob,
    volume,
)
from webhook.model.policy import DirectoryPolicy, Policy
from webhook.model.release import Release

STATE = (claim("mine"), claim("second"), volume())
ADDED = [TRAINJOB_NAME, {"name": "CKPT_DIR", "value": "/data/$(TRAINJOB_NAME)"}]


@pytest.mark.parametrize("release", list(Release))
def test_below_the_one_claim(release: Release) -> None:
    run = trainjob(trainer={"numNodes": 1})
    done = fill(run, runtime(job(pod=mounting()), policy={"torch": {}}), *STATE, release=release)
    assert env(done.object) == ADDED
    assert injected(done.object) == {"env": ADDED}
    assert done.object["spec"].keys() == run["spec"].keys()
    assert done.applied == ("checkpoint_variables",)


def test_a_native_sidecar_that_has_something_else_there() -> None:
    """With a directory declared it would count as training, and its own volume would be denied."""
    pod = mounting()
    pod["volumes"].append({"name": "buffer", "emptyDir": {}})
    pod["initContainers"] = [
        container("sync", restartPolicy="Always", volumeMounts=[{"name": "buffer", "mountPath": "/data"}])
    ]
    assert fill(trainjob(), runtime(job(pod=pod)), *STATE).patch == ()
    pod["initContainers"][0]["volumeMounts"][0]["name"] = "v"
    assert env(fill(trainjob(), runtime(job(pod=pod)), *STATE).object) == ADDED


def test_after_the_users_variables() -> None:
    mine = {"name": "EPOCHS", "value": "3"}
    done = fill(trainjob(trainer={"env": [mine]}), runtime(job(pod=mounting())), *STATE)
    assert env(done.object) == [mine, *ADDED]


def test_one_that_is_being_deleted_gets_nothing_new() -> None:
    run = trainjob()
    run["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert fill(run, runtime(job(pod=mounting())), *STATE).patch == ()


def test_a_name_that_the_server_makes_later() -> None:
    run = trainjob()
    run["metadata"] = {"generateName": "sweep-", "namespace": run["metadata"]["namespace"]}
    assert env(fill(run, runtime(job(pod=mounting())), *STATE).object) == ADDED


@pytest.mark.parametrize("framework", ["torch", "jax", "xgboost", "mpi", "flux"])
def test_without_a_trainer_a_framework_would_be_switched_on(framework: str) -> None:
    rt = runtime(job("launcher" if framework == "mpi" else "node", pod=mounting()), policy={framework: {}})
    assert fill(trainjob(trainer=None), rt, *STATE).patch == ()


@pytest.mark.parametrize("policy", [None, {}, {"numNodes": 1}])
def test_without_a_trainer_a_plain_runtime_gets_them(policy: Any) -> None:
    done = fill(trainjob(trainer=None), runtime(job(pod=mounting()), policy=policy), *STATE)
    assert done.object["spec"]["trainer"] == {"env": ADDED}


def test_without_the_label_they_would_be_dropped() -> None:
    assert fill(trainjob(), runtime(job(label=False, pod=mounting())), *STATE).patch == ()


def test_a_read_only_claim_beside_it_does_not_count() -> None:
    pod = mounting()
    pod["containers"][0]["volumeMounts"].append({"name": "data", "mountPath": "/set", "readOnly": True})
    pod["volumes"].append({"name": "data", "persistentVolumeClaim": {"claimName": "second"}})
    assert env(fill(trainjob(), runtime(job(pod=pod)), *STATE).object) == ADDED


def _second(pod: Any) -> Any:
    pod["containers"][0]["volumeMounts"].append({"name": "w", "mountPath": "/more"})
    pod["volumes"].append({"name": "w", "persistentVolumeClaim": {"claimName": "second"}})
    return pod


@pytest.mark.parametrize(
    "pod",
    [
        {"containers": [container()]},
        _second(mounting()),
        mounting(readOnly=True),
        mounting(subPathExpr="$(POD)"),
        mounting(path="/"),
        mounting("missing"),
    ],
    ids=["no claim", "two claims", "read-only", "expanded sub-path", "root", "no such claim"],
)
def test_no_single_claim_to_write(pod: Any) -> None:
    assert fill(trainjob(), runtime(job(pod=pod)), *STATE).patch == ()


def test_a_claim_that_one_node_alone_can_mount() -> None:
    rt, one = runtime(job(pod=mounting()), policy={}), claim("mine", "ReadWriteOnce")
    assert fill(trainjob(trainer={"numNodes": 2}), rt, one, volume("rbd", "ReadWriteOnce")).patch == ()
    assert env(fill(trainjob(trainer={"numNodes": 1}), rt, one, volume()).object) == ADDED


def test_a_claim_from_a_template_goes_with_the_run() -> None:
    pod = {"containers": [container(volumeMounts=[{"name": "made", "mountPath": "/data"}])]}
    template = {"metadata": {"name": "made"}, "spec": {"accessModes": ["ReadWriteMany"]}}
    rt = runtime(job(pod=pod), volumeClaimPolicies=[{"templates": [template]}])
    assert fill(trainjob(), rt, *STATE).patch == ()


@pytest.mark.parametrize(
    "fields",
    [
        {"env": [{"name": "CKPT_DIR", "value": "/elsewhere"}]},
        {"env": [{"name": "CHECKPOINT_DIR", "value": "/elsewhere"}]},
        {"env": [{"name": "CKPT_DIR", "value": ""}]},
        {"env": [{"name": "TRAINJOB_NAME", "value": "fixed"}]},
        {"env": [{"name": "TRAINJOB_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}]},
        {"args": ["--output_dir=/elsewhere"]},
        {"envFrom": [{"secretRef": {"name": "s"}}]},
    ],
)
def test_what_somebody_wrote_stays(fields: Any) -> None:
    pod = mounting()
    pod["containers"][0].update(fields)
    assert fill(trainjob(), runtime(job(pod=pod)), *STATE).patch == ()


@pytest.mark.parametrize("mine", [TRAINJOB_NAME, {"name": "TRAINJOB_NAME", "value": "run"}])
def test_a_run_name_that_is_there_is_used(mine: Any) -> None:
    pod = mounting()
    pod["containers"][0]["env"] = [mine]
    assert env(fill(trainjob(), runtime(job(pod=pod)), *STATE).object) == ADDED[1:]
    assert env(fill(trainjob(trainer={"env": [mine]}), runtime(job(pod=mounting())), *STATE).object) == [mine, ADDED[1]]


def test_the_policys_first_variable() -> None:
    policy = Policy(directory=DirectoryPolicy(variables=("OUT", "CKPT_DIR")))
    done = fill(trainjob(), runtime(job(pod=mounting())), *STATE, policy=policy)
    assert [variable["name"] for variable in env(done.object)] == ["TRAINJOB_NAME", "OUT"]


def test_mpi_only_where_both_jobs_have_the_claim() -> None:
    assert env(fill(trainjob(), mpi_runtime(mounting(), mounting()), *STATE).object) == ADDED
    assert fill(trainjob(), mpi_runtime(mounting()), *STATE).patch == ()
    assert fill(trainjob(), mpi_runtime(mounting(), mounting("second")), *STATE).patch == ()


def test_the_known_claim_is_not_mounted_twice() -> None:
    done = fill(trainjob(), runtime(job(pod=mounting("train-ckpt"))), claim("train-ckpt"), volume())
    assert env(done.object) == ADDED
    assert "runtimePatches" not in done.object["spec"]


def test_another_claim_that_was_asked_for() -> None:
    """The path is taken by a claim that nobody named for checkpoints."""
    rt = runtime(job(pod=mounting("mine", "/mnt/ckpt")))
    assert fill(trainjob(annotations={"checkpoint-guard.io/claim": "second"}), rt, *STATE).patch == ()


def test_no_more_room_in_the_list() -> None:
    full = [{"name": f"V{number}", "value": "x"} for number in range(127)]
    assert fill(trainjob(trainer={"env": full}), runtime(job(pod=mounting())), *STATE).patch == ()
