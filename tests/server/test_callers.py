"""How much an answer says, by who asks: other objects are counted for anybody, named for whom we know."""

from __future__ import annotations

import json

import pytest
from msgspec.structs import replace

from tests.server.fuzz import RUNTIME
from webhook.bootstrap import NothingKnown
from webhook.decision import default_object, review_object
from webhook.model.cluster import Claim, Gap, Run, RunDirectory, Runtime
from webhook.model.names import CERTIFICATE, PROBE
from webhook.model.policy import Policy
from webhook.model.release import Release
from webhook.model.request import Request
from webhook.server.caller import Caller
from webhook.server.judging import answer_review

RUNS = [Run("secret-team", f"zulu{number}", suspended=number % 2 == 0) for number in range(3)]


class Cluster(NothingKnown):
    """A claim that is shared, and other runs."""

    def claim(self, namespace: str, name: str) -> Claim | Gap:
        return Claim(namespace, name, ("ReadWriteMany",), "nfs", "", "Filesystem", "Bound")

    def runtime(self, kind: str, namespace: str, name: str) -> Runtime | Gap:
        return Runtime(kind, "", name, RUNTIME)

    def runs_of_runtime(self, kind: str, namespace: str, name: str) -> list[Run]:
        return RUNS

    def excused_runs(self, namespace: str, besides: str) -> int:
        return 0

    def directories(self, namespace: str, claim: str, path: str | None = None) -> list[RunDirectory]:
        return [RunDirectory(run, claim, path or "run") for run in RUNS]


def changed() -> dict[str, object]:
    made = json.loads(json.dumps(RUNTIME))
    made["spec"]["template"]["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]["containers"][0][
        "image"
    ] = "another"
    return dict(made)


TRAINJOB = {
    "apiVersion": "trainer.kubeflow.org/v1alpha1",
    "kind": "TrainJob",
    "metadata": {"name": "run", "namespace": "team"},
    "spec": {
        "runtimeRef": {"name": "torch"},
        "trainer": {"env": [{"name": "CKPT_DIR", "value": "/state/run"}]},
    },
}
REQUESTS = {
    "shared-directory": Request("CREATE", "TrainJob", "team", "run", TRAINJOB, uid="1"),
    "wedging-update": Request("UPDATE", "ClusterTrainingRuntime", "", "torch", changed(), RUNTIME, uid="1"),
}


@pytest.mark.parametrize("rule", REQUESTS)
def test_other_runs_are_a_number_for_anybody(rule: str) -> None:
    request, cluster, policy = REQUESTS[rule], Cluster(), Policy()
    told = {
        caller: answer_review(
            "/validate", request, cluster, policy, Release.V2_1, default_object, review_object, caller, ""
        )
        for caller in Caller
    }
    assert all((rule, "warn") in outcome.found for outcome in told.values())
    known, anybody, stranger = (
        told[caller].answer.decode() for caller in (Caller.KNOWN, Caller.ANYBODY, Caller.STRANGER)
    )
    assert "zulu" in known
    assert "zulu" not in anybody
    assert "secret-team" not in anybody
    assert "3 other TrainJobs" in anybody or "2 TrainJobs (suspended" in anybody
    response = json.loads(stranger)["response"]
    assert set(response) <= {"uid", "allowed", "warnings", "status"}
    assert rule in stranger
    for outcome in told.values():
        assert outcome.record is not None
        private = [one.get("private", "") for one in outcome.record["findings"] if one["rule"] == rule]
        assert "zulu" in private[0]


def answered(request: Request, caller: Caller) -> dict[str, object]:
    outcome = answer_review(
        "/validate", request, Cluster(), Policy(), Release.V2_1, default_object, review_object, caller, ""
    )
    response: dict[str, object] = json.loads(outcome.answer)["response"]
    return response


def test_what_install_check_tries_is_told_who_asks() -> None:
    probe = replace(REQUESTS["shared-directory"], name=PROBE, dry_run=True)
    for caller, said in ((Caller.KNOWN, "shown"), (Caller.ANYBODY, "not asked for")):
        assert f"{CERTIFICATE}{said}" in str(answered(probe, caller)["warnings"])
    assert CERTIFICATE not in str(answered(probe, Caller.STRANGER))
    for other in (REQUESTS["shared-directory"], replace(probe, dry_run=False)):
        assert CERTIFICATE not in str(answered(other, Caller.KNOWN))
