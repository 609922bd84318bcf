"""The ValidatingAdmissionPolicies of deploy/policies, evaluated by the API server."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest
import yaml

from tests.e2e.controlplane.cluster import Cluster, Object
from tests.e2e.controlplane.processes import wait_until
from tests.e2e.objects import changed, override, runtime, trainjob
from webhook.model.names import MODE, TIER
from webhook.runs.guarded_modes import cel

POLICIES = Path(__file__).parents[2] / "deploy" / "policies"
USER = "tenant"


def installed(cluster: Cluster, name: str, probe: Callable[[], object]) -> Iterator[None]:
    """The policy in force while the generator is suspended; ``probe`` is true once the API server refuses by it."""
    path = str(POLICIES / f"{name}.yaml")
    done = cluster.kubectl("apply", "-f", path)
    assert "Warning" not in done.stderr
    wait_until(f"policy {name} in force", probe)
    yield
    cluster.kubectl("delete", "-f", path, "--wait=true")
    time.sleep(1)  # the API server reads policies from a cache too


@pytest.fixture
def modes(unguarded: Cluster, namespace: str) -> Iterator[None]:
    """Policy mode.yaml, a user who may write namespaces, and nothing more."""
    rule = {
        "apiGroups": [""],
        "resources": ["namespaces", "namespaces/status", "namespaces/finalize"],
        "verbs": ["*"],
    }
    unguarded.apply(*granted("e2e-namespaces", rule))
    yield from installed(unguarded, "mode", lambda: set_mode(unguarded, namespace, "nonsense").returncode)
    unguarded.kubectl("delete", "clusterrole,clusterrolebinding", "e2e-namespaces")


def granted(name: str, rule: Object, namespace: str | None = None) -> list[Object]:
    """A ClusterRole, bound to the user for all namespaces or in one."""
    kind = "RoleBinding" if namespace else "ClusterRoleBinding"
    api = "rbac.authorization.k8s.io"
    return [
        {
            "apiVersion": f"{api}/v1",
            "kind": "ClusterRole",
            "metadata": {"name": name},
            "rules": [rule],
        },
        binding(kind, name, name, namespace),
    ]


def binding(kind: str, name: str, role: str, namespace: str | None = None) -> Object:
    api = "rbac.authorization.k8s.io"
    return {
        "apiVersion": f"{api}/v1",
        "kind": kind,
        "metadata": {"name": name} | ({"namespace": namespace} if namespace else {}),
        "roleRef": {"apiGroup": api, "kind": "ClusterRole", "name": role},
        "subjects": [{"apiGroup": api, "kind": "User", "name": USER}],
    }


def set_mode(
    cluster: Cluster, namespace: str, mode: str | None, *flags: str, user: str | None = USER
) -> CompletedProcess[str]:
    """Set the label as a user, or take it away; dry, unless the administrator does it."""
    who = ("--as", user) if user else ()
    dry = ("--dry-run=server",) if user else ()
    patch = json.dumps({"metadata": {"labels": {MODE: mode}}})
    return cluster.kubectl(
        "patch", "namespace", namespace, "--type=merge", "-p", patch, *who, *dry, *flags, check=False
    )


@pytest.mark.usefixtures("modes")
def test_a_namespace_s_users_cannot_choose_their_entry_of_the_policy(cluster: Cluster, namespace: str) -> None:
    def label(value: str | None, *flags: str) -> CompletedProcess[str]:
        patch = json.dumps({"metadata": {"labels": {TIER: value}}})
        words = ("patch", "namespace", namespace, "--type=merge", "-p", patch, *flags)
        return cluster.kubectl(*words, check=False)

    as_user = ("--as", USER, "--dry-run=server")
    wait_until("policy tier in force", lambda: label("scratch", *as_user).returncode)
    assert 'label checkpoint-guard.io/tier of namespace "' in label("scratch", *as_user).stderr
    assert label(None, *as_user).returncode == 0  # there is none: nothing changes
    assert label("prod").returncode == 0
    for value in ("scratch", None):
        assert "takes the right" in label(value, *as_user).stderr, value
    assert label("prod", *as_user).returncode == 0
    assert set_mode(cluster, namespace, "warn").returncode == 0


@pytest.mark.usefixtures("modes")
def test_a_namespace_s_users_cannot_turn_the_guard_down(cluster: Cluster, namespace: str) -> None:
    for mode in ("enforce", "warn", None):
        assert set_mode(cluster, namespace, mode).returncode == 0, mode
    for mode in ("audit", "off"):
        for subresource in ((), ("--subresource=status",)):
            refused = set_mode(cluster, namespace, mode, *subresource)
            assert refused.returncode != 0, (mode, subresource)
            assert (
                f'label checkpoint-guard.io/mode: "{mode}" turns Checkpoint Guard down in namespace' in refused.stderr
            )
            assert 'takes the right "lower" on "modes.checkpoint-guard.io"' in refused.stderr
    nonsense = set_mode(cluster, namespace, "Off")
    assert 'label checkpoint-guard.io/mode: "Off" is none of enforce, warn, audit, off' in nonsense.stderr
    # Nor by making one that is turned down from the start.
    made: Object = {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": f"{namespace}-b", "labels": {MODE: "off"}},
    }
    created = cluster.kubectl(
        "create", "--dry-run=server", "--as", USER, "-f", "-", input=json.dumps(made), check=False
    )
    assert "turns Checkpoint Guard down" in created.stderr
    made["metadata"]["labels"][MODE] = "warn"
    cluster.kubectl("create", "--dry-run=server", "--as", USER, "-f", "-", input=json.dumps(made))


@pytest.mark.usefixtures("modes")
def test_what_users_may_set_follows_the_policy(cluster: Cluster, namespace: str) -> None:
    """With another ``modes.selfService``, as the chart or an administrator writes it."""
    (policy,) = [
        one
        for one in yaml.safe_load_all((POLICIES / "mode.yaml").read_text())
        if one["kind"] == "ValidatingAdmissionPolicy" and one["metadata"]["name"] == "checkpoint-guard-mode"
    ]
    for modes, words in ((("warn", "audit"), "you may set it to warn or audit"), ((), "mode-admin)")):
        (variable,) = [one for one in policy["spec"]["variables"] if one["name"] == "selfService"]
        variable["expression"] = cel(modes)
        cluster.apply(policy)
        assert_soon(lambda modes=modes: set_mode(cluster, namespace, "audit").returncode == int("audit" not in modes))
        for mode in ("enforce", "warn", "audit", "off"):
            done = set_mode(cluster, namespace, mode)
            assert (done.returncode == 0) is (mode in modes), (modes, mode, done.stderr)
            if mode not in modes:
                assert words in done.stderr
        assert set_mode(cluster, namespace, None).returncode == 0


@pytest.mark.usefixtures("modes")
def test_what_is_turned_down_already_stays_usable(cluster: Cluster, namespace: str) -> None:
    assert set_mode(cluster, namespace, "off", user=None).returncode == 0  # the administrator
    cluster.kubectl("label", "namespace", namespace, "team=a", "--as", USER)
    for mode in ("off", "audit", "warn", "enforce", None):
        assert set_mode(cluster, namespace, mode).returncode == 0, mode
    assert set_mode(cluster, namespace, "audit", user=None).returncode == 0
    assert set_mode(cluster, namespace, "off").returncode != 0


@pytest.mark.usefixtures("modes")
def test_the_right_is_given_for_all_or_for_one(cluster: Cluster, namespace: str) -> None:
    other = cluster.new_namespace()
    role = "checkpoint-guard-mode-admin"
    cluster.apply(binding("RoleBinding", "e2e-mode", role, namespace))
    try:
        assert_soon(lambda: set_mode(cluster, namespace, "off").returncode == 0)
        assert set_mode(cluster, other, "off").returncode != 0
        cluster.apply(binding("ClusterRoleBinding", "e2e-mode", role))
        assert_soon(lambda: set_mode(cluster, other, "off").returncode == 0)
    finally:
        cluster.kubectl("delete", "clusterrolebinding", "e2e-mode", "--ignore-not-found")
        cluster.delete_namespace(other)


def assert_soon(probe: Callable[..., bool]) -> None:
    wait_until("a right that was given", probe, timeout=10)


DIRECTORY = "/mnt/ckpt"
VOLUMES: dict[str, Object] = {
    "emptyDir": {"emptyDir": {}},
    "hostPath": {"hostPath": {"path": "/data"}},
    "claim": {"persistentVolumeClaim": {"claimName": "train-ckpt"}},
    "nfs": {"nfs": {"server": "nfs.example", "path": "/"}},
}


def mounting(volume: str, path: str = DIRECTORY, name: str = "ckpt") -> dict[str, Any]:
    """The part of a PodSpec that mounts a volume into the container that trains."""
    return {
        "volumes": [{"name": name, **VOLUMES[volume]}],
        "containers": [{"name": "node", "volumeMounts": [{"name": name, "mountPath": path}]}],
    }


@pytest.fixture
def plain(unguarded: Cluster, namespace: str) -> Iterator[None]:
    """Policy plain-storage.yaml."""
    unguarded.apply(runtime(namespace))
    bad = job(unguarded, namespace, "emptyDir")
    yield from installed(unguarded, "plain-storage", lambda: "step 0" in create(unguarded, bad))


def job(
    cluster: Cluster, namespace: str, volume: str, path: str = DIRECTORY, target: str = "node", **env: str
) -> Object:
    """A TrainJob in the shape of the cluster's release."""
    made = trainjob(namespace, **(env or {"CKPT_DIR": DIRECTORY}))
    return changed(made, suspend=True, **override(cluster.release.minor, mounting(volume, path), job=target))


