"""The commands on a run, on real nodes with a real Trainer: every interruption ends at the right step, the data right.

The same on an emptyDir must lose the run, which shows that these tests can fail.
"""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import yaml

from tests.e2e_nodes.machine import Nodes, wait_until
from tests.e2e_nodes.runs import (
    NAMESPACE,
    assert_right_data,
    ckptguard,
    drop_namespace,
    finish,
    log_of,
    make_namespace,
    resumed_at,
    running,
    runtime,
    shell,
    steps,
    submit,
    trainjob,
    wait_for_step,
)
from tests.e2e_nodes.trainer_program import PROGRAM

HEREDOC = f"python -u - <<'PY'\n{PROGRAM}PY\n"


@pytest.fixture(scope="module", autouse=True)
def place(guarded: Nodes, trainer: str) -> Iterator[None]:
    """The guard, a namespace, a claim, runtimes."""
    drop_namespace(guarded)
    make_namespace(guarded)
    guarded.apply([runtime(), runtime("brief", grace=5), runtime("twice", max_restarts=1)])
    yield
    drop_namespace(guarded)


@pytest.mark.each_change
@pytest.mark.every_trainer
def test_a_drill_passes_and_costs_one_restart(nodes: Nodes) -> None:
    submit(nodes, trainjob("drilled"))
    told = ckptguard(nodes, "drill", "drilled", "--output", "junit")
    assert told.code == 0, told.err
    suite = ElementTree.fromstring(told.out).find("testsuite")
    assert suite is not None
    assert suite.get("failures") == suite.get("errors") == suite.get("skipped") == "0"
    assert [case.get("name") for case in suite.iter("testcase")] == [
        *("find", "checkpoint", "interrupt", "resume", "verdict")
    ]
    (pod,) = running(nodes, "drilled")
    resumed = resumed_at(log_of(nodes, pod))
    assert resumed is not None
    assert resumed >= 10
    found = nodes.get("trainjob", "drilled", NAMESPACE)
    assert found is not None
    recorded = found["metadata"]["annotations"]["checkpoint-guard.io/last-drill"]
    assert recorded.startswith(f"resumed;step={resumed};at=")
    jobset = nodes.get("jobset", "drilled", NAMESPACE)
    assert jobset is not None
    assert int((jobset.get("status") or {}).get("restarts") or 0) == 0
    assert_right_data(nodes, "drilled")


@pytest.mark.each_change
@pytest.mark.every_trainer
def test_stop_resume_from_the_flushed_step_and_delete(nodes: Nodes) -> None:
    submit(nodes, trainjob("paused"))
    wait_for_step(nodes, "paused", 10)
    began = time.monotonic()
    told = ckptguard(nodes, "stop", "paused", "--output", "json")
    assert told.code == 0, told.err
    assert time.monotonic() - began < 60
    assert running(nodes, "paused") == []
    assert told.json["newest"]["step"] >= 10
    newest = max(steps(nodes, "paused"))
    again = ckptguard(nodes, "stop", "paused")
    assert again.code == 0
    assert "suspended already" in again.err
    told = ckptguard(nodes, "resume", "paused", "--output", "json")
    assert told.code == 0, told.err
    assert (told.json["result"], told.json["step"]) == ("resumed", newest)
    assert_right_data(nodes, "paused")
    told = ckptguard(nodes, "resume", "paused")
    assert told.code == 2
    assert "nothing to resume" in told.err
    # And deleted while it runs: Trainer makes no new JobSet of it.
    told = ckptguard(nodes, "delete", "paused")
    assert told.code == 0, told.err
    for _ in range(5):
        for kind in ("trainjob", "jobset"):
            assert nodes.get(kind, "paused", NAMESPACE) is None, kind
        assert nodes.objects("pods", NAMESPACE, "jobset.sigs.k8s.io/jobset-name=paused") == []
        time.sleep(1)


@pytest.mark.every_trainer
def test_resume_from_an_earlier_step_and_back(nodes: Nodes) -> None:
    submit(nodes, trainjob("back"))
    wait_for_step(nodes, "back", 40)
    told = ckptguard(nodes, "resume", "back", "--from-step", "20")
    assert told.code == 2
    assert "first ckptguard stop back" in told.err
    assert ckptguard(nodes, "stop", "back").code == 0
    newest = max(steps(nodes, "back"))
    told = ckptguard(nodes, "resume", "back", "--from-step", "25")
    assert told.code == 2
    assert "there is no checkpoint of step 25" in told.err
    assert max(steps(nodes, "back")) == newest
    told = ckptguard(nodes, "resume", "back", "--from-step", "20", "--output", "json")
    assert told.code == 0, told.err
    assert told.json["step"] == 20
    wait_for_step(nodes, "back", 30)
    assert_right_data(nodes, "back")
    assert ckptguard(nodes, "stop", "back").code == 0
    told = ckptguard(nodes, "resume", "back", "--undo", "--output", "json")
    assert told.code == 0, told.err
    assert told.json["step"] == newest
    # Nothing was deleted: what the run wrote from step 20 on was set aside in turn.
    kept = shell(nodes, "find /c/back")
    assert kept.count("/written/step_30.json") == 1, kept
    finish(nodes, "back")


