"""A wedged run is freed, and nothing else is ever touched."""

from __future__ import annotations

import copy
import json
from argparse import Namespace
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests import fast_yaml, golden
from tests.runs.fake_cluster import FakeCluster, jobset, stamp
from webhook.cli import rescue as command
from webhook.cluster.access import Unreachable
from webhook.runs.api import Answer
from webhook.runs.node_is_off import free_from_nodes
from webhook.runs.rescue import REFUSED, Rescued, rescue
from webhook.runs.run import CannotDo

SAID = 'admission webhook "vjobset.kb.io" denied the request: spec.replicatedJobs: Invalid value'
MESSAGE = f'{SAID}: [{{"name":"node"}}]: field is immutable'
DENIED = Answer(403, {"message": 'User "me" cannot delete resource'})


class Wedged(FakeCluster):
    """A suspended run whose JobSet was refused; Trainer makes a new one a second after the old one is gone."""

    def __init__(self, folder: Path, suspended: bool = True) -> None:
        super().__init__(folder)
        self.pods = {}
        self.trainjobs["run"]["spec"]["suspend"] = suspended
        self.events = [self.event(self.time - 10)]
        self.trainer = True
        self.runtimes: list[dict[str, Any]] = []
        self.crd: dict[str, Any] | None = None
        self.jobsets["run"] = self.new_jobset(0, suspended=True)
        self.jobsets["run"]["status"]["restarts"] = 2
        self.version = 0

    def new_jobset(self, number: int, suspended: bool) -> dict[str, Any]:
        made = jobset()
        made["metadata"] |= {
            "uid": f"jobset-{number}",
            "resourceVersion": str(number),
            "creationTimestamp": stamp(self.time - 100),
        }
        made["spec"]["suspend"] = suspended
        return made

    def event(self, when: float, message: str = MESSAGE, uid: str = "uid-run") -> dict[str, Any]:
        about = {"kind": "TrainJob", "name": "run", "uid": uid}
        return {"reason": REFUSED, "message": message, "lastTimestamp": stamp(when), "involvedObject": about}

    def request(
        self,
        method: str,
        path: str,
        params: Mapping[str, str] | None = None,
        body: Any = None,
        content_type: str = "application/json",
    ) -> Answer:
        if method == "GET" and path.endswith("/events"):
            return Answer(200, {"items": self.events})
        if method == "GET" and self.runtimes and "/clustertrainingruntimes" in path:
            one = path.endswith("/rt")
            return Answer(200, self.runtimes[0] if one else {"items": self.runtimes})
        if self.crd is not None and "/customresourcedefinitions/" in path:
            return Answer(200, self.crd)
        if method == "DELETE" and "/jobsets/" in path:
            self._reachable()
            self.calls.append((method, f"{path}{'?dry' if params else ''}"))
            if (refused := self.refuse(method, path, body)) is not None:
                return refused
            found = self.jobsets["run"]["metadata"]
            assert body["propagationPolicy"] == "Background"
            wanted = body["preconditions"]
            if any(found[key] != value for key, value in wanted.items()):
                return Answer(409, {"message": "the ResourceVersion in the precondition does not match"})
            if not params:
                self.collect("run")
                if self.trainer:
                    self.after(1.0, self.make)
            return Answer(200, {})
        return super().request(method, path, params, body, content_type)

    def make(self) -> None:
        suspended = self.trainjobs["run"]["spec"]["suspend"]
        self.jobsets["run"] = self.new_jobset(1, suspended)
        if not suspended:
            self.after(1.0, self.start_pod)


def asked(fake: FakeCluster, dry_run: bool = False, agreed: bool = True, timeout: float = 60.0) -> Rescued:
    said: list[str] = []
    return rescue(fake.session(said, timeout=timeout), dry_run, lambda wedge, action: agreed)


def deletions(fake: FakeCluster) -> list[str]:
    return [path for method, path in fake.calls if method == "DELETE" and not path.endswith("?dry")]


def test_a_suspended_run_is_freed_and_stays_suspended(tmp_path: Path) -> None:
    fake = Wedged(tmp_path)
    done = asked(fake)
    assert done.done
    assert done.wedge is not None
    assert done.wedge.said == SAID
    assert done.words == (
        "its JobSet is made anew and suspended, as the run is",
        "the restart count began again (it was 2)",
        "go on with it: ckptguard resume run -n team",
    )
    assert deletions(fake) == ["/apis/jobset.x-k8s.io/v1alpha2/namespaces/team/jobsets/run"]


