"""`ckptguard runs`: what state each run is in, what it waits for, and what it costs to ask."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.runs.fake import FakeApi
from tests.runs.fake_cluster import FakeCluster, Object, jobset
from tests.runs.folders import hf
from webhook.cli import main
from webhook.cli.runs import table
from webhook.model.policy import Policy
from webhook.runs.api import Answer
from webhook.runs.overview import Item, Overview, read, readable
from webhook.runs.run import CannotDo
from webhook.runs.steps import with_steps

NOW = 1_000_000.0
LONG_AGO = "1970-01-12T13:00:00Z"
TRAINJOBS = "/apis/trainer.kubeflow.org/v1alpha1/namespaces/team/trainjobs"
KUEUE = "/apis/kueue.x-k8s.io/v1beta2/namespaces/team/workloads"


def world(
    *pods: Object, suspend: bool = False, conditions: Any = (), queue: str = "", made: bool = True, **spec: Any
) -> FakeApi:
    """One run with these pods; the pods get its label and a claim."""
    metadata: Object = {"name": "run", "namespace": "team", "uid": "u1"}
    if queue:
        metadata["labels"] = {"kueue.x-k8s.io/queue-name": queue}
    job = {
        "metadata": metadata,
        "spec": {"suspend": suspend, "runtimeRef": {"name": "rt"}, **spec},
        "status": {"conditions": list(conditions)},
    }
    objects: dict[str, Object] = {f"{TRAINJOBS}/run": job}
    if made:
        one = jobset()
        one["spec"]["failurePolicy"] = {"maxRestarts": 5}
        one["spec"]["replicatedJobs"][0]["template"]["spec"] |= {"parallelism": 2, "completions": 2}
        one["status"] = {"restarts": 2}
        objects["/apis/jobset.x-k8s.io/v1alpha2/namespaces/team/jobsets/run"] = one
    for number, pod in enumerate(pods):
        pod = copy.deepcopy(pod)
        labels = {
            "jobset.sigs.k8s.io/jobset-name": "run",
            "jobset.sigs.k8s.io/replicatedjob-name": "node",
            "batch.kubernetes.io/job-completion-index": str(number),
        }
        name = f"run-node-0-{number}-x"
        pod["metadata"] = {"name": name, "namespace": "team", "uid": name, "labels": labels, **pod.get("metadata", {})}
        pod["spec"]["volumes"] = [{"name": "v", "persistentVolumeClaim": {"claimName": "mine"}}]
        objects[f"/api/v1/namespaces/team/pods/{name}"] = pod
    objects["/api/v1/namespaces/team/persistentvolumeclaims/mine"] = claim("Bound")
    return FakeApi(objects)


def claim(phase: str, **metadata: Any) -> Object:
    return {
        "metadata": {"name": "mine", "namespace": "team", **metadata},
        "spec": {"storageClassName": "nfs"},
        "status": {"phase": phase},
    }


def running() -> Object:
    status = {"phase": "Running", "containerStatuses": [{"name": "node", "state": {"running": {}}}]}
    return {"spec": {"nodeName": "node1"}, "status": status}


def unplaced(message: str = "", reason: str = "Unschedulable") -> Object:
    condition = {"type": "PodScheduled", "status": "False", "reason": reason, "message": message}
    return {"spec": {}, "status": {"phase": "Pending", "conditions": [condition] if message else []}}


def starting(since: str = LONG_AGO, waiting: str = "ContainerCreating") -> Object:
    condition = {"type": "PodScheduled", "status": "True", "lastTransitionTime": since}
    container = {"name": "node", "image": "train:1", "state": {"waiting": {"reason": waiting}}}
    status = {"phase": "Pending", "conditions": [condition], "containerStatuses": [container]}
    return {"spec": {"nodeName": "node1"}, "status": status}


def only(api: FakeApi) -> Item:
    found = read(api, "team", Policy(), NOW)
    assert not found.notes
    return found.items[0]


def said(api: FakeApi) -> tuple[str, str | None]:
    item = only(api)
    return item.state, item.waits_for


def test_a_run_that_trains() -> None:
    assert only(world(running(), running())).as_json() == {
        "namespace": "team",
        "name": "run",
        "state": "Running",
        "nodes": 2,
        "directory": "/mnt/ckpt/run",
        "step": None,
        "saved": None,
        "restarts": 2,
        "budget": 5,
        "waitsFor": None,
    }


@pytest.mark.parametrize("kind", ["Complete", "Failed"])
def test_a_run_that_has_ended(kind: str) -> None:
    condition = {"type": kind, "status": "True", "reason": "r", "message": "reached max number of restarts"}
    item = only(world(conditions=[condition]))
    assert (item.state, item.waits_for, item.reason) == (kind, None, "reached max number of restarts")


FULL = "0/2 nodes are available: 2 Insufficient nvidia.com/gpu."
OTHER_NODE = "0/2 nodes are available: 1 node(s) had volume node affinity conflict, 1 node(s) had untolerated taint."
OTHER_NODE_FULL = "0/2 nodes are available: 1 Insufficient nvidia.com/gpu, 1 node(s) had volume node affinity conflict."
UNBOUND = "0/2 nodes are available: pod has unbound immediate PersistentVolumeClaims."
ONE_POD = "0/1 nodes are available: 1 node has pod using PersistentVolumeClaim with the same name and ReadWriteOncePod"


@pytest.mark.parametrize(
    ("message", "state", "waits_for"),
    [
        ("", "WaitsForNode", "the scheduler, which has not said anything yet"),
        (FULL, "WaitsForNode", FULL),
        (f"{FULL} preemption: 0/2 nodes are available: 2 No preemption victims found.", "WaitsForNode", FULL),
        (OTHER_NODE, "WaitsForClaim", f'claim "mine": {OTHER_NODE}'),
        (OTHER_NODE_FULL, "WaitsForNode", OTHER_NODE_FULL),
        (UNBOUND, "WaitsForClaim", f'claim "mine": {UNBOUND}'),
        (ONE_POD, "WaitsForClaim", f'claim "mine": {ONE_POD}'),
        ("0/2 nodes:\n 2 were unschedulable", "WaitsForNode", "0/2 nodes: 2 were unschedulable"),
    ],
)
def test_a_pod_without_a_node_holds_the_run_up(message: str, state: str, waits_for: str) -> None:
    assert said(world(running(), unplaced(message))) == (state, waits_for)


@pytest.mark.parametrize(
    ("there", "waits_for"),
    [
        (None, 'claim "mine", which does not exist'),
        (claim("Lost"), 'claim "mine", which has lost its volume'),
        (claim("Pending"), 'claim "mine", which is Pending (class "nfs")'),
        (claim("Bound", deletionTimestamp=LONG_AGO), 'claim "mine", which is being deleted'),
    ],
)
def test_a_claim_that_cannot_be_mounted(there: Object | None, waits_for: str) -> None:
    api = world(unplaced())
    path = "/api/v1/namespaces/team/persistentvolumeclaims/mine"
    if there is None:
        # Some claim is there, else claims are not served at all.
        api.objects[path[:-4] + "other"] = {**claim("Bound"), "metadata": {"name": "other", "namespace": "team"}}
        del api.objects[path]
    else:
        api.objects[path] = there
    assert said(api) == ("WaitsForClaim", waits_for)


def test_a_claim_that_waits_for_its_first_pod_is_not_the_cause() -> None:
    api = world(unplaced(FULL))
    api.objects["/api/v1/namespaces/team/persistentvolumeclaims/mine"] = claim("Pending")
    assert said(api) == ("WaitsForNode", FULL)


def test_a_volume_that_another_node_holds() -> None:
    api = world(starting())
    message = 'Multi-Attach error for volume "pv" Volume is already used by pod(s) other'
    api.objects["/api/v1/namespaces/team/events/e"] = {
        "metadata": {"name": "e", "namespace": "team"},
        "reason": "FailedAttachVolume",
        "message": message,
        "involvedObject": {"uid": "run-node-0-0-x"},
    }
    assert said(api) == ("WaitsForClaim", f'claim "mine": {message}')


@pytest.mark.parametrize(
    ("pod", "waits_for"),
    [
        (starting(), 'pod "run-node-0-0-x", which is starting'),
        (starting(waiting="ImagePullBackOff"), 'image "train:1": ImagePullBackOff'),
    ],
)
def test_a_pod_that_starts(pod: Object, waits_for: str) -> None:
    assert said(world(pod)) == ("Running", waits_for)


def test_a_node_that_is_out_of_reach_keeps_the_pod() -> None:
    pod = running()
    pod["metadata"] = {"deletionTimestamp": LONG_AGO}
    assert said(world(pod)) == ("WaitsForNode", 'node "node1", which does not let go of pod "run-node-0-0-x"')


def test_a_suspended_run() -> None:
    assert said(world(suspend=True)) == ("Suspended", None)
    assert said(world(running(), suspend=True)) == ("Suspended", "1 pod that is still ending")


def workload(active: bool = True, message: str = "") -> Object:
    conditions = [{"type": "QuotaReserved", "status": "False", "message": message}] if message else []
    return {
        "metadata": {"name": "w", "namespace": "team", "ownerReferences": [{"uid": "u1"}]},
        "spec": {"active": active},
        "status": {"conditions": conditions},
    }


def test_a_run_in_a_queue() -> None:
    api = world(suspend=True, queue="lq")
    api.objects[f"{KUEUE}/w"] = workload(message="insufficient unused quota for gpu in flavor x, 8 more needed")
    wanted = 'queue "lq": insufficient unused quota for gpu in flavor x, 8 more needed'
    assert said(api) == ("Queued", wanted)
    api.objects[f"{KUEUE}/w"] = workload(active=False)
    assert said(api) == ("Suspended", None)


def test_a_queue_that_may_not_be_looked_into() -> None:
    api = world(suspend=True, queue="lq")
    api.forbidden = {"/apis/kueue.*"}
    found = read(api, "team", Policy(), NOW)
    assert (found.items[0].state, found.items[0].waits_for) == ("Queued", 'queue "lq"')
    assert all("workloads cannot be listed" in note for note in found.notes)


def test_scheduling_gates_are_a_queue() -> None:
    pod = unplaced("Scheduling is blocked due to non-empty scheduling gates", "SchedulingGated")
    pod["spec"]["schedulingGates"] = [{"name": "kueue.x-k8s.io/topology"}]
    assert said(world(pod)) == ("Queued", "scheduling gate kueue.x-k8s.io/topology")


def test_what_is_not_made_yet() -> None:
    assert said(world()) == ("Running", "its pods: JobSet has made none yet")
    api = world(made=False)
    api.objects["/apis/trainer.kubeflow.org/v1alpha1/clustertrainingruntimes/rt"] = {
        "metadata": {"name": "rt"},
        "spec": {"template": {"spec": jobset()["spec"] | {"failurePolicy": {"maxRestarts": 3}}}},
    }
    # Some JobSet is there, else JobSets are not served.
    item = only(_with_other_jobset(api))
    assert (item.state, item.waits_for) == ("Running", "its JobSet: Trainer has made none yet")
    assert (item.directory and item.directory.path, item.budget, item.restarts) == ("/mnt/ckpt/run", 3, None)


def _with_other_jobset(api: FakeApi) -> FakeApi:
    api.objects["/apis/jobset.x-k8s.io/v1alpha2/namespaces/team/jobsets/other"] = jobset("other")
    return api


@pytest.mark.parametrize(
    ("kind", "note"),
    [
        ("jobsets", "jobsets cannot be listed, so restarts, nodes and directories are told by the runtimes"),
        ("pods", "pods cannot be listed, so what a run waits for is not known"),
        ("persistentvolumeclaims", "persistentvolumeclaims cannot be listed, so the state of claims is not known"),
    ],
)
def test_what_may_not_be_listed_is_said_and_the_rest_goes_on(kind: str, note: str) -> None:
    api = world(unplaced(FULL))
    api.forbidden = {f".*/{kind}"}
    found = read(api, "team", Policy(), NOW)
    assert [item.run.name for item in found.items] == ["run"]
    assert any(one.startswith(note) for one in found.notes)


def test_without_the_right_to_list_trainjobs_there_is_nothing() -> None:
    api = world()
    api.forbidden = {".*/trainjobs"}
    with pytest.raises(CannotDo, match=r"not allowed: -A takes the right .* -n NAMESPACE"):
        read(api, None, Policy(), NOW)


def test_thousands_of_runs_cost_a_few_lists() -> None:
    one = world(running(), unplaced(FULL)).objects
    many: dict[str, Object] = {}
    for number in range(3000):
        for path, raw in one.items():
            if "persistentvolumeclaims" in path:
                many[path] = raw
                continue
            name = raw["metadata"]["name"].replace("run", f"run{number}")
            metadata = {**raw["metadata"], "name": name, "uid": f"{raw['metadata']['uid']}{number}"}
            if "labels" in metadata:
                metadata["labels"] = {**metadata["labels"], "jobset.sigs.k8s.io/jobset-name": f"run{number}"}
            many[path.rpartition("/")[0] + "/" + name] = {**raw, "metadata": metadata}
    api = FakeApi(many)
    found = read(api, "team", Policy(), NOW)
    assert len(found.items) == 3000
    assert {item.state for item in found.items} == {"WaitsForNode"}
    # 6 pages of TrainJobs and of JobSets, 12 of pods, the claims, the CRD.
    assert len(api.asked) <= 26


def test_steps_are_asked_of_the_runs_own_pods(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    hf(tmp_path / "run", 100)
    hf(tmp_path / "run", 200, lacks="optimizer.pt")
    fake = FakeCluster(tmp_path)
    fake.trainjobs["other"] = {**fake.trainjobs["run"], "metadata": {"name": "other", "namespace": "team"}}
    kube = fake.session([]).kube
    found = read(kube, "team", Policy(), fake.time)
    items, notes = with_steps(kube, found.items, readable(found.items))
    assert [(item.run.name, item.step) for item in items] == [("other", None), ("run", 100)]
    assert items[1].as_json()["saved"].endswith("Z")
    assert not notes
    assert fake.helpers == []


def test_a_namespace_that_allows_no_exec_is_told_once(tmp_path: Path) -> None:
    fake = FakeCluster(tmp_path)
    fake.exec_refused = "Handshake status 403 Forbidden"
    kube = fake.session([]).kube
    found = read(kube, "team", Policy(), fake.time)
    items, notes = with_steps(kube, found.items, readable(found.items))
    assert items[0].step is None
    assert notes[0].startswith('steps in namespace "team" cannot be read: no right to exec')


def test_the_table() -> None:
    item = only(world(running(), unplaced(FULL)))
    lines = table([item], True, True, NOW)
    assert lines[0].split() == [
        *("NAMESPACE", "NAME", "STATE", "NODES", "STEP", "SAVED", "RESTARTS", "DIRECTORY", "ON", "WAITS", "FOR")
    ]
    assert lines[1].split()[:9] == ["team", "run", "WaitsForNode", "2", "-", "-", "2/5", "/mnt/ckpt/run", "claim"]


def test_from_a_dump(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kinds = {
        "trainjobs": "TrainJob",
        "jobsets": "JobSet",
        "pods": "Pod",
        "persistentvolumeclaims": "PersistentVolumeClaim",
    }
    items = [{"kind": kinds[path.split("/")[-2]], **raw} for path, raw in world(unplaced("\x1b[2J hi")).objects.items()]
    file = tmp_path / "dump.yaml"
    file.write_text(yaml.safe_dump({"kind": "List", "apiVersion": "v1", "items": items}))
    assert main(["runs", "--state", str(file), "-o", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["schema"] == 1
    assert [(one["name"], one["state"], one["restarts"]) for one in document["results"]] == [("run", "WaitsForNode", 2)]
    assert main(["runs", "--state", str(file), "-o", f"json={tmp_path / 'runs.txt'}"]) == 0
    assert capsys.readouterr().out.startswith("NAMESPACE")
    assert json.loads((tmp_path / "runs.txt").read_text()) == document
    assert main(["runs", "--state", str(tmp_path)]) == 0
    assert "\x1b" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("a: [", "dump.yaml:1: "),
        ("kind: Pod\nmetadata: {name: x}", "there is no TrainJob among the files"),
        ("[1, 2]", "there is no TrainJob among the files"),
    ],
)
def test_a_dump_that_is_none(tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, says: str) -> None:
    file = tmp_path / "dump.yaml"
    file.write_text(text)
    assert main(["runs", "--state", str(file)]) == 2
    assert says in capsys.readouterr().err


def test_odd_objects_do_not_end_it() -> None:
    api = world(running())
    path = "/apis/jobset.x-k8s.io/v1alpha2/namespaces/team/jobsets/run"
    api.objects[path]["spec"] = {"replicatedJobs": "none"}
    found: Overview = read(api, "team", Policy(), NOW)
    assert found.items[0].nodes in (None, 0)


def test_an_answer_that_is_no_list() -> None:
    api = FakeApi({}, lambda method, path, body: None)
    api._react = lambda method, path, body: Answer(200, {})  # a proxy that answers something
    assert read(api, "team", Policy(), NOW).items == ()