@pytest.mark.every_trainer
def test_a_crash_of_the_container(nodes: Nodes) -> None:
    submit(nodes, trainjob("crashed", CRASH_IF_FRESH_AT="25", SECONDS_PER_STEP="0.4"))
    first = running(nodes, "crashed")[0]["metadata"]["uid"]
    wait_until(
        lambda: any(pod["metadata"]["uid"] != first for pod in running(nodes, "crashed")), 180, "the pod is made anew"
    )
    pod = next(pod for pod in running(nodes, "crashed") if pod["metadata"]["uid"] != first)
    wait_until(lambda: "[checkpoint]" in log_of(nodes, pod), 60, "it has said where it starts")
    # The kubelet may have started the container again in place before the Job failed, and that one was told to flush.
    resumed = resumed_at(log_of(nodes, pod))
    assert resumed is not None
    assert 20 <= resumed < 40
    jobset = nodes.get("jobset", "crashed", NAMESPACE)
    assert jobset is not None
    assert jobset["status"]["restarts"] == 1
    wait_for_step(nodes, "crashed", 40)
    assert_right_data(nodes, "crashed")
    finish(nodes, "crashed")


@pytest.mark.every_trainer
def test_a_deleted_pod_flushes_and_the_next_goes_on(nodes: Nodes) -> None:
    submit(nodes, trainjob("evicted"))
    wait_for_step(nodes, "evicted", 10)
    pod = running(nodes, "evicted")[0]["metadata"]
    nodes.run("delete", "pod", pod["name"], "-n", NAMESPACE)
    wait_until(
        lambda: any(one["metadata"]["uid"] != pod["uid"] for one in running(nodes, "evicted")), 180, "a new pod runs"
    )
    (new,) = running(nodes, "evicted")
    wait_until(lambda: "[checkpoint]" in log_of(nodes, new), 60, "it has said where it starts")
    resumed = resumed_at(log_of(nodes, new))
    assert resumed is not None
    assert assert_right_data(nodes, "evicted") >= resumed >= 10
    finish(nodes, "evicted")


@pytest.mark.every_trainer
def test_when_the_restarts_are_spent_the_data_stays(nodes: Nodes) -> None:
    # The state at 20 is saved, the crash is at 25 or later, each time. The kubelet starts the container again in place
    # before the Job has failed, and that one is told to flush, some steps further each time.
    submit(nodes, trainjob("spent", "twice", CRASH_FROM="25"))
    wait_until(lambda: _condition(nodes, "spent") == "Failed", 180, "the run has failed", 2)
    told = ckptguard(nodes, "resume", "spent")
    assert told.code == 2
    assert "has ended: Failed" in told.err
    assert "ckptguard delete spent" in told.err
    told = ckptguard(nodes, "delete", "spent")
    assert told.code == 0, told.err
    assert 'directory "/spent" of claim "train-ckpt"' in told.out
    # Its last container may have flushed after the run had failed; now there is none.
    newest = assert_right_data(nodes, "spent")
    assert 20 <= newest < 30
    submit(nodes, trainjob("spent", "twice"))
    (pod,) = running(nodes, "spent")
    wait_until(lambda: "[checkpoint]" in log_of(nodes, pod), 60, "it has said where it starts")
    assert resumed_at(log_of(nodes, pod)) == newest
    finish(nodes, "spent")


@pytest.mark.every_trainer
@pytest.mark.parametrize(("how", "flushes"), [("exec", True), ("plain", False)])
def test_without_exec_the_flush_is_lost(nodes: Nodes, how: str, flushes: bool) -> None:
    """The shell is process 1 and keeps the SIGTERM to itself; the program is killed when the grace period ends."""
    name = f"shell-{how}"
    text = f"exec {HEREDOC}" if how == "exec" else HEREDOC
    submit(nodes, trainjob(name, "brief", ["bash", "-ec", text], SAVE_EVERY="1000", SECONDS_PER_STEP="0.1"))
    time.sleep(5)
    began = time.monotonic()
    assert ckptguard(nodes, "stop", name).code == 0
    assert (time.monotonic() - began < 15) or not flushes
    found = steps(nodes, name)
    assert bool(found) is flushes, found
    told = ckptguard(nodes, "resume", name)
    assert told.code == (0 if flushes else 1), told.err
    if not flushes:
        assert "started afresh" in told.out
    finish(nodes, name)