def test_a_run_that_was_resumed_in_vain_runs(tmp_path: Path) -> None:
    fake = Wedged(tmp_path, suspended=False)
    fake.events = []  # they are kept for an hour; that the JobSet does not follow its TrainJob tells it too
    done = asked(fake)
    assert done.done
    assert done.words[0] == '"run" runs again: it is not suspended, 1 of 1 pod run'


def test_what_is_not_wedged_is_left(tmp_path: Path) -> None:
    for events in ("none", "old", "other", "before"):
        fake = Wedged(tmp_path)
        fake.events = (
            {
                "old": [fake.event(fake.time - 5000)],
                "other": [fake.event(fake.time, "cannot reach the API server")],
                "before": [fake.event(fake.time - 200)],
            }.get(events, [])
            if isinstance(events, str)
            else []
        )
        done = asked(fake)
        assert (done.wedge, done.done, done.action) == (None, False, "none"), events
        assert deletions(fake) == []


def serve(fake: Wedged, release: str) -> None:
    """The runtime that the run's JobSet is made of, and the CRD of a Trainer."""
    jobs = fake.new_jobset(0, True)["spec"]["replicatedJobs"]
    template = {"spec": {"replicatedJobs": jobs}}
    fake.runtimes = [{"metadata": {"name": "rt"}, "spec": {"template": template}}]
    fake.crd = fast_yaml.safe_load(golden.crd(golden.TRAINERS[release], "trainjobs"))


