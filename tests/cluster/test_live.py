"""What no table has is read, once, before a verdict rests on it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from time import monotonic
from typing import Any

import pytest
from aiohttp import web

from tests.cluster.fake_api import FakeApi, until
from webhook.cluster.access import NoCluster, Refused, Unreachable
from webhook.cluster.connection import Connection, configuration
from webhook.cluster.kinds import CLAIM, CONFIG_MAP, CSI_DRIVER, KINDS, NAMESPACE, RUNTIME, VOLUME, WATCHED
from webhook.cluster.live import LiveView, LiveViews, read_into
from webhook.cluster.reader import DEFAULT_CLASS, FREE_VOLUMES, Reader
from webhook.cluster.storage_tables import ClaimTable
from webhook.cluster.tables import Tables
from webhook.cluster.watch import Watch
from webhook.decision import review_object
from webhook.model.cluster import Claim, Gap, Runtime, StorageClass
from webhook.model.policy import Policy
from webhook.model.request import Request
from webhook.model.verdict import Decision

CKPT = "/api/v1/namespaces/team/persistentvolumeclaims/ckpt"
WANTED = (CLAIM, "team", "ckpt")


def claim(*modes: str, **spec: Any) -> dict[str, Any]:
    return {"spec": {"accessModes": list(modes or ("ReadWriteMany",)), "storageClassName": "shared", **spec}}


class World:
    """Tables, a reader and views over a fake API server. The tables are filled by hand."""

    def __init__(self, api: FakeApi, seconds: float) -> None:
        self.api = api
        self.results: list[str] = []
        self.connection = api.connection()
        self.tables = Tables()
        watches = [Watch(kind, self.connection, self.tables.by_kind[kind.name]) for kind in WATCHED]
        self.watches = {watch.kind.name: watch for watch in watches}
        for watch in watches:
            watch.synced.set()
        self.reader = Reader(
            self.connection,
            seconds=seconds,
            told=self.results.append,
            tables=self.tables,
            volumes=self.watches[VOLUME],
        )
        self.views = LiveViews(self.reader, self.tables, self.watches, seconds)

    def gets(self, path: str) -> int:
        return sum(1 for seen, query in self.api.seen if seen == path and not query)

    async def judge(self, request: Request) -> tuple[Decision, int]:
        """Read and decide by turns, as the server does; the verdict and the number of rounds of reads."""
        view = self.views.at_once(request)
        for rounds in range(12):
            decision = review_object(request, view, Policy())
            if not self.views.lacks(view, decision.verdict == "deny"):
                return decision, rounds
            view = await self.views.read(request, view)
        raise AssertionError("no end")


def run(test: Callable[[World], Coroutine[Any, Any, None]], seconds: float = 20.0) -> None:
    """``seconds`` is what an answer may take; a busy machine needs some."""

    async def whole() -> None:
        async with FakeApi() as api, asyncio.timeout(120):
            world = World(api, seconds)
            try:
                await test(world)
            finally:
                await world.connection.close()

    asyncio.run(whole())


def runtime(volume: dict[str, Any]) -> dict[str, Any]:
    container = {
        "name": "node",
        "image": "x",
        "env": [{"name": "CKPT_DIR", "value": "/ckpt/run"}],
        "volumeMounts": [{"name": "ckpt", "mountPath": "/ckpt"}],
    }
    job = {
        "name": "node",
        "template": {
            "metadata": {"labels": {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}},
            "spec": {
                "backoffLimit": 0,
                "template": {
                    "spec": {
                        "terminationGracePeriodSeconds": 90,
                        "containers": [container],
                        "volumes": [{"name": "ckpt", **volume}],
                    }
                },
            },
        },
    }
    return {
        "spec": {
            "mlPolicy": {"numNodes": 2},
            "template": {"spec": {"failurePolicy": {"maxRestarts": 3}, "replicatedJobs": [job]}},
        }
    }


def request(operation: Any = "CREATE", **more: Any) -> Request:
    obj = {
        "metadata": {"name": "run", "namespace": "team"},
        "spec": {"runtimeRef": {"kind": "TrainingRuntime", "name": "rt"}},
    }
    return Request(operation, "TrainJob", "team", "run", obj, obj if operation == "UPDATE" else None, **more)


ON_CLAIM = runtime({"persistentVolumeClaim": {"claimName": "ckpt"}})
IN_POD = runtime({"emptyDir": {}})
RT = "/apis/trainer.kubeflow.org/v1alpha1/namespaces/team/trainingruntimes/rt"
TEAM = "/api/v1/namespaces/team"
SHARED = "/apis/storage.k8s.io/v1/storageclasses/shared"


def fill(world: World) -> None:
    """A cluster in which the job is right; nothing of it is in the tables yet."""
    world.api.put(TEAM, {})
    world.api.put(SHARED, {"provisioner": "nfs.csi.k8s.io"})
    world.api.put(CKPT, claim())
    world.api.put(RT, ON_CLAIM)


def rules(decision: Decision) -> list[tuple[str, str]]:
    return [(finding.rule, finding.severity.value) for finding in decision.findings]


def test_what_was_applied_a_moment_ago_is_found() -> None:
    async def test(world: World) -> None:
        fill(world)
        decision, rounds = await world.judge(request())
        assert (decision.verdict, rules(decision)) == ("allow", [])
        # The namespace, which the mode needs, comes with the runtime; then the claim; then its class.
        assert rounds == 3
        assert {path: world.gets(path) for path in (TEAM, RT, CKPT, SHARED)} == dict.fromkeys(
            (TEAM, RT, CKPT, SHARED), 1
        )

    run(test)


def test_what_is_in_the_tables_is_not_read() -> None:
    import orjson

    async def test(world: World) -> None:
        fill(world)
        for kind, path in ((NAMESPACE, TEAM), ("StorageClass", SHARED), (CLAIM, CKPT), (RUNTIME, RT)):
            world.tables.by_kind[kind].put(orjson.dumps(world.api.objects[path]))
        decision, rounds = await world.judge(request())
        assert (decision.verdict, rounds, world.api.seen) == ("allow", 0, [])

    run(test)


@pytest.mark.parametrize("synced", [True, False])
def test_a_driver_that_the_synced_table_lacks_is_read_only_before_a_denial(synced: bool) -> None:
    """Many provisioners have no CSIDriver; one read for each of their jobs would be a round trip for nothing."""
    wanted = (CSI_DRIVER, "", "nfs.example.com")

    async def test(world: World) -> None:
        if not synced:
            world.watches[CSI_DRIVER].synced.clear()
        view = LiveView(world.tables, world.watches)
        assert view.csi_driver("nfs.example.com") is (Gap.ABSENT if synced else Gap.UNKNOWN)
        assert world.views.lacks(view, denies=False) is not synced
        assert world.views.lacks(view, denies=True)
        assert view.to_read() == [wanted]
        await read_into(view, world.reader)
        assert view.csi_driver("nfs.example.com") is Gap.ABSENT
        assert not world.views.lacks(view, denies=True)

    run(test)


def test_absent_is_confirmed_before_a_denial() -> None:
    async def test(world: World) -> None:
        fill(world)
        world.api.delete(CKPT)
        decision, _ = await world.judge(request())
        assert rules(decision) == [("missing-claim", "deny")]
        assert world.gets(CKPT) == 1

    run(test)


def test_a_denial_is_confirmed_where_the_table_is_behind() -> None:
    import orjson

    async def test(world: World) -> None:
        fill(world)
        for kind, path in ((NAMESPACE, TEAM), ("StorageClass", SHARED), (CLAIM, CKPT)):
            world.tables.by_kind[kind].put(orjson.dumps(world.api.objects[path]))
        stale = {**IN_POD, "metadata": {"name": "rt", "namespace": "team", "resourceVersion": "1"}}
        world.tables.runtimes.put(orjson.dumps(stale))
        decision, _ = await world.judge(request())
        assert (decision.verdict, world.gets(RT)) == ("allow", 1)
        # And where it is right, the denial stands.
        world.api.put(RT, IN_POD)
        decision, _ = await world.judge(request())
        assert rules(decision) == [("ephemeral-checkpoint", "deny")]

    run(test)


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (403, "the guard's service account may not get persistentvolumeclaims in namespace team"),
        (500, 'the API server answers 500 when asked for PersistentVolumeClaim "ckpt" in namespace team'),
        (401, "the API server does not accept the credentials"),
    ],
)
def test_what_cannot_be_read_is_unknown_with_its_reason(status: int, words: str) -> None:
    async def test(world: World) -> None:
        fill(world)
        world.api.refuse[CKPT] = status
        decision, _ = await world.judge(request())
        assert decision.verdict == "allow"
        assert words in " ".join(finding.problem for finding in decision.findings)
        assert world.results.count("forbidden" if status == 403 else "failed") == 1

    run(test)


def test_an_api_server_that_is_away_denies_nothing() -> None:
    async def test(world: World) -> None:
        import orjson

        fill(world)
        world.tables.runtimes.put(orjson.dumps(world.api.objects[RT]))
        await world.api.stop()
        decision, _ = await world.judge(request())
        assert decision.verdict == "allow"
        assert "the API server was asked for PersistentVolumeClaim" in " ".join(f.problem for f in decision.findings)

    run(test)


def test_a_denial_by_what_a_table_has_stands_while_the_api_server_is_away() -> None:
    async def test(world: World) -> None:
        import orjson

        fill(world)
        world.api.put(RT, IN_POD)
        world.tables.runtimes.put(orjson.dumps(world.api.objects[RT]))
        world.tables.namespaces.put(orjson.dumps(world.api.objects[TEAM]))
        await world.api.stop()
        decision, _ = await world.judge(request())
        assert rules(decision) == [("ephemeral-checkpoint", "deny")]

    run(test)


def test_many_who_want_the_same_share_one_read() -> None:
    async def test(world: World) -> None:
        world.api.put(CKPT, claim())

        async def slow(request: web.Request) -> None:
            await asyncio.sleep(0.05)

        world.api.hook = slow
        since = monotonic()
        started = monotonic()
        answers = await asyncio.gather(*(world.reader.read(WANTED, since) for _ in range(200)))
        assert monotonic() - started < 5  # one after the other takes ten
        assert all(isinstance(answer.value, Claim) for answer in answers)
        assert world.gets(CKPT) == 1
        # One that comes while a read is on its way takes what that finds ...
        first = asyncio.create_task(world.reader.read(WANTED, monotonic()))
        await asyncio.sleep(0.02)
        await asyncio.gather(*(world.reader.read(WANTED, monotonic()) for _ in range(200)))
        await first
        assert world.gets(CKPT) == 2
        # ... and does not believe it that there is nothing: what it asks for may have been made since.
        world.api.delete(CKPT)
        first = asyncio.create_task(world.reader.read(WANTED, monotonic()))
        await asyncio.sleep(0.02)
        answers = await asyncio.gather(*(world.reader.read(WANTED, monotonic()) for _ in range(200)))
        assert all(answer.value is Gap.ABSENT for answer in answers)
        assert world.gets(CKPT) == 4
        assert world.results == ["found", "found", "absent", "absent"]

    run(test)


def test_one_who_leaves_does_not_end_the_read_of_the_others() -> None:
    async def test(world: World) -> None:
        world.api.put(CKPT, claim())

        async def slow(request: web.Request) -> None:
            await asyncio.sleep(0.05)

        world.api.hook = slow
        tasks = [asyncio.create_task(world.reader.read(WANTED, monotonic())) for _ in range(2)]
        await asyncio.sleep(0.01)
        tasks[0].cancel()
        assert isinstance((await tasks[1]).value, Claim)

    run(test)


def test_a_right_that_is_missing_is_not_asked_for_again_at_once() -> None:
    async def test(world: World) -> None:
        world.api.refuse[CKPT] = 403
        for _ in range(5):
            answer = await world.reader.read(WANTED, monotonic())
            assert answer.value is Gap.UNKNOWN
        assert world.gets(CKPT) == 1

    run(test)


def test_a_late_answer_is_no_answer() -> None:
    async def test(world: World) -> None:
        fill(world)

        async def slow(request: web.Request) -> None:
            await asyncio.sleep(1)

        world.api.hook = slow
        answer = await world.reader.read(WANTED, monotonic())
        assert answer.value is Gap.UNKNOWN
        assert "no answer within 0.1 s" in answer.why

    run(test, seconds=0.1)


def test_when_time_is_up_lists_are_unknown_and_objects_stand() -> None:
    async def test(world: World) -> None:
        import orjson

        world.tables.claims.put(orjson.dumps({**claim(), "metadata": {"name": "ckpt", "namespace": "team"}}))
        view = world.views.at_once(request())
        view.claim("team", "ckpt")
        view.claim("team", "other")
        assert view.available_volumes("manual") == []
        assert view.default_storage_class() is Gap.ABSENT
        assert view.to_read() == [(CLAIM, "team", "other")]
        world.views.without(request(), view)
        assert isinstance(view.claim("team", "ckpt"), Claim)
        assert view.claim("team", "other") is Gap.UNKNOWN
        assert view.available_volumes("manual") is Gap.UNKNOWN
        assert view.default_storage_class() is Gap.UNKNOWN
        assert view.why_unknown(CLAIM) == "the API server did not answer within 20 s"
        assert not view.missed

    run(test)


def test_lists_are_read_again_before_a_denial() -> None:
    async def test(world: World) -> None:
        volume = {"spec": {"storageClassName": "manual", "nfs": {}, "accessModes": ["ReadWriteMany"]}}
        world.api.put("/api/v1/persistentvolumes/pv", volume)
        default = {"storageclass.kubernetes.io/is-default-class": "true"}
        world.api.put(SHARED, {"provisioner": "p", "metadata": {"annotations": default}})
        view = world.views.at_once(request())
        assert view.available_volumes("manual") == []
        assert view.default_storage_class() is Gap.ABSENT
        assert world.views.lacks(view, True)
        assert not world.views.lacks(view, False)
        await read_into(view, world.reader)
        available = view.available_volumes("manual")
        assert not isinstance(available, Gap)
        assert [found.name for found in available] == ["pv"]
        default_class = view.default_storage_class()
        assert isinstance(default_class, StorageClass)
        assert default_class.name == "shared"
        assert not world.views.lacks(view, True)

    run(test)


def free_volume(name: str) -> dict[str, object]:
    return {"metadata": {"name": name}, "spec": {"storageClassName": "manual", "nfs": {}}}


async def with_many_volumes(world: World) -> Watch:
    """More than are listed for one request, in the table and in the cluster."""
    import orjson

    for number in range(5001):
        volume = {"metadata": {"name": f"pv{number}"}, "spec": {"nfs": {}}, "status": {"phase": "Bound"}}
        world.tables.volumes.put(orjson.dumps(volume))
        world.api.objects[f"/api/v1/persistentvolumes/pv{number}"] = volume
    watch = world.watches[VOLUME]
    watch.trouble = None
    watch.position = world.api.version
    return watch


FREE = (FREE_VOLUMES, "", "manual")


def test_too_many_volumes_are_not_listed_but_caught_up_with() -> None:
    import orjson

    async def test(world: World) -> None:
        watch = await with_many_volumes(world)
        new = world.api.put("/api/v1/persistentvolumes/new", free_volume("new"))

        async def arrive() -> None:
            await asyncio.sleep(0.5)  # later than one would wait for nothing
            world.tables.volumes.put(orjson.dumps(new))
            watch.position = world.api.version

        arriving = asyncio.create_task(arrive())
        answer = await world.reader.read(FREE, monotonic())
        await arriving
        assert [found.name for found in answer.value] == ["new"]
        assert [query["limit"] for query in world.api.requests("/api/v1/persistentvolumes")] == ["1"]
        watch.trouble = "the API server cannot be reached"
        answer = await world.reader.read(FREE, monotonic())
        assert answer.value is Gap.UNKNOWN

    run(test)


def test_many_volumes_and_other_things_that_change() -> None:
    """Versions count every kind; a watch of volumes hears nothing of that, so the volumes are counted."""

    async def test(world: World) -> None:
        await with_many_volumes(world)
        world.api.version += 100
        answer = await world.reader.read(FREE, monotonic())
        assert answer.value == []

    run(test)


@pytest.mark.parametrize("counted", [True, False])
def test_a_volume_that_the_watch_has_not_told_of_yet(counted: bool) -> None:
    async def test(world: World) -> None:
        await with_many_volumes(world)
        world.api.counts = counted
        world.api.put("/api/v1/persistentvolumes/new", free_volume("new"))
        answer = await world.reader.read(FREE, monotonic())
        assert answer.value is Gap.UNKNOWN
        assert answer.why == "PersistentVolumes: the watch is behind the API server"

    run(test)


@pytest.mark.parametrize(
    "name", ["../../secrets/x", "a/b", "a?b", "A", "", ".", "..", "a..b", "-a", "a%2fb", "x" * 254, "a\n", "ä"]
)
def test_a_name_that_cannot_be_is_not_asked_for(name: str) -> None:
    async def test(world: World) -> None:
        view = world.views.at_once(request())
        assert view.claim("team", name) is Gap.ABSENT
        assert view.claim(name, "ckpt") is Gap.ABSENT
        assert view.runtime("TrainingRuntime", "team", name) is Gap.ABSENT
        assert not view.missed

    run(test)


def test_a_kind_that_is_no_runtime_is_absent() -> None:
    view = LiveView(Tables(), {})
    assert view.runtime("Pod", "team", "rt") is Gap.ABSENT


def test_an_update_is_judged_by_the_snapshot_of_its_runtime() -> None:
    import json

    async def test(world: World) -> None:
        fill(world)
        copy = json.loads(json.dumps(ON_CLAIM).replace("/ckpt/run", "/ckpt/then"))
        copy |= {"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainingRuntime"}
        snapshot = "/api/v1/namespaces/team/configmaps/run-runtime-snapshot"
        world.api.put(snapshot, {"data": {"runtime": json.dumps(copy)}})
        decision, _ = await world.judge(request("UPDATE"))
        assert decision.facts.directory == "/ckpt/then"
        # Where it may not be read, is none or is not there, the runtime of now takes its place.
        for spoil in (
            lambda: world.api.refuse.update({snapshot: 403}),
            lambda: world.api.put(snapshot, {"data": {"runtime": "a: ["}}),
            lambda: world.api.delete(snapshot),
        ):
            spoil()
            decision, _ = await world.judge(request("UPDATE"))
            assert decision.facts.directory == "/ckpt/run"
            world.api.refuse.clear()
            world.reader._forbidden.clear()

    run(test)


def test_a_runtime_read_live_keeps_what_was_prepared_for_it() -> None:
    import orjson

    async def test(world: World) -> None:
        fill(world)
        world.tables.runtimes.put(orjson.dumps(world.api.objects[RT]))
        known = world.tables.runtimes.get("team", "rt")
        answer = await world.reader.read((RUNTIME, "team", "rt"), monotonic())
        assert answer.value is known
        world.api.put(RT, IN_POD)
        answer = await world.reader.read((RUNTIME, "team", "rt"), monotonic())
        assert isinstance(answer.value, Runtime)
        assert answer.value is not known

    run(test)


def test_odd_answers_are_unknown() -> None:
    async def test(world: World) -> None:
        bodies = [b"", b"{", b"[]", b"null", b"\xff"]

        async def odd(request: web.Request) -> web.StreamResponse:
            return web.Response(body=bodies.pop(), content_type="application/json")

        world.api.hook = odd
        while bodies:
            answer = await world.reader.read(WANTED, monotonic())
            assert answer.value is Gap.UNKNOWN
        world.api.hook = None
        world.api.put(RT, {"spec": {"template": 3}})
        answer = await world.reader.read((RUNTIME, "team", "rt"), monotonic())
        assert answer.value is Gap.UNKNOWN
        assert "spec.template" in answer.why

    run(test)


@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        ((FREE_VOLUMES, "", "manual"), "the guard's service account may not list persistentvolumes"),
        ((DEFAULT_CLASS, "", ""), "the guard's service account may not list storageclasses"),
        ((CONFIG_MAP, "team", "x"), "the guard's service account may not get configmaps in namespace team"),
    ],
)
def test_a_missing_right_names_verb_resource_and_namespace(wanted: tuple[str, str, str], words: str) -> None:
    async def test(world: World) -> None:
        for kind in KINDS.values():
            world.api.refuse[kind.collection] = 403
        world.api.refuse["/api/v1/namespaces/team/configmaps/x"] = 403
        assert (await world.reader.read(wanted, monotonic())).why == words

    run(test)


def test_a_token_that_is_renewed_is_taken_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a pod: the file changes, the API server refuses the old token, the next request brings the new one."""

    async def test(world: World) -> None:
        world.api.put(CKPT, claim())

        async def check(request: web.Request) -> web.StreamResponse | None:
            good = request.headers.get("Authorization") == "Bearer second"
            return None if good else web.json_response({"code": 401, "message": "Unauthorized"}, status=401)

        world.api.hook = check
        (tmp_path / "token").write_text("first")
        (tmp_path / "ca.crt").write_text("")
        kubeconfig = tmp_path / "kubeconfig"
        kubeconfig.write_text(
            f"""
apiVersion: v1
kind: Config
clusters: [{{name: a, cluster: {{server: "http://127.0.0.1:{world.api.port}"}}}}]
users: [{{name: a, user: {{tokenFile: {tmp_path / "token"}}}}}]
contexts: [{{name: a, context: {{cluster: a, user: a}}}}]
current-context: a
"""
        )
        connection = Connection(configuration(kubeconfig))
        with pytest.raises(Refused):
            await connection.get(CKPT)
        (tmp_path / "token").write_text("second\n")
        assert b"ReadWriteMany" in await connection.get(CKPT)
        assert world.api.tokens == ["Bearer first", "Bearer second"]
        # A watch that runs is not disturbed by it.
        table = ClaimTable()
        watch = Watch(KINDS[CLAIM], connection, table)
        running = asyncio.create_task(watch.run())
        await until(lambda: world.api.watching(KINDS[CLAIM].collection))
        await connection.reload()
        world.api.put(f"{CKPT}-2", claim())
        await until(lambda: len(table) == 2)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await connection.close()

    run(test)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (None, "there is no kubeconfig at"),
        ("", "cannot be"),
        ("a: [", "cannot be"),
        ("current-context: x\ncontexts: []\nclusters: []\nusers: []\n", "cannot be used"),
    ],
)
def test_a_kubeconfig_that_cannot_be_used(tmp_path: Path, text: str | None, words: str) -> None:
    path = tmp_path / "kubeconfig"
    if text is not None:
        path.write_text(text)

    async def read() -> None:
        await configuration(path)()

    with pytest.raises(NoCluster, match=words):
        asyncio.run(read())


def test_nobody_listens(tmp_path: Path) -> None:
    async def test() -> None:
        api = FakeApi()
        api.port = 9
        connection = api.connection()
        with pytest.raises(Unreachable):
            await connection.get("/api/v1/namespaces/x")
        await connection.close()

    asyncio.run(test())