@pytest.mark.each_change
@pytest.mark.every_trainer
def test_an_empty_dir_loses_the_run(nodes: Nodes) -> None:
    """The guard would not let it in; where it only warns, the drill says what is lost."""
    lossy = "e2e-runs-lossy"
    drop_namespace(nodes, lossy)
    make_namespace(nodes, lossy, **{"checkpoint-guard.io/mode": "warn"})
    try:
        nodes.apply([runtime(volume={"emptyDir": {}}, namespace=lossy)])
        submit(nodes, trainjob("lost", namespace=lossy))
        told = ckptguard(nodes, "drill", "lost", "--output", "json", namespace=lossy)
        assert told.code == 1, told.err
        assert told.json["verdict"]["result"] == "afresh"
        found = nodes.get("trainjob", "lost", lossy)
        assert found is not None
        assert found["metadata"]["annotations"]["checkpoint-guard.io/last-drill"].startswith("afresh;")
        assert ckptguard(nodes, "stop", "lost", namespace=lossy).code == 0
        told = ckptguard(nodes, "checkpoints", "lost", namespace=lossy)
        assert told.code == 2
        assert "nothing of it is left" in told.err
    finally:
        drop_namespace(nodes, lossy)


@pytest.mark.each_change
@pytest.mark.every_trainer
def test_where_the_guard_enforces_the_empty_dir_is_refused(nodes: Nodes) -> None:
    text = yaml.safe_dump(runtime("lossy", volume={"emptyDir": {}}))
    done = nodes.run("apply", "-f", "-", text=text, check=False)
    assert done.returncode != 0
    assert "[ephemeral-checkpoint]" in done.stderr


def test_a_restricted_namespace_and_a_user_without_exec(nodes: Nodes, tmp_path: Path) -> None:
    """The helper pod passes Pod Security, runs as the run's user, and is gone afterwards."""
    strict = "e2e-runs-strict"
    drop_namespace(nodes, strict)
    make_namespace(nodes, strict, **{"pod-security.kubernetes.io/enforce": "restricted"})
    try:
        shell_pod_not_needed = runtime(namespace=strict)
        pod = shell_pod_not_needed["spec"]["template"]["spec"]["replicatedJobs"][0]["template"]["spec"]["template"][
            "spec"
        ]
        pod["securityContext"] = {
            "runAsNonRoot": True,
            "runAsUser": 1000,
            "fsGroup": 1000,
            "seccompProfile": {"type": "RuntimeDefault"},
        }
        pod["containers"][0]["securityContext"] = {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
        }
        pod["containers"][0]["env"][1]["value"] = "/mnt/ckpt/runs/$(TRAINJOB_NAME)"
        nodes.apply([shell_pod_not_needed])
        _open_claim(nodes, strict)
        submit(nodes, trainjob("strict", namespace=strict))
        wait_for_step(nodes, "strict", 10, namespace=strict)
        kubeconfig = _user(nodes, strict, tmp_path)
        told = ckptguard(nodes, "checkpoints", "strict", "--output", "json", namespace=strict, kubeconfig=kubeconfig)
        assert told.code == 0, told.err
        assert told.json["readBy"] == "helper pod"
        assert "no right to exec" in told.json["notes"][0]
        assert ckptguard(nodes, "stop", "strict", namespace=strict).code == 0
        told = ckptguard(nodes, "resume", "strict", "--from-step", "10", namespace=strict)
        assert told.code == 0, told.err
        left = nodes.objects("pods", strict, "checkpoint-guard.io/helper-of=strict")
        assert [one for one in left if not one["metadata"].get("deletionTimestamp")] == []
        nodes.run("delete", "rolebinding", "user-helpers", "-n", strict)
        told = ckptguard(nodes, "checkpoints", "strict", namespace=strict, kubeconfig=kubeconfig)
        assert told.code == 2
        assert "no right to exec" in told.err
        assert "no right to create pods" in told.err
    finally:
        nodes.run("label", "namespace", strict, "pod-security.kubernetes.io/enforce-", check=False)
        drop_namespace(nodes, strict)


def test_faults_are_said(nodes: Nodes) -> None:
    told = ckptguard(nodes, "stop", "driled")
    assert told.code == 2
    assert 'there is no TrainJob "driled" in namespace "e2e-runs"; nearest: drilled' in told.err
    submit(nodes, trainjob("twin", CKPT_DIR="/mnt/ckpt/drilled"))
    told = ckptguard(nodes, "checkpoints", "twin")
    assert told.code == 0
    assert '"drilled" keeps checkpoints in the same directory "/drilled"' in told.err
    assert ckptguard(nodes, "stop", "twin").code == 0
    told = ckptguard(nodes, "resume", "twin", "--from-step", "10")
    assert told.code == 2
    assert "not this run's alone" in told.err
    nodes.apply([trainjob("nowhere", "plain", ["true"])])
    told = ckptguard(nodes, "drill", "nowhere", "--timeout", "10s")
    assert told.code == 2
    assert "verdict" not in told.out
    for name in ("twin", "nowhere", "drilled"):
        finish(nodes, name)


