"""``rehearse job.yaml`` against a cluster that answers as a real one: what is made, what is said, and what is left.

Helper pods run their scripts for real, on a folder that stands for the claim. ``tests/e2e_nodes/test_rehearsals.py``
does the same on the real Trainer.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from tests.runs.fake_cluster import FakeCluster
from webhook.cli import main
from webhook.model.cluster import Runtime
from webhook.model.policy import Policy
from webhook.model.release import NEWEST
from webhook.rehearsal.cluster import Interrupted, clear_left, rehearse, report_of
from webhook.rehearsal.model import CannotRehearse, Report
from webhook.rehearsal.plan import Plan, Wanted, plan
from webhook.runs.api import Answer
from webhook.runs.layouts import Found, Saved
from webhook.runs.restart import Resumed
from webhook.runs.run import CannotDo

Object = dict[str, Any]


def runtime(**changes: Any) -> Runtime:
    """With the claim mounted twice: at the directory, and where data lies."""
    container = {
        "name": "node",
        "image": "registry.example/train:1",
        "env": [{"name": "CKPT_DIR", "value": "/mnt/ckpt/run"}],
        "volumeMounts": [
            {"name": "ckpt", "mountPath": "/mnt/ckpt"},
            {"name": "ckpt", "mountPath": "/data", "subPath": "data"},
        ],
    }
    pod = {
        "terminationGracePeriodSeconds": 2,
        "volumes": [{"name": "ckpt", "persistentVolumeClaim": {"claimName": "mine"}}],
        "containers": [container],
        **changes,
    }
    labels = {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}
    job = {"name": "node", "template": {"metadata": {"labels": labels}, "spec": {"template": {"spec": pod}}}}
    spec = {"mlPolicy": {"numNodes": 1}, "template": {"spec": {"replicatedJobs": [job]}}}
    return Runtime("TrainingRuntime", "team", "rt", {"metadata": {"name": "rt"}, "spec": spec})


def trainjob(**spec: Any) -> Object:
    labels = {"kueue.x-k8s.io/queue-name": "small"} if spec.pop("queue", False) else {}
    metadata = {"name": "digits", "namespace": "team", "labels": labels}
    return {"metadata": metadata, "spec": {"runtimeRef": {"kind": "TrainingRuntime", "name": "rt"}, **spec}}


def planned(made: Runtime | None = None, job: Object | None = None, token: str = "abc", **wanted: Any) -> Plan:
    return plan(job or trainjob(), made or runtime(), token, NEWEST, Policy(), Wanted(**wanted))


class Cluster(FakeCluster):
    """A FakeCluster in which rehearsals are created. ``flush``: what the first pod leaves when it ends."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, self._log)
        self.trainjobs, self.jobsets, self.pods = {}, {}, {}
        self.made = 0
        self.runtimes: dict[str, Object] = {}
        self.denied: set[str] = set()
        self.exit, self.flush, self.resumes, self.comm = 143, True, True, "python"
        self.ends_at_once: tuple[int, str] | None = None
        self.full = False
        self.interrupt_at = -1
        self.on_pod_end = self._flushed
        self.requests = 0
        self._now: Sequence[str] = ()

    @property
    def place(self) -> Path:
        return next((self.folder / ".rehearsal").iterdir()) / "run"

    def _log(self, number: int) -> str:
        if self.ends_at_once is not None:
            return f"{self.ends_at_once[1]}\n"
        if number == 0:
            return "[checkpoint] no prior checkpoint, starting fresh\n"
        newest = max(self.place.glob("step_*.json"), key=lambda path: int(path.stem.split("_")[1]))
        return f"[checkpoint] {f'resuming from /mnt/ckpt/run/{newest.name}' if self.resumes else 'starting fresh'}\n"

    def _flushed(self) -> None:
        if self.flush and self.made == 1:
            (self.place / "step_14.json").write_text("{}")

    def start_pod(self) -> None:
        for name in self.jobsets if getattr(self, "runtimes", None) else ():
            spec = self.jobsets[name]["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
            labels = {
                "jobset.sigs.k8s.io/jobset-name": name,
                "jobset.sigs.k8s.io/replicatedjob-name": "node",
            }
            status: Object = {"name": "node", "state": {"running": {}}}
            if self.ends_at_once is not None:
                status["state"] = {"terminated": {"exitCode": self.ends_at_once[0]}}
            else:
                self.place.mkdir(exist_ok=True)
                (self.place / "step_10.json").write_text("{}")
            pod = f"{name}-node-0-0-{self.made}"
            self.pods[pod] = {
                "metadata": {"name": pod, "namespace": "team", "uid": pod, "labels": labels},
                "spec": {**copy.deepcopy(spec), "nodeName": "node1"},
                "status": {"phase": "Running", "containerStatuses": [status]},
            }
            self.made += 1

    def _suspend(self, value: bool) -> None:
        super()._suspend(value)
        if value:
            self.after(2.0, self._terminated)

    def _terminated(self) -> None:
        for pod in self.pods.values():
            for status in pod["status"].get("containerStatuses") or ():
                status["state"] = {"terminated": {"exitCode": self.exit}}

    def request(
        self,
        method: str,
        path: str,
        params: Mapping[str, str] | None = None,
        body: Any = None,
        content_type: str = "application/json",
    ) -> Answer:
        answer = self._answer(method, path, params, body)
        if answer is None:
            answer = super().request(method, path, params, body, content_type)
        self.requests += 1
        if self.requests == self.interrupt_at:
            raise KeyboardInterrupt
        return answer

    def _answer(self, method: str, path: str, params: Mapping[str, str] | None, body: Any) -> Answer | None:
        if path.endswith("selfsubjectaccessreviews"):
            asked = body["spec"]["resourceAttributes"]
            return Answer(201, {"status": {"allowed": f"{asked['verb']} {asked['resource']}" not in self.denied}})
        if "/trainingruntimes" in path:
            self.calls.append((method, path))
            name = path.rpartition("/")[2]
            if method == "POST":
                made = copy.deepcopy(body)
                made["metadata"]["uid"] = "uid-runtime"
                self.runtimes[body["metadata"]["name"]] = made
                return Answer(201, made)
            if name == "trainingruntimes":
                return Answer(200, {"items": [copy.deepcopy(one) for one in self.runtimes.values()]})
            if name not in self.runtimes:
                return Answer(404, {"message": "no such runtime", "details": {}})
            return Answer(200, self.runtimes.pop(name) if method == "DELETE" else self.runtimes[name])
        if method == "POST" and path.endswith("/trainjobs"):
            self.calls.append((method, path))
            made = copy.deepcopy(body)
            name = made["metadata"]["name"]
            made["metadata"]["uid"] = f"uid-{name}"
            made["spec"].setdefault("suspend", False)
            self.trainjobs[name] = made
            spec = self.runtimes[made["spec"]["runtimeRef"]["name"]]["spec"]["template"]["spec"]
            self.jobsets[name] = {"metadata": {"name": name}, "spec": copy.deepcopy(spec)}
            self.start_pod()
            return Answer(201, made)
        if method == "DELETE" and "/pods/" in path and "-node-" in path:
            self.pods.pop(path.rpartition("/")[2], None)
            return Answer(200, {})
        return None

    def execute(
        self, namespace: str, pod: str, container: str, command: Sequence[str], seconds: float = 60.0
    ) -> tuple[int | None, str, str]:
        if list(command) == ["cat", "/proc/1/comm"]:
            return 0, f"{self.comm}\n", ""
        return self._run([word.replace("/mnt/ckpt/run", str(self.place)) for word in command])

    def _run(self, words: Sequence[str]) -> tuple[int, str, str]:
        if self.full and "make" in words:
            return 1, "FAILED FULL\n", ""
        return super()._run(words)

    def rehearse(self, made: Plan | None = None) -> tuple[Report, list[str]]:
        said: list[str] = []
        chosen = made or planned()
        self.opened = self.session(said)
        self.opened.name = chosen.name
        return rehearse(self.opened, chosen, ("job.yaml",)), said

    def left(self) -> list[str]:
        return [*self.trainjobs, *self.runtimes, *self.pods, *(path.name for path in self.folder.iterdir())]


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    folder = tmp_path / "claim"
    folder.mkdir()
    return Cluster(folder)


def test_a_run_that_comes_back(cluster: Cluster) -> None:
    report, said = cluster.rehearse()
    assert (report.verdict, report.findings, report.lost) == ("resumed", [], 0)
    assert report.starts[0].heard is True
    assert "all of it is removed afterwards" in said[0]
    assert cluster.left() == []
    assert "nothing is left" in cluster.opened.state


def test_a_shell_that_keeps_sigterm(cluster: Cluster) -> None:
    cluster.exit, cluster.flush, cluster.comm = 137, False, "bash"
    report, _ = cluster.rehearse()
    assert [(one.rule, one.severity) for one in report.findings] == [("sigterm-not-forwarded", "audit")]
    assert (report.verdict, report.starts[0].heard) == ("resumed", False)


def test_a_save_amid_a_grace_period_that_ends_with_a_kill_is_no_flush(cluster: Cluster) -> None:
    cluster.exit, cluster.flush = 137, True
    report, _ = cluster.rehearse()
    assert [one.rule for one in report.findings] == ["no-flush-on-sigterm"]


@pytest.mark.parametrize(
    ("code", "seconds", "saved", "heard"),
    [
        (None, 3.0, True, True),  # it saved and was gone soon: nobody had to kill it
        (None, 3.0, False, None),
        (None, 30.0, False, False),
        (None, 30.0, True, None),  # for SIGTERM, and late; or as usual, and killed then
        (0, 30.0, True, True),
        (0, 3.0, False, False),
        (137, 30.0, True, False),
    ],
)
def test_what_sigterm_led_to(code: int | None, seconds: float, saved: bool, heard: bool | None) -> None:
    old, new = (Saved(f"step_{step}.json", "file", step, 2, float(step), True) for step in (10, 20))
    after = Found((old, new) if saved else (old,), new if saved else old)
    made = replace(planned(), grace=30.0)
    told = Interrupted(code, seconds, before=(old,), after=after)
    report = report_of(made, ("job.yaml",), Found((old,), old), told, Resumed("resumed", 20))
    assert report.starts[0].heard is heard
    assert [one.rule for one in report.findings] == (["no-flush-on-sigterm"] if heard is False else [])


def test_one_that_begins_anew(cluster: Cluster) -> None:
    cluster.resumes = False
    report, _ = cluster.rehearse()
    assert (report.verdict, [one.rule for one in report.findings]) == ("not-resumed", ["never-resumed"])
    assert cluster.left() == []


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("KeyError: 'x'", "it ended with exit code 3 before it saved anything"),
        ("RuntimeError: No CUDA GPUs are available", "it needs a GPU"),
        ("OSError: [Errno 28] No space left on device", 'claim "mine" is full'),
    ],
)
def test_one_that_cannot_run(cluster: Cluster, line: str, why: str) -> None:
    cluster.ends_at_once = 3, line
    with pytest.raises(CannotRehearse) as caught:
        cluster.rehearse()
    assert why in caught.value.lines[0]
    assert line in caught.value.lines
    assert cluster.left() == []


