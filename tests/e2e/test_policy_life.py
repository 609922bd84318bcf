"""A policy's life on a real API server: warn, preview, enforce; an exception that ends; a change, and a broken one."""

from __future__ import annotations

import json
import ssl
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import yaml

from tests.conftest import FULL
from tests.e2e.controlplane.cluster import TRAINJOBS, Cluster, Object
from tests.e2e.controlplane.guard import Guard, unregister_webhook
from tests.e2e.controlplane.processes import wait_until
from tests.e2e.controlplane.releases import RELEASES
from tests.e2e.objects import changed, claim, mounting_runtime, runtime, storage_class, trainjob
from webhook.model.names import MODE
from webhook.preview.count import Preview, as_logged
from webhook.preview.lines import Tally, verdicts

HEAD = "apiVersion: checkpoint-guard.io/v1\nkind: Policy\n"
NAME = "e2e-policy"
RBAC = Path(__file__).parents[2] / "deploy" / "base" / "rbac.yaml"
SECONDS = 3.0
"""A change is in force everywhere within so long."""


@pytest.fixture(scope="session", params=[next(iter(RELEASES))])
def release(request: pytest.FixtureRequest) -> str:
    """The newest Trainer: what is tried does not depend on it."""
    return str(request.param)


class Replicas:
    """Two servers that watch one ConfigMap; the API server asks the first."""

    def __init__(self, cluster: Cluster, namespace: str, mounted: Path) -> None:
        self.cluster = cluster
        self.namespace = namespace
        flags = ("--policy", str(mounted), "--policy-configmap", f"{namespace}/{NAME}")
        self.guards = [Guard(cluster, arguments=flags) for _ in range(2)]

    def put(self, policy: str) -> None:
        """Write the ConfigMap."""
        self.cluster.apply(
            {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": {"name": NAME, "namespace": self.namespace},
                "data": {"policy.yaml": HEAD + policy},
            }
        )

    def metric(self, begins: str) -> list[set[str]]:
        """The lines of each server's metrics that begin so."""
        found = []
        for guard in self.guards:
            context = ssl.create_default_context(cadata=guard.ca_pem)
            with urllib.request.urlopen(f"{guard.url}/metrics", context=context, timeout=5) as answer:
                text = answer.read().decode()
            found.append({line for line in text.splitlines() if line.startswith(begins)})
        return found

    def hashes(self) -> set[str]:
        """The policies in force, of all servers."""
        return set().union(*self.metric("ckptguard_policy_info{"))

    def in_force(self, policy: str) -> float:
        """Write it, and wait until no server has the one before; the seconds that took."""
        before = self.hashes()
        began = time.monotonic()
        self.put(policy)
        wait_until("the policy in force everywhere", lambda: not self.hashes() & before and len(self.hashes()) == 1)
        return time.monotonic() - began


@pytest.fixture
def replicas(cluster: Cluster, namespace: str, tmp_path: Path) -> Iterator[Replicas]:
    mounted = tmp_path / "policy.yaml"
    mounted.write_text(HEAD)
    made = Replicas(cluster, namespace, mounted)
    made.put("")
    # No claim of the name that the defaults look for: nothing can be filled in.
    objects = (claim(namespace, "data"), runtime(namespace), mounting_runtime(namespace, claim_name="data"))
    cluster.apply(storage_class(), *objects)
    try:
        for guard in made.guards:
            guard.start()
        made.guards[0].register()
        yield made
    finally:
        unregister_webhook(cluster)
        for guard in made.guards:
            guard.stop()


def lost(namespace: str, name: str = "run") -> Object:
    """A suspended TrainJob whose checkpoints are gone with its pods."""
    return changed(trainjob(namespace, name, CKPT_DIR="/tmp/checkpoints"), suspend=True)


def send(cluster: Cluster, *objects: Object) -> list[str]:
    """Create each by itself; what was said of those that were refused."""
    said = []
    for one in objects:
        run = cluster.kubectl("create", "-f", "-", input=json.dumps(one), check=False)
        if run.returncode:
            assert "denied the request" in run.stderr, run.stderr
            said.append(run.stderr)
    return said


def set_mode(cluster: Cluster, namespace: str, mode: str) -> None:
    """As an administrator; the guard hears of it from its watch."""
    cluster.kubectl("label", "namespace", namespace, f"{MODE}={mode}", "--overwrite")
    time.sleep(1)


def test_from_warn_to_enforce_preview_counts_what_is_refused(replicas: Replicas) -> None:
    cluster, namespace = replicas.cluster, replicas.namespace
    missing = changed(trainjob(namespace, "missing", runtime_name="elsewhere", CKPT_DIR="/data/ckpt"), suspend=True)
    sent = [
        lost(namespace, "lost-1"),
        lost(namespace, "lost-2"),
        changed(trainjob(namespace, "right", runtime_name="mounting", CKPT_DIR="/data/ckpt"), suspend=True),
        missing,
    ]
    cluster.apply(mounting_runtime(namespace, "elsewhere", "no-such-claim"))
    set_mode(cluster, namespace, "warn")
    assert send(cluster, *sent) == []
    preview = Preview(("rule",))
    asked = replicas.guards[0]
    ours = {"namespace": namespace, "kind": "TrainJob", "webhook": "validate"}.items()
    asked.audit_lines(lambda line: ours <= line.items(), len(sent))
    for line in verdicts([str(asked.log)], Tally()):
        if line.namespace == namespace and line.kind == "TrainJob" and line.operation == "CREATE":
            preview.add(line, as_logged)
    assert preview.requests == len(sent)
    assert preview.denied == 3
    by_rule = {rule: group.denied for (rule,), group in preview.rows()}
    assert by_rule == {"ephemeral-checkpoint": 2, "missing-claim": 1}
    cluster.kubectl("delete", TRAINJOBS, "-n", namespace, "--all", "--wait=true")
    set_mode(cluster, namespace, "enforce")
    refused = send(cluster, *sent)
    assert len(refused) == preview.denied
    counted = Counter(rule for text in refused for rule in by_rule if f"[{rule}]" in text)
    assert counted == by_rule
    assert cluster.get(TRAINJOBS, "right", namespace) is not None
    would = replicas.metric("ckptguard_would_deny_total{")[0]
    assert any('mode="warn"' in line and 'kind="TrainJob"' in line and line.endswith(" 3.0") for line in would)


