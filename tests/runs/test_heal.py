"""Which runtimes lack our defaults, and what may be added while runs are unfinished."""

import copy
import json
from typing import Any

import pytest

from tests.runs.fake import FakeApi
from webhook.cluster.access import Refused
from webhook.model.names import INJECTED
from webhook.model.policy import Defaults, Policy
from webhook.model.release import Release
from webhook.runs.api import Answer
from webhook.runs.heal import Cluster, Healed, added_words, find_lacking, heal, retries_words

Object = dict[str, Any]

TRAINER = "/apis/trainer.kubeflow.org/v1alpha1"


def runtime(name: str = "old", namespace: str = "team", version: str = "7") -> tuple[str, Object]:
    container = {"name": "node", "image": "python"}
    job = {
        "name": "node",
        "template": {
            "metadata": {"labels": {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}},
            "spec": {"template": {"spec": {"containers": [container]}}},
        },
    }
    cluster_wide = not namespace
    metadata: Object = {"name": name, "resourceVersion": version}
    if not cluster_wide:
        metadata["namespace"] = namespace
    path = f"{TRAINER}/clustertrainingruntimes/{name}"
    if not cluster_wide:
        path = f"{TRAINER}/namespaces/{namespace}/trainingruntimes/{name}"
    return path, {
        "metadata": metadata,
        "spec": {"mlPolicy": {"numNodes": 1}, "template": {"spec": {"replicatedJobs": [job]}}},
    }


def run(name: str, runtime_name: str = "old", done: bool = False, kind: str = "TrainingRuntime") -> tuple[str, Object]:
    conditions = [{"type": "Complete", "status": "True"}] if done else []
    return f"{TRAINER}/namespaces/team/trainjobs/{name}", {
        "metadata": {"name": name, "namespace": "team"},
        "spec": {"runtimeRef": {"kind": kind, "name": runtime_name}},
        "status": {"conditions": conditions},
    }


def snapshot(name: str) -> tuple[str, Object]:
    return f"/api/v1/namespaces/team/configmaps/{name}-runtime-snapshot", {"data": {}}


def healed(api: FakeApi, release: Release = Release.V2_3) -> list[Healed]:
    return list(heal(Cluster(api, release), Policy()))


def job_spec(api: FakeApi, path: str) -> Object:
    spec: Object = api.objects[path]["spec"]["template"]["spec"]["replicatedJobs"][0]["template"]["spec"]
    return spec


def test_a_runtime_without_runs_gets_everything_once() -> None:
    path, old = runtime()
    api = FakeApi({path: old})

    first = healed(api)

    assert [one.outcome for one in first] == ["added"]
    stored = api.objects[path]
    assert stored["spec"]["template"]["spec"]["failurePolicy"] == {"maxRestarts": 3}
    assert job_spec(api, path)["backoffLimit"] == 0
    assert job_spec(api, path)["template"]["spec"]["terminationGracePeriodSeconds"] == 60
    assert json.loads(stored["metadata"]["annotations"][INJECTED])["maxRestarts"] == 3
    assert healed(api) == []


def test_what_is_added_is_told_by_field() -> None:
    job, label = "/spec/template/spec/replicatedJobs/10/template", "trainer.kubeflow.org~1trainjob-ancestor-step"
    patch: list[dict[str, Any]] = [
        {"op": "add", "path": f"{job}/spec/backoffLimit", "value": 0},
        {"op": "add", "path": f"{job}/metadata/labels/{label}", "value": "trainer"},
    ]
    assert added_words(patch) == [
        "spec.template.spec.replicatedJobs[10].template.spec.backoffLimit: 0",
        "spec.template.spec.replicatedJobs[10].template.metadata.labels."
        'trainer.kubeflow.org/trainjob-ancestor-step: "trainer"',
    ]


def test_it_is_tried_by_dry_run_first_and_only_then_written() -> None:
    path, old = runtime()
    api = FakeApi({path: old})

    healed(api)

    writes = [params.get("dryRun") for method, _, params in api.asked if method == "PATCH"]
    assert writes == ["All", None]