def test_a_claim_that_is_full(cluster: Cluster) -> None:
    cluster.full = True
    with pytest.raises(CannotDo, match='claim "mine" is full'):
        cluster.rehearse()
    assert cluster.left() == []


def test_missing_rights_are_said_before_anything_is_made(cluster: Cluster) -> None:
    cluster.denied = {"create trainjobs", "delete pods"}
    with pytest.raises(CannotDo) as caught:
        cluster.rehearse()
    assert caught.value.lines[1:] == (
        "  kubectl auth can-i create trainjobs -n team",
        "  kubectl auth can-i delete pods -n team",
    )
    assert [method for method, _ in cluster.calls if method != "GET"] == []


def test_a_claim_of_one_node_that_somebody_has(cluster: Cluster) -> None:
    cluster.claims["mine"]["spec"] = {"accessModes": ["ReadWriteOnce"]}
    volume = {"persistentVolumeClaim": {"claimName": "mine"}}
    status = {"phase": "Running", "containerStatuses": [{"name": "x", "state": {"running": {}}}]}
    cluster.pods["other"] = {
        "metadata": {"name": "other", "labels": {}},
        "spec": {"volumes": [volume], "nodeName": "node2"},
        "status": status,
    }
    with pytest.raises(CannotDo, match='pod "other" on node "node2" has it'):
        cluster.rehearse()
    cluster.claims.clear()
    with pytest.raises(CannotDo, match='claim "mine" does not exist'):
        cluster.rehearse()


