"""Reports in the cluster: which API, what stands in them, when they are written, what goes wrong meanwhile."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from tests.cli.test_review import Run, run
from tests.runs.fake import FakeApi
from tests.scan.clusters import TRAINER, Object, api_of, objects, path_of, run_of
from webhook.cli import scan as command
from webhook.model.policy import Policy
from webhook.reports.review import Reviewed
from webhook.runs.api import Answer
from webhook.scan.cluster import ClusterScan
from webhook.scan.reports import APIS, MOST, NoReports, Reports, Written, served_api, write

__all__ = ["run"]

OPEN, OLD = APIS
REPORT = "/apis/openreports.io/v1alpha1/namespaces/{}/reports/checkpoint-guard"


class Cluster(FakeApi):
    """A fake that stores what is written, with versions; ``meanwhile`` is called before a write."""

    namespace = "team"

    def __init__(self, *parts: list[Object], apis: tuple[Any, ...] = (OPEN,)) -> None:
        super().__init__(api_of(*parts).objects)
        self.writes: list[tuple[str, str]] = []
        self.meanwhile: Callable[[str, str], Answer | None] = lambda method, path: None
        self._version = 100
        for one in apis:
            self.objects[one.base] = {"resources": [{"name": one.resource}, {"name": f"{one.resource}/status"}]}
            self.objects[f"/apis/{one.group}"] = {"versions": [{"version": one.version}]}
        self._react = self._write

    def _write(self, method: str, path: str, body: Any) -> Answer | None:
        if method not in ("POST", "PUT", "DELETE") or "reports" not in path:
            return None
        if (answer := self.meanwhile(method, path)) is not None:
            return answer
        self.writes.append((method, path))
        one = path if method != "POST" else f"{path}/{body['metadata']['name']}"
        stored = self.objects.get(one)
        if method == "POST" and stored is not None:
            return Answer(409, {"message": "already exists"})
        if method == "PUT" and stored is None:
            return Answer(404, {"message": "not found"})
        if method == "DELETE":
            wanted = (body.get("preconditions") or {}).get("resourceVersion")
            if stored is not None and wanted != stored["metadata"]["resourceVersion"]:
                return Answer(409, {"message": "has changed"})
            return None
        if stored is not None and body["metadata"].get("resourceVersion") != stored["metadata"]["resourceVersion"]:
            return Answer(409, {"message": "has changed"})
        self._version += 1
        self.objects[one] = {**body, "metadata": {**body["metadata"], "resourceVersion": str(self._version)}}
        return Answer(201, self.objects[one])


def bring(cluster: Cluster, namespace: str | None = None) -> Written:
    reports = Reports()
    for result in ClusterScan(cluster, Policy(), namespace).results():
        reports.take(result)
    return write(cluster, served_api(cluster), reports, namespace)


def counts(done: Written) -> tuple[int, int, int, int]:
    return done.created, done.replaced, done.removed, done.unchanged


def test_one_a_namespace_with_what_is_not_allowed() -> None:
    cluster = Cluster(objects("team"), objects("lost", bad=True))
    assert counts(bring(cluster)) == (1, 0, 0, 0)
    report = cluster.objects[REPORT.format("lost")]
    assert (report["apiVersion"], report["kind"]) == ("openreports.io/v1alpha1", "Report")
    assert report["scope"] == {"apiVersion": "v1", "kind": "Namespace", "name": "lost"}
    assert report["summary"] == {"pass": 0, "fail": 2, "warn": 0, "error": 0, "skip": 0}
    first = next(one for one in report["results"] if one["resources"][0]["kind"] == "TrainJob")
    assert (first["rule"], first["result"], first["severity"]) == ("ephemeral-checkpoint", "fail", "high")
    assert first["resources"] == [
        {"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob", "namespace": "lost", "name": "digits"}
    ]
    assert first["policy"] == first["source"] == "checkpoint-guard"
    assert REPORT.format("team") not in cluster.objects


def test_written_only_when_changed_shrunk_and_removed() -> None:
    cluster = Cluster(objects("lost", bad=True))
    one = run_of("lost", "second")
    cluster.objects[path_of(one)] = one
    assert counts(bring(cluster)) == (1, 0, 0, 0)
    before = len(cluster.writes)
    assert counts(bring(cluster)) == (0, 0, 0, 1)
    assert len(cluster.writes) == before
    cluster.objects[path_of(one)]["status"] = {"conditions": [{"type": "Complete", "status": "True"}]}
    assert counts(bring(cluster)) == (0, 1, 0, 0)
    assert {entry["resources"][0]["name"] for entry in cluster.objects[REPORT.format("lost")]["results"]} == {
        "digits",
        "plain",
    }
    for path in [path for path in cluster.objects if "/trainjobs/" in path or "/trainingruntimes/" in path]:
        del cluster.objects[path]
    assert counts(bring(cluster)) == (0, 0, 1, 0)
    assert REPORT.format("lost") not in cluster.objects
    assert counts(bring(cluster)) == (0, 0, 0, 0)


def test_at_most_so_many_results_and_the_summary_counts_all() -> None:
    reports = Reports()
    (bad,) = [
        one for one in ClusterScan(api_of(objects("lost", bad=True)), Policy()).results() if one.kind == "TrainJob"
    ]
    for number in range(MOST + 200):
        reports.take(Reviewed("TrainJob", "lost", f"run-{number}", "CREATE", bad.at, "deny", bad.findings))
    (document,) = reports.documents(OPEN).values()
    assert (len(document["results"]), document["summary"]["fail"]) == (MOST, MOST + 200)


def test_long_texts_do_not_make_an_object_that_is_too_large() -> None:
    from msgspec.structs import replace

    reports = Reports()
    results = list(ClusterScan(api_of(objects("lost", bad=True)), Policy()).results())
    finding = replace(results[-1].findings[0], problem="\u4e2d" * 5000, why="\U0001f600" * 5000)
    for number in range(MOST):
        reports.take(Reviewed("TrainJob", "lost", f"run-{number}", "CREATE", results[0].at, "deny", (finding,)))
    (document,) = reports.documents(OPEN).values()
    import json

    assert len(json.dumps(document, ensure_ascii=False).encode()) < 1_200_000
    assert 0 < len(document["results"]) < MOST


def test_the_older_api_where_the_other_is_not_served() -> None:
    cluster = Cluster(objects("lost", bad=True), apis=(OLD,))
    assert counts(bring(cluster)) == (1, 0, 0, 0)
    path = "/apis/wgpolicyk8s.io/v1alpha2/namespaces/lost/policyreports/checkpoint-guard"
    assert cluster.objects[path]["kind"] == "PolicyReport"
    # The other one is installed: what was written before goes.
    cluster.objects[OPEN.base] = {"resources": [{"name": "reports"}]}
    assert counts(bring(cluster)) == (1, 0, 1, 0)
    assert path not in cluster.objects


def test_reports_of_others_are_left_alone() -> None:
    cluster = Cluster(objects("team"))
    other = "/apis/openreports.io/v1alpha1/namespaces/team/reports/somebodys"
    cluster.objects[other] = {"metadata": {"name": "somebodys", "namespace": "team"}}
    assert counts(bring(cluster)) == (0, 0, 0, 0)
    assert other in cluster.objects


def test_no_api_that_takes_reports_is_said() -> None:
    cluster = Cluster(objects("lost", bad=True), apis=())
    with pytest.raises(NoReports, match=r"openreports.io/v1alpha1 is not served, nor wgpolicyk8s.io/v1alpha2"):
        served_api(cluster)
    cluster.objects["/apis/openreports.io"] = {"versions": [{"version": "v2"}]}
    with pytest.raises(NoReports, match=r"is not served \(v2 is\)"):
        served_api(cluster)


@pytest.mark.parametrize("how", ["gone", "going"])
def test_a_namespace_that_is_deleted_meanwhile_is_passed_over(how: str) -> None:
    cluster = Cluster(objects("going", bad=True), objects("lost", bad=True))

    def meanwhile(method: str, path: str) -> Answer | None:
        if "/going/" not in path:
            return None
        if how == "gone":
            cluster.objects.pop("/api/v1/namespaces/going", None)
            return Answer(404, {"message": 'namespaces "going" not found'})
        return Answer(403, {"message": "forbidden", "details": {"causes": [{"reason": "NamespaceTerminating"}]}})

    cluster.meanwhile = meanwhile
    done = bring(cluster)
    assert (counts(done), done.notices) == ((1, 0, 0, 0), [])


def test_crds_that_go_in_the_middle_are_said() -> None:
    cluster = Cluster(objects("lost", bad=True))
    cluster.meanwhile = lambda method, path: Answer(404, {"message": "the server could not find the resource"})
    done = bring(cluster)
    assert counts(done) == (0, 0, 0, 0)
    assert done.notices == ["namespace lost: its report cannot be written: the server could not find the resource"]


def test_a_missing_right_is_said_and_the_rest_goes_on() -> None:
    cluster = Cluster(objects("closed", bad=True), objects("lost", bad=True))
    cluster.meanwhile = lambda method, path: (
        Answer(403, {"message": "reports is forbidden"}) if "/closed/" in path else None
    )
    done = bring(cluster)
    assert counts(done) == (1, 0, 0, 0)
    assert done.notices == ["namespace closed: its report cannot be written: reports is forbidden"]


def test_two_scans_at_once_end_with_one_report() -> None:
    cluster = Cluster(objects("lost", bad=True))
    once: list[str] = []

    def meanwhile(method: str, path: str) -> Answer | None:
        if once:
            return None
        once.append(path)
        bring(cluster)  # the other one is faster
        return None

    cluster.meanwhile = meanwhile
    assert counts(bring(cluster)) == (0, 0, 0, 1)
    cluster.objects[REPORT.format("lost")]["metadata"]["annotations"] = {}
    once.clear()
    assert counts(bring(cluster)) == (0, 0, 0, 1)


def test_nothing_is_removed_for_what_could_not_be_listed(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(objects("team", bad=True))
    monkeypatch.setattr(command, "connect", lambda kubeconfig, context: cluster)
    code, out, err = run("scan", "-A", "--report")
    assert (code, out) == (0, "")
    assert "reports: 1 created, 0 replaced, 0 removed, 0 unchanged" in err
    cluster.forbidden = {f"{TRAINER}/trainjobs"}
    code, _, err = run("scan", "-A", "--report")
    assert code == 2
    assert "reports: not written, since not everything could be scanned" in err
    assert REPORT.format("team") in cluster.objects


def test_the_command_prints_and_writes(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(objects("team", bad=True))
    monkeypatch.setattr(command, "connect", lambda kubeconfig, context: cluster)
    code, out, _ = run("scan", "--report", "-o", "line")
    assert code == 0
    assert re.search(r"cluster: error: TrainingRuntime/plain in team", out)
    assert run("scan", "--report", "--fail-on", "deny")[0] == 1
    cluster.objects.pop(OPEN.base)
    code, _, err = run("scan", "--report")
    assert code == 2
    assert "install the CRDs of one of them" in err


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("--state", "x.yaml", "--report"), "leave out --state"),
        (("--every", "5m"), "--every is for --metrics"),
        (("--metrics", "127.0.0.1:0", "-o", "json"), "leave out --output"),
        (("--metrics", "nowhere"), "is not ADDR:PORT"),
        (("--metrics", "127.0.0.1:0", "--every", "1s"), "from 10s to 24h"),
        (("--metrics", "127.0.0.1:0", "--every", "soon"), "is no time"),
    ],
)
def test_flags_that_do_not_go_together(run: Run, flags: tuple[str, ...], said: str) -> None:
    code, _, err = run("scan", *flags)
    assert code == 2
    assert said in err