OWN: dict[str, Any] = {
    "kind": "Training",
    "version": "v1",
    "job": {"name": "converted"},
    "environment": {"image": "registry.example/train:1", "command": "python train.py --epochs 3"},
    "resources": {"gpuNum": 1, "gpuType": "h100"},
    "storage": {"checkpoint": {"path": "/ckpts"}},
}


@pytest.mark.every_trainer
def test_a_converted_training_is_accepted(nodes: Nodes, tmp_path: Path) -> None:
    """Not by dry-run alone: Trainer makes a JobSet of it, whose pods have both directories."""
    name = OWN["job"]["name"]
    bare = runtime("bare")
    pod = bare["spec"]["template"]["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    del pod["volumes"], pod["containers"][0]["volumeMounts"], pod["containers"][0]["env"]
    nodes.apply([bare])
    nodes.run("annotate", "namespace", NAMESPACE, "checkpoint-guard.io/default-claim=train-ckpt", "--overwrite")
    (tmp_path / "t.yaml").write_text(yaml.safe_dump(OWN))
    told = ckptguard(
        nodes, "convert", str(tmp_path / "t.yaml"), "--runtime", "TrainingRuntime/bare", "--trainer", nodes.trainer()
    )
    assert told.code == 0, told.err
    nodes.run("create", "-n", NAMESPACE, "-f", "-", text=told.out)
    try:
        wait_until(lambda: bool(nodes.get("jobset", name, NAMESPACE)), 60, "Trainer makes a JobSet of it")
        made = nodes.get("jobset", name, NAMESPACE)
        assert made is not None
        built = made["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
        env = {one["name"]: one.get("value") for one in built["containers"][0]["env"]}
        assert (env["CKPT_DIR"], env["CKPT_FAST_DIR"]) == ("/ckpts/durable", "/ckpts/fast")
        mounts = {one["mountPath"]: one for one in built["containers"][0]["volumeMounts"]}
        assert mounts["/ckpts/durable"]["subPathExpr"] == "$(TRAINJOB_NAME)"
        assert built["nodeSelector"] == {"nvidia.com/gpu.product": "h100"}
        assert built["containers"][0]["command"][:2] == ["python", "train.py"]
    finally:
        nodes.run("annotate", "namespace", NAMESPACE, "checkpoint-guard.io/default-claim-")
        finish(nodes, name)


def _condition(nodes: Nodes, name: str) -> str | None:
    found = nodes.get("trainjob", name, NAMESPACE) or {}
    for one in (found.get("status") or {}).get("conditions") or ():
        if one["status"] == "True" and one["type"] in ("Complete", "Failed"):
            return str(one["type"])
    return None


def _open_claim(nodes: Nodes, namespace: str) -> None:
    """A folder on the claim that anybody may write, made before the namespace is strict."""
    nodes.run("label", "namespace", namespace, "pod-security.kubernetes.io/enforce-")
    shell(nodes, "mkdir -p /c/runs && chmod 777 /c/runs", namespace)
    nodes.run("label", "namespace", namespace, "pod-security.kubernetes.io/enforce=restricted")


def _user(nodes: Nodes, namespace: str, folder: Path) -> str:
    """A kubeconfig of somebody who may read runs and pods and make pods, but not exec."""
    nodes.run("create", "serviceaccount", "user", "-n", namespace)
    who = f"--serviceaccount={namespace}:user"
    nodes.run("create", "rolebinding", "user-view", "--clusterrole=view", who, "-n", namespace)
    rules = [
        {"apiGroups": ["trainer.kubeflow.org"], "resources": ["trainjobs"], "verbs": ["get", "list", "patch"]},
        {"apiGroups": ["jobset.x-k8s.io"], "resources": ["jobsets"], "verbs": ["get", "list"]},
    ]
    helpers = [{"apiGroups": [""], "resources": ["pods"], "verbs": ["create", "delete"]}]
    for name, wanted in (("user-runs", rules), ("user-helpers", helpers)):
        metadata = {"name": name, "namespace": namespace}
        nodes.apply(
            [{"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": metadata, "rules": wanted}]
        )
        nodes.run("create", "rolebinding", name, f"--role={name}", who, "-n", namespace)
    token = nodes.run("create", "token", "user", "-n", namespace).stdout.strip()
    config = json.loads(nodes.run("config", "view", "--minify", "--raw", "-o", "json").stdout)
    config["users"] = [{"name": "user", "user": {"token": token}}]
    config["contexts"][0]["context"]["user"] = "user"
    path = folder / "kubeconfig"
    path.write_text(json.dumps(config))
    return str(path)
