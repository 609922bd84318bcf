"""What is more than one review affords is cut where it cannot hide anything, and is said to be cut."""

from __future__ import annotations

from typing import Any

import pytest

from tests.work.shapes import CLAIM, Everything, Object, ask, container, job, runtime, trainjob
from webhook.effective.limits import entries_of
from webhook.model.budget import FINDINGS, LOOKUPS, NODES
from webhook.model.finding import Severity
from webhook.model.policy import Policy
from webhook.model.release import Release
from webhook.model.verdict import Decision


def claims(number: int) -> list[Object]:
    return [{"name": f"v{at}", "persistentVolumeClaim": {"claimName": f"c{at}"}} for at in range(number)]


def of(decision: Decision, rule: str) -> list[Any]:
    return [finding for finding in decision.findings if finding.rule == rule]


@pytest.mark.parametrize("number", [600, 10_000])
def test_absent_claims_do_not_hide_the_one_under_the_directory(number: int) -> None:
    pods = job()
    pods["template"]["spec"]["template"]["spec"]["volumes"] = [
        *claims(number),
        {"name": "state", "persistentVolumeClaim": {"claimName": "state"}},
    ]
    decision = ask([runtime([pods]), trainjob()])[1]
    assert decision.verdict == "deny"
    assert 'claim "state" does not exist' in of(decision, "missing-claim")[0].problem
    assert of(decision, "missing-claim")[0].severity is Severity.DENY


def test_more_claims_than_are_looked_up_are_denied_on_create() -> None:
    objects = [runtime([job(volumes=claims(LOOKUPS + 1))]), CLAIM, trainjob()]
    found = of(ask(objects)[1], "judged-in-part")
    assert {finding.severity for finding in found} == {Severity.DENY}
    assert any(f"{LOOKUPS} of {LOOKUPS + 2} claims" in finding.problem for finding in found)
    # From files nobody is kept from submitting it.
    assert {finding.severity for finding in of(ask(objects, uid="")[1], "judged-in-part")} == {Severity.WARN}
    policy = Policy(rules={"judged-in-part": "warn"})
    assert {finding.severity for finding in of(ask(objects, policy=policy)[1], "judged-in-part")} == {Severity.WARN}
    assert not of(ask(objects, policy=Policy(rules={"judged-in-part": "off"}))[1], "judged-in-part")


def test_many_findings_of_a_rule_are_cut_and_said_to_be() -> None:
    env = [{"name": f"9 bad={at}", "value": "x"} for at in range(FINDINGS + 1)]
    decision = ask([runtime([job()]), CLAIM, trainjob(env=env)])[1]
    assert len(of(decision, "unbuildable-pod")) == FINDINGS
    assert any("unbuildable-pod" in finding.problem for finding in of(decision, "judged-in-part"))


def test_jobs_beside_the_one_that_trains_are_left_out_first() -> None:
    side = container("side", env=[{"name": f"V{at}", "value": "x"} for at in range(500)])
    helpers = [job(f"h{at}", [side], labels={}) for at in range(NODES // 500 + 1)]
    lost = job("node", [{"name": "node", "image": "r/t:1"}])
    decision = ask([runtime([*helpers, lost]), CLAIM, trainjob()])[1]
    assert [finding.job for finding in of(decision, "ephemeral-checkpoint")] == ["node"]
    problem = of(decision, "judged-in-part")[0].problem
    assert f"of {len(helpers) + 1} jobs" in problem
    assert str(NODES) in problem


@pytest.mark.parametrize("kind", ["volumes", "mounts"])
def test_padding_in_the_pod_does_not_hide_what_lies_under_the_directory(kind: str) -> None:
    filler = [{"name": f"v{at}", "emptyDir": {}} for at in range(NODES)] if kind == "volumes" else []
    mounts = [{"name": "gone", "mountPath": f"/x{at}"} for at in range(NODES)] if kind == "mounts" else []
    node = container(mounts=[*mounts, {"name": "gone", "mountPath": "/ckpt"}])
    pods = job(containers=[node], volumes=[*filler, {"name": "gone", "emptyDir": {}}])
    decision = ask([runtime([pods]), CLAIM, trainjob("/ckpt/run")])[1]
    assert len(of(decision, "ephemeral-checkpoint")) == 1
    assert any(kind[:-1] in finding.problem for finding in of(decision, "judged-in-part"))
    assert not of(decision, "unbuildable-pod")


@pytest.mark.parametrize("number", [65, 300, 5_000])
def test_any_number_of_overrides_of_one_job_is_judged(number: int) -> None:
    entries = [
        {"targetJobs": [{"name": "node"}], "spec": {"volumes": [{"name": "own", "emptyDir": {}}]}}
        for _ in range(number)
    ]
    lost = job("node", [{"name": "node", "image": "r/t:1"}])
    decision = ask([runtime([lost]), CLAIM, trainjob(podTemplateOverrides=entries)], Release.V2_1)[1]
    assert decision.verdict == "deny"
    assert of(decision, "ephemeral-checkpoint") or of(decision, "judged-in-part")


def test_an_update_is_warned_of_what_it_was_before() -> None:
    from webhook.decision import review_object
    from webhook.model.request import Request

    view = Everything(())
    view.store.unknown.clear()
    view.store.put("TrainingRuntime", runtime([job(volumes=claims(LOOKUPS + 1))]))
    view.store.put("PersistentVolumeClaim", CLAIM)
    run = trainjob()
    request = Request("UPDATE", "TrainJob", "team", "run", run, trainjob("/state/other"), uid="u")
    decision = review_object(request, view, Policy(), Release.V2_3)
    assert {finding.severity for finding in of(decision, "judged-in-part")} == {Severity.WARN}


def test_entries_are_those_of_the_lists() -> None:
    assert entries_of({"volumes": [1, 2], "containers": [{"env": [1, 2, 3]}], "nodeSelector": {"a": "b"}}) == 6
