"""What our server knows of a cluster, and that it goes on answering, through everything that may befall one.

Each test that breaks something has an API server of its own; nothing else runs on it.
"""

from __future__ import annotations

import contextlib
import json
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.e2e.bare import (
    RBAC,
    BareControlPlane,
    OwnGuard,
    bare_plane,
    claim,
    namespace,
    on_claim,
    runtime,
    shared_class,
    team_plane,
    trainjob,
)
from tests.e2e.controlplane.controlplane import GUARD
from tests.e2e.controlplane.processes import WaitTimeoutError, wait_until
from tests.e2e.controlplane.releases import RELEASES


@pytest.fixture(scope="module")
def plane() -> Iterator[BareControlPlane]:
    """An API server with the CRDs of Trainer 2.3, a namespace ``team`` and all that the job in it needs."""
    with team_plane() as plane:
        yield plane


@pytest.fixture
def guard(plane: BareControlPlane) -> Iterator[OwnGuard]:
    guard = OwnGuard(plane)
    guard.grant()
    guard.start()
    yield guard
    guard.stop()


def test_the_rules_over_live_state(guard: OwnGuard) -> None:
    good = guard.validate(trainjob("good", "team", "good"))
    assert (good.allowed, good.warnings) == (True, [])
    assert "[ephemeral-checkpoint]" in guard.validate(trainjob("bad", "team", "bad")).text
    lost = guard.validate(trainjob("lost", "team", "lost"))
    assert not lost.allowed
    assert 'claim "lost" does not exist in namespace "team" [missing-claim]' in lost.text


def test_a_claim_by_its_volume_and_class(plane: BareControlPlane, guard: OwnGuard) -> None:
    volume = {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": "on-a-node"},
        "spec": {
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteMany"],
            "storageClassName": "shared",
            "hostPath": {"path": "/data"},
            "nodeAffinity": {
                "required": {
                    "nodeSelectorTerms": [
                        {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": ["n1"]}]}
                    ]
                }
            },
        },
    }
    block = shared_class() | {"metadata": {"name": "block"}, "provisioner": "ebs.csi.aws.com"}
    single = claim("single", "team", "ReadWriteOnce")
    single["spec"]["storageClassName"] = "block"
    plane.apply(
        volume,
        block,
        claim("bound", "team", volume="on-a-node"),
        single,
        runtime("bound", "team", on_claim("bound")),
        runtime("single", "team", on_claim("single")),
    )
    guard.wait_for_objects("PersistentVolume", len(plane.all_of("pv")))
    assert "[node-local-checkpoint]" in guard.validate(trainjob("a", "team", "bound")).text
    assert "[claim-not-shared]" in guard.validate(trainjob("b", "team", "single")).text
    plane.kubectl("delete", "pv", "on-a-node", "--wait=false")
    plane.kubectl("patch", "pv", "on-a-node", "--type=json", "-p", '[{"op":"remove","path":"/metadata/finalizers"}]',
                  check=False)  # fmt: skip


def test_a_volume_that_came_a_moment_ago_can_be_bound(plane: BareControlPlane, guard: OwnGuard) -> None:
    """A claim that only a volume can bind: nothing is denied because the volume's event is still on its way."""
    for number in range(10):
        name = f"static-{number}"
        volume = {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": name},
            "spec": {
                "capacity": {"storage": "1Gi"},
                "accessModes": ["ReadWriteMany"],
                "storageClassName": name,
                "nfs": {"server": "nfs.example.com", "path": "/x"},
            },
        }
        lonely = claim(name, "team")
        lonely["spec"]["storageClassName"] = name
        plane.apply(lonely, runtime(name, "team", on_claim(name)), volume)
        answer = guard.validate(trainjob(name, "team", name))
        assert answer.allowed, answer
        plane.kubectl("delete", "pv", name, "--wait=false")


def test_other_runs_in_the_same_directory(plane: BareControlPlane, guard: OwnGuard) -> None:
    plane.apply(runtime("one-place", "team", on_claim("ckpt"), "/ckpt/here"), trainjob("first", "team", "one-place"))
    guard.wait_for_objects("TrainJob", 1)
    (warning,) = guard.validate(trainjob("second", "team", "one-place")).warnings
    # Anybody may ask here, so other runs are a number; the audit log has their names.
    assert '1 other TrainJob writes to directory "/ckpt/here" of claim "ckpt" too' in warning
    done = {"conditions": [{"type": "Complete", "status": "True", "reason": "x", "message": "x",
                            "lastTransitionTime": "2026-01-01T00:00:00Z"}]}  # fmt: skip
    patch = json.dumps({"status": done})
    plane.kubectl("patch", "trainjob", "first", "-n", "team", "--subresource=status", "--type=merge", "-p", patch)
    guard.wait_for_objects("TrainJob", 0)
    assert guard.validate(trainjob("second", "team", "one-place")).warnings == []
    plane.kubectl("delete", "trainjob", "first", "-n", "team")


def test_a_runtime_that_was_mended_a_moment_ago(plane: BareControlPlane, guard: OwnGuard) -> None:
    """What is denied by a table is read once more: the change's event may still be on its way."""
    for number in range(10):
        name = f"mended-{number}"
        plane.apply(runtime(name, "team", {"emptyDir": {}}))
        plane.kubectl("replace", "-f", "-", input=json.dumps(runtime(name, "team", on_claim("ckpt"))))
        assert guard.validate(trainjob(name, "team", name)).allowed


def test_an_update_is_judged_by_the_snapshot(plane: BareControlPlane, guard: OwnGuard) -> None:
    then = runtime("good", "team", on_claim("ckpt"), "/ckpt/then")
    snapshot = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "kept-runtime-snapshot", "namespace": "team"},
        "data": {"runtime": yaml.safe_dump(then)},
    }
    plane.apply(snapshot)
    job = trainjob("kept", "team", "good")
    assert guard.audited(guard.validate(job, job))["facts"]["directory"] == "/ckpt/then"
    plane.kubectl("delete", "clusterrolebinding", "checkpoint-guard-config-maps")

    def by_the_runtime_of_now() -> bool:
        return bool(guard.audited(guard.validate(job, job))["facts"]["directory"] != "/ckpt/then")

    wait_until("the right to be gone", by_the_runtime_of_now)
    guard.grant()