def create(cluster: Cluster, obj: Object) -> str:
    """What a dry-run create says; empty where it passes."""
    done = cluster.kubectl("create", "--dry-run=server", "-f", "-", input=json.dumps(obj), check=False)
    return done.stderr if done.returncode else ""


@pytest.mark.usefixtures("plain")
def test_plain_losses_are_refused_without_the_webhook(cluster: Cluster, namespace: str) -> None:
    said = create(cluster, job(cluster, namespace, "emptyDir"))
    assert 'checkpoints in "/mnt/ckpt" are on volume "ckpt", an emptyDir, which is gone with the pod' in said
    assert "[ephemeral-checkpoint]" in said
    assert 'fix: in volume "ckpt" write persistentVolumeClaim: {claimName:' in said
    said = create(cluster, job(cluster, namespace, "hostPath", CHECKPOINT_DIR="/mnt/ckpt/"))
    assert "a hostPath, which stays on one node [node-local-checkpoint]" in said
    said = create(cluster, job(cluster, namespace, "emptyDir", CKPT_DIR="/mnt/ckpt/$(TRAINJOB_NAME)"))
    assert "[ephemeral-checkpoint]" in said


@pytest.mark.usefixtures("plain")
def test_everything_else_is_left_to_the_webhook(cluster: Cluster, namespace: str) -> None:
    minor = cluster.release.minor
    for good in (
        trainjob(namespace),
        trainjob(namespace, CKPT_DIR=DIRECTORY),
        job(cluster, namespace, "claim"),
        job(cluster, namespace, "nfs"),
        job(cluster, namespace, "emptyDir", path="/scratch"),
        # A longer mount of the runtime may lie between.
        job(cluster, namespace, "emptyDir", path="/mnt"),
        job(cluster, namespace, "emptyDir", path="/mnt/ckpt/tmp"),
        job(cluster, namespace, "emptyDir", path="/mnt/ck"),
        job(cluster, namespace, "emptyDir", CKPT_DIR="/elsewhere", CHECKPOINT_DIR=DIRECTORY),
        job(cluster, namespace, "emptyDir", EPOCHS="4"),
        changed(trainjob(namespace, CKPT_DIR=DIRECTORY), **override(minor, {"volumes": []})),
    ):
        assert create(cluster, good) == "", json.dumps(good)
    # Where a namespace is not enforced, neither is this.
    for mode in ("warn", "audit", "off"):
        assert set_mode(cluster, namespace, mode, user=None).returncode == 0
        bad = job(cluster, namespace, "emptyDir")
        wait_until(f"mode {mode}", lambda bad=bad: create(cluster, bad) == "", timeout=10)


