"""A table follows the cluster through whatever a watch may meet."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web

from tests.cluster.fake_api import FakeApi, until
from webhook.cluster.kinds import CLAIM, CRD, KINDS, TRAINJOB
from webhook.cluster.run_table import RunTable
from webhook.cluster.storage_tables import ClaimTable
from webhook.cluster.table import Table
from webhook.cluster.tables import ServedTable
from webhook.cluster.watch import Pace, Watch, Watches
from webhook.model.release import Release

CLAIMS = "/api/v1/persistentvolumeclaims"
QUICK = Pace(watch=30, silence=5, first=0.01, longest=0.05, unserved=30)


def claim(**spec: Any) -> dict[str, Any]:
    return {"spec": {"accessModes": ["ReadWriteMany"], **spec}, "status": {"phase": "Pending"}}


def path(name: str, namespace: str = "team") -> str:
    return f"/api/v1/namespaces/{namespace}/persistentvolumeclaims/{name}"


@asynccontextmanager
async def following(
    api: FakeApi, kind: str = CLAIM, table: Table | None = None, pace: Pace = QUICK
) -> AsyncIterator[Watch]:
    connection = api.connection()
    watch = Watch(KINDS[kind], connection, ClaimTable() if table is None else table, pace)
    task = asyncio.create_task(watch.run())
    try:
        yield watch
        assert not task.done()
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await connection.close()


def run(test: Callable[[FakeApi], Coroutine[Any, Any, None]]) -> None:
    async def whole() -> None:
        async with FakeApi() as api:
            async with asyncio.timeout(20):
                await test(api)

    asyncio.run(whole())


def names(watch: Watch) -> set[str]:
    return {name for _, name in watch.table.all_keys()}


def test_lists_in_pages_and_follows() -> None:
    async def test(api: FakeApi) -> None:
        for number in range(1201):
            api.put(path(f"c{number}"), claim())
        async with following(api) as watch:
            await watch.synced.wait()
            assert len(watch.table) == 1201
            assert [query.get("continue") for query in api.requests(CLAIMS, limit="500")] == [None, "500", "1000"]
            await until(lambda: api.watching(CLAIMS))
            (query,) = api.requests(CLAIMS, watch="1")
            assert query["resourceVersion"] == "1301"
            assert query["allowWatchBookmarks"] == "true"
            api.put(path("late"), claim())
            api.put(path("c7"), claim(volumeName="pv7"))
            api.delete(path("c8"))
            table = watch.table
            assert isinstance(table, ClaimTable)
            await until(lambda: "c8" not in names(watch))
            assert table.get("team", "late") is not None
            found = table.get("team", "c7")
            assert found is not None
            assert found.volume_name == "pv7"
            assert watch.trouble is None

    run(test)


def test_a_line_that_is_cut_off_counts_for_nothing_and_the_watch_goes_on_where_it_was() -> None:
    async def test(api: FakeApi) -> None:
        async with following(api) as watch:
            await until(lambda: api.watching(CLAIMS))
            kept = api.put(path("kept"), claim())
            await until(lambda: "kept" in names(watch))
            cut = json.dumps({"type": "ADDED", "object": {**kept, "metadata": {"name": "cut", "namespace": "team"}}})
            api.send(CLAIMS, cut.encode()[:-20])
            await asyncio.sleep(0.05)
            api.send(CLAIMS, None)
            await until(lambda: len(api.requests(CLAIMS, watch="1")) == 2)
            assert api.requests(CLAIMS, watch="1")[1]["resourceVersion"] == kept["metadata"]["resourceVersion"]
            assert names(watch) == {"kept"}
            assert len(api.requests(CLAIMS, limit="500")) == 1

    run(test)


def test_an_event_may_come_in_pieces() -> None:
    async def test(api: FakeApi) -> None:
        async with following(api) as watch:
            await until(lambda: api.watching(CLAIMS))
            line = json.dumps({"type": "ADDED", "object": {"metadata": {"name": "a", "namespace": "team"}}}).encode()
            for at in range(0, len(line), 7):
                api.send(CLAIMS, line[at : at + 7])
                await asyncio.sleep(0)
            api.send(CLAIMS, b"\n")
            await until(lambda: names(watch) == {"a"})

    run(test)


def test_bookmarks_move_the_place_to_go_on_from() -> None:
    async def test(api: FakeApi) -> None:
        async with following(api) as watch:
            await until(lambda: api.watching(CLAIMS))
            api.send(CLAIMS, b'{"type":"BOOKMARK","object":{"kind":"X","metadata":{"resourceVersion":"777"}}}\n')
            await until(lambda: watch.position == 777)
            api.send(CLAIMS, None)
            await until(lambda: api.requests(CLAIMS, watch="1", resourceVersion="777"))
            assert names(watch) == set()

    run(test)


def test_what_is_too_old_is_listed_again() -> None:
    async def test(api: FakeApi) -> None:
        api.put(path("gone"), claim())
        api.put(path("stays"), claim())
        relists: list[None] = []
        async with following(api) as watch:
            watch.relisted = lambda: relists.append(None)
            await until(lambda: api.watching(CLAIMS))
            del api.objects[path("gone")]  # nobody is told
            api.objects[path("new")] = {"metadata": {"name": "new", "namespace": "team"}}
            api.send(CLAIMS, b'{"type":"ERROR","object":{"kind":"Status","code":410,"message":"too old"}}\n')
            await until(lambda: names(watch) == {"stays", "new"})
            assert len(relists) == 1

    run(test)


def test_a_list_that_expires_midway_starts_again() -> None:
    async def test(api: FakeApi) -> None:
        for number in range(600):
            api.put(path(f"c{number}"), claim())
        expired: list[str] = []

        async def hook(request: web.Request) -> web.StreamResponse | None:
            if request.query.get("continue") and not expired:
                expired.append("once")
                return web.json_response({"code": 410, "message": "continue token expired"}, status=410)
            return None

        api.hook = hook
        async with following(api) as watch:
            await watch.synced.wait()
            assert len(watch.table) == 600
            assert len(api.requests(CLAIMS, limit="500")) == 4

    run(test)


def test_an_api_server_that_goes_away_takes_nothing_with_it() -> None:
    async def test(api: FakeApi) -> None:
        api.put(path("kept"), claim())
        async with following(api) as watch:
            await until(lambda: api.watching(CLAIMS))
            await api.stop()
            await until(lambda: watch.trouble is not None)
            assert "cannot be reached" in str(watch.trouble)
            assert names(watch) == {"kept"}
            assert watch.synced.is_set()
            assert not watch.dead()
            await api.start()
            await until(lambda: api.watching(CLAIMS))
            await until(lambda: watch.trouble is None)
            api.put(path("later"), claim())
            await until(lambda: names(watch) == {"kept", "later"})
            assert len(api.requests(CLAIMS, limit="500")) == 1

    run(test)


def test_starts_before_the_api_server_does() -> None:
    async def test(api: FakeApi) -> None:
        api.put(path("a"), claim())
        await api.stop()
        async with following(api) as watch:
            await until(lambda: "cannot be reached" in str(watch.trouble))
            assert not watch.synced.is_set()
            await api.start()
            await watch.synced.wait()
            assert names(watch) == {"a"}

    run(test)


def test_pauses_grow_and_are_never_the_same_for_all() -> None:
    api = FakeApi()
    early = Watch(KINDS[CLAIM], api.connection(), ClaimTable(), Pace(first=1, longest=8), lambda: 0.0)
    late = Watch(KINDS[CLAIM], api.connection(), ClaimTable(), Pace(first=1, longest=8), lambda: 1.0)
    assert [early._pause() for _ in range(5)] == [0.5, 1, 2, 4, 4]
    assert [late._pause() for _ in range(5)] == [1, 2, 4, 8, 8]


def test_errors_of_the_api_server_are_waited_out() -> None:
    async def test(api: FakeApi) -> None:
        api.put(path("a"), claim())
        for status in (500, 429, 503):
            api.refuse[CLAIMS] = status
            async with following(api) as watch:
                await until(lambda status=status: f"answers {status}" in str(watch.trouble))
                assert not watch.synced.is_set()
                del api.refuse[CLAIMS]
                await watch.synced.wait()

    run(test)


def test_a_silent_watch_is_given_up() -> None:
    async def test(api: FakeApi) -> None:
        async with following(api, pace=Pace(silence=0.1, first=0.01, longest=0.05)) as watch:
            await until(lambda: len(api.requests(CLAIMS, watch="1")) >= 3)
            assert len(api.requests(CLAIMS, limit="500")) == 1
            assert watch.synced.is_set()

    run(test)


def test_a_server_that_ends_every_watch_at_once_is_not_asked_without_pause() -> None:
    async def test(api: FakeApi) -> None:
        async def hook(request: web.Request) -> web.StreamResponse | None:
            return web.Response() if request.query.get("watch") else None

        api.hook = hook
        async with following(api, pace=Pace(first=0.05, longest=0.4)):
            await asyncio.sleep(1)
            assert 2 <= len(api.requests(CLAIMS, watch="1")) <= 8

    run(test)


def test_nonsense_is_asked_for_again_and_then_listed() -> None:
    async def test(api: FakeApi) -> None:
        async with following(api) as watch:
            for expected in (1, 2, 3):
                await until(lambda expected=expected: len(api.requests(CLAIMS, watch="1")) == expected)
                await asyncio.sleep(0.02)
                api.send(CLAIMS, b'{"type":"ADDED","object":\x00}\n')
            await until(lambda: len(api.requests(CLAIMS, watch="1")) == 4)
            await asyncio.sleep(0.02)
            assert len(api.requests(CLAIMS, limit="500")) == 2
            api.put(path("a"), claim())
            await until(lambda: names(watch) == {"a"})

    run(test)


def test_odd_objects_do_not_stop_the_others() -> None:
    async def test(api: FakeApi) -> None:
        odd: list[Any] = [
            {"spec": []},
            {"spec": None, "status": None},
            {"spec": {"accessModes": "ReadWriteMany", "resources": 7, "volumeName": 3}},
            {"spec": {"volumeName": None}, "status": {"capacity": {"storage": {}}}},
            {},
        ]
        for number, obj in enumerate(odd):
            api.put(path(f"odd{number}"), obj)
        api.objects["/api/v1/persistentvolumeclaims/nameless"] = {"metadata": {}}
        api.objects["/api/v1/persistentvolumeclaims/list"] = [1]  # type: ignore[assignment]
        api.objects["/api/v1/persistentvolumeclaims/null"] = None  # type: ignore[assignment]
        api.put(path("good"), claim())
        async with following(api) as watch:
            await watch.synced.wait()
            assert names(watch) == {"good", *(f"odd{number}" for number in range(len(odd)))}
            table = watch.table
            assert isinstance(table, ClaimTable)
            for number in range(len(odd)):
                found = table.get("team", f"odd{number}")
                assert found is not None
                assert found.volume_name == ""

    run(test)


def test_a_kind_that_is_not_served_counts_as_empty_until_it_is() -> None:
    jobs = KINDS[TRAINJOB].collection

    async def test(api: FakeApi) -> None:
        api.refuse[jobs] = 404
        async with following(api, TRAINJOB, RunTable()) as watch:
            await watch.synced.wait()
            assert watch.trouble is None
            del api.refuse[jobs]
            api.put("/apis/trainer.kubeflow.org/v1alpha1/namespaces/team/trainjobs/a", {"spec": {}})
            Watches([watch], lambda: None).try_again()
            await until(lambda: names(watch) == {"a"})

    run(test)


def test_a_missing_right_is_named() -> None:
    async def test(api: FakeApi) -> None:
        api.refuse[CLAIMS] = 403
        async with following(api) as watch:
            await until(lambda: "may not list and watch persistentvolumeclaims" in str(watch.trouble))
            assert not watch.synced.is_set()

    run(test)


def test_the_crd_is_read_again_when_it_changes() -> None:
    crds = KINDS[CRD].collection

    def crd(field: str) -> dict[str, Any]:
        schema: dict[str, Any] = {"openAPIV3Schema": {"properties": {"spec": {"properties": {field: {}}}}}}
        return {"spec": {"versions": [{"name": "v1alpha1", "served": True, "schema": schema}]}}

    async def test(api: FakeApi) -> None:
        changes: list[Release | None] = []
        table = ServedTable(lambda: changes.append(table.release))
        async with following(api, CRD, table) as watch:
            await watch.synced.wait()
            await until(lambda: api.watching(crds))
            assert table.release is None
            api.put(f"{crds}/trainjobs.trainer.kubeflow.org", crd("podSpecOverrides"))
            await until(lambda: table.release is Release.V2_0)
            api.put(f"{crds}/trainjobs.trainer.kubeflow.org", crd("podTemplateOverrides"))
            await until(lambda: table.release is Release.V2_1)
            api.delete(f"{crds}/trainjobs.trainer.kubeflow.org")
            await until(lambda: table.release is None)
            assert changes == [Release.V2_0, Release.V2_1, None]
            assert {query["fieldSelector"] for query in api.requests(crds)} == {
                "metadata.name=trainjobs.trainer.kubeflow.org"
            }

    run(test)


def test_a_hanging_loop_is_noticed() -> None:
    watch = Watch(KINDS[CLAIM], FakeApi().connection(), ClaimTable(), Pace(silence=10, longest=5))
    watches = Watches([watch], lambda: None)
    assert watches.fault() is None
    watch.moved -= 26
    assert watches.fault() == "the watch of PersistentVolumeClaim hangs"


def test_requests_get_their_turn_while_a_long_list_is_taken_in() -> None:
    async def test(api: FakeApi) -> None:
        for number in range(3000):
            api.put(path(f"c{number}"), claim())
        turns = 0

        async def count() -> None:
            nonlocal turns
            while True:
                await asyncio.sleep(0)
                turns += 1

        counting = asyncio.create_task(count())
        async with following(api) as watch:
            await watch.synced.wait()
        counting.cancel()
        assert turns > 10

    run(test)


def test_an_object_that_can_no_longer_be_read_is_forgotten() -> None:
    """Its row would be believed although it is out of date; a miss is read live, and is unknown."""

    async def test(api: FakeApi) -> None:
        api.put(path("a"), claim())
        api.put(path("b"), claim())
        async with following(api) as watch:
            await until(lambda: api.watching(CLAIMS))
            meta = b'"metadata":{"name":"a","namespace":"team","resourceVersion":"900"}'
            api.send(CLAIMS, b'{"type":"MODIFIED","object":{' + meta + b',"spec":{"volumeMode":"\xff"}}}\n')
            await until(lambda: names(watch) == {"b"})
            assert watch.trouble is None
            assert watch.position == 900

    run(test)


class Brittle(ClaimTable):
    """Has a fault that shows with one object."""

    def put(self, raw: Any) -> tuple[str, str] | None:
        if b'"brittle"' in bytes(raw):
            raise KeyError("a fault of ours")
        return super().put(raw)


def test_a_fault_of_ours_on_one_object_takes_nothing_else_with_it() -> None:
    async def test(api: FakeApi) -> None:
        api.put(path("a"), claim())
        api.put(path("brittle"), claim())
        async with following(api, table=Brittle()) as watch:
            await until(lambda: api.watching(CLAIMS))
            api.put(path("brittle"), claim(volumeName="pv"))
            api.put(path("b"), claim())
            await until(lambda: names(watch) == {"a", "b"})
            assert watch.trouble is None

    run(test)


class Failing(ClaimTable):
    """Fails once, where nobody expects it."""

    failed = False

    def remove(self, key: tuple[str, str]) -> None:
        if not self.failed:
            self.failed = True
            raise RuntimeError("a fault of ours")
        super().remove(key)


def test_a_fault_of_ours_does_not_end_the_watch() -> None:
    async def test(api: FakeApi) -> None:
        api.put(path("a"), claim())
        api.put(path("b"), claim())
        async with following(api, table=Failing()) as watch:
            await until(lambda: api.watching(CLAIMS))
            api.delete(path("a"))
            await until(lambda: names(watch) == {"b"})
            assert len(api.requests(CLAIMS, limit="500")) == 2
            await until(lambda: watch.trouble is None)

    run(test)
