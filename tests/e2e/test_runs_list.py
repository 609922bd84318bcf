"""`ckptguard runs` and `prune` on a real API server with the real controllers: no node, so no pod ever starts here."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.e2e.conftest import Clusters
from tests.e2e.controlplane.cluster import Cluster, Object
from tests.e2e.objects import claim, runtime, storage_class, trainjob
from webhook.model.names import API_VERSION, MODE

RELEASE = "2.3.0"
CLAIM = "shared"


def mounting(namespace: str) -> Object:
    made = runtime(
        namespace,
        "rt",
        volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": CLAIM}}],
        container={
            "env": [{"name": "CKPT_DIR", "value": "/ckpt/here"}],
            "volumeMounts": [{"name": "v", "mountPath": "/ckpt"}],
        },
    )
    made["spec"]["template"]["spec"]["failurePolicy"] = {"maxRestarts": 4}
    return made


@pytest.fixture(scope="module")
def plane(clusters: Clusters) -> Cluster:
    return clusters.get(RELEASE)


@pytest.fixture(scope="module")
def namespace(plane: Cluster) -> Iterator[str]:
    """A namespace with a run whose two pods no scheduler has seen; a guard that other tests left there only looks."""
    name = plane.new_namespace({MODE: "audit"})
    plane.apply(storage_class(), claim(name, CLAIM), mounting(name), trainjob(name, "first", runtime_name="rt"))
    plane.wait_for_pods("first", name, 2)
    yield name
    plane.delete_namespace(name)


def ckptguard(kubeconfig: Path, *words: str) -> tuple[int, str, str]:
    done = subprocess.run(
        [sys.executable, "-m", "webhook", *words, "--kubeconfig", str(kubeconfig)],
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    return done.returncode, done.stdout, done.stderr


def runs(plane: Cluster, *words: str) -> dict[str, Object]:
    code, out, err = ckptguard(plane.kubeconfig, "runs", "-o", "json", *words)
    assert code == 0, err
    document = json.loads(out)
    assert document["schema"] == 1
    return {f"{one['namespace']}/{one['name']}": one for one in document["results"]}


def say_of_pods(plane: Cluster, namespace: str, name: str, **status: object) -> None:
    """What a scheduler or kubelet would say of every pod of a run."""
    for pod in plane.all_of("pods", namespace, f"jobset.sigs.k8s.io/jobset-name={name}"):
        plane.kubectl(
            *("patch", "pod", pod["metadata"]["name"], "-n", namespace, "--subresource=status", "--type=merge"),
            *("-p", json.dumps({"status": status})),
        )


def test_states(plane: Cluster, namespace: str) -> None:
    first = runs(plane, "-n", namespace)[f"{namespace}/first"]
    # The class of the claim has no provisioner here, so the claim stays Pending.
    assert (first["state"], first["nodes"], first["directory"]) == ("WaitsForClaim", 2, "/ckpt/here")
    assert CLAIM in first["waitsFor"]
    assert (first["restarts"], first["budget"], first["step"], first["saved"]) == (0, 4, None, None)
    full = "0/2 nodes are available: 2 Insufficient nvidia.com/gpu."
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": full}
    say_of_pods(plane, namespace, "first", conditions=[condition])
    first = runs(plane, "-n", namespace)[f"{namespace}/first"]
    assert (first["state"], first["waitsFor"]) == ("WaitsForNode", full)


def test_a_suspended_run_and_one_whose_runtime_has_no_claim(plane: Cluster, namespace: str) -> None:
    quiet = trainjob(namespace, "quiet", runtime_name="rt")
    quiet["spec"]["suspend"] = True
    lost = mounting(namespace)
    lost["metadata"]["name"] = "lost"
    pod = lost["spec"]["template"]["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    pod["volumes"][0]["persistentVolumeClaim"]["claimName"] = "nowhere"
    plane.apply(lost, quiet, trainjob(namespace, "wants", runtime_name="lost"))
    plane.wait_for_pods("wants", namespace, 2)
    found = runs(plane, "-n", namespace)
    assert found[f"{namespace}/quiet"]["state"] == "Suspended"
    assert found[f"{namespace}/quiet"]["budget"] == 4
    wants = found[f"{namespace}/wants"]
    assert (wants["state"], wants["waitsFor"]) == ("WaitsForClaim", 'claim "nowhere", which does not exist')
    assert set(found) <= set(runs(plane, "-A"))


def test_with_fewer_rights(plane: Cluster, namespace: str, tmp_path: Path) -> None:
    role = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "Role",
        "metadata": {"name": "looks", "namespace": namespace},
        "rules": [{"apiGroups": [API_VERSION.partition("/")[0]], "resources": ["trainjobs"], "verbs": ["list"]}],
    }
    binding = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "metadata": {"name": "looks", "namespace": namespace},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "looks"},
        "subjects": [{"kind": "ServiceAccount", "name": "lea", "namespace": namespace}],
    }
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "lea", "namespace": namespace}}
    plane.apply(account, role, binding)
    token = plane.kubectl("create", "token", "lea", "-n", namespace).stdout.strip()
    config = yaml.safe_load(plane.kubeconfig.read_text())
    config["users"][0]["user"] = {"token": token}
    lea = tmp_path / "kubeconfig"
    lea.write_text(yaml.safe_dump(config))
    code, out, err = ckptguard(lea, "runs", "-n", namespace)
    for _ in range(20):  # until the API server knows of the role
        if code == 0:
            break
        time.sleep(0.5)
        code, out, err = ckptguard(lea, "runs", "-n", namespace)
    assert code == 0, err
    assert "first" in out
    assert "note: jobsets cannot be listed" in err
    assert "note: pods cannot be listed" in err
    code, out, err = ckptguard(lea, "runs", "-A")
    assert (code, out) == (2, "")
    assert "-n NAMESPACE in one" in err


def test_watch_shows_what_changes_and_ends_by_ctrl_c(plane: Cluster, namespace: str) -> None:
    watching = subprocess.Popen(
        [sys.executable, "-m", "webhook", "runs", "--watch", "-n", namespace, "--kubeconfig", str(plane.kubeconfig)],
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # which a shell's background jobs ignore
    )
    try:
        assert watching.stdout is not None
        head = watching.stdout.readline()
        assert head.split()[:2] == ["NAME", "STATE"]
        late = trainjob(namespace, "watched", runtime_name="rt")
        late["spec"]["suspend"] = True
        plane.apply(late)
        until = time.monotonic() + 60
        while "watched" not in watching.stdout.readline():
            assert time.monotonic() < until
    finally:
        watching.send_signal(signal.SIGINT)
        watching.communicate(timeout=30)
    assert watching.returncode == 130


def test_prune_refuses_while_pods_are_there_and_leaves_no_helper(plane: Cluster, namespace: str) -> None:
    code, out, err = ckptguard(plane.kubeconfig, "prune", "first", "-n", namespace, "--yes")
    assert (code, out) == (2, "")
    assert "its program writes the directory; first ckptguard stop first" in err
    quiet = trainjob(namespace, "quiet", runtime_name="rt")
    quiet["spec"]["suspend"] = True
    plane.apply(quiet)
    plane.wait_for("jobset", "quiet", namespace)
    # Another run's pods have the same directory mounted.
    code, _, err = ckptguard(plane.kubeconfig, "prune", "quiet", "-n", namespace, "--yes", "--timeout", "5")
    assert code == 2
    assert "is not this run's alone" in err
    assert plane.all_of("pods", namespace, "checkpoint-guard.io/helper-of") == []


def test_prune_says_why_its_helper_does_not_start(plane: Cluster) -> None:
    name = plane.new_namespace()
    try:
        quiet = trainjob(name, "alone", runtime_name="rt")
        quiet["spec"]["suspend"] = True
        plane.apply(claim(name, CLAIM), mounting(name), quiet)
        plane.wait_for("jobset", "alone", name)
        code, out, err = ckptguard(plane.kubeconfig, "prune", "alone", "-n", name, "--dry-run", "--timeout", "3")
        assert (code, out) == (2, "")
        assert "the helper pod does not start within 3 s" in err
        assert plane.all_of("pods", name, "checkpoint-guard.io/helper-of") == []
    finally:
        plane.delete_namespace(name)