def test_a_refused_dry_run_writes_nothing() -> None:
    path, old = runtime()

    def refuse(method: str, path: str, body: Object) -> Answer | None:
        return Answer(400, {"message": "admission webhook denied the request: no\nmore"}) if method == "PATCH" else None

    api = FakeApi({path: copy.deepcopy(old)}, refuse)

    (one,) = healed(api)

    assert (one.outcome, one.words) == ("failed", "admission webhook denied the request: no")
    assert api.objects[path] == old
    assert len([None for method, _, _ in api.asked if method == "PATCH"]) == 1


def test_a_runtime_that_changed_meanwhile_is_left_to_the_next_time() -> None:
    path, old = runtime()
    api = FakeApi({path: old})

    def change(method: str, where: str, body: Object) -> Answer | None:
        if method == "PATCH":
            api.objects[path]["metadata"]["resourceVersion"] = "8"
        return None

    api._react = change

    (one,) = healed(api)

    assert (one.outcome, one.words) == ("failed", "somebody changed it meanwhile: run the command again")


@pytest.mark.parametrize("release", [Release.V2_0, Release.V2_1, Release.V2_2])
def test_before_2_3_an_unfinished_run_holds_all_but_the_failure_policy(release: Release) -> None:
    path, old = runtime()
    api = FakeApi(dict([(path, old), run("busy"), run("over", done=True), run("other", "another")]))

    (one,) = healed(api, release)

    assert one.outcome == "added in part"
    assert "team/busy" in one.words
    assert "team/over" not in one.words
    assert "team/other" not in one.words
    assert api.objects[path]["spec"]["template"]["spec"]["failurePolicy"] == {"maxRestarts": 3}
    assert job_spec(api, path) == job_spec(FakeApi(dict([runtime()])), path)
    assert json.loads(api.objects[path]["metadata"]["annotations"][INJECTED]) == {"maxRestarts": 3}

    (again,) = healed(api, release)
    assert again.outcome == "left"

    del api.objects[run("busy")[0]]
    assert [one.outcome for one in healed(api, release)] == ["added"]
    record = json.loads(api.objects[path]["metadata"]["annotations"][INJECTED])
    assert record == {"jobs": {"node": {"backoffLimit": 0, "terminationGracePeriodSeconds": 60}}, "maxRestarts": 3}


def test_in_2_3_a_run_with_its_own_copy_holds_nothing() -> None:
    path, old = runtime()
    api = FakeApi(dict([(path, old), run("busy"), snapshot("busy")]))

    assert [one.outcome for one in healed(api)] == ["added"]


def test_in_2_3_a_run_without_a_copy_holds_its_runtime() -> None:
    path, old = runtime()
    api = FakeApi(dict([(path, old), run("busy")]))

    (one,) = healed(api)

    assert one.outcome == "added in part"
    assert "no copy of the runtime for the run yet; unfinished: team/busy" in one.words


def test_what_may_not_be_read_is_no_copy() -> None:
    path, old = runtime()
    api = FakeApi(dict([(path, old), run("busy"), snapshot("busy")]))
    api.forbidden.add(snapshot("busy")[0])

    (one,) = healed(api)

    assert one.outcome == "added in part"
    assert "cannot be told" in one.words


def test_a_run_that_started_after_the_listing_is_seen() -> None:
    path, old = runtime()
    api = FakeApi({path: old})
    listed = 0

    def start(method: str, where: str, body: Object) -> Answer | None:
        nonlocal listed
        if method == "GET" and where.endswith("/trainjobs"):
            listed += 1
            if listed == 2:
                api.objects.update([run("quick")])
        return None

    api._react = start

    (one,) = healed(api, Release.V2_2)

    assert one.outcome == "added in part"
    assert "team/quick" in one.words


def test_cluster_runtimes_count_runs_of_every_namespace() -> None:
    path, old = runtime(namespace="")
    api = FakeApi(dict([(path, old), run("busy", kind="ClusterTrainingRuntime"), run("same-name")]))

    (one,) = healed(api, Release.V2_1)

    assert [held.name for held in one.runtime.held_by] == ["busy"]


def test_listing_writes_nothing() -> None:
    path, old = runtime()
    api = FakeApi(dict([(path, old), runtime("two"), runtime("three", namespace="")]))

    found = list(find_lacking(Cluster(api, Release.V2_3), Policy()))

    assert sorted(one.label for one in found) == [
        "ClusterTrainingRuntime/three",
        "TrainingRuntime/old in team",
        "TrainingRuntime/two in team",
    ]
    assert {method for method, _, _ in api.asked} == {"GET"}