@pytest.mark.usefixtures("plain")
def test_runtimes(cluster: Cluster, namespace: str) -> None:
    def made(volume: str, env: str = DIRECTORY, path: str = DIRECTORY) -> Object:
        pod = mounting(volume, path)
        container = pod["containers"][0] | {"env": [{"name": "CKPT_DIR", "value": env}]}
        return runtime(namespace, "made", volumes=pod["volumes"], container=container)

    assert "[ephemeral-checkpoint]" in create(cluster, made("emptyDir"))
    assert "[node-local-checkpoint]" in create(cluster, made("hostPath", env="/mnt/ckpt/$(RUN)"))
    for good in (made("claim"), made("emptyDir", path="/scratch"), made("emptyDir", env="/other"), runtime(namespace)):
        assert create(cluster, {**good, "metadata": {**good["metadata"], "name": "made"}}) == ""
    shared = made("hostPath")
    shared["kind"] = "ClusterTrainingRuntime"
    del shared["metadata"]["namespace"]
    assert "[node-local-checkpoint]" in create(cluster, shared)
    # An UPDATE is never refused by it.
    cluster.kubectl("create", "-f", "-", input=json.dumps(made("claim")))
    cluster.apply(made("claim", env="/other"))


def test_the_api_server_has_nothing_against_the_expressions(unguarded: Cluster) -> None:
    """Policies are type-checked against the kinds that they match; what is found stands in their status."""
    for name in ("mode", "plain-storage"):
        path = str(POLICIES / f"{name}.yaml")
        unguarded.kubectl("apply", "-f", path)
        try:
            policy = unguarded.wait_for(
                "validatingadmissionpolicies",
                f"checkpoint-guard-{name}",
                until=lambda found: found.get("status", {}).get("observedGeneration"),
            )
        finally:
            unguarded.kubectl("delete", "-f", path)
        assert policy["status"].get("typeChecking", {}).get("expressionWarnings", []) == []
