"""What an UPDATE of a runtime gets back, and what it is told."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from tests.defaults.world import NAMESPACE, container, fill, injected, job, mpi_runtime, runtime, trainjob
from webhook.message import warning_lines
from webhook.model.finding import Severity
from webhook.model.names import ANCESTOR_LABEL, INJECTED
from webhook.model.policy import Defaults, Policy
from webhook.model.verdict import Defaulted

Object = dict[str, Any]


def stored(raw: Object) -> Object:
    """The runtime as it is stored: with our defaults and what the CRD fills in."""
    obj: Object = copy.deepcopy(dict(fill(raw).object))
    obj["spec"]["template"]["spec"]["failurePolicy"].setdefault("restartStrategy", "Recreate")
    return obj


def applied_again(raw: Object, old: Object, **jobset: Any) -> Object:
    """What client-side apply sends: lists whole, maps merged."""
    new = copy.deepcopy(old)
    template = new["spec"]["template"]["spec"]
    template["replicatedJobs"] = copy.deepcopy(raw["spec"]["template"]["spec"]["replicatedJobs"])
    template.update(jobset)
    return new


def jobset(done: Defaulted) -> Object:
    found: Object = done.object["spec"]["template"]["spec"]
    return found


@pytest.mark.parametrize(
    "raw",
    [
        runtime(job(label=False)),
        runtime(job(), job("side", label=False), failurePolicy={"rules": [{"name": "x"}]}),
        mpi_runtime(),
        runtime(kind="ClusterTrainingRuntime"),
    ],
    ids=["bare", "with a policy", "mpi", "cluster"],
)
def test_the_same_file_again(raw: Object) -> None:
    old = stored(raw)
    for new in (applied_again(raw, old), copy.deepcopy(raw)):
        if "failurePolicy" in raw["spec"]["template"]["spec"]:
            # The CRD fills it in before we are asked.
            new["spec"]["template"]["spec"]["failurePolicy"].setdefault("restartStrategy", "Recreate")
        done = fill(new, old=old)
        assert done.object["spec"] == old["spec"]
        assert injected(done.object) == injected(old)
        assert done.findings == ()
    assert fill(copy.deepcopy(old), old=old).patch == ()


def test_policy_that_fills_nothing_any_more_still_gives_back() -> None:
    raw = runtime(job(label=False))
    old = stored(raw)
    done = fill(applied_again(raw, old), old=old, policy=Policy(defaults=Defaults(runtimes=())))
    assert done.object["spec"] == old["spec"]


def test_one_that_is_being_deleted() -> None:
    raw = runtime()
    old = stored(raw)
    old["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert fill(applied_again(raw, old), old=old).object["spec"] == old["spec"]
    bare = runtime()
    bare["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    changed = copy.deepcopy(bare)
    changed["spec"]["mlPolicy"] = {"numNodes": 2}
    assert fill(changed, old=bare).patch == ()


def test_what_the_user_changed_stays() -> None:
    raw = runtime()
    old = stored(raw)
    new = applied_again(raw, old)
    new["spec"]["template"]["spec"]["replicatedJobs"][0]["template"]["spec"]["backoffLimit"] = 4
    done = fill(new, old=old)
    assert jobset(done)["replicatedJobs"][0]["template"]["spec"]["backoffLimit"] == 4
    # From now on the value is not ours any more.
    gone = applied_again(raw, dict(done.object))
    assert "backoffLimit" not in jobset(fill(gone, old=dict(done.object)))["replicatedJobs"][0]["template"]["spec"]


@pytest.mark.parametrize("now", ["keep", "multi-node", 0])
def test_what_was_recorded_is_put_back_whatever_the_policy_has_become(now: Any) -> None:
    raw = runtime()
    old = stored(raw)
    done = fill(applied_again(raw, old), old=old, policy=Policy(defaults=Defaults(backoff_limit=now)))
    assert jobset(done)["replicatedJobs"][0]["template"]["spec"]["backoffLimit"] == 0


def test_what_was_not_recorded_is_not_added_by_another_policy() -> None:
    raw = runtime()
    old = dict(fill(raw, policy=Policy(defaults=Defaults(backoff_limit="keep"))).object)
    done = fill(applied_again(raw, old), old=old)
    assert "backoffLimit" not in jobset(done)["replicatedJobs"][0]["template"]["spec"]


def test_a_job_that_is_gone_or_new() -> None:
    old = stored(runtime(job()))
    renamed = applied_again(runtime(job("trainer", backoffLimit=1)), old)
    done = fill(renamed, old=old)
    (only,) = jobset(done)["replicatedJobs"]
    assert only["template"]["spec"]["backoffLimit"] == 1
    assert "terminationGracePeriodSeconds" not in only["template"]["spec"]["template"]["spec"]


@pytest.mark.parametrize(
    "jobs",
    [
        [job(label=False), job("other")],
        [job(label=False, pod={"containers": [container("renamed")]})],
    ],
    ids=["another job has it", "no container node"],
)
def test_a_label_that_would_not_fit_any_more(jobs: list[Object]) -> None:
    old = stored(runtime(job(label=False)))
    done = fill(applied_again(runtime(*jobs), old), old=old)
    assert ANCESTOR_LABEL not in str(jobset(done)["replicatedJobs"][0])


class TestRestartBudget:
    """``failurePolicy`` where it is absent."""

    def test_where_spec_changes(self) -> None:
        old = runtime()
        new = copy.deepcopy(old)
        new["spec"]["mlPolicy"] = {"numNodes": 2}
        done = fill(new, old=old)
        assert jobset(done)["failurePolicy"] == {"maxRestarts": 3}
        assert jobset(done)["replicatedJobs"] == old["spec"]["template"]["spec"]["replicatedJobs"], "nothing else"
        assert injected(done.object) == {"maxRestarts": 3}

    def test_not_where_a_controller_writes_a_finalizer(self) -> None:
        old = runtime()
        new = copy.deepcopy(old)
        new["metadata"]["finalizers"] = ["example.com/in-use"]
        assert fill(new, old=old).patch == ()

    def test_not_where_what_changed_was_ours(self) -> None:
        raw = runtime(failurePolicy={"maxRestarts": 5})
        old = copy.deepcopy(dict(fill(raw).object))
        assert fill(applied_again(raw, old), old=old).applied == ("put_back_runtime",)

    @pytest.mark.parametrize("policy", [{}, {"maxRestarts": 5}, {"restartStrategy": "Recreate"}])
    def test_not_where_there_was_one(self, policy: Object) -> None:
        """It is immutable once it is there: what the user takes away may go, another value may not come."""
        old = runtime(failurePolicy=policy)
        new = runtime(policy={"numNodes": 2})
        assert "failurePolicy" not in jobset(fill(new, old=old))

    def test_the_record_keeps_what_it_had(self) -> None:
        old = runtime()
        old["metadata"]["annotations"] = {INJECTED: '{"jobs":{"node":{"backoffLimit":0}}}'}
        new = copy.deepcopy(old)
        new["spec"]["mlPolicy"] = {"numNodes": 2}
        assert injected(fill(new, old=old).object) == {"jobs": {"node": {"backoffLimit": 0}}, "maxRestarts": 3}


class TestImmutableDefault:
    """The one warning that has to come from ``/mutate``."""

    def test_says_what_to_do_and_who_holds_the_runtime(self) -> None:
        raw = runtime()
        old = stored(raw)
        new = applied_again(raw, old, failurePolicy={"maxRestarts": 9, "restartStrategy": "Recreate"})
        done = fill(new, trainjob(), old=old)
        found, holder = done.findings
        assert (found.rule, found.severity) == ("immutable-default", Severity.WARN)
        assert found.at.field == "spec.template.spec.failurePolicy"
        assert found.problem == (
            'failurePolicy is immutable: delete and create the runtime to turn "maxRestarts: 3" into "maxRestarts: 9"'
        )
        assert f"{NAMESPACE}/run" in found.fix
        assert f"kubectl delete trainingruntime rt -n {NAMESPACE}" in found.fix
        assert holder.problem == f'TrainJob "{NAMESPACE}/run" holds the runtime: deletion waits for it'

    def test_the_way_out_stands_within_the_warning_lines(self) -> None:
        """Of a request that the CRD refuses the user sees nothing else."""
        raw = runtime()
        old = stored(raw)
        rules = [{"name": "r", "action": "FailJobSet"}]
        new = applied_again(raw, old, failurePolicy={"maxRestarts": 9, "rules": rules})
        runs = [trainjob() | {"metadata": {"name": f"run-{number}", "namespace": NAMESPACE}} for number in range(7)]
        first, *others = warning_lines(fill(new, *runs, old=old).findings)
        assert first.startswith("failurePolicy is immutable: delete and create the runtime to turn ")
        assert [line.partition('"')[2].partition('"')[0] for line in others[:5]] == [
            f"{NAMESPACE}/run-{number}" for number in range(5)
        ]
        assert others[5:] == ["2 more TrainJobs hold the runtime [immutable-default] (failurePolicy)"]

    def test_of_a_cluster_runtime(self) -> None:
        raw = runtime(kind="ClusterTrainingRuntime")
        old = stored(raw)
        new = applied_again(raw, old, failurePolicy={"maxRestarts": 9})
        (found,) = fill(new, old=old).findings
        assert "kubectl delete clustertrainingruntime rt\n" in found.fix

    def test_silent_where_it_was_the_users(self) -> None:
        raw = runtime(failurePolicy={"maxRestarts": 5})
        old = copy.deepcopy(dict(fill(raw).object))
        assert fill(applied_again(raw, old, failurePolicy={"maxRestarts": 9}), old=old).findings == ()

    def test_policy_may_say_less(self) -> None:
        raw = runtime()
        old = stored(raw)
        new = applied_again(raw, old, failurePolicy={"maxRestarts": 9})
        assert fill(new, old=old, policy=Policy(rules={"immutable-default": "off"})).findings == ()
        (found,) = fill(new, old=old, policy=Policy(rules={"immutable-default": "audit"})).findings
        assert found.severity is Severity.AUDIT
        (found,) = fill(new, old=old, policy=Policy(rules={"immutable-default": "deny"})).findings
        assert found.severity is Severity.WARN