def test_one_namespace_leaves_out_the_others() -> None:
    api = FakeApi(dict([runtime(), runtime("far", "other"), runtime("wide", "")]))

    found = list(find_lacking(Cluster(api, Release.V2_3), Policy(), "team"))

    assert [one.name for one in found] == ["old"]


@pytest.mark.parametrize("mode", ["off", "audit"])
def test_namespaces_that_are_left_alone_are_left_alone(mode: str) -> None:
    path, old = runtime()
    space = {"metadata": {"name": "team", "labels": {"checkpoint-guard.io/mode": mode}}}
    api = FakeApi({path: old, "/api/v1/namespaces/team": space})

    assert healed(api) == []


def test_a_runtime_on_its_way_out_is_left() -> None:
    path, old = runtime()
    old["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"

    assert healed(FakeApi({path: old})) == []


def test_many_are_read_page_by_page() -> None:
    api = FakeApi(dict(runtime(f"r{number:03}") for number in range(250)))

    assert len(list(find_lacking(Cluster(api, Release.V2_3), Policy()))) == 250


def test_without_the_kinds_it_says_so() -> None:
    api = FakeApi()
    api.forbidden.add(f"{TRAINER}/.*")

    with pytest.raises(Refused):
        healed(api)


def test_what_backoff_limit_0_takes_and_gives_is_said_where_it_is_added() -> None:
    def after(choice: Any) -> list[Healed]:
        api = FakeApi(dict([runtime()]))
        return list(heal(Cluster(api, Release.V2_3), Policy(defaults=Defaults(backoff_limit=choice))))

    text = " ".join(retries_words(after(0)))
    for part in ("maxRestarts", "node is lost", "io/out-of-service", "defaults.backoffLimit: multi-node"):
        assert part in text
    assert retries_words(after("keep")) == []
    assert retries_words([]) == []


def unlabelled() -> tuple[str, Object]:
    path, old = runtime()
    old["spec"]["template"]["spec"]["replicatedJobs"][0]["template"]["metadata"] = {}
    return path, old


def queued(name: str) -> tuple[str, Object]:
    path, busy = run(name)
    busy["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": "gpu"}
    return path, busy


def test_the_trainer_label_waits_for_runs_with_a_queue() -> None:
    path, old = unlabelled()
    api = FakeApi(dict([(path, old), queued("busy"), snapshot("busy")]))

    (one,) = healed(api)

    assert one.outcome == "added in part"
    assert one.words == (
        "with the trainer label Trainer changes the containers, and Kueue stops every unfinished run with a queue; "
        "unfinished: team/busy"
    )
    stored = api.objects[path]
    job = stored["spec"]["template"]["spec"]["replicatedJobs"][0]["template"]
    assert "labels" not in job["metadata"]
    assert job["spec"]["backoffLimit"] == 0
    assert json.loads(stored["metadata"]["annotations"][INJECTED]) == {
        "jobs": {"node": {"backoffLimit": 0, "terminationGracePeriodSeconds": 60}},
        "maxRestarts": 3,
    }
    (again,) = healed(api)
    assert again.outcome == "left"

    # Once it has finished, the label comes too, and the record keeps what it had.
    done_path, done = queued("busy")
    done["status"]["conditions"] = [{"type": "Complete", "status": "True"}]
    api.objects[done_path] = done
    (last,) = healed(api)
    assert last.outcome == "added"
    recorded = json.loads(api.objects[path]["metadata"]["annotations"][INJECTED])
    assert recorded["jobs"]["node"] == {"backoffLimit": 0, "label": "trainer", "terminationGracePeriodSeconds": 60}


def test_a_run_without_a_queue_does_not_hold_the_label() -> None:
    path, old = unlabelled()
    (one,) = healed(FakeApi(dict([(path, old), run("busy"), snapshot("busy")])))
    assert one.outcome == "added"


def test_a_runtime_with_its_label_is_not_held_by_a_queue() -> None:
    (one,) = healed(FakeApi(dict([runtime(), queued("busy"), snapshot("busy")])))
    assert one.outcome == "added"