def test_an_exception_ends_on_create_and_a_suspended_run_resumes(replicas: Replicas) -> None:
    cluster, namespace = replicas.cluster, replicas.namespace
    end = datetime.now(UTC) + timedelta(seconds=60 if FULL else 25)
    until = end.strftime("%Y-%m-%dT%H:%M:%SZ")
    replicas.in_force(
        f"""exceptions:
- rules: [ephemeral-checkpoint]
  match: {{namespaces: [{namespace}], names: ["scratch-*"]}}
  reason: scratch benchmarks
  owner: team-a@example.com
  until: "{until}"
"""
    )
    assert send(cluster, lost(namespace, "scratch-1")) == []
    assert len(send(cluster, lost(namespace, "other"))) == 1
    excuses = {"name": "scratch-1", "webhook": "validate"}.items()
    lines = replicas.guards[0].audit_lines(lambda line: excuses <= line.items())
    excused = [one["exception"] for line in lines for one in line["findings"] if "exception" in one]
    assert excused[0] == {
        "reason": "scratch benchmarks",
        "owner": "team-a@example.com",
        "until": until,
        "from": "exceptions[0]",
    }
    time.sleep(max(0.0, (end - datetime.now(UTC)).total_seconds() + 1.5))
    (refused,) = send(cluster, lost(namespace, "scratch-2"))
    assert "[ephemeral-checkpoint]" in refused
    assert "[expired-exception]" in refused
    resume = json.dumps({"spec": {"suspend": False}})
    done = cluster.kubectl("patch", TRAINJOBS, "scratch-1", "-n", namespace, "--type=merge", "-p", resume)
    assert done.returncode == 0
    stored = cluster.get(TRAINJOBS, "scratch-1", namespace)
    assert stored is not None
    assert stored["spec"]["suspend"] is False


def test_a_change_is_in_force_everywhere_and_a_broken_one_is_left_out(replicas: Replicas) -> None:
    cluster, namespace = replicas.cluster, replicas.namespace
    assert len(send(cluster, lost(namespace, "first"))) == 1
    took = replicas.in_force("rules: {ephemeral-checkpoint: warn}\n")
    print(f"\nin force on both replicas after {took:.2f} s")
    assert took < SECONDS
    assert send(cluster, lost(namespace, "second")) == []
    good = replicas.hashes()
    for broken in ("rules: {ephemeral-checkpoint: denied}\n", "rules: {", "rules: {unknown-runtime: deny}\n"):
        replicas.put(broken)
        wait_until(
            "the broken one refused",
            lambda: replicas.metric("ckptguard_policy_stale") == [{"ckptguard_policy_stale 1.0"}] * 2,
        )
        assert replicas.hashes() == good
        assert send(cluster, lost(namespace, f"third-{len(broken)}")) == []
    log = replicas.guards[0].log.read_text()
    assert "stays in force" in log
    took = replicas.in_force("rules: {ephemeral-checkpoint: deny}\n")
    assert took < SECONDS
    assert len(send(cluster, lost(namespace, "fourth"))) == 1
    assert replicas.metric("ckptguard_policy_stale") == [{"ckptguard_policy_stale 0.0"}] * 2


def test_the_role_gives_the_one_configmap_and_no_other(cluster: Cluster) -> None:
    """By deploy/base/rbac.yaml, as the guard asks: a list and a watch of the one name."""
    rights = [one for one in yaml.safe_load_all(RBAC.read_text()) if one["kind"] in ("Role", "RoleBinding")]
    space = "checkpoint-guard"
    for one in rights:
        if one["kind"] == "RoleBinding":  # the account that other tests use has more rights
            one["metadata"]["name"] = one["subjects"][0]["name"] = "e2e-policy-reader"
    cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": space}}, *rights)
    name = "checkpoint-guard-policy"
    cluster.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": space}})
    who = ("--as", f"system:serviceaccount:{space}:e2e-policy-reader")
    path = f"/api/v1/namespaces/{space}/configmaps"
    asked = f"{path}?fieldSelector=metadata.name%3D{name}"

    def get(target: str) -> int:
        return int(cluster.kubectl("get", "--raw", target, *who, check=False).returncode)

    wait_until("the role in force", lambda: get(asked) == 0)
    assert get(f"{asked}&watch=1&timeoutSeconds=1") == 0
    assert get(f"{path}/{name}") == 0
    assert get(path) != 0
    assert get(f"{path}?fieldSelector=metadata.name%3Dkube-root-ca.crt") != 0
