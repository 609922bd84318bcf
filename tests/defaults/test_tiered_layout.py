"""One declared path becomes a durable and a fast directory, whole or not at all."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from tests.defaults.world import (
    NAMESPACE,
    TRAINJOB_NAME,
    claim,
    cluster,
    container,
    env,
    fill,
    injected,
    job,
    mounting,
    mpi_runtime,
    pods,
    request,
    runtime,
    trainjob,
    volume,
)
from webhook.decision import review_object
from webhook.model.policy import DirectoryPolicy, FastTier, Policy, Tiers
from webhook.model.release import Release

ASKED = {
    "checkpoint-guard.io/path": "/ckpts",
    "checkpoint-guard.io/layout": "tiered",
    "checkpoint-guard.io/claim": "mine",
}
STATE = (claim("mine"), volume())
DURABLE = {"name": "checkpoint-guard", "persistentVolumeClaim": {"claimName": "mine"}}
FAST = {"name": "checkpoint-guard-fast", "emptyDir": {"sizeLimit": "100Gi"}}
MOUNTS = [
    {"name": "checkpoint-guard", "mountPath": "/ckpts/durable", "subPathExpr": "$(TRAINJOB_NAME)"},
    {"name": "checkpoint-guard-fast", "mountPath": "/ckpts/fast"},
]
VARIABLES = [
    TRAINJOB_NAME,
    {"name": "CKPT_DIR", "value": "/ckpts/durable"},
    {"name": "CKPT_FAST_DIR", "value": "/ckpts/fast"},
]
BUDGET: dict[str, Any] = {"failurePolicy": {"maxRestarts": 3}}


def namespace(**annotations: str) -> dict[str, Any]:
    named = {f"checkpoint-guard.io/{name.replace('_', '-')}": value for name, value in annotations.items()}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE, "annotations": named}}


@pytest.mark.parametrize("release", list(Release))
def test_made_in_every_shape(release: Release) -> None:
    state = (runtime(**BUDGET), *STATE)
    done = fill(trainjob(annotations=ASKED), *state, release=release)

    pod = pods(done.object, release)["node"]
    assert pod["volumes"] == [DURABLE, FAST]
    assert pod["containers"] == [{"name": "node", "volumeMounts": MOUNTS}]
    assert env(done.object) == VARIABLES
    assert done.applied == ("tiered_layout",)
    assert done.findings == ()
    assert injected(done.object) == {
        "env": VARIABLES,
        "mounts": MOUNTS,
        "targets": {"node": {"containers": ["node"]}},
        "volumes": [DURABLE, FAST],
    }
    decision = review_object(request(dict(done.object)), cluster(*state), Policy(), release)
    assert [finding.rule for finding in decision.findings if finding.severity.value != "audit"] == ["short-grace"]
    assert decision.facts.directory == "/ckpts/durable"
    assert decision.facts.claim == "mine"


@pytest.mark.parametrize("release", list(Release))
@pytest.mark.parametrize("suspend", [False, True])
def test_an_apply_of_the_same_file_gets_it_back(release: Release, suspend: bool) -> None:
    """Client-side apply sends whole lists, so what was added is not among them."""
    state = (runtime(**BUDGET), *STATE)
    given = trainjob(annotations=ASKED, trainer={"env": [{"name": "A", "value": "1"}]})
    stored = copy.deepcopy(dict(fill(given, *state, release=release).object))
    again = copy.deepcopy(given)
    again["spec"]["suspend"] = suspend

    done = fill(again, *state, old=stored, release=release)

    expected = copy.deepcopy(stored)
    expected["spec"]["suspend"] = suspend
    assert done.object == expected
    assert done.findings == ()


@pytest.mark.parametrize("release", [Release.V2_0, Release.V2_1])
def test_what_was_lost_while_nobody_answered_comes_back_when_suspended(release: Release) -> None:
    state = (runtime(**BUDGET), *STATE)
    given = trainjob(annotations=ASKED)
    stored = fill(given, *state, release=release).object
    stripped = copy.deepcopy(given)
    stripped["metadata"]["annotations"] = dict(stored["metadata"]["annotations"])
    stripped["spec"]["suspend"] = True

    done = fill(copy.deepcopy(stripped), *state, old=stripped, release=release)

    assert env(done.object) == VARIABLES
    assert pods(done.object, release)["node"]["volumes"] == [DURABLE, FAST]
    assert pods(done.object, release)["node"]["containers"] == [{"name": "node", "volumeMounts": MOUNTS}]


def test_the_fast_tier_of_a_class() -> None:
    policy = Policy(tiers=Tiers(fast=FastTier(size_limit="40Gi", storage_class_name="nvme")))
    done = fill(trainjob(annotations=ASKED), runtime(), *STATE, policy=policy)
    assert pods(done.object)["node"]["volumes"][1] == {
        "name": "checkpoint-guard-fast",
        "ephemeral": {
            "volumeClaimTemplate": {
                "spec": {
                    "accessModes": ["ReadWriteOnce"],
                    "resources": {"requests": {"storage": "40Gi"}},
                    "storageClassName": "nvme",
                }
            }
        },
    }


def test_the_namespace_asks_and_a_run_may_decline() -> None:
    state = (runtime(), *STATE, namespace(path="/ckpts", layout="tiered", default_claim="mine"))
    assert env(fill(trainjob(), *state).object) == VARIABLES
    declined = fill(trainjob(annotations={"checkpoint-guard.io/layout": ""}), *state)
    assert declined.applied == ("checkpoint_volume", "checkpoint_variables")
    assert env(declined.object)[-1] == {"name": "CKPT_DIR", "value": "/ckpts/$(TRAINJOB_NAME)"}


def test_generate_name_needs_no_name() -> None:
    run = trainjob(annotations=ASKED)
    run["metadata"]["generateName"] = "run-"
    del run["metadata"]["name"]
    assert pods(fill(run, runtime(), *STATE).object)["node"]["containers"][0]["volumeMounts"] == MOUNTS


def test_without_a_path_it_is_the_policys() -> None:
    annotations = {name: value for name, value in ASKED.items() if not name.endswith("/path")}
    done = fill(trainjob(annotations=annotations), runtime(), *STATE)
    assert env(done.object)[1] == {"name": "CKPT_DIR", "value": "/mnt/ckpt/durable"}


def test_what_somebody_wrote_stays() -> None:
    """A directory that is already the durable one, a fast one of the user's own, and the run's name by hand."""
    own = [
        {"name": "TRAINJOB_NAME", "value": "run"},
        {"name": "CHECKPOINT_DIR", "value": "/ckpts/durable/sft"},
        {"name": "CKPT_FAST_DIR", "value": "/scratch"},
    ]
    done = fill(trainjob(annotations=ASKED, trainer={"env": own}), runtime(), *STATE)
    assert env(done.object) == own
    assert pods(done.object)["node"]["volumes"] == [DURABLE]
    assert pods(done.object)["node"]["containers"][0]["volumeMounts"] == MOUNTS[:1]


def test_workers_that_no_variable_reaches_have_the_name_itself() -> None:
    """Under MPI Trainer gives variables to the launcher alone."""
    done = fill(trainjob(annotations=ASKED), mpi_runtime(), *STATE)
    mounts = [{"name": "checkpoint-guard", "mountPath": "/ckpts/durable", "subPath": "run"}, MOUNTS[1]]
    for name in ("launcher", "node"):
        assert pods(done.object)[name]["containers"] == [{"name": "node", "volumeMounts": mounts}]
    assert env(done.object) == VARIABLES[1:]


def test_a_mount_of_the_users_own_is_left_alone() -> None:
    own = {"env": [{"name": "CKPT_DIR", "value": "/ckpts/durable"}]}
    done = fill(trainjob(annotations=ASKED, trainer=own), runtime(job(pod=mounting(path="/ckpts/durable"))), *STATE)
    assert (done.patch, done.findings) == ((), ())


@pytest.mark.parametrize(
    ("run", "state", "words"),
    [
        (
            trainjob(annotations=ASKED, trainer={"env": [{"name": "CKPT_DIR", "value": "/mnt/ckpt/a"}]}),
            (runtime(),),
            'CKPT_DIR is "/mnt/ckpt/a" already (TrainJob/run spec.trainer env CKPT_DIR)',
        ),
        (
            trainjob(annotations=ASKED),
            (runtime(job(pod={"containers": [container(env=[{"name": "CKPT_DIR", "value": "/x"}])]})),),
            'CKPT_DIR is "/x" already',
        ),
        (trainjob(annotations={**ASKED, "checkpoint-guard.io/layout": "teired"}), (runtime(),), '"teired" is no'),
        (trainjob(annotations={**ASKED, "checkpoint-guard.io/path": "ckpts"}), (runtime(),), "cannot be mounted"),
        (trainjob(annotations={**ASKED, "checkpoint-guard.io/path": "/dev"}), (runtime(),), "cannot be mounted"),
        (trainjob(annotations=ASKED, trainer=None), (runtime(policy={"torch": {}}),), "spec.trainer is absent"),
        (trainjob(annotations=ASKED), (runtime(job(label=False), job("other", label=False)),), ""),
        (
            trainjob(annotations={k: v for k, v in ASKED.items() if not k.endswith("claim")}),
            (runtime(),),
            "no claim is known",
        ),
        (
            trainjob(annotations=ASKED, trainer={"args": ["--output_dir", "/out"]}),
            (runtime(),),
            '--output_dir is "/out" already',
        ),
    ],
)
def test_not_made_is_said(run: Any, state: Any, words: str) -> None:
    done = fill(run, *state, *(STATE if "no claim" not in words else ()))
    assert not any(name == "tiered_layout" for name in done.applied)
    if words:
        (found,) = done.findings
        assert words in found.problem
        assert found.severity.value == "warn"
        assert found.fix


def test_a_policy_without_variables_makes_none() -> None:
    done = fill(trainjob(annotations=ASKED), runtime(), *STATE, policy=Policy(directory=DirectoryPolicy(variables=())))
    assert done.broken == ()
    (found,) = done.findings
    assert "the policy has no variable" in found.problem


def test_a_claim_that_would_be_denied_is_said_once() -> None:
    done = fill(trainjob(annotations=ASKED), runtime(), claim("other"), volume())
    (found,) = done.findings
    assert (found.rule, done.patch) == ("missing-claim", ())


def test_a_namespaces_wish_is_dropped_in_silence() -> None:
    state = (runtime(), *STATE, namespace(path="/ckpts", layout="tiered", default_claim="mine"))
    own = {"env": [{"name": "CKPT_DIR", "value": "/mnt/ckpt/a"}]}
    done = fill(trainjob(trainer=own), *state)
    assert (done.patch, done.findings) == ((), ())
