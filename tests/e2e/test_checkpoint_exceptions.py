"""CheckpointException on a real API server: who may write one, what it must say, honoured, then ended or taken away."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import yaml

from tests.e2e.controlplane.cluster import TRAINJOBS, Cluster, Object
from tests.e2e.controlplane.guard import CLONE, Guard
from tests.e2e.controlplane.processes import wait_until
from tests.e2e.controlplane.releases import RELEASES
from tests.e2e.objects import claim, runtime, storage_class
from tests.e2e.test_policy_life import lost, send

COMPONENT = CLONE / "deploy" / "components" / "exceptions"
KIND = "checkpointexceptions.exceptions.checkpoint-guard.io"
USER = "otto"


@pytest.fixture(scope="session", params=[next(iter(RELEASES))])
def release(request: pytest.FixtureRequest) -> str:
    """The newest Trainer: what is tried does not depend on it."""
    return str(request.param)


def component() -> list[Object]:
    return [
        one
        for name in ("crd.yaml", "rbac.yaml", "approval.yaml")
        for one in yaml.safe_load_all((COMPONENT / name).read_text())
    ]


@pytest.fixture
def installed(guard: Guard, namespace: str) -> Iterator[Guard]:
    """The component, beside a guard that began without it."""
    cluster = guard.cluster
    cluster.apply(storage_class(), claim(namespace, "data"), runtime(namespace))
    assert len(send(cluster, lost(namespace, "before"))) == 1
    cluster.apply(*component())
    try:
        cluster.wait_established(KIND)
        wait_until("the kind to be served", lambda: cluster.kubectl("get", KIND, "-A", check=False).returncode == 0)
        yield guard
    finally:
        for one in component():
            cluster.kubectl("delete", one["kind"], one["metadata"]["name"], "--ignore-not-found")


def exception(namespace: str, name: str = "bench", **spec: Any) -> Object:
    end = datetime.now(UTC) + timedelta(days=90)
    said = {
        "rules": ["ephemeral-checkpoint"],
        "match": {"names": ["scratch-*"]},
        "reason": "scratch benchmarks",
        "owner": "team-a@example.com",
        "until": end.strftime("%Y-%m-%d"),
    }
    return {
        "apiVersion": "exceptions.checkpoint-guard.io/v1alpha1",
        "kind": "CheckpointException",
        "metadata": {"name": name, "namespace": namespace},
        "spec": said | spec,
    }


def write(cluster: Cluster, obj: Object, *flags: str) -> str:
    """What the API server says against it; empty where it is stored."""
    done = cluster.kubectl("apply", "-f", "-", *flags, input=json.dumps(obj), check=False)
    return done.stderr if done.returncode else ""


def test_it_is_honoured_until_it_ends(installed: Guard, namespace: str) -> None:
    cluster = installed.cluster
    assert write(cluster, exception(namespace)) == ""
    began = time.monotonic()
    wait_until("the guard to hear of the kind", lambda: not send(cluster, lost(namespace, "scratch-0")), 15)
    print(f"\nhonoured {time.monotonic() - began:.1f} s after the kind came")
    assert len(send(cluster, lost(namespace, "other"))) == 1  # the match does not fit
    lines = installed.audit_lines(
        lambda line: line.get("name") == "scratch-0" and any("exception" in one for one in line["findings"])
    )
    excused = [one["exception"] for line in lines for one in line["findings"] if "exception" in one]
    assert excused[-1]["from"] == "CheckpointException/bench"
    assert excused[-1]["reason"] == "scratch benchmarks"

    # From now on a change counts at once, in both ways.
    end = datetime.now(UTC) + timedelta(seconds=8)
    until = end.strftime("%Y-%m-%dT%H:%M:%SZ")
    assert write(cluster, exception(namespace, until=until)) == ""
    assert send(cluster, lost(namespace, "scratch-1")) == []
    time.sleep(max(0.0, (end - datetime.now(UTC)).total_seconds() + 1.5))
    (refused,) = send(cluster, lost(namespace, "scratch-2"))
    assert "[ephemeral-checkpoint]" in refused
    assert "[expired-exception]" in refused
    resume = json.dumps({"spec": {"suspend": False}})
    done = cluster.kubectl("patch", TRAINJOBS, "scratch-1", "-n", namespace, "--type=merge", "-p", resume)
    assert done.returncode == 0

    assert write(cluster, exception(namespace)) == ""
    assert send(cluster, lost(namespace, "scratch-3")) == []
    cluster.kubectl("delete", KIND, "bench", "-n", namespace)
    # A table may be some milliseconds behind with what excuses.
    wait_until("its deletion to count", lambda: bool(send(cluster, lost(namespace, f"scratch-{time.time_ns()}"))), 5)

    cluster.kubectl("delete", "customresourcedefinition", KIND)
    assert len(send(cluster, lost(namespace, "scratch-4"))) == 1
    said = installed.log.read_text()
    assert "CheckpointException: the guard" not in said
    assert "Traceback" not in said


def test_review_and_scan_count_it(installed: Guard, namespace: str) -> None:
    cluster = installed.cluster
    assert write(cluster, exception(namespace)) == ""

    def run(*words: str) -> Object:
        done = subprocess.run(
            [sys.executable, "-m", "webhook", *words, "-o", "json", "--kubeconfig", str(cluster.kubeconfig)],
            input=json.dumps(lost(namespace, "scratch-1")),
            env=os.environ | {"PYTHONPATH": str(CLONE)},
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        (found,) = [one for one in json.loads(done.stdout)["results"] if one["name"] == "scratch-1"]
        return {"verdict": found["verdict"], "notices": json.loads(done.stdout).get("notices")}

    assert run("review", "-", "--live")["verdict"] != "deny"
    wait_until("the guard to hear of the kind", lambda: not send(cluster, lost(namespace, "scratch-1")), 15)
    assert run("scan", "-n", namespace)["verdict"] != "deny"
    cluster.kubectl("delete", KIND, "bench", "-n", namespace)
    assert run("review", "-", "--live")["verdict"] == "deny"
    assert run("scan", "-n", namespace)["verdict"] == "deny"


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"rules": ["no-such-rule"]}, "spec.rules[0]"),
        ({"rules": []}, "spec.rules"),
        ({"until": "2027-02-31"}, "spec.until"),
        ({"until": "soon"}, "spec.until"),
        ({"reason": " "}, "spec.reason"),
        ({"owner": None}, "spec.owner"),
        ({"match": {"namespaces": ["other"]}}, 'unknown field "spec.match.namespaces"'),
        ({"match": {"users": ["team-*"]}}, "spec.match.users[0]"),
        ({"match": {"fingerprints": ["short"]}}, "spec.match.fingerprints[0]"),
    ],
)
def test_what_it_has_to_say_is_checked_by_the_api_server(
    schema: Cluster, namespace: str, spec: dict[str, Any], field: str
) -> None:
    said = write(schema, exception(namespace, **spec), "--dry-run=server", "--validate=strict")
    assert field in said, said


@pytest.fixture(scope="module")
def schema(clusters: Any, release: str) -> Iterator[Cluster]:
    cluster: Cluster = clusters.get(release)
    cluster.apply(*component())
    cluster.wait_established(KIND)
    wait_until("the kind to be served", lambda: cluster.kubectl("get", KIND, "-A", check=False).returncode == 0)
    yield cluster
    for one in component():
        cluster.kubectl("delete", one["kind"], one["metadata"]["name"], "--ignore-not-found")


def test_to_write_one_takes_the_right_to_approve(schema: Cluster, namespace: str) -> None:
    """A role that lets its users write everything in a namespace is not enough, the role of the component is."""
    verbs = ["get", "list", "watch", "create", "update", "patch", "delete"]
    rules = [{"apiGroups": ["exceptions.checkpoint-guard.io"], "resources": ["*"], "verbs": verbs}]
    metadata = {"name": "everything", "namespace": namespace}
    schema.apply(
        {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": metadata, "rules": rules},
        binding(namespace, "everything", "Role"),
    )
    as_user = ("--as", USER)
    refused: list[str] = []

    def says_no() -> bool:
        refused[:] = [write(schema, exception(namespace), *as_user)]
        return 'takes the right "approve"' in refused[0]

    wait_until(f"the policy in force: {refused}", says_no, 15)
    assert write(schema, exception(namespace)) == ""  # an administrator
    labelled = exception(namespace)
    labelled["metadata"]["labels"] = {"seen": "yes"}
    assert write(schema, labelled, *as_user) == ""  # nothing of what it says
    longer = exception(namespace, rules=["ephemeral-checkpoint", "short-grace"])
    assert 'takes the right "approve"' in write(schema, longer, *as_user)

    schema.apply(binding(namespace, "checkpoint-guard-exceptions-approver", "ClusterRole"))
    wait_until("the right in force", lambda: write(schema, longer, *as_user) == "", 15)


def binding(namespace: str, role: str, kind: str) -> Object:
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "metadata": {"name": role, "namespace": namespace},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": role},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": USER}],
    }
