"""CheckpointExceptions of a live cluster: a kind that is watched where it is served, and read before a denial."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import msgspec
import orjson
import pytest
from aiohttp import web

from tests.cluster.fake_api import FakeApi, until
from tests.cluster.test_live import World
from tests.cluster.test_live import run as with_world
from tests.cluster.test_watch import QUICK, following, names, run
from webhook.cluster.granted import ExceptionTable
from webhook.model.cluster import Gap
from webhook.model.exceptions import Exceptions
from webhook.model.names import EXCEPTION
from webhook.model.request import Request

BASE = "/apis/exceptions.checkpoint-guard.io/v1alpha1"
ALL = f"{BASE}/checkpointexceptions"
SOON = msgspec.structs.replace(QUICK, unserved=0.05)


def path(name: str, namespace: str = "team") -> str:
    return f"{BASE}/namespaces/{namespace}/checkpointexceptions/{name}"


def exception(**spec: Any) -> dict[str, Any]:
    rules = {"rules": ["ephemeral-checkpoint"], "reason": "scratch", "owner": "anna", "until": "2999-01-01"}
    return {"spec": rules | spec}


def serve(api: FakeApi) -> None:
    api.objects[BASE] = {"kind": "APIResourceList", "metadata": {}}


def full(name: str, namespace: str = "team", **spec: Any) -> bytes:
    return orjson.dumps({**exception(**spec), "metadata": {"name": name, "namespace": namespace}})


def test_the_table_keeps_what_each_namespace_has() -> None:
    table = ExceptionTable()
    assert table.of("team") is Gap.ABSENT
    assert table.put(full("one")) == ("team", "one")
    table.put(full("two", "other"))
    made = table.of("team")
    assert isinstance(made, Exceptions)
    assert table.of("team") is made  # until something changes
    table.put(full("one", rules=["short-grace"]))
    again = table.of("team")
    assert isinstance(again, Exceptions)
    asked = Request("CREATE", "TrainJob", "team", "run", {})
    assert [len(again.may_fit(rule, asked)) for rule in ("short-grace", "ephemeral-checkpoint")] == [1, 0]
    assert len(table) == 2
    table.remove(("team", "one"))
    table.remove(("team", "one"))
    assert (table.of("team"), len(table)) == (Gap.ABSENT, 1)


@pytest.mark.parametrize(
    "raw",
    [b"[]", b"{}", b"{", b'{"metadata":{"name":1}}', b'{"metadata":{"namespace":"a","name":""}}'],
)
def test_what_is_no_such_object_is_none(raw: bytes) -> None:
    assert ExceptionTable().put(raw) is None


@pytest.mark.parametrize(
    "spec",
    [
        {"until": "2027-02-31"},
        {"until": 5},
        {"rules": "all"},
        {"only": "later fields narrow it down"},
        {"match": {"namespaces": ["*"]}},
    ],
)
def test_one_that_cannot_be_read_excuses_nothing_and_is_named(
    spec: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    table = ExceptionTable()
    assert table.put(full("odd", **spec)) == ("team", "odd")
    assert table.of("team") is Gap.ABSENT
    assert "CheckpointException team/odd excuses nothing" in caplog.text


def test_one_that_is_being_deleted_excuses_nothing() -> None:
    table = ExceptionTable()
    metadata = {"name": "one", "namespace": "team", "deletionTimestamp": "2026-12-01T00:00:00Z"}
    table.put(orjson.dumps({**exception(), "metadata": metadata}))
    assert table.of("team") is Gap.ABSENT


def test_a_cluster_without_the_kind_is_asked_quietly(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "ckptguard")

    async def test(api: FakeApi) -> None:
        api.refuse[ALL] = 403  # without the component there is no right to list either
        async with following(api, EXCEPTION, ExceptionTable(), SOON) as watch:
            await watch.synced.wait()
            assert (watch.served, watch.trouble) == (False, None)
            await until(lambda: len(api.requests(BASE)) > 3)
            assert api.requests(ALL) == []
            del api.refuse[ALL]
            serve(api)
            api.put(path("one"), exception())
            await until(lambda: names(watch) == {"one"})
            assert watch.served
            await until(lambda: api.watching(ALL))
            api.put(path("two"), exception())
            await until(lambda: names(watch) == {"one", "two"})
            assert [one for one in caplog.records if one.name.startswith("ckptguard")] == []
            # The definition is deleted.
            del api.objects[BASE]
            api.refuse[ALL] = 404
            api.send(ALL, None)
            await until(lambda: not watch.served)
            assert len(watch.table) == 0

    run(test)


def test_a_right_that_is_missing_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    async def test(api: FakeApi) -> None:
        serve(api)
        api.refuse[ALL] = 403
        async with following(api, EXCEPTION, ExceptionTable(), SOON) as watch:
            await until(lambda: len(api.requests(ALL)) > 3)
            assert not watch.synced.is_set()
            assert "may not list and watch checkpointexceptions" in str(watch.trouble)

    run(test)
    assert caplog.text.count("may not list and watch") == 1


RUNTIME = "/apis/trainer.kubeflow.org/v1alpha1/namespaces/team/trainingruntimes/plain"


def lost() -> dict[str, Any]:
    """A runtime whose checkpoints are gone with the pod."""
    container = {
        "name": "node",
        "image": "x",
        "env": [{"name": "CKPT_DIR", "value": "/ckpt"}],
        "volumeMounts": [{"name": "ckpt", "mountPath": "/ckpt"}],
    }
    pod = {"containers": [container], "volumes": [{"name": "ckpt", "emptyDir": {}}]}
    labels = {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}
    job = {"name": "node", "template": {"metadata": {"labels": labels}, "spec": {"template": {"spec": pod}}}}
    return {"spec": {"mlPolicy": {"numNodes": 1}, "template": {"spec": {"replicatedJobs": [job]}}}}


def create(world: World) -> Request:
    obj = {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": {"name": "run", "namespace": "team"},
        "spec": {"runtimeRef": {"kind": "TrainingRuntime", "name": "plain"}},
    }
    world.api.put(RUNTIME, lost())
    world.api.objects["/api/v1/namespaces/team"] = {"metadata": {"name": "team"}}
    return Request("CREATE", "TrainJob", "team", "run", obj, uid="u", at=3e9)


def of_team(world: World) -> int:
    return len(world.api.requests(f"{BASE}/namespaces/team/checkpointexceptions"))


def test_a_cluster_without_the_kind_is_not_asked_by_requests() -> None:
    async def test(world: World) -> None:
        world.watches[EXCEPTION].served = False
        decision, _ = await world.judge(create(world))
        assert decision.verdict == "deny"
        assert of_team(world) == 0

    with_world(test)


def test_before_a_denial_the_exceptions_are_read_once_more() -> None:
    async def test(world: World) -> None:
        serve(world.api)
        world.api.put(path("new"), exception(until="2065-01-25"))
        decision, _ = await world.judge(create(world))  # the table has not heard of it yet
        assert "ephemeral-checkpoint" not in {one.rule for one in decision.findings if one.severity.value != "audit"}
        assert decision.verdict != "deny"
        assert of_team(world) == 1
        world.api.delete(path("new"))
        refused, _ = await world.judge(create(world))
        assert refused.verdict == "deny"

    with_world(test)


def test_where_that_read_fails_the_table_stands() -> None:
    async def test(world: World) -> None:
        serve(world.api)
        world.api.refuse[f"{BASE}/namespaces/team/checkpointexceptions"] = 500
        decision, _ = await world.judge(create(world))
        assert decision.verdict == "deny"

    with_world(test)


@pytest.mark.parametrize(("served", "verdict"), [(False, "deny"), (True, "warn")])
def test_before_the_first_list_they_are_read_and_unknown_where_they_cannot_be(served: bool, verdict: str) -> None:
    async def test(world: World) -> None:
        world.watches[EXCEPTION].synced = asyncio.Event()
        if served:
            serve(world.api)
        world.api.refuse[f"{BASE}/namespaces/team/checkpointexceptions"] = 403
        decision, _ = await world.judge(create(world))
        assert decision.verdict == verdict
        if served:
            (said,) = [one for one in decision.findings if one.rule == "void-exception"]
            assert "may not list checkpointexceptions in namespace team" in said.problem

    with_world(test)


def test_a_list_is_read_in_pages() -> None:
    async def test(world: World) -> None:
        serve(world.api)
        for number in range(450):
            world.api.put(path(f"e{number}"), exception(rules=["short-grace"], match={"names": [f"n{number}"]}))
        world.api.put(path("z"), exception(until="2065-01-25"))
        decision, _ = await world.judge(create(world))
        assert decision.verdict != "deny"
        assert of_team(world) == 3

    with_world(test)


def test_a_cluster_that_hangs_is_no_reason_to_wait() -> None:
    async def slow(request: web.Request) -> web.StreamResponse | None:
        if request.path.endswith("checkpointexceptions"):
            await asyncio.sleep(30)
        return None

    async def test(world: World) -> None:
        serve(world.api)
        world.api.hook = slow
        request = create(world)
        view = world.views.at_once(request)
        await asyncio.wait_for(world.reader.read(("CheckpointExceptions", "team", ""), view.since), 10)
        decision, _ = await world.judge(request)
        assert decision.verdict == "deny"

    with_world(test, seconds=0.5)
