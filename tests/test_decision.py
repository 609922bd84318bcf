"""Severity after policy, mode and UPDATE: what ``webhook.decision`` decides beside the rules."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from webhook.cluster.file_view import FileView
from webhook.cluster.files import load_text
from webhook.decision import default_object, review_object
from webhook.model.policy import DirectoryPolicy, Exempt, Policy
from webhook.model.release import Release
from webhook.model.request import Request
from webhook.rules import RULES

RUNTIME = """
apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainingRuntime
metadata: {name: torch, namespace: team-a}
spec:
  mlPolicy: {numNodes: 1, torch: {}}
  template:
    spec:
      failurePolicy: {maxRestarts: 3}
      replicatedJobs:
      - name: node
        template:
          metadata: {labels: {trainer.kubeflow.org/trainjob-ancestor-step: trainer}}
          spec:
            backoffLimit: 0
            template:
              spec:
                terminationGracePeriodSeconds: 60
                containers:
                - name: node
                  image: train:1
                  env: [{name: CKPT_DIR, value: /ckpt}]
                  volumeMounts: [{name: ckpt, mountPath: /ckpt}]
                volumes:
                - name: ckpt
                  SOURCE
"""
CLAIM = """
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: ckpt, namespace: team-a}
spec: {accessModes: [ReadWriteMany], storageClassName: shared, resources: {requests: {storage: 1Gi}}}
---
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: shared}
provisioner: nfs.csi.k8s.io
"""
BAD = RUNTIME.replace("SOURCE", "emptyDir: {}")
GOOD = RUNTIME.replace("SOURCE", "persistentVolumeClaim: {claimName: ckpt}")
JOB: dict[str, Any] = {
    "apiVersion": "trainer.kubeflow.org/v1alpha1",
    "kind": "TrainJob",
    "metadata": {"name": "run", "namespace": "team-a"},
    "spec": {"runtimeRef": {"kind": "TrainingRuntime", "name": "torch"}, "suspend": False},
}


def namespace(**labels: str) -> str:
    lines = "".join(f"    checkpoint-guard.io/{key}: '{value}'\n" for key, value in labels.items())
    return f"apiVersion: v1\nkind: Namespace\nmetadata:\n  name: team-a\n  labels:\n{lines}"


def view(*texts: str) -> FileView:
    loaded = load_text("\n---\n".join(texts).encode(), "state.yaml")
    assert not loaded.errors
    return FileView(loaded.documents, Release.V2_3)


def create(**more: Any) -> Request:
    return Request("CREATE", "TrainJob", "team-a", "run", JOB, **more)


def suspend(**more: Any) -> Request:
    new = copy.deepcopy(JOB)
    new["spec"]["suspend"] = True
    return Request("UPDATE", "TrainJob", "team-a", "run", new, JOB, **more)


@pytest.mark.parametrize(
    ("mode", "verdict", "severity"),
    [("enforce", "deny", "deny"), ("warn", "warn", "warn"), ("audit", "allow", "audit"), ("typo", "deny", "deny")],
)
def test_mode_of_the_namespace(mode: str, verdict: str, severity: str) -> None:
    decision = review_object(create(), view(BAD, namespace(mode=mode)), Policy())
    assert decision.verdict == verdict
    assert [f.severity.value for f in decision.findings if f.rule == "ephemeral-checkpoint"] == [severity]


def test_mode_off_is_not_judged() -> None:
    decision = review_object(create(), view(BAD, namespace(mode="off")), Policy())
    assert (decision.verdict, decision.findings) == ("allow", ())


def test_policy_sets_severity() -> None:
    for setting, verdict in (("warn", "warn"), ("audit", "allow"), ("off", "allow"), ("deny", "deny")):
        decision = review_object(create(), view(BAD), Policy(rules={"ephemeral-checkpoint": setting}))  # type: ignore[dict-item]
        assert decision.verdict == verdict, setting


def test_what_is_not_known_is_never_denied_whatever_policy_says() -> None:
    # That a TrainJob was not rehearsed is known from the TrainJob itself.
    every = Policy(rules={rule.id: "deny" for rule in RULES if rule.id != "not-rehearsed"})
    other = BAD.replace("name: torch", "name: other")
    for known, unknown in ((CLAIM, "unknown-runtime"), (GOOD, "missing-claim")):
        decision = review_object(create(), view(known), every)
        assert [(f.rule, f.severity.value) for f in decision.findings] == [(unknown, "audit")]
    decision = review_object(create(), view(other), every)
    assert [(f.rule, f.severity.value) for f in decision.findings] == [("unknown-runtime", "deny")]


@pytest.mark.parametrize(
    ("rule", "old", "new"),
    [
        ("no-restart-budget", "{maxRestarts: 3}", "{maxRestarts: 0}"),
        ("unbounded-restarts", "{maxRestarts: 3}", "{maxRestarts: 30}"),
        ("restart-count-reset", "{maxRestarts: 3}", "{maxRestarts: 3}\n      ttlSecondsAfterFinished: 60"),
        ("short-grace", "terminationGracePeriodSeconds: 60", "terminationGracePeriodSeconds: 5"),
        ("pods-retry-alone", "backoffLimit: 0", "backoffLimit: 4"),
    ],
)
def test_policy_denies_a_runtime_for_what_it_writes_itself(rule: str, old: str, new: str) -> None:
    """No TrainJob can mend these, so a policy that denies them denies the runtime too, not its runs alone."""
    two = GOOD.replace("numNodes: 1", "numNodes: 2")
    (document,) = load_text(two.replace(old, new).encode(), "runtime.yaml").documents
    request = Request("CREATE", "TrainingRuntime", "team-a", "torch", document.object)
    view_of = view(CLAIM)
    assert review_object(request, view_of, Policy()).verdict == "warn"
    decision = review_object(request, view_of, Policy(rules={rule: "deny"}))
    assert [f.rule for f in decision.findings if f.severity.value == "deny"] == [rule]


def test_update_denies_only_what_the_old_object_did_not_have() -> None:
    assert review_object(suspend(), view(BAD), Policy()).verdict == "warn"


@pytest.mark.parametrize("release", [Release.V2_1, Release.V2_2])
def test_a_resume_passes_where_the_claims_were_not_looked_at_before(release: Release) -> None:
    """Trainer below 2.3 ignores managedBy once the run is resumed, and only then its claims count."""
    old = {**JOB, "spec": {**JOB["spec"], "managedBy": "kueue.x-k8s.io/multikueue", "suspend": True}}
    new = {**old, "spec": {**old["spec"], "suspend": False}}
    request = Request("UPDATE", "TrainJob", "team-a", "run", new, old, user="jane")
    other = CLAIM.replace("name: ckpt,", "name: other,")
    decision = review_object(request, view(GOOD, other), Policy(), release)
    assert [(f.rule, f.severity.value) for f in decision.findings] == [("missing-claim", "warn")]
    created = Request("CREATE", "TrainJob", "team-a", "run", new)
    assert review_object(created, view(GOOD, other), Policy(), release).verdict == "deny"


def test_update_is_judged_by_the_snapshot_on_both_sides() -> None:
    """Trainer 2.3 runs on its copy of the runtime; a runtime mended since then must not wedge the run."""
    indented = "\n".join("    " + line for line in BAD.strip().splitlines())
    snapshot = (
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: run-runtime-snapshot, namespace: team-a}\n"
        f"data:\n  runtime: |\n{indented}\n"
    )
    decision = review_object(suspend(), view(GOOD, CLAIM, snapshot), Policy())
    assert [f.rule for f in decision.findings] == ["ephemeral-checkpoint"]
    assert decision.verdict == "warn"
    # A new run starts from the runtime as it is.
    assert review_object(create(), view(GOOD, CLAIM, snapshot), Policy()).verdict == "allow"


def test_controllers_are_never_denied_on_update() -> None:
    new = copy.deepcopy(JOB)
    new["spec"]["trainer"] = {"env": [{"name": "CKPT_DIR", "value": "/elsewhere"}]}
    tenant = Request("UPDATE", "TrainJob", "team-a", "run", new, JOB, user="jane")
    kueue = Request(
        "UPDATE",
        "TrainJob",
        "team-a",
        "run",
        new,
        JOB,
        user="system:serviceaccount:kueue-system:kueue-controller-manager",
    )
    assert review_object(tenant, view(GOOD, CLAIM), Policy()).verdict == "deny"
    assert review_object(kueue, view(GOOD, CLAIM), Policy()).verdict == "warn"


def test_exempt_requests_are_let_through() -> None:
    for exempt, more in (
        (Exempt(users=("ci",)), {"user": "ci"}),
        (Exempt(groups=("system:masters",)), {"groups": ("system:masters",)}),
        (Exempt(runtimes=("TrainingRuntime/torch",)), {}),
        (Exempt(namespaces=("team-a",)), {}),
    ):
        decision = review_object(create(**more), view(BAD), Policy(exempt=exempt))
        assert (decision.verdict, decision.mode) == ("allow", "exempt")
    for other in ("torch", "ClusterTrainingRuntime/torch", "TrainingRuntime/*"):
        assert review_object(create(), view(BAD), Policy(exempt=Exempt(runtimes=(other,)))).mode == "enforce"


def test_required_directory() -> None:
    bare = GOOD.replace("env: [{name: CKPT_DIR, value: /ckpt}]", "workingDir: /app")
    request = create()
    assert review_object(request, view(bare, CLAIM), Policy()).verdict == "allow"
    required = review_object(request, view(bare, CLAIM, namespace(require="true")), Policy())
    assert required.verdict == "deny"
    nameless = Policy(directory=DirectoryPolicy(variables=()))
    (found,) = review_object(request, view(GOOD, CLAIM, namespace(require="true")), nameless).findings
    assert (found.rule, found.severity.value) == ("undeclared-checkpoint", "deny")
    assert "policy" in found.fix
    louder = Policy(rules={"undeclared-checkpoint": "warn"})
    assert review_object(request, view(bare, CLAIM, namespace(require="true")), louder).verdict == "deny"
    assert review_object(request, view(bare, CLAIM), louder).verdict == "warn"


def test_without_a_table_parameters_say_no_size() -> None:
    """That the policy's table is empty is no fault of the number in the annotation."""
    job = {**JOB, "metadata": {**JOB["metadata"], "annotations": {"checkpoint-guard.io/model-params": "7B"}}}
    request = Request("CREATE", "TrainJob", "team-a", "run", job)
    assert [f.rule for f in review_object(request, view(GOOD, CLAIM), Policy()).findings] == ["claim-too-small"]
    assert review_object(request, view(GOOD, CLAIM), Policy(checkpoint_sizes=())).findings == ()