def test_a_missing_right_is_unknown_and_named(plane: BareControlPlane, guard: OwnGuard) -> None:
    role = json.loads(plane.kubectl("get", "clusterrole", "checkpoint-guard", "-o", "json").stdout)
    role["rules"][0]["resources"].remove("persistentvolumeclaims")
    plane.apply(role)

    def allowed() -> bool:
        return guard.validate(trainjob("lost", "team", "lost")).allowed

    wait_until("the right to be gone", allowed)
    decided = guard.audited(guard.validate(trainjob("lost", "team", "lost")))
    assert ("missing-claim", "audit") in {(found["rule"], found["severity"]) for found in decided["findings"]}
    assert guard.metric("ckptguard_live_reads_total", result="forbidden") >= 1
    guard.grant()
    wait_until("the right to be back", lambda: not allowed(), 30)


def test_rights_are_those_that_are_used(plane: BareControlPlane) -> None:
    """Every request that it makes is granted, and every right that is granted is used."""
    before = len(plane.audit_events(user=GUARD))  # other tests' servers, some of them in trouble
    guard = OwnGuard(plane)
    guard.grant()
    guard.start()
    try:
        for name in ("good", "bad", "lost"):
            job = trainjob(name, "team", name)
            guard.validate(job)
            guard.validate(job, job)
        elsewhere = trainjob("x", "nowhere", "nowhere")
        guard.validate(elsewhere)
        del elsewhere["spec"]["runtimeRef"]["kind"]
        guard.validate(elsewhere)
        disk = claim("disk", "team", "ReadWriteOnce")
        disk["spec"]["storageClassName"] = "disks"
        classless = claim("classless", "team")
        classless["spec"]["storageClassName"] = "no-such-class"
        plane.apply(
            classless,
            claim("unheld", "team", volume="no-such-volume"),
            runtime("classless", "team", on_claim("classless")),
            runtime("unheld", "team", on_claim("unheld")),
            # Whether its driver attaches volumes is asked of the CSIDriver, before a denial once more.
            shared_class() | {"metadata": {"name": "disks"}, "provisioner": "disks.example.com"},
            disk,
            runtime("disk", "team", on_claim("disk")),
        )
        wait_until("the disk to be refused", lambda: not guard.validate(trainjob("f", "team", "disk")).allowed, 10)
        guard.validate(trainjob("c", "team", "classless"))
        guard.validate(trainjob("u", "team", "unheld"))
        # A run that needs what is deleted is read once more.
        plane.kubectl("label", "namespace", "team", "checkpoint-guard.io/protect=true")
        plane.apply(trainjob("needs", "team", "good"))
        wait_until("the run to be read", lambda: not guard.delete(claim("ckpt", "team")).allowed, 20)
        plane.kubectl("delete", "trainjobs.trainer.kubeflow.org", "needs", "-n", "team")
        plane.kubectl("label", "namespace", "team", "checkpoint-guard.io/protect-")
    finally:
        guard.stop()

    granted = {
        (group, resource, verb, tuple(rule.get("resourceNames", ())))
        for role in yaml.safe_load_all(RBAC.read_text())
        if role["kind"] == "ClusterRole"
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
    restricted = {resource: names for _, resource, _, names in granted}

    def asked() -> set[tuple[str, str, str, tuple[str, ...]]]:
        found = set()
        for event in plane.audit_events(user=GUARD)[before:]:
            if (about := event.get("objectRef")) is None:
                continue  # which APIs are served, everybody may ask
            names = restricted.get(about["resource"], ())
            assert not names or about["name"] in names
            found.add((about.get("apiGroup", ""), about["resource"], event["verb"], names))
        return found

    with contextlib.suppress(WaitTimeoutError):
        wait_until("every right to be used", lambda: granted <= asked(), 10)
    assert asked() == granted


def test_the_api_server_is_killed_and_comes_back(plane: BareControlPlane, guard: OwnGuard) -> None:
    guard.wait_for_objects("PersistentVolumeClaim", before := len(plane.all_of("pvc", "team")))
    plane.stop_process("kube-apiserver")
    # What is known is answered at once; what would have to be read is unknown and no denial.
    good = guard.validate(trainjob("good", "team", "good"))
    assert (good.allowed, good.seconds < 0.5) == (True, True)
    assert not guard.validate(trainjob("bad", "team", "bad")).allowed
    lost = guard.validate(trainjob("lost", "team", "lost"))
    assert (lost.allowed, lost.seconds < 3) == (True, True)
    assert guard.get("/healthz")[0] == 200
    assert guard.get("/readyz")[0] == 200
    time.sleep(8)
    plane.start_process("kube-apiserver")
    plane.wait_api()
    plane.apply(claim("lost", "team"))
    guard.wait_for_objects("PersistentVolumeClaim", before + 1, 40)
    assert guard.validate(trainjob("lost", "team", "lost")).allowed
    plane.kubectl("delete", "pvc", "lost", "-n", "team", "--wait=false")
    finalizers = '[{"op":"remove","path":"/metadata/finalizers"}]'
    plane.kubectl("patch", "pvc", "lost", "-n", "team", "--type=json", "-p", finalizers, check=False)
    guard.wait_for_objects("PersistentVolumeClaim", before, 40)
    assert "[missing-claim]" in guard.validate(trainjob("lost", "team", "lost")).text


def test_starts_while_the_api_server_is_down(plane: BareControlPlane) -> None:
    plane.stop_process("kube-apiserver")
    guard = OwnGuard(plane)
    guard.start(ready=False)
    try:
        wait_until("the server to listen", lambda: guard.get("/healthz")[0] == 200)
        time.sleep(2)
        assert guard.get("/readyz")[0] == 503
        unknown = guard.validate(trainjob("lost", "team", "lost"))
        assert (unknown.allowed, unknown.seconds < 3) == (True, True)
        plane.start_process("kube-apiserver")
        plane.wait_api()
        wait_until("the server to be ready", lambda: guard.get("/readyz")[0] == 200, 40)
        assert not guard.validate(trainjob("lost", "team", "lost")).allowed
    finally:
        guard.stop()


def test_an_api_server_that_hangs(plane: BareControlPlane, guard: OwnGuard) -> None:
    plane.signal_apiserver(signal.SIGSTOP)
    try:
        good = guard.validate(trainjob("good", "team", "good"))
        assert (good.allowed, good.seconds < 0.5) == (True, True)
        lost = guard.validate(trainjob("lost", "team", "lost"))
        assert (lost.allowed, 1.5 < lost.seconds < 3) == (True, True)
        # Denied by what a table has: the confirmation does not come, and what was seen stands.
        bad = guard.validate(trainjob("bad", "team", "bad"))
        assert (bad.allowed, bad.seconds < 3) == (False, True)
    finally:
        plane.signal_apiserver(signal.SIGCONT)
    wait_until("answers again", lambda: not guard.validate(trainjob("lost", "team", "lost")).allowed)


def test_trainer_comes_later_changes_and_goes(plane: BareControlPlane) -> None:
    own = bare_plane()
    own.start(None)
    guard = OwnGuard(own)
    try:
        guard.grant()
        guard.start()
        own.apply(namespace("team"), shared_class(), claim("ckpt", "team"))

        def release() -> str | None:
            found: str | None = guard.audited(guard.validate(trainjob("probe", "team", "good"))).get("trainer")
            return found

        for trainer in RELEASES:
            own.install_crds(trainer)
            minor = RELEASES[trainer].minor
            wait_until(f"Trainer {minor} to be seen", lambda minor=minor: release() == minor, 20)
        own.apply(runtime("good", "team", on_claim("ckpt")))
        guard.wait_for_objects("TrainingRuntime", 1)
        assert guard.validate(trainjob("a", "team", "good")).allowed
        own.remove_crds()
        guard.wait_for_objects("TrainingRuntime", 0, 30)
        assert guard.get("/readyz")[0] == 200
        own.install_crds("2.1.0")
        own.apply(runtime("good", "team", on_claim("ckpt")))
        guard.wait_for_objects("TrainingRuntime", 1, 30)
    finally:
        guard.stop()
        own.stop()


def test_a_token_that_is_taken_back(plane: BareControlPlane, tmp_path: Path) -> None:
    """The token of the service account, in a file that is rewritten, as the kubelet does it."""
    plane.apply(namespace("checkpoint-guard"))

    def token() -> tuple[str, str]:
        name = f"hold-{time.monotonic_ns()}"
        hold = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "namespace": "checkpoint-guard"}}
        plane.apply(hold)
        bound = ("--bound-object-kind=Secret", f"--bound-object-name={name}")
        made = plane.kubectl("create", "token", "checkpoint-guard", "-n", "checkpoint-guard", *bound)
        return name, made.stdout.strip()

    OwnGuard(plane).grant()
    text = yaml.safe_load(plane.kubeconfig_of(GUARD).read_text())
    text["users"][0]["user"] = {"tokenFile": str(tmp_path / "token")}
    (tmp_path / "kubeconfig").write_text(yaml.safe_dump(text))
    hold, first = token()
    (tmp_path / "token").write_text(first)
    guard = OwnGuard(plane, kubeconfig=tmp_path / "kubeconfig")
    guard.start()
    try:
        assert not guard.validate(trainjob("lost", "team", "lost")).allowed
        (tmp_path / "token").write_text(token()[1])
        plane.kubectl("delete", "secret", hold, "-n", "checkpoint-guard")
        time.sleep(11)  # so long the API server remembers that a token was good
        wait_until("the new token", lambda: not guard.validate(trainjob("lost", "team", "lost")).allowed, 15)
        plane.apply(runtime("after", "team", on_claim("ckpt")))
        wait_until("its watches", lambda: guard.validate(trainjob("after", "team", "after")).allowed)
        guard.wait_for_objects("TrainingRuntime", len(plane.all_of("trainingruntimes", "team")), 30)
    finally:
        guard.stop()
