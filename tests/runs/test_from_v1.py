"""`ckptguard convert` of the Training Operator's jobs: every field has its place in the pods, or is named."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from webhook.cli import main
from webhook.model.policy import EntryDefaults, NamespaceEntry, Policy
from webhook.model.release import Release
from webhook.runs.from_v1 import Converted, convert_v1, differences

Object = dict[str, Any]


def template(**container: Any) -> Object:
    return {
        "metadata": {"labels": {"team": "vision"}, "annotations": {"sidecar.istio.io/inject": "false"}},
        "spec": {
            "volumes": [{"name": "ckpt", "persistentVolumeClaim": {"claimName": "train-ckpt"}}],
            "nodeSelector": {"gpu": "h100"},
            "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists"}],
            "terminationGracePeriodSeconds": 120,
            "serviceAccountName": "trainer",
            "containers": [
                {
                    "name": "pytorch",
                    "image": "registry.example/train:1",
                    "command": ["torchrun", "train.py"],
                    "args": ["--epochs", "3"],
                    "env": [{"name": "CKPT_DIR", "value": "/ckpt/run"}, {"name": "LR", "value": "0.1"}],
                    "volumeMounts": [{"name": "ckpt", "mountPath": "/ckpt"}],
                    "resources": {"limits": {"nvidia.com/gpu": "8"}},
                    **container,
                }
            ],
        },
    }


def pytorch(**spec: Any) -> Object:
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {
            "name": "resnet",
            "namespace": "team",
            "labels": {"kueue.x-k8s.io/queue-name": "lq"},
            "annotations": {"owner": "me"},
        },
        "spec": {
            "pytorchReplicaSpecs": {
                "Master": {"replicas": 1, "restartPolicy": "OnFailure", "template": template()},
                "Worker": {"replicas": 3, "restartPolicy": "OnFailure", "template": template()},
            },
            "runPolicy": {"backoffLimit": 4},
            **spec,
        },
    }


def mpi(version: str = "v1", **spec: Any) -> Object:
    launcher = template(name="mpi", command=["mpirun", "-np", "8", "python", "train.py"], args=[])
    worker = template(name="mpi", command=[], args=[])
    return {
        "apiVersion": f"kubeflow.org/{version}",
        "kind": "MPIJob",
        "metadata": {"name": "horovod", "namespace": "team"},
        "spec": {
            "slotsPerWorker": 4,
            "runPolicy": {"backoffLimit": 2, "cleanPodPolicy": "Running"},
            "mpiReplicaSpecs": {
                "Launcher": {"replicas": 1, "template": launcher},
                "Worker": {"replicas": 2, "template": worker},
            },
            **spec,
        },
    }


def convert(raw: Object, release: Release = Release.V2_3) -> Converted:
    before = copy.deepcopy(raw)
    made = convert_v1(raw, release, None, Policy())
    assert raw == before
    return made


def said(raw: Object, weight: str = "lost") -> dict[str, str]:
    return {one.field: one.message for one in convert(raw).found if one.weight == weight}


def pods(raw: Object, tmp_path: Path, capsys: pytest.CaptureFixture[str], release: str = "2.3") -> dict[str, Object]:
    """What Trainer makes of it, by job, as `ckptguard pods` says."""
    file = tmp_path / "old.yaml"
    file.write_text(yaml.safe_dump(raw))
    assert main(["convert", str(file), "--trainer", release]) in (0, 1)
    new = tmp_path / "new.yaml"
    new.write_text(capsys.readouterr().out)
    assert main(["pods", str(new), "--trainer", release, "--output", "json"]) == 0
    results = json.loads(capsys.readouterr().out)["results"]
    assert main(["review", str(new), "--trainer", release]) == 0, capsys.readouterr().out
    capsys.readouterr()
    return {job["name"]: job for job in next(one for one in results if one["kind"] == "TrainJob")["jobs"]}


def named(container: Object) -> dict[str, Any]:
    return {one["name"]: one.get("value", one.get("valueFrom")) for one in container["env"]}


@pytest.mark.parametrize("release", ["2.0", "2.1", "2.2", "2.3"])
def test_a_pytorch_job_in_its_pods(tmp_path: Path, capsys: pytest.CaptureFixture[str], release: str) -> None:
    job = pods(pytorch(), tmp_path, capsys, release)["node"]
    pod, old = job["pod"], template()["spec"]
    container = pod["containers"][0]
    was = old["containers"][0]
    assert (job["pods"], job["backoffLimit"], job["trains"]) == (4, 0, True)
    for key in ("image", "command", "args", "volumeMounts", "resources"):
        assert container[key] == was[key], key
    for key in ("volumes", "nodeSelector", "tolerations", "terminationGracePeriodSeconds", "serviceAccountName"):
        assert pod[key] == old[key], key
    assert pod["restartPolicy"] == "Never"
    env = named(container)
    assert (env["CKPT_DIR"], env["LR"]) == ("/ckpt/run", "0.1")
    # What the old operator gave a program that is not started by torchrun.
    assert env["MASTER_ADDR"] == "$(TRAINJOB_NAME)-node-0-0.$(TRAINJOB_NAME)"
    assert (env["MASTER_PORT"], env["WORLD_SIZE"]) == ("23456", "4")
    assert "job-completion-index" in env["RANK"]["fieldRef"]["fieldPath"]


def test_a_pytorch_jobs_objects() -> None:
    made = convert(pytorch(runPolicy={"backoffLimit": 4, "ttlSecondsAfterFinished": 60, "suspend": True}))
    runtime, trainjob = made.objects
    assert made.found == ()
    assert runtime["metadata"]["name"] == trainjob["metadata"]["name"] == "resnet"
    assert runtime["metadata"]["namespace"] == trainjob["metadata"]["namespace"] == "team"
    assert trainjob["metadata"]["labels"] == {"kueue.x-k8s.io/queue-name": "lq"}
    assert trainjob["metadata"]["annotations"] == {"owner": "me"}
    assert trainjob["spec"]["suspend"] is True
    template_spec = runtime["spec"]["template"]["spec"]
    assert template_spec["failurePolicy"] == {"maxRestarts": 4}
    assert template_spec["ttlSecondsAfterFinished"] == 60
    pod = template_spec["replicatedJobs"][0]["template"]["spec"]["template"]
    assert pod["metadata"] == template()["metadata"]


@pytest.mark.parametrize("release", ["2.0", "2.1", "2.2", "2.3"])
def test_an_mpi_job_in_its_pods(tmp_path: Path, capsys: pytest.CaptureFixture[str], release: str) -> None:
    jobs = pods(mpi(), tmp_path, capsys, release)
    launcher, node = jobs["launcher"], jobs["node"]
    assert (launcher["pods"], node["pods"]) == (1, 2)
    first = launcher["pod"]["containers"][0]
    assert first["command"] == ["mpirun", "-np", "8", "python", "train.py"]
    assert first["image"] == node["pod"]["containers"][0]["image"] == "registry.example/train:1"
    assert node["pod"]["containers"][0]["command"] == ["/usr/sbin/sshd"]
    for job in jobs.values():
        container = job["pod"]["containers"][0]
        assert named(container)["CKPT_DIR"] == "/ckpt/run"
        assert {"name": "ckpt", "mountPath": "/ckpt"} in container["volumeMounts"]
        assert job["pod"]["nodeSelector"] == {"gpu": "h100"}
        assert container["resources"] == {"limits": {"nvidia.com/gpu": "8"}}


def test_an_mpi_jobs_objects() -> None:
    made = convert(mpi())
    runtime, trainjob = made.objects
    assert [one.weight for one in made.found] == ["note"]  # sshd
    policy = runtime["spec"]["mlPolicy"]
    assert policy["mpi"] == {
        "numProcPerNode": 4,
        "mpiImplementation": "OpenMPI",
        "sshAuthMountPath": "/root/.ssh",
        "runLauncherAsNode": False,
    }
    assert trainjob["spec"]["trainer"] == {"numNodes": 2}
    assert runtime["spec"]["template"]["spec"]["failurePolicy"] == {"maxRestarts": 2}
    launcher = runtime["spec"]["template"]["spec"]["replicatedJobs"][1]
    assert launcher["dependsOn"] == [{"name": "node", "status": "Ready"}]


def test_an_mpi_job_of_v2beta1() -> None:
    raw = mpi(
        "v2beta1",
        sshAuthMountPath="/home/mpiuser/.ssh",
        mpiImplementation="MPICH",
        launcherCreationPolicy="AtStartup",
        runLauncherAsWorker=True,
    )
    made = convert(raw)
    assert [one.field for one in made.found if one.weight == "lost"] == ["spec.mpiImplementation"]
    runtime, trainjob = made.objects
    assert runtime["spec"]["mlPolicy"]["mpi"]["sshAuthMountPath"] == "/home/mpiuser/.ssh"
    assert runtime["spec"]["mlPolicy"]["mpi"]["runLauncherAsNode"] is True
    assert trainjob["spec"]["trainer"]["numNodes"] == 3
    assert "dependsOn" not in runtime["spec"]["template"]["spec"]["replicatedJobs"][1]


@pytest.mark.parametrize(
    ("version", "user", "probed"), [("v1", None, True), ("v1", 0, True), ("v1", 1000, False), ("v2beta1", None, False)]
)
def test_a_worker_is_ready_by_the_port_only_where_that_is_known(version: str, user: int | None, probed: bool) -> None:
    """The launcher waits for it: a probe of a port that nobody listens on would keep it from ever starting."""
    raw = mpi(version)
    if user is not None:
        spec = raw["spec"]["mpiReplicaSpecs"]["Worker"]["template"]["spec"]
        spec["containers"][0]["securityContext"] = {"runAsUser": user}
    jobs = convert(raw).objects[0]["spec"]["template"]["spec"]["replicatedJobs"]
    worker = jobs[0]["template"]["spec"]["template"]["spec"]["containers"][0]
    assert ("readinessProbe" in worker) is probed


def test_the_main_container_of_an_mpi_job() -> None:
    raw = mpi(mainContainer="train")
    for one in raw["spec"]["mpiReplicaSpecs"].values():
        containers = one["template"]["spec"]["containers"]
        containers[0]["name"] = "train"
        containers.insert(0, {"name": "metrics", "image": "m"})
    runtime, _ = convert(raw).objects
    job = runtime["spec"]["template"]["spec"]["replicatedJobs"][1]
    assert [one["name"] for one in job["template"]["spec"]["template"]["spec"]["containers"]] == ["metrics", "node"]


@pytest.mark.parametrize(
    ("policy", "run_policy", "elastic", "budget"),
    [
        ("OnFailure", {"backoffLimit": 7}, {}, 7),
        ("OnFailure", {"backoffLimit": 0}, {}, 0),
        ("OnFailure", {}, {"maxRestarts": 9}, 9),
        ("OnFailure", {}, {}, 3),
        ("Always", {}, {}, 3),
        (None, {}, {}, 3),  # the operator's default is OnFailure
        ("Never", {}, {}, 0),
        ("Never", {"backoffLimit": 7}, {}, 0),
    ],
)
def test_restarts(policy: str | None, run_policy: Object, elastic: Object, budget: int) -> None:
    raw = pytorch(runPolicy=run_policy, elasticPolicy=elastic)
    for one in raw["spec"]["pytorchReplicaSpecs"].values():
        one["restartPolicy"] = policy
    made = convert(raw)
    assert made.objects[0]["spec"]["template"]["spec"]["failurePolicy"] == {"maxRestarts": budget}
    assert not [one for one in made.found if one.weight != "note"]


def test_restarts_by_what_the_policy_says_of_the_namespace() -> None:
    entry = NamespaceEntry(names=("team-*",), defaults=EntryDefaults(max_restarts=9))
    raw = pytorch(runPolicy={})
    for namespace, budget in (("team-a", 9), ("other", 3)):
        made = convert_v1(raw, Release.V2_3, namespace, Policy(namespaces=(entry,)))
        assert made.objects[0]["spec"]["template"]["spec"]["failurePolicy"] == {"maxRestarts": budget}


@pytest.mark.parametrize(
    ("version", "run_policy", "budget"),
    [("v1", {}, 0), ("v1", {"backoffLimit": 2}, 2), ("v2beta1", {}, 3), ("v2beta1", {"backoffLimit": 0}, 0)],
)
def test_restarts_of_an_mpi_job(version: str, run_policy: Object, budget: int) -> None:
    made = convert(mpi(version, runPolicy=run_policy))
    assert made.objects[0]["spec"]["template"]["spec"]["failurePolicy"] == {"maxRestarts": budget}


def test_exit_code_has_no_place() -> None:
    raw = pytorch()
    raw["spec"]["pytorchReplicaSpecs"]["Worker"]["restartPolicy"] = "ExitCode"
    assert list(said(raw)) == ["spec.pytorchReplicaSpecs.Worker.restartPolicy"]


def changed(path: str, value: Any, raw: Object | None = None) -> Object:
    raw = copy.deepcopy(raw or pytorch())
    *steps, last = path.split(".")
    here: Any = raw
    for step in steps:
        here = here[int(step)] if step.isdigit() else here.setdefault(step, {})
    here[int(last) if last.isdigit() else last] = value
    return raw


MASTER = "spec.pytorchReplicaSpecs.Master"


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("spec.elasticPolicy.minReplicas", 1),
        ("spec.elasticPolicy.maxReplicas", 8),
        ("spec.elasticPolicy.rdzvBackend", "etcd"),
        ("spec.elasticPolicy.rdzvHost", "etcd-service"),
        ("spec.elasticPolicy.rdzvConf", [{"key": "timeout", "value": "900"}]),
        ("spec.elasticPolicy.metrics", [{"type": "Resource"}]),
        ("spec.elasticPolicy.unheard", 1),
        ("spec.nprocPerNode", "cpu"),
        ("spec.runPolicy.cleanPodPolicy", "All"),
        ("spec.runPolicy.managedBy", "example.com/other"),
        ("spec.runPolicy.unheard", 1),
        ("spec.runPolicy.schedulingPolicy.minAvailable", 2),
        ("spec.runPolicy.schedulingPolicy.minResources", {"cpu": 8}),
        ("spec.runPolicy.schedulingPolicy.queue", "default"),
        ("spec.unheard", {}),
        ("unheard", 1),
        ("metadata.ownerReferences", [{"name": "x"}]),
        ("metadata.finalizers", ["x"]),
        (f"{MASTER}.unheard", 1),
        (f"{MASTER}.template.metadata.finalizers", ["x"]),
        (f"{MASTER}.template.spec.hostname", "x"),
        ("spec.pytorchReplicaSpecs.Worker.template.spec.nodeSelector.gpu", "a100"),
    ],
)
def test_what_has_no_place_is_named(path: str, value: Any) -> None:
    lost = list(said(changed(path, value)))
    # What the Master alone has differs from the Worker, which is said too.
    assert path in lost
    assert [one for one in lost if "Worker" not in one] == [path] or "Worker" in path


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("metadata.name", "7b-run"),
        ("metadata.name", "x" * 60),
        ("spec.runPolicy.backoffLimit", "3"),
        ("spec.runPolicy.suspend", "yes"),
        ("spec.runPolicy.cleanPodPolicy", "Sometimes"),
        ("spec.pytorchReplicaSpecs.Worker.replicas", -1),
        ("spec.pytorchReplicaSpecs.Master.replicas", 2),
        ("spec.pytorchReplicaSpecs.Chief", {}),
        ("spec.pytorchReplicaSpecs.Worker.restartPolicy", "Sometimes"),
        ("spec.pytorchReplicaSpecs", [1]),
        ("apiVersion", "kubeflow.org/v1beta2"),
    ],
)
def test_a_value_that_is_none(path: str, value: Any) -> None:
    assert path in said(changed(path, value), "bad")


def test_a_difference_between_master_and_worker_is_named() -> None:
    raw = pytorch()
    raw["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]["containers"][0]["args"] = ["--epochs", "4"]
    assert list(said(raw)) == ["spec.pytorchReplicaSpecs.Worker.template.spec.containers[0].args[1]"]
    assert list(differences({"a": 1}, {"a": 1, "b": [1]})) == [".b"]


@pytest.mark.parametrize(("kind", "nodes"), [("Master", 1), ("Worker", 3)])
def test_one_kind_of_replica_alone(kind: str, nodes: int) -> None:
    raw = pytorch()
    raw["spec"]["pytorchReplicaSpecs"] = {kind: raw["spec"]["pytorchReplicaSpecs"][kind]}
    made = convert(raw)
    assert made.objects[1]["spec"]["trainer"]["numNodes"] == nodes
    assert made.found == ()
    # The operator gives MASTER_ADDR only where there is a master.
    env = made.objects[0]["spec"]["template"]["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    assert ("MASTER_ADDR" in named(env["containers"][0])) is (kind == "Master")


@pytest.mark.parametrize(("given", "wanted"), [("4", 4), ("auto", None), ("gpu", None), (None, None)])
def test_processes(given: str | None, wanted: int | None) -> None:
    made = convert(pytorch(nprocPerNode=given))
    assert made.objects[1]["spec"]["trainer"].get("numProcPerNode") == wanted
    assert made.found == ()


def test_gang_scheduling() -> None:
    policy = {"minAvailable": 4, "scheduleTimeoutSeconds": 90, "priorityClass": "high"}
    made = convert(pytorch(runPolicy={"backoffLimit": 1, "schedulingPolicy": policy}))
    assert made.found == ()
    runtime = made.objects[0]["spec"]
    assert runtime["podGroupPolicy"] == {"coscheduling": {"scheduleTimeoutSeconds": 90}}
    job = runtime["template"]["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    assert job["priorityClassName"] == "high"


def test_gang_scheduling_by_volcano() -> None:
    raw = pytorch(runPolicy={"backoffLimit": 1, "schedulingPolicy": {"queue": "q1"}})
    for one in raw["spec"]["pytorchReplicaSpecs"].values():
        one["template"]["spec"]["schedulerName"] = "volcano"
    made = convert(raw)
    assert made.found == ()
    runtime = made.objects[0]["spec"]
    assert runtime["podGroupPolicy"] == {"volcano": {}}
    assert runtime["template"]["metadata"] == {"annotations": {"scheduling.volcano.sh/queue-name": "q1"}}


def test_a_deadline() -> None:
    raw = pytorch(runPolicy={"backoffLimit": 1, "activeDeadlineSeconds": 3600})
    assert convert(raw).objects[1]["spec"]["activeDeadlineSeconds"] == 3600
    old = convert(raw, Release.V2_1)
    assert [one.field for one in old.found] == ["spec.runPolicy.activeDeadlineSeconds"]


def test_what_the_server_wrote_is_left_out() -> None:
    raw = pytorch()
    raw["metadata"] |= {"uid": "u", "resourceVersion": "1", "creationTimestamp": "x", "generation": 2}
    raw["metadata"]["annotations"]["kubectl.kubernetes.io/last-applied-configuration"] = "{}"
    raw["status"] = {"conditions": []}
    made = convert(raw)
    assert made.found == ()
    assert made.objects[1]["metadata"]["annotations"] == {"owner": "me"}


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    claim = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "train-ckpt"}}
    raw = changed("spec.elasticPolicy.maxReplicas", 8)
    file = tmp_path / "job.yaml"
    file.write_text(yaml.safe_dump_all([claim, raw]))
    assert main(["convert", str(file)]) == 1
    out = capsys.readouterr()
    assert [one["kind"] for one in yaml.safe_load_all(out.out)] == [
        "PersistentVolumeClaim",
        "TrainingRuntime",
        "TrainJob",
    ]
    assert "# has no place: spec.elasticPolicy.maxReplicas: 8 has no place" in out.out
    line = next(number for number, text in enumerate(file.read_text().splitlines(), 1) if "maxReplicas" in text)
    assert f"{file}:{line}: spec.elasticPolicy.maxReplicas: " in out.err

    assert main(["convert", str(file), "-o", "json"]) == 1
    document = json.loads(capsys.readouterr().out)
    assert document["schema"] == 1
    assert [one["kind"] for one in document["objects"]][1:] == ["TrainingRuntime", "TrainJob"]
    assert document["errors"][0]["field"] == "spec.elasticPolicy.maxReplicas"


def test_a_list_of_jobs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "job.json"
    broken = changed("spec.runPolicy.backoffLimit", "x")
    file.write_text(json.dumps({"kind": "List", "apiVersion": "v1", "items": [pytorch(), mpi()]}))
    assert main(["convert", str(file)]) == 0
    assert len(list(yaml.safe_load_all(capsys.readouterr().out))) == 4
    file.write_text(json.dumps({"kind": "List", "apiVersion": "v1", "items": [pytorch(), broken]}, indent=1))
    assert main(["convert", str(file)]) == 2
    out = capsys.readouterr()
    assert out.out == ""
    assert "spec.runPolicy.backoffLimit" in out.err


@pytest.mark.parametrize(
    ("raw", "says"),
    [
        ({"apiVersion": "kubeflow.org/v1", "kind": "TFJob"}, '"TFJob" is not known'),
        ({"apiVersion": "v1", "kind": "ConfigMap"}, "no Training, PyTorchJob or MPIJob"),
        (pytorch(pytorchReplicaSpecs={}), "has neither Master nor Worker"),
        (mpi(mpiReplicaSpecs={"Worker": {}}), "nothing would start the program"),
        (pytorch(pytorchReplicaSpecs={"Worker": {"template": {"spec": {"containers": "x"}}}}), "has no container"),
        ({**pytorch(), "spec": []}, "is no map"),
        ({**pytorch(), "metadata": None}, "metadata.name: is absent"),
    ],
)
def test_what_cannot_be_converted(tmp_path: Path, capsys: pytest.CaptureFixture[str], raw: Object, says: str) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(yaml.safe_dump(raw))
    assert main(["convert", str(file)]) == 2
    out = capsys.readouterr()
    assert says in out.err
    assert out.out == ""
