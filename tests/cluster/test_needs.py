"""DELETE of what unfinished runs need: found in the tables, read once more, refused where the namespace asks for it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from aiohttp import web

from tests.cluster.fake_api import FakeApi
from tests.cluster.test_live import ON_CLAIM, RT, TEAM, World
from webhook.audit import AuditLog
from webhook.cluster.live import directories_by
from webhook.cluster.needs import Needs
from webhook.decision import default_object, review_object
from webhook.metrics import Metrics
from webhook.model.deletion import CLEANERS
from webhook.model.names import ALLOW_DELETE, MODE, PROTECT
from webhook.model.policy import Exempt, Policy
from webhook.model.release import Release
from webhook.server.admission import Admission
from webhook.server.caller import Caller
from webhook.server.gate import Gate
from webhook.server.pool import Worker

Object = dict[str, Any]

GROUP = "trainer.kubeflow.org"
BASE = f"/apis/{GROUP}/v1alpha1"
VERSIONS = {"PersistentVolumeClaim": ("", "v1"), "ConfigMap": ("", "v1")}
PROTECTED: Object = {"metadata": {"labels": {PROTECT: "true"}}}


class Serving:
    """An admission over a cluster with runs; whatever is put is in the tables and at the API server."""

    def __init__(self, world: World, release: Release | None, policy: Policy, seconds: float, worker: bool) -> None:
        self.world = world
        self.metrics = Metrics(process=False)
        self.lines: list[bytes] = []
        world.tables.runs.work_out_by(directories_by(world.tables, policy, release))
        needs = Needs(world.tables, world.reader, world.watches["TrainJob"], release)
        self.worker = Worker(self.metrics, release) if worker else None
        self.admission = Admission(
            default_object,
            review_object,
            world.views,
            lambda: policy,
            AuditLog([], self.metrics, 16),
            self.metrics,
            Gate(),
            release,
            seconds,
            self.worker,
            needs,
        )

    def put(self, kind: str, path: str, obj: Object) -> Object:
        stored = self.world.api.put(path, {"kind": kind, **obj})
        self.world.tables.by_kind[kind].put(json.dumps(stored).encode())
        return stored

    def run(self, name: str = "run", namespace: str = "team", kind: str = "TrainingRuntime", **more: Any) -> None:
        spec = {"runtimeRef": {"kind": kind, "name": "rt"}, "suspend": True}
        self.put("TrainJob", f"{BASE}/namespaces/{namespace}/trainjobs/{name}", {"spec": spec, **more})

    async def delete(self, kind: str, name: str, /, caller: Caller = Caller.ANYBODY, **more: Any) -> Object:
        group, version = VERSIONS.get(kind, (GROUP, "v1alpha1"))
        metadata = {"name": name, **more.pop("metadata", {})}
        asked = {
            "uid": "u",
            "kind": {"group": group, "version": version, "kind": kind},
            "name": name,
            "namespace": "" if kind.startswith("Cluster") else "team",
            "operation": "DELETE",
            "userInfo": {"username": "ada", "groups": ["people"]},
            "object": None,
            "oldObject": {"kind": kind, "metadata": metadata, **more.pop("old", {})},
            **more,
        }
        review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": asked}
        answer = self.admission.answer("/validate", json.dumps(review).encode(), caller=caller)
        code, body = answer if isinstance(answer, tuple) else await answer
        assert code == 200
        response: Object = json.loads(body)["response"]
        return response

    def counted(self, kind: str, verdict: str) -> float | None:
        labels = {"kind": kind, "verdict": verdict}
        return self.metrics.registry.get_sample_value("ckptguard_deletions_total", labels)


Job = Callable[[Serving], Coroutine[Any, Any, None]]


def run(
    job: Job,
    release: Release | None = Release.V2_3,
    policy: Policy | None = None,
    seconds: float = 20,
    worker: bool = False,
) -> None:
    async def whole() -> None:
        async with FakeApi() as api, asyncio.timeout(120):
            world = World(api, seconds)
            serving = Serving(world, release, policy or Policy(), seconds, worker)
            try:
                serving.put("Namespace", TEAM, PROTECTED)
                serving.put("TrainingRuntime", RT, ON_CLAIM)
                serving.run()
                await job(serving)
            finally:
                await world.connection.close()
                if serving.worker is not None:
                    serving.worker._end(None)

    asyncio.run(whole())


CLAIM = ("PersistentVolumeClaim", "ckpt")
SNAPSHOT = ("ConfigMap", "run-runtime-snapshot")
RUNTIME = ("TrainingRuntime", "rt")


@pytest.mark.parametrize("what", [CLAIM, SNAPSHOT, RUNTIME])
def test_what_an_unfinished_run_needs_stays(what: tuple[str, str]) -> None:
    async def job(serving: Serving) -> None:
        for dry_run in (False, True):
            refused = await serving.delete(*what, dryRun=dry_run)
            assert refused["allowed"] is False
            message = refused["status"]["message"]
            assert message.startswith(f"{what[0]}/{what[1]} is protected while an unfinished run needs it\n")
            assert "1 unfinished TrainJob of namespace team needs it [needed-by-run]" in message
            assert "delete the TrainJob first" in message
            assert f"{ALLOW_DELETE}=true" in message
            assert '"run"' not in message
        assert serving.counted(what[0], "deny") == 2
        known = await serving.delete(*what, caller=Caller.KNOWN)
        assert 'unfinished TrainJob "run" needs it' in known["status"]["message"]
        assert "kubectl delete trainjob run -n team" in known["status"]["message"]

    run(job)


@pytest.mark.parametrize("what", [SNAPSHOT, RUNTIME])
@pytest.mark.parametrize("release", [Release.V2_0, Release.V2_2, None])
def test_before_2_3_a_claim_alone_is_protected(what: tuple[str, str], release: Release | None) -> None:
    async def job(serving: Serving) -> None:
        assert (await serving.delete(*what))["allowed"] is True
        assert (await serving.delete(*CLAIM))["allowed"] is False

    run(job, release)


def test_a_cluster_runtime_is_protected_by_a_run_in_a_namespace_that_asks() -> None:
    async def job(serving: Serving) -> None:
        what = ("ClusterTrainingRuntime", "rt")
        serving.put("ClusterTrainingRuntime", f"{BASE}/clustertrainingruntimes/rt", ON_CLAIM)
        serving.put("Namespace", "/api/v1/namespaces/other", {})
        serving.run("theirs", "other", "ClusterTrainingRuntime")
        assert (await serving.delete(*what))["allowed"] is True
        serving.run("ours", "team", "ClusterTrainingRuntime")
        assert (await serving.delete(*what))["allowed"] is False

    run(job)


def test_a_claim_beside_the_directory_is_needed_too() -> None:
    async def job(serving: Serving) -> None:
        changed = json.loads(json.dumps(ON_CLAIM))
        pod = changed["spec"]["template"]["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
        pod["volumes"].append({"name": "data", "persistentVolumeClaim": {"claimName": "dataset"}})
        serving.put("TrainingRuntime", f"{BASE}/namespaces/team/trainingruntimes/rt", changed)
        serving.run("other")
        assert (await serving.delete("PersistentVolumeClaim", "dataset"))["allowed"] is False
        assert (await serving.delete("PersistentVolumeClaim", "nobodys"))["allowed"] is True

    run(job)


@pytest.mark.parametrize(
    "how",
    [
        *({"userInfo": {"username": user}} for user in sorted(CLEANERS)),
        {"userInfo": {"username": "system:serviceaccount:kubeflow-system:kubeflow-trainer-controller-manager"}},
        {"metadata": {"annotations": {ALLOW_DELETE: "true"}}},
        {"metadata": {"deletionTimestamp": "2026-12-01T00:00:00Z"}},
        {"subResource": "status"},
    ],
)
def test_what_always_passes(how: Object) -> None:
    async def job(serving: Serving) -> None:
        for what in (CLAIM, SNAPSHOT, RUNTIME):
            assert (await serving.delete(*what, **json.loads(json.dumps(how))))["allowed"] is True

    run(job)


def test_an_annotation_that_says_something_else_lets_nothing_go() -> None:
    async def job(serving: Serving) -> None:
        for value in ("false", "TRUE", 1, None):
            answer = await serving.delete(*CLAIM, metadata={"annotations": {ALLOW_DELETE: value}})
            assert answer["allowed"] is False

    run(job)


def test_each_object_of_a_collection_is_looked_at_by_its_own_name() -> None:
    async def job(serving: Serving) -> None:
        assert (await serving.delete(*CLAIM, name=""))["allowed"] is False
        assert (await serving.delete("PersistentVolumeClaim", "", old={"metadata": {}}))["allowed"] is True
        assert (await serving.delete(*CLAIM, oldObject=None))["allowed"] is False

    run(job)


@pytest.mark.parametrize(
    "namespace",
    [
        {},
        {"metadata": {"labels": {PROTECT: "false"}}},
        {"metadata": {"labels": {PROTECT: "true"}, "deletionTimestamp": "2026-12-01T00:00:00Z"}},
        {"metadata": {"labels": {PROTECT: "true", MODE: "off"}}},
        {"metadata": {"labels": {PROTECT: "true", MODE: "audit"}}},
    ],
)
def test_a_namespace_that_does_not_ask_or_is_going(namespace: Object) -> None:
    async def job(serving: Serving) -> None:
        serving.put("Namespace", TEAM, namespace)
        assert (await serving.delete(*CLAIM))["allowed"] is True
        # The tables may not have heard of it yet.
        serving.world.tables.by_kind["Namespace"].remove(("", "team"))
        if MODE not in namespace.get("metadata", {}).get("labels", {}):
            assert (await serving.delete(*CLAIM))["allowed"] is True

    run(job)


def test_warn_warns() -> None:
    async def job(serving: Serving) -> None:
        serving.put("Namespace", TEAM, {"metadata": {"labels": {PROTECT: "true", MODE: "warn"}}})
        answer = await serving.delete(*CLAIM)
        assert answer["allowed"] is True
        assert answer["warnings"] == [
            "1 unfinished TrainJob of namespace team needs it [needed-by-run] (PersistentVolumeClaim/ckpt)"
        ]
        assert serving.counted("PersistentVolumeClaim", "warn") == 1

    run(job)


def test_who_is_exempt_passes() -> None:
    async def job(serving: Serving) -> None:
        assert (await serving.delete(*CLAIM))["allowed"] is True

    run(job, policy=Policy(exempt=Exempt(groups=("people",))))


@pytest.mark.parametrize(
    "now",
    [
        {"metadata": {"deletionTimestamp": "2026-12-01T00:00:00Z"}},
        {"status": {"conditions": [{"type": "Failed", "status": "True"}]}},
        None,
    ],
)
def test_a_run_that_has_just_ended_or_is_being_deleted_needs_nothing(now: Object | None) -> None:
    async def job(serving: Serving) -> None:
        path = f"{BASE}/namespaces/team/trainjobs/run"
        # The tables still have it as it was.
        serving.world.api.delete(path)
        if now is not None:
            serving.world.api.put(path, {"kind": "TrainJob", **now})
        for what in (CLAIM, SNAPSHOT, RUNTIME):
            assert (await serving.delete(*what))["allowed"] is True

    run(job)


def test_among_many_that_are_gone_one_that_is_there_counts() -> None:
    async def job(serving: Serving) -> None:
        for number in range(12):
            serving.run(f"a-{number:02}")
            serving.world.api.delete(f"{BASE}/namespaces/team/trainjobs/a-{number:02}")
        assert (await serving.delete(*CLAIM))["allowed"] is False

    run(job)


def test_what_is_not_known_lets_it_go() -> None:
    async def job(serving: Serving) -> None:
        serving.world.api.refuse[f"{BASE}/namespaces/team/trainjobs/run"] = 403
        assert (await serving.delete(*CLAIM))["allowed"] is True
        serving.world.watches["TrainJob"].synced.clear()
        assert (await serving.delete(*RUNTIME))["allowed"] is True

    run(job)


def test_a_slow_api_server_lets_it_go_in_time() -> None:
    async def slow(request: web.Request) -> None:
        if "trainjobs" in request.path:
            await asyncio.sleep(3)

    async def job(serving: Serving) -> None:
        serving.world.api.hook = slow
        assert (await serving.delete(*CLAIM))["allowed"] is True

    run(job, seconds=0.3)


def test_large_objects_are_looked_at_too() -> None:
    async def job(serving: Serving) -> None:
        answer = await serving.delete(*SNAPSHOT, old={"data": {"runtime": "x" * 200_000}})
        assert answer["allowed"] is False

    run(job, worker=True)


def test_mutate_and_other_kinds_pass() -> None:
    async def job(serving: Serving) -> None:
        assert (await serving.delete("TrainJob", "run"))["allowed"] is True
        assert (await serving.delete("ConfigMap", "notes"))["allowed"] is True

    run(job)