def test_malformed_is_allowed_and_named() -> None:
    broken = {**JOB, "spec": {"runtimeRef": "torch"}}
    request = Request("CREATE", "TrainJob", "team-a", "run", broken)
    for answer in (review_object(request, view(GOOD), Policy()), default_object(request, view(GOOD), Policy())):
        assert [(f.rule, f.severity.value, f.at.field) for f in answer.findings] == [
            ("malformed-object", "warn", "spec.runtimeRef")
        ]


def test_update_without_old_object_is_malformed() -> None:
    decision = review_object(Request("UPDATE", "TrainJob", "team-a", "run", JOB), view(GOOD), Policy())
    assert [(f.rule, f.at.field) for f in decision.findings] == [("malformed-object", "oldObject")]
    assert decision.findings[0].fix == "write TrainJob as the CRD has it: kubectl explain trainjob"


def test_a_fault_of_the_old_object_is_named_as_its() -> None:
    request = Request("UPDATE", "TrainJob", "team-a", "run", JOB, {**JOB, "spec": {"runtimeRef": "torch"}})
    for answer in (review_object(request, view(GOOD), Policy()), default_object(request, view(GOOD), Policy())):
        assert [(f.rule, f.at.field) for f in answer.findings] == [("malformed-object", "oldObject.spec.runtimeRef")]
        assert "kubectl explain trainjob.spec.runtimeRef" in answer.findings[0].fix