def test_interrupted_at_any_moment_nothing_is_left(tmp_path: Path) -> None:
    at = 1
    while True:
        folder = tmp_path / f"claim-{at}"
        folder.mkdir()
        cluster = Cluster(folder)
        cluster.interrupt_at = at
        try:
            cluster.rehearse()
        except KeyboardInterrupt:
            # As the command line does it: what a helper pod was asked for is cleaned up, or it is said what is left.
            cluster.opened.kube.clean()
            if cluster.left():
                assert "left behind: " in cluster.opened.state, at
                for name in (*cluster.trainjobs, *cluster.runtimes):
                    assert name in cluster.opened.state
            else:
                assert "was not changed" in cluster.opened.state or "left behind" in cluster.opened.state
            at += 4
            continue
        assert at > 40
        return


def killed(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """A rehearsal that SIGKILL ended: nobody took anything away."""
    with monkeypatch.context() as patch:
        patch.setattr("webhook.rehearsal.cluster._Scene.clear", lambda _: None)
        cluster.rehearse()
    assert "digits-rehearsal-abc" in cluster.trainjobs


def test_what_a_killed_one_left_is_named_and_later_removed(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    killed(cluster, monkeypatch)
    made = planned(token="def")
    monkeypatch.setattr("webhook.rehearsal.cluster._conduct", lambda *_: Report(("job.yaml",), "resumed"))
    _, said = cluster.rehearse(made)
    assert any('rehearsal "digits-rehearsal-abc" is there, too' in line for line in said)
    assert list(cluster.trainjobs) == ["digits-rehearsal-abc"]
    cluster.time += 24 * 3600
    _, said = cluster.rehearse(made)
    assert 'removing rehearsal "digits-rehearsal-abc", which was killed' in said
    assert cluster.left() == []


def test_what_only_looks_like_a_rehearsal_is_left_alone(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    killed(cluster, monkeypatch)
    cluster.trainjobs["digits-rehearsal-abc"]["metadata"]["annotations"] = {}
    cluster.time += 24 * 3600
    monkeypatch.setattr("webhook.rehearsal.cluster._conduct", lambda *_: Report(("job.yaml",), "resumed"))
    cluster.rehearse(planned(token="def"))
    assert list(cluster.trainjobs) == ["digits-rehearsal-abc"]


def test_a_folder_on_another_claim_is_named(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    killed(cluster, monkeypatch)
    cluster.time += 24 * 3600
    said: list[str] = []
    clear_left(cluster.session(said), planned(token="def", claim="other"))
    assert any('folder ".rehearsal/digits-rehearsal-abc" of its claim is left' in line for line in said)
    assert (list(cluster.trainjobs), list(cluster.runtimes)) == ([], [])


def test_what_cannot_be_removed_is_said(cluster: Cluster) -> None:
    def refuse(method: str, path: str, _: Any) -> Answer | None:
        return Answer(403, {"message": "no"}) if method == "DELETE" and "/trainjobs/" in path else None

    cluster.refuse = refuse
    _, said = cluster.rehearse()
    assert "left behind: TrainJob digits-rehearsal-abc" in said[-1]
    assert "kubectl delete trainjob digits-rehearsal-abc -n team" in said[-1]


# --- the plan


def test_the_directory_is_another_and_the_rest_of_the_claim_read_only() -> None:
    made = planned()
    pod = made.runtime["spec"]["template"]["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    mounts = pod["containers"][0]["volumeMounts"]
    assert mounts == [
        {"name": "ckpt", "mountPath": "/mnt/ckpt", "subPath": ".rehearsal/digits-rehearsal-abc"},
        {"name": "ckpt", "mountPath": "/data", "subPath": "data", "readOnly": True},
    ]
    assert (made.claim, made.folder, made.grace) == ("mine", ".rehearsal/digits-rehearsal-abc", 2.0)
    assert made.directory.on_claim == "/.rehearsal/digits-rehearsal-abc/run"
    assert made.trainjob["spec"]["runtimeRef"]["name"] == "digits-rehearsal-abc"
    assert planned(token="abd").folder != made.folder


def test_what_the_flags_change() -> None:
    made = planned(job=trainjob(queue=True, suspend=True), nodes=2, resources={"cpu": "2"}, claim="other")
    assert made.trainjob["spec"]["trainer"] == {
        "numNodes": 2,
        "resourcesPerNode": {"requests": {"cpu": "2"}, "limits": {"cpu": "2"}},
    }
    assert "suspend" not in made.trainjob["spec"]
    assert (made.queue, made.claim, made.pods) == ("small", "other", 2)


def _other(made: Runtime, change: Callable[[Object], None]) -> Runtime:
    raw = copy.deepcopy(dict(made.raw))
    change(raw["spec"]["template"]["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"])
    return Runtime(made.kind, made.namespace, made.name, raw)


def test_a_sub_path_with_variables_stays_one() -> None:
    def change(pod: Object) -> None:
        pod["containers"][0]["volumeMounts"][0]["subPathExpr"] = "runs/$(WHO)"
        pod["containers"][0]["env"].append({"name": "WHO", "value": "me"})

    made = planned(_other(runtime(), change))
    pod = made.runtime["spec"]["template"]["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    mount = pod["containers"][0]["volumeMounts"][0]
    assert mount["subPathExpr"] == ".rehearsal/digits-rehearsal-abc/runs/$(WHO)"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda pod: pod["containers"][0].pop("env"), "declares no checkpoint directory"),
        (lambda pod: pod.update(volumes=[{"name": "ckpt", "emptyDir": {}}]), "takes a claim"),
        (
            lambda pod: pod["containers"][0]["env"][0].update(value="/mnt/ckpt/$(WHO)"),
            "only its pods know the checkpoint directory|declares no checkpoint directory",
        ),
    ],
)
def test_what_cannot_be_planned(change: Callable[[Object], None], words: str) -> None:
    with pytest.raises(CannotRehearse, match=words):
        planned(_other(runtime(), change))


def test_one_that_another_cluster_runs() -> None:
    with pytest.raises(CannotRehearse, match="another cluster runs it"):
        planned(job=trainjob(managedBy="kueue.x-k8s.io/multikueue"))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--compare", "job.yaml"], "--compare is for a command that runs here"),
        (["--nodes", "2", "--", "true"], "--nodes is for the cluster"),
        (["no-such-file.yaml"], "no-such-file.yaml"),
    ],
)
def test_flags_of_the_other_way(arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rehearse", *arguments]) == 2
    assert words in capsys.readouterr().err


def test_resources_that_are_none(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["rehearse", "--resources", "cpu", "job.yaml"])
    assert "cpu=2,memory=8Gi, or same" in capsys.readouterr().err
