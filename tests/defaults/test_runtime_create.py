"""What a runtime gets when it is created."""

from __future__ import annotations

from typing import Any

import pytest

from tests.defaults.world import NAMESPACE, applied, container, fill, injected, job, mpi_runtime, runtime, trainjob
from webhook.model.names import ANCESTOR_LABEL
from webhook.model.policy import Defaults, Policy
from webhook.model.release import Release


def jobset(done: Any) -> Any:
    return done.object["spec"]["template"]["spec"]


def template(done: Any, index: int = 0) -> Any:
    return jobset(done)["replicatedJobs"][index]["template"]


@pytest.mark.parametrize("kind", ["TrainingRuntime", "ClusterTrainingRuntime"])
@pytest.mark.parametrize("release", list(Release))
def test_everything_that_is_absent(kind: str, release: Release) -> None:
    done = fill(runtime(job(label=False), kind=kind), release=release)

    assert jobset(done)["failurePolicy"] == {"maxRestarts": 3}
    assert template(done)["metadata"]["labels"] == {ANCESTOR_LABEL: "trainer"}
    assert template(done)["spec"]["backoffLimit"] == 0
    assert template(done)["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] == 60
    assert injected(done.object) == {
        "maxRestarts": 3,
        "jobs": {"node": {"backoffLimit": 0, "label": "trainer", "terminationGracePeriodSeconds": 60}},
    }
    assert done.applied == ("restart_budget", "trainer_label", "backoff_limit", "grace_period")


def test_nothing_where_all_is_written() -> None:
    pod = {"containers": [container()], "terminationGracePeriodSeconds": 10}
    done = fill(runtime(job(pod=pod, backoffLimit=6), failurePolicy={"maxRestarts": 0}))
    assert done.patch == ()
    assert done.object["metadata"] == {"name": "rt", "namespace": NAMESPACE}


@pytest.mark.parametrize("policy", [{}, {"restartStrategy": "Recreate"}, {"rules": [{"name": "a"}]}])
def test_an_unfinished_failure_policy_gets_the_budget(policy: Any) -> None:
    assert jobset(fill(runtime(failurePolicy=policy)))["failurePolicy"] == {**policy, "maxRestarts": 3}


def test_restarts_in_place_keep_their_backoff_limit() -> None:
    done = fill(runtime(failurePolicy={"maxRestarts": 1, "restartStrategy": "InPlaceRestart"}))
    assert "backoffLimit" not in template(done)["spec"]


def test_ranks_that_are_meant_to_retry_alone_do() -> None:
    done = fill(runtime(job(backoffLimitPerIndex=2)))
    assert "backoffLimit" not in template(done)["spec"]


@pytest.mark.parametrize(
    ("choice", "nodes", "limit"),
    [
        (0, 1, 0), (0, 2, 0), ("multi-node", 1, None), ("multi-node", 2, 0), ("multi-node", None, None),
        ("keep", 1, None), ("keep", 2, None),
    ],
)  # fmt: skip
def test_where_retries_are_taken_away_is_a_choice(choice: Any, nodes: int | None, limit: int | None) -> None:
    """With 0, a run of one pod whose node is lost waits for the node."""
    made = runtime(job())
    made["spec"]["mlPolicy"] = {} if nodes is None else {"numNodes": nodes}
    done = fill(made, policy=Policy(defaults=Defaults(backoff_limit=choice)))
    assert template(done)["spec"].get("backoffLimit") == limit
    assert injected(done.object)["jobs"]["node"].get("backoffLimit") == limit
    assert injected(done.object)["maxRestarts"] == 3


def test_only_jobs_that_train() -> None:
    done = fill(runtime(job("dataset-initializer", label=False, pod={"containers": [container("x")]}), job()))
    assert template(done, 0)["spec"] == {"template": {"spec": {"containers": [container("x")]}}}
    assert template(done, 1)["spec"]["backoffLimit"] == 0


def test_both_jobs_of_mpi() -> None:
    done = fill(mpi_runtime())
    for index in (0, 1):
        assert template(done, index)["spec"]["backoffLimit"] == 0
        assert template(done, index)["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] == 60
    assert "metadata" not in template(done, 1)


@pytest.mark.parametrize(
    "jobs",
    [
        [job("a", label=False), job("b", label=False)],
        [job("a", label=False, pod={"containers": [container("other")]})],
        [{**job("a", label=False), "replicas": 2}],
        [job("a"), job("b", label=False, pod={"containers": [container("node")]})],
    ],
    ids=["two could carry it", "no container node", "two replicas", "another has it"],
)
def test_no_label(jobs: list[Any]) -> None:
    done = fill(runtime(*jobs))
    assert "trainer_label" not in done.applied


def test_the_launcher_alone_may_carry_the_label_under_mpi() -> None:
    only_node = runtime(job("launcher", label=False, pod={"containers": [container("x")]}), job("node", label=False))
    only_node["spec"]["mlPolicy"] = {"mpi": {}}
    assert "trainer_label" not in fill(only_node).applied


def test_null_parents() -> None:
    raw = runtime(job())
    raw["spec"]["template"]["spec"]["failurePolicy"] = None
    raw["metadata"]["annotations"] = None
    done = fill(raw)
    assert jobset(done)["failurePolicy"] == {"maxRestarts": 3}
    assert applied(raw, done.patch)["metadata"]["annotations"]


@pytest.mark.parametrize("spec", [{}, None, {"template": None}, {"template": {"spec": {"replicatedJobs": None}}}])
def test_no_jobs_no_patch(spec: Any) -> None:
    assert fill({**runtime(), "spec": spec}).patch == ()


def test_policy_says_for_which_kinds_and_which_values() -> None:
    policy = Policy(
        defaults=Defaults(max_restarts=7, termination_grace_period_seconds=90, runtimes=("ClusterTrainingRuntime",))
    )
    assert fill(runtime(), policy=policy).patch == ()
    done = fill(runtime(kind="ClusterTrainingRuntime"), policy=policy)
    assert jobset(done)["failurePolicy"] == {"maxRestarts": 7}
    assert template(done)["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] == 90


def test_a_kind_that_is_not_ours() -> None:
    assert fill({**trainjob(), "kind": "Job"}).patch == ()
