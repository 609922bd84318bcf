"""`ckptguard scan`: the judgement of review over a cluster, in pages; what cannot be listed is said."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import yaml

from tests.cli.files import write
from tests.cli.test_review import Run, run
from tests.runs.fake import FakeApi
from tests.scan.clusters import EXCEPTIONS, SCHEMA, TRAINER, Object, api_of, objects, path_of, run_of
from webhook.cli import scan as command
from webhook.model.policy import Limits, Modes, Policy
from webhook.model.release import Release
from webhook.reports.review import Reviewed
from webhook.runs.api import Answer
from webhook.scan.cluster import ClusterScan

__all__ = ["run"]


def scanned(
    api: FakeApi, namespace: str | None = None, policy: Policy | None = None
) -> tuple[list[Reviewed], ClusterScan]:
    scan = ClusterScan(api, policy or Policy(), namespace)
    return list(scan.results()), scan


def verdicts(results: list[Reviewed]) -> dict[str, str]:
    return {f"{one.namespace}/{one.kind}/{one.name}": one.verdict for one in results}


def test_runs_and_runtimes_are_judged_as_they_stand() -> None:
    results, scan = scanned(api_of(objects("good"), objects("lost", bad=True)))
    assert verdicts(results) == {
        "good/TrainingRuntime/plain": "allow",
        "lost/TrainingRuntime/plain": "deny",
        "good/TrainJob/digits": "allow",
        "lost/TrainJob/digits": "deny",
    }
    assert (scan.notices, scan.faults) == ([], [])


def test_one_namespace_leaves_out_the_others() -> None:
    api = api_of(objects("good"), objects("lost", bad=True))
    results, _ = scanned(api, "good")
    assert {one.namespace for one in results} == {"good"}
    assert not [path for _, path, _ in api.asked if "namespaces/lost" in path]


def test_what_is_over_or_going_is_passed_over() -> None:
    api = api_of(objects("team"))
    done, going = run_of("team", "done"), run_of("team", "going")
    done["status"] = {"conditions": [{"type": "Complete", "status": "True"}]}
    going["metadata"]["deletionTimestamp"] = "2026-12-01T00:00:00Z"
    api.objects |= {path_of(one): one for one in (done, going)}
    results, scan = scanned(api)
    assert [one.name for one in results if one.kind == "TrainJob"] == ["digits"]
    assert scan.passed_over == 2


def test_other_runs_are_seen_over_all_pages() -> None:
    api = api_of(objects("team"))
    runs = [run_of("team", f"run-{number:04}") for number in range(450)]
    runs[0]["spec"]["trainer"]["env"][0]["value"] = runs[449]["spec"]["trainer"]["env"][0]["value"] = "/mnt/ckpt/same"
    api.objects |= {path_of(one): one for one in runs}
    results, _ = scanned(api)
    shared = [one.name for one in results if any(found.rule == "shared-directory" for found in one.findings)]
    assert shared == ["run-0000", "run-0449"]
    asked = [params for _, path, params in api.asked if path == f"{TRAINER}/trainjobs"]
    assert len(asked) == 6
    assert all(params["limit"] == "200" for params in asked)


@pytest.mark.parametrize("mode", ["warn", "audit"])
def test_where_the_guard_is_tried_out_it_says_what_enforce_would_refuse(mode: str) -> None:
    labels: Any = {"checkpoint-guard.io/mode": mode}
    results, _ = scanned(api_of(objects("lost", bad=True, **labels)))
    assert set(verdicts(results).values()) == {"deny"}
    by_default, _ = scanned(api_of(objects("lost", bad=True)), policy=Policy(modes=Modes(default=mode)))  # type: ignore[arg-type]
    assert set(verdicts(by_default).values()) == {"deny"}


def test_off_stays_off() -> None:
    labels: Any = {"checkpoint-guard.io/mode": "off"}
    results, _ = scanned(api_of(objects("lost", bad=True, **labels)))
    assert [(one.verdict, one.judged, one.unjudged) for one in results] == [
        ("allow", False, "the mode of its namespace is off")
    ] * 2


def test_a_claim_that_is_gone_is_missing() -> None:
    api = api_of(objects("team"))
    del api.objects["/api/v1/namespaces/team/persistentvolumeclaims/train-ckpt"]
    results, _ = scanned(api)
    assert [found.rule for found in results[1].findings if found.severity.value == "deny"] == ["missing-claim"]


def test_what_may_not_be_listed_is_said_and_the_rest_goes_on() -> None:
    api = api_of(objects("team"), objects("lost", bad=True))
    api.forbidden = {"/api/v1/persistentvolumeclaims", "/api/v1/persistentvolumes"}
    results, scan = scanned(api)
    assert scan.notices == [
        "you may not list persistentvolumes: what depends on them is unknown",
        "you may not list persistentvolumeclaims: what depends on them is unknown",
    ]
    assert scan.faults == []
    assert verdicts(results)["lost/TrainJob/digits"] == "deny"
    found = next(one for one in results if (one.namespace, one.kind) == ("team", "TrainJob"))
    assert found.verdict == "allow"
    assert {(one.rule, one.severity.value) for one in found.findings} == {("missing-claim", "audit")}


def test_without_a_right_to_list_trainjobs_the_runtimes_are_judged_and_it_is_an_error() -> None:
    api = api_of(objects("lost", bad=True))
    api.forbidden = {f"{TRAINER}/trainjobs"}
    results, scan = scanned(api)
    assert verdicts(results) == {"lost/TrainingRuntime/plain": "deny"}
    assert [str(fault) for fault in scan.faults] == ["TrainJobs: you may not list trainjobs"]


def test_a_tenant_may_scan_the_own_namespace() -> None:
    api = api_of(objects("lost", bad=True, **{"checkpoint-guard.io/mode": "warn"}))
    api.forbidden = {"/api/v1/namespaces", "/api/v1/persistentvolumes", "/apis/storage.k8s.io/v1/.*"}
    results, scan = scanned(api, "lost")
    assert set(verdicts(results).values()) == {"deny"}
    assert len(scan.notices) == 3


def test_a_list_that_breaks_off_is_unknown_and_a_token_that_is_too_old_goes_on() -> None:
    def breaks(method: str, path: str, body: Object) -> Answer | None:
        if path == "/api/v1/persistentvolumeclaims":
            claims.append(path)
            return Answer(500, {"message": "etcd"}) if len(claims) == 2 else None
        if path == f"{TRAINER}/trainjobs":
            lists.append(path)
            if len(lists) == 2:
                return Answer(410, {"message": "too old", "metadata": {"continue": "200"}})
        return None

    claims: list[str] = []
    lists: list[str] = []
    api = api_of(objects("team"))
    api._react = breaks
    for number in range(300):
        claim = {"kind": "PersistentVolumeClaim", "metadata": {"name": f"c{number}", "namespace": "other"}}
        api.objects[path_of(claim)] = claim
        one = run_of("team", f"run-{number:04}")
        api.objects[path_of(one)] = one
    results, scan = scanned(api)
    assert len(results) == 302
    assert scan.notices == ["persistentvolumeclaims cannot be listed: etcd: what depends on them is unknown"]


def test_a_cluster_without_trainer_is_an_error() -> None:
    api = api_of()
    del api.objects[SCHEMA]
    _, scan = scanned(api)
    assert "Kubeflow Trainer is not installed" in str(scan.faults[0])


def test_a_stored_runtime_that_cannot_be_read_is_named() -> None:
    api = api_of(objects("team"))
    api.objects[f"{TRAINER}/namespaces/team/trainingruntimes/plain"]["spec"]["template"] = 3
    _, scan = scanned(api)
    assert "team/plain: " in str(scan.faults[0])


def test_no_object_stays_with_its_result() -> None:
    results, _ = scanned(api_of(objects("lost", bad=True)))
    assert all(type(found.text) is str for one in results for found in one.findings)
    assert all(not one.before and not one.after for one in results)


def with_program(text: str) -> FakeApi:
    """A run whose program lies in a ConfigMap that its pod mounts."""
    parts = objects("team")
    pod = parts[3]["spec"]["template"]["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    pod["volumes"].append({"name": "code", "configMap": {"name": "program"}})
    container = pod["containers"][0]
    container["volumeMounts"].append({"name": "code", "mountPath": "/code"})
    container["command"] = ["python", "/code/train.py"]
    api = api_of(parts)
    api.objects["/api/v1/namespaces/team/configmaps/program"] = {
        "metadata": {"name": "program", "namespace": "team"},
        "data": {"train.py": text},
    }
    return api


NEVER_RESUMED = """\
import time
import torch
model = torch.nn.Linear(1, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(1000):
    loss = model(torch.zeros(1)).sum()
    loss.backward()
    optimizer.step()
    torch.save({"model": model.state_dict(), "step": step}, f"/mnt/ckpt/run/{time.time()}.pt")
"""


def test_a_program_in_a_config_map_is_read_once_with_the_readers_rights() -> None:
    api = with_program(NEVER_RESUMED)
    results, scan = scanned(api)
    reads = [path for _, path, _ in api.asked if path.endswith("/configmaps/program")]
    assert (len(reads), scan.notices) == (1, [])
    assert "never-resumed" in {one.rule for result in results for one in result.findings}

    api.forbidden = {"/api/v1/namespaces/team/configmaps/program"}
    api.asked.clear()
    results, scan = scanned(api)
    assert scan.notices == ["you may not get configmaps: programs in them are not read"]
    assert "never-resumed" not in {one.rule for result in results for one in result.findings}


# --- the command


class _Connected(FakeApi):
    namespace = "team"


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> FakeApi:
    api = _Connected(api_of(objects("team"), objects("lost", bad=True)).objects)
    monkeypatch.setattr(command, "connect", lambda kubeconfig, context: api)
    return api


def test_the_namespace_of_the_context_is_scanned_or_all(run: Run, cluster: FakeApi) -> None:
    code, out, err = run("scan")
    assert (code, err) == (0, "")
    assert "2 scanned: 2 allowed" in out
    assert "TrainJob/" not in out
    code, out, _ = run("scan", "-A")
    assert code == 1
    assert "TrainJob/digits in lost  cluster: denied" in out
    assert "in team" not in out
    assert "4 scanned: 2 denied, 2 allowed" in out


def test_all_formats(run: Run, cluster: FakeApi, tmp_path: Path) -> None:
    files = {name: tmp_path / name for name in ("junit", "sarif", "line")}
    code, out, _ = run("scan", "-A", "-o", "json", *(f"-o{name}={path}" for name, path in files.items()))
    answer = json.loads(out)
    assert (code, answer["schema"], len(answer["results"])) == (1, 1, 4)
    assert {one["patch"] == [] for one in answer["results"]} == {True}
    suites = ElementTree.fromstring(files["junit"].read_text())
    assert (suites.get("name"), suites.get("tests"), suites.get("failures")) == ("ckptguard scan", "4", "2")
    assert json.loads(files["sarif"].read_text())["runs"][0]["results"]
    assert "cluster: error: " in files["line"].read_text()


def test_fail_on(run: Run, cluster: FakeApi) -> None:
    del cluster.objects["/api/v1/namespaces/team/persistentvolumeclaims/train-ckpt"]
    cluster.forbidden = {"/api/v1/.*persistentvolumeclaims"}
    assert run("scan", "-n", "team")[0] == 0
    cluster.objects.pop(f"{TRAINER}/namespaces/team/trainingruntimes/plain")
    assert run("scan", "-n", "team")[0] == 0
    assert run("scan", "-n", "team", "--fail-on", "not-judged")[0] == 1


def test_an_api_server_that_goes_away_is_an_error(run: Run, cluster: FakeApi, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "_PATIENCE", 0.0)
    cluster.away = True
    code, _, err = run("scan")
    assert code == 2
    assert "cannot be reached" in err


def test_a_dump_gives_what_the_cluster_gives(run: Run, cluster: FakeApi, tmp_path: Path) -> None:
    dump = {"apiVersion": "v1", "kind": "List", "items": [*objects("team"), *objects("lost", bad=True)[2:]]}
    path = write(tmp_path, "dump.yaml", yaml.safe_dump(dump))
    live = json.loads(run("scan", "-A", "-o", "json", "--trainer", "2.3")[1])["results"]
    code, out, _ = run("scan", "--state", path, "-o", "json", "--trainer", "2.3")
    dumped = json.loads(out)["results"]

    def told(results: list[dict[str, Any]]) -> list[Any]:
        left_out = ("file", "line")
        return sorted(json.dumps({k: v for k, v in one.items() if k not in left_out}) for one in results)

    assert code == 1
    assert told(dumped) == told(live)
    reviewed = json.loads(run("review", path, "--without-guard", "-o", "json", "--trainer", "2.3")[1])["results"]
    assert told(dumped) == told(reviewed)


def test_a_dump_by_namespace_and_with_modes(run: Run, tmp_path: Path) -> None:
    items = [*objects("lost", bad=True, **{"checkpoint-guard.io/mode": "audit"}), *objects("team")[2:]]
    path = write(tmp_path, "dump.json", json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    code, out, _ = run("scan", "--state", path, "-n", "lost", "-o", "json")
    assert (code, [one["verdict"] for one in json.loads(out)["results"]]) == (1, ["deny", "deny"])
    assert run("scan", "--state", path, "-n", "team")[0] == 0


def test_a_dump_without_objects_is_an_error(run: Run, tmp_path: Path) -> None:
    assert run("scan", "--state", write(tmp_path, "dump.yaml", "{}"))[0] == 2
    assert run("scan", "--state", str(tmp_path / "nowhere.yaml"))[0] == 2


def test_release_is_what_the_cluster_serves() -> None:
    results, _ = scanned(api_of(objects("team")))
    assert results
    scan = ClusterScan(api_of(objects("team")), Policy(), None, Release.V2_0)
    assert verdicts(list(scan.results())) == verdicts(results)


def exception(namespace: str, **spec: Any) -> Object:
    excused = {"rules": ["ephemeral-checkpoint"], "reason": "scratch", "owner": "anna", "until": "2999-01-01"}
    return {
        "apiVersion": "exceptions.checkpoint-guard.io/v1alpha1",
        "kind": "CheckpointException",
        "metadata": {"name": "bench", "namespace": namespace},
        "spec": excused | spec,
    }


FAR = Policy(limits=Limits(exception_days=36500 * 100))


def test_exceptions_of_the_namespace_count() -> None:
    api = api_of(objects("excused", bad=True), objects("lost", bad=True), [exception("excused")])
    api.objects[EXCEPTIONS] = {"kind": "APIResourceList"}
    results, scan = scanned(api, policy=FAR)
    assert verdicts(results)["excused/TrainJob/digits"] == "allow"
    assert verdicts(results)["lost/TrainJob/digits"] == "deny"
    assert scan.notices == []
    one, _ = scanned(api, "excused", FAR)
    assert set(verdicts(one).values()) == {"allow"}


def test_a_cluster_without_exceptions_is_not_spoken_of() -> None:
    api = api_of(objects("lost", bad=True))
    api.forbidden = {f"{EXCEPTIONS}/checkpointexceptions"}  # whoever lacks the component lacks the right
    results, scan = scanned(api)
    assert verdicts(results)["lost/TrainJob/digits"] == "deny"
    assert scan.notices == []


def test_exceptions_that_may_not_be_listed_are_said_and_deny_nothing() -> None:
    api = api_of(objects("lost", bad=True))
    api.objects[EXCEPTIONS] = {"kind": "APIResourceList"}
    api.forbidden = {f"{EXCEPTIONS}/checkpointexceptions"}
    results, scan = scanned(api)
    assert scan.notices == ["you may not list checkpointexceptions: what depends on them is unknown"]
    assert verdicts(results)["lost/TrainJob/digits"] == "warn"
    (found,) = [one for one in results[-1].findings if one.rule == "void-exception"]
    assert "you may not list checkpointexceptions" in found.problem


def test_exceptions_of_a_dump_count(run: Run, tmp_path: Path) -> None:
    text = yaml.safe_dump_all([*objects("team", bad=True), exception("team", until="2027-01-01")])
    code, out, _ = run("scan", "--state", write(tmp_path, "dump.yaml", text), "-o", "json")
    assert code == 0
    assert {one["verdict"] for one in json.loads(out)["results"]} == {"allow"}
    findings = [found for one in json.loads(out)["results"] for found in one["findings"]]
    assert {found["exception"]["from"] for found in findings if "exception" in found} == {"CheckpointException/bench"}


MAPS = "/api/v1/namespaces/team/configmaps"


def edited(generation: int = 2, made: str = "2026-11-01T00:00:00Z", kept: str = "good") -> FakeApi:
    """A run whose runtime was edited after Trainer copied it: of the two one loses its checkpoints."""
    now, then = objects("team", bad=kept == "good"), objects("team", bad=kept != "good")
    now[3]["metadata"] |= {"generation": generation, "creationTimestamp": made}
    now[4]["metadata"] |= {"creationTimestamp": "2026-11-02T00:00:00Z"}
    api = api_of(now)
    api.objects[f"{MAPS}/digits-runtime-snapshot"] = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "digits-runtime-snapshot", "namespace": "team"},
        "data": {"runtime": yaml.safe_dump(then[3])},
    }
    return api


def copies_read(api: FakeApi) -> int:
    return sum(path.endswith("-runtime-snapshot") for _, path, _ in api.asked)


@pytest.mark.parametrize(("kept", "runtime", "run"), [("good", "deny", "allow"), ("bad", "allow", "deny")])
def test_a_run_is_judged_by_trainers_copy_where_its_runtime_was_edited(kept: str, runtime: str, run: str) -> None:
    api = edited(kept=kept)
    results, scan = scanned(api)
    assert verdicts(results) == {"team/TrainingRuntime/plain": runtime, "team/TrainJob/digits": run}
    assert (scan.notices, copies_read(api)) == ([], 1)


def test_a_runtime_that_was_made_anew_counts_as_edited() -> None:
    api = edited(1, "2026-11-03T00:00:00Z")
    results, _ = scanned(api)
    assert verdicts(results)["team/TrainJob/digits"] == "allow"


def test_the_copy_of_a_runtime_that_nobody_edited_is_not_read() -> None:
    api = edited(1)
    results, _ = scanned(api)
    assert verdicts(results)["team/TrainJob/digits"] == "deny"
    assert copies_read(api) == 0


def test_a_release_without_copies_reads_none() -> None:
    api = edited()
    results = list(ClusterScan(api, Policy(), None, Release.V2_2).results())
    assert verdicts(results)["team/TrainJob/digits"] == "deny"
    assert copies_read(api) == 0


@pytest.mark.parametrize(
    "text",
    ["a: [", "[]", "kind: TrainingRuntime\nmetadata: {name: other}\nspec: {}\n", "kind: ConfigMap\n", ""],
)
def test_a_copy_that_cannot_be_read_leaves_the_runtime_of_now(text: str) -> None:
    api = edited()
    api.objects[f"{MAPS}/digits-runtime-snapshot"]["data"]["runtime"] = text
    results, _ = scanned(api)
    assert verdicts(results)["team/TrainJob/digits"] == "deny"


def test_copies_that_may_not_be_read_are_said_once() -> None:
    api = edited()
    more = [run_of("team", f"run-{number}") for number in range(20)]
    api.objects |= {path_of(one): one for one in more}
    api.forbidden = {f"{MAPS}/.*"}
    results, scan = scanned(api)
    assert verdicts(results)["team/TrainJob/digits"] == "deny"
    assert copies_read(api) == 1
    assert scan.notices == [
        "you may not get configmaps: runs are judged by their runtimes as they are now, not by Trainer's copies"
    ]


def test_a_dump_is_judged_by_its_copies_too(run: Run, tmp_path: Path) -> None:
    text = yaml.safe_dump_all([one for one in edited().objects.values() if "kind" in one])
    code, out, _ = run("scan", "--state", write(tmp_path, "dump.yaml", text), "-o", "json", "--trainer", "2.3")
    found = {one["kind"]: one["verdict"] for one in json.loads(out)["results"]}
    assert (code, found) == (1, {"TrainingRuntime": "deny", "TrainJob": "allow"})
    _, older, _ = run("scan", "--state", write(tmp_path, "dump.yaml", text), "-o", "json", "--trainer", "2.2")
    assert {one["verdict"] for one in json.loads(older)["results"]} == {"deny"}