def test_deleting_object_is_allowed() -> None:
    going = {**JOB, "metadata": {**JOB["metadata"], "deletionTimestamp": "2026-11-29T00:00:00Z"}}
    assert (
        review_object(Request("UPDATE", "TrainJob", "team-a", "run", going, JOB), view(BAD), Policy()).verdict
        == "allow"
    )


@pytest.mark.parametrize("setting", ["deny", "warn", "audit", "off"])
def test_policy_weighs_what_no_rule_yields(setting: str) -> None:
    broken = {**JOB, "spec": {"runtimeRef": "torch"}}
    tiered = {**JOB, "metadata": {**JOB["metadata"], "annotations": {"checkpoint-guard.io/layout": "flat"}}}
    weighed = {"deny": ["warn"], "warn": ["warn"], "audit": ["audit"], "off": []}[setting]
    bare = GOOD.replace("volumeMounts: [{name: ckpt, mountPath: /ckpt}]", "workingDir: /app")
    for rule, obj in (("malformed-object", broken), ("undeclared-checkpoint", tiered)):
        request = Request("CREATE", "TrainJob", "team-a", "run", obj)
        rules: Any = {rule: setting}
        told = default_object(request, view(bare, CLAIM), Policy(rules=rules))
        assert [(f.rule, f.severity.value) for f in told.findings] == [(rule, severity) for severity in weighed]
    request = Request("CREATE", "TrainJob", "team-a", "run", broken)
    decision = review_object(request, view(bare), Policy(rules={"malformed-object": setting}))  # type: ignore[dict-item]
    assert [f.severity.value for f in decision.findings] == weighed
    assert decision.verdict == ("warn" if weighed == ["warn"] else "allow")