def test_a_wedge_that_nobody_has_met_yet_is_found(tmp_path: Path) -> None:
    fake = Wedged(tmp_path)
    fake.events = []
    serve(fake, "2.2")
    assert asked(fake).words == ('"run" is not wedged: it is suspended',)
    pod = fake.runtimes[0]["spec"]["template"]["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    pod["containers"][0]["image"] = "train:2"
    done = asked(fake)
    assert done.wedge is not None
    assert (done.done, done.wedge.text()) == (True, "JobSet refuses node: image of node")
    assert deletions(fake) != []


def test_a_claim_that_only_the_jobset_mounts_is_not_left_behind(tmp_path: Path) -> None:
    """Trainer 2.1 and 2.2 renamed the field for overrides, and the API server drops the old one."""

    def without_override(suspended: bool, release: str = "2.2") -> Wedged:
        fake = Wedged(tmp_path, suspended)
        serve(fake, release)
        spec = fake.runtimes[0]["spec"]["template"]["spec"]
        fake.runtimes[0]["spec"]["template"]["spec"] = spec = copy.deepcopy(spec)
        pod = spec["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
        del pod["volumes"], pod["containers"][0]["volumeMounts"]
        return fake

    fake = without_override(suspended=False)
    with pytest.raises(CannotDo) as refused:
        asked(fake)
    first, stop, *text = str(refused.value).splitlines()
    said = 'the JobSet of "run" mounts claim "mine", and one that is made anew does not'
    assert first == f"{said}: it would start from nothing"
    assert stop.startswith("  ckptguard stop run")
    assert "# then this in the TrainJob (kubectl edit)" in stop
    (patch,) = fast_yaml.safe_load("\n".join(text))["spec"]["runtimePatches"]
    (one,) = patch["trainingRuntimeSpec"]["template"]["spec"]["replicatedJobs"]
    pod = one["template"]["spec"]["template"]["spec"]
    assert (one["name"], pod["volumes"]) == ("node", [{"name": "v", "persistentVolumeClaim": {"claimName": "mine"}}])
    assert pod["containers"] == [{"name": "node", "volumeMounts": [{"name": "v", "mountPath": "/mnt/ckpt"}]}]
    assert deletions(fake) == []
    # A suspended one starts nothing, so it is said, in the field of the release.
    fake = without_override(suspended=True, release="2.1")
    done = asked(fake)
    assert (done.done, done.words[3]) == (True, f"{said}: before it is resumed, say in the TrainJob")
    assert any("podTemplateOverrides:" in line for line in done.words)


def test_a_mount_that_only_the_jobset_has_is_not_left_behind(tmp_path: Path) -> None:
    """The claim is mounted elsewhere as well: the checkpoints at the old place would be out of sight."""
    fake = Wedged(tmp_path, suspended=False)
    serve(fake, "2.2")
    spec = fake.runtimes[0]["spec"]["template"]["spec"]
    fake.runtimes[0]["spec"]["template"]["spec"] = spec = copy.deepcopy(spec)
    pod = spec["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    pod["volumes"][0]["name"] = "w"
    pod["containers"][0]["volumeMounts"] = [{"name": "w", "mountPath": "/data"}]
    with pytest.raises(CannotDo) as refused:
        asked(fake)
    first, _, *text = str(refused.value).splitlines()
    assert first.startswith(
        'the JobSet of "run" mounts claim "mine" at "/mnt/ckpt", and one that is made anew does not'
    )
    (patch,) = fast_yaml.safe_load("\n".join(text))["spec"]["runtimePatches"]
    (one,) = patch["trainingRuntimeSpec"]["template"]["spec"]["replicatedJobs"]
    pod = one["template"]["spec"]["template"]["spec"]
    assert pod == {"containers": [{"name": "node", "volumeMounts": [{"name": "w", "mountPath": "/mnt/ckpt"}]}]}
    assert deletions(fake) == []


def test_what_the_api_fills_in_is_no_difference(tmp_path: Path) -> None:
    fake = Wedged(tmp_path)
    fake.events = []
    serve(fake, "2.3")
    template = {"metadata": {"name": "ckpt"}, "spec": {"accessModes": ["ReadWriteMany"]}}
    policy = {"templates": [template | {"status": {}}], "retentionPolicy": {"whenDeleted": "Delete"}}
    fake.jobsets["run"]["spec"] |= {"volumeClaimPolicies": [policy], "network": {"enableDNSHostnames": True}}
    (job,) = fake.jobsets["run"]["spec"]["replicatedJobs"]
    (container,) = job["template"]["spec"]["template"]["spec"]["containers"]
    container["ports"] = [{"containerPort": 29500, "protocol": "TCP"}]
    container["env"].reverse()  # of variables that Trainer adds, the order differs between two of its writes
    spec = fake.runtimes[0]["spec"]["template"]["spec"]
    spec["volumeClaimPolicies"] = [{"templates": [template], "retentionPolicy": {}}]
    assert asked(fake).wedge is None
    # JobSet fills this in on CREATE alone, and refuses each write of Trainer from then on.
    del spec["volumeClaimPolicies"][0]["retentionPolicy"]
    with pytest.raises(CannotDo, match=r'claim "ckpt-run" belongs to the JobSet'):
        asked(fake)
    assert deletions(fake) == []


def test_a_difference_under_a_run_that_trains_is_told_and_left(tmp_path: Path) -> None:
    fake = Wedged(tmp_path, suspended=False)
    fake.events = []
    fake.jobsets["run"]["spec"]["suspend"] = False
    serve(fake, "2.2")
    fake.start_pod()
    assert asked(fake).wedge is None
    fake.runtimes[0]["spec"]["template"]["spec"]["replicatedJobs"][0]["name"] = "other"
    with pytest.raises(CannotDo, match=r"suspend it first \(JobSet refuses jobs"):
        asked(fake)
    assert deletions(fake) == []


def test_what_cannot_be_compared_is_said(tmp_path: Path) -> None:
    fake = Wedged(tmp_path)
    fake.events = []
    (words,) = asked(fake).words
    said = 'nothing says that "run" is wedged: it is suspended; what Trainer builds now is unknown: '
    assert words == f"{said}which Trainer runs here is not known"
    serve(fake, "2.2")
    fake.runtimes[0]["metadata"]["name"] = "another"
    assert asked(fake).words == (f'{said}ClusterTrainingRuntime "rt" is not there, or cannot be read',)


def test_a_suspension_that_arrives_late_is_no_wedge(tmp_path: Path) -> None:
    fake = Wedged(tmp_path, suspended=False)
    fake.events = []
    fake.after(2.0, lambda: fake.jobsets["run"]["spec"].update(suspend=False))
    assert asked(fake).wedge is None


def test_a_running_run_is_not_ended(tmp_path: Path) -> None:
    fake = Wedged(tmp_path, suspended=False)
    fake.start_pod()
    with pytest.raises(CannotDo, match="its pods would be ended without a word; suspend it first"):
        asked(fake)
    assert deletions(fake) == []


def test_a_run_that_could_not_be_suspended_is_ended_by_it(tmp_path: Path) -> None:
    fake = Wedged(tmp_path)
    fake.jobsets["run"]["spec"]["suspend"] = False
    fake.start_pod()
    done = asked(fake)
    assert (done.done, fake.pods) == (True, {})


def test_a_claim_of_the_jobset_is_never_lost(tmp_path: Path) -> None:
    fake = Wedged(tmp_path)
    fake.jobsets["run"]["spec"]["volumeClaimPolicies"] = [{"templates": [{"metadata": {"name": "ckpt"}}]}]
    with pytest.raises(CannotDo, match='claim "ckpt-run" belongs to the JobSet'):
        asked(fake)
    fake = Wedged(tmp_path)
    fake.claims["mine"]["metadata"]["ownerReferences"] = [{"uid": "jobset-0"}]
    with pytest.raises(CannotDo, match='claim "mine" belongs to the JobSet'):
        asked(fake)
    assert deletions(fake) == []


def test_a_missing_right_is_said_before_anything_is_done(tmp_path: Path) -> None:
    fake = Wedged(tmp_path)
    fake.refuse = lambda method, path, body: DENIED if method == "DELETE" else None
    with pytest.raises(CannotDo, match="you may not delete its JobSet, so nothing was done") as why:
        asked(fake)
    assert "kubectl auth can-i delete jobsets.jobset.x-k8s.io -n team" in why.value.lines[1]
    assert deletions(fake) == []


def test_a_run_that_starts_by_itself_meanwhile_is_left(tmp_path: Path) -> None:
    fake = Wedged(tmp_path, suspended=False)
    said: list[str] = []

    def agree(*_: object) -> bool:
        fake.jobsets["run"]["metadata"]["resourceVersion"] = "7"
        fake.start_pod()
        return True

    with pytest.raises(
        CannotDo, match="changed meanwhile, so nothing was deleted: it is not suspended, 1 of 1 pod run"
    ):
        rescue(fake.session(said), False, agree)
    assert "run" in fake.jobsets


def test_a_trainer_that_is_away_is_told(tmp_path: Path) -> None:
    fake = Wedged(tmp_path)
    fake.trainer = False
    done = asked(fake, timeout=10)
    assert not done.done
    assert "Trainer made no new one after 10 s: it does as soon as its controller runs" in done.words[0]


def test_an_api_server_that_goes_away_in_the_middle(tmp_path: Path) -> None:
    fake = Wedged(tmp_path)
    session = fake.session([], timeout=60)

    def agree(*_: object) -> bool:
        fake.after(0.2, lambda: setattr(fake, "down_until", fake.time + 10_000))
        return True

    with pytest.raises(Unreachable):
        rescue(session, False, agree)
    assert session.state == 'the JobSet of "run" is deleted, and Trainer makes it anew as soon as its controller runs'


def test_a_dry_run_and_a_no_change_nothing(tmp_path: Path) -> None:
    fake = Wedged(tmp_path)
    done = asked(fake, dry_run=True)
    assert (done.done, done.action.startswith('would delete JobSet "run" in the background')) == (False, True)
    done = asked(fake, agreed=False)
    assert (done.done, done.words) == (False, ("nothing was changed",))
    assert deletions(fake) == []


def test_what_has_ended_or_has_no_jobset_needs_none(tmp_path: Path) -> None:
    fake = Wedged(tmp_path)
    fake.trainjobs["run"]["status"] = {"conditions": [{"type": "Failed", "status": "True"}]}
    with pytest.raises(CannotDo, match="has ended: Failed: there is nothing to rescue"):
        asked(fake)
    fake = Wedged(tmp_path)
    del fake.jobsets["run"]
    with pytest.raises(CannotDo, match='"run" has no JobSet'):
        asked(fake)


# --- a machine that is off


def off(tmp_path: Path) -> FakeCluster:
    fake = FakeCluster(tmp_path)
    fake.lose_node()
    original = fake.request

    def request(method: str, path: str, params: Any = None, body: Any = None, *rest: Any) -> Answer:
        if method == "DELETE" and "/pods/" in path:
            fake.calls.append((method, f"{path}{'?dry' if params else ''}"))
            if (refused := fake.refuse(method, path, body)) is not None:
                return refused
            assert body["gracePeriodSeconds"] == 0
            if not params:
                fake.pods.pop(path.rpartition("/")[2], None)
                fake.after(1.0, fake.start_pod)
            return Answer(200, {})
        return original(method, path, params, body, *rest)

    fake.request = request  # type: ignore[assignment, method-assign]
    return fake


def test_pods_on_a_machine_that_is_off_are_forced(tmp_path: Path) -> None:
    fake = off(tmp_path)
    seen: list[str] = []

    def agree(stuck: Any) -> bool:
        seen.extend(one.words(fake.time) for one in stuck)
        return True

    done, words = free_from_nodes(fake.session([]), False, agree)
    assert seen == [
        f"pod run-node-0-0-0 is Terminating on node node1, which is NotReady since {stamp(940)}, 1 min ago"
    ] or seen[0].startswith(f"pod run-node-0-0-0 is Terminating on node node1, which is NotReady since {stamp(940)}, ")
    assert [(one.action, one.done) for one in done] == [("deleted by force", True)]
    assert words == ["pod run-node-0-0-1 took the place: the run is not suspended, 1 of 1 pod run"]
    assert deletions(fake) == ["/api/v1/namespaces/team/pods/run-node-0-0-0"]


def test_a_node_that_is_gone_counts_as_off(tmp_path: Path) -> None:
    fake = off(tmp_path)
    del fake.nodes["node1"]
    done, _ = free_from_nodes(fake.session([]), True, lambda _: True)
    assert done[0].stuck.words(0) == "pod run-node-0-0-0 is Terminating on node node1, which does not exist any more"
    assert (done[0].action, deletions(fake)) == ("would be deleted by force", [])


def test_a_node_that_is_ready_is_never_touched(tmp_path: Path) -> None:
    fake = off(tmp_path)
    ready = [{"type": "Ready", "status": "True"}]
    fake.nodes["node1"]["status"]["conditions"] = ready
    with pytest.raises(CannotDo, match=r"node node1 is Ready \(again\): its kubelet ends pod run-node-0-0-0"):
        free_from_nodes(fake.session([]), False, lambda _: True)

    fake = off(tmp_path)

    def back(_: object) -> bool:
        fake.nodes["node1"]["status"]["conditions"] = ready
        return True

    done, _ = free_from_nodes(fake.session([]), False, back)
    assert [(one.action, one.done) for one in done] == [("none: node node1 is Ready again", False)]
    assert deletions(fake) == []


def test_a_pod_that_is_not_evicted_yet_is_waited_for(tmp_path: Path) -> None:
    fake = FakeCluster(tmp_path)
    fake.lose_node(evicted=False)
    with pytest.raises(CannotDo, match=r"is Terminating yet: .* it is evicted when its toleration ends"):
        free_from_nodes(fake.session([]), False, lambda _: True)
    with pytest.raises(CannotDo, match='no pod of "run" is Terminating: it is not suspended, 1 of 1 pod run'):
        free_from_nodes(FakeCluster(tmp_path).session([]), False, lambda _: True)


def test_missing_rights_name_the_taint(tmp_path: Path) -> None:
    taint = "kubectl taint node node1 node.kubernetes.io/out-of-service=nodeshutdown:NoExecute"
    fake = off(tmp_path)
    fake.refuse = lambda method, path, body: DENIED if method == "DELETE" else None
    with pytest.raises(CannotDo, match=r"you may not delete its pods.*kubectl auth can-i delete pods -n team") as why:
        free_from_nodes(fake.session([]), False, lambda _: True)
    assert taint in why.value.lines[2]
    fake = off(tmp_path)
    fake.refuse = lambda method, path, body: DENIED if "/nodes/" in path else None
    with pytest.raises(CannotDo, match="so whether it is off is not known") as why:
        free_from_nodes(fake.session([]), False, lambda _: True)
    assert taint in why.value.lines[2]
    assert deletions(fake) == []


# --- the command


def flags(**more: Any) -> Namespace:
    return Namespace(**{"output": "text", "yes": False, "dry_run": False, "node_is_off": False, **more})


def test_without_a_terminal_yes_is_demanded(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fake = Wedged(tmp_path)
    with pytest.raises(CannotDo, match=r"there is no terminal to ask on, so say --yes \(or --dry-run\)"):
        command._rescue(fake.session([]), flags())
    assert deletions(fake) == []
    assert command._rescue(fake.session([]), flags(yes=True)) == 0
    out, err = capsys.readouterr()
    assert SAID in err
    assert out.startswith("its JobSet is made anew and suspended, as the run is\n")


def test_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command._rescue(Wedged(tmp_path).session([]), flags(yes=True, output="json")) == 0
    document = json.loads(capsys.readouterr().out)
    assert document == {
        "schema": 1,
        "namespace": "team",
        "results": [{"run": "run", "wedge": SAID, "action": "deleted the JobSet in the background", "done": True}],
        "errors": [],
    }
    assert command._off(off(tmp_path).session([]), flags(yes=True, output="json", node_is_off=True)) == 0
    (result,) = json.loads(capsys.readouterr().out)["results"]
    assert (result["run"], result["action"], result["done"]) == ("run", "deleted by force", True)
    fake = Wedged(tmp_path)
    fake.trainer = False
    assert command._rescue(fake.session([], timeout=5), flags(yes=True)) == 1
