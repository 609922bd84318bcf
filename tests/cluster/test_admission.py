"""The server's answers over live reads: rounds, one read for many, and a budget for all of it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine
from time import monotonic
from typing import Any

from aiohttp import web

from tests.cluster.fake_api import FakeApi
from tests.cluster.test_live import CKPT, IN_POD, RT, World, fill
from webhook.audit import AuditLog
from webhook.decision import default_object, review_object
from webhook.metrics import Metrics
from webhook.model.policy import Policy
from webhook.server.admission import Admission
from webhook.server.gate import Gate


class Serving:
    """The admission part of a server over a world."""

    def __init__(self, world: World, seconds: float) -> None:
        self.metrics = Metrics(process=False)
        audit = AuditLog([], self.metrics, 16)
        self.admission = Admission(
            default_object, review_object, world.views, Policy, audit, self.metrics, Gate(), lookup_seconds=seconds
        )

    async def ask(self, webhook: str = "/validate", operation: str = "CREATE") -> dict[str, Any]:
        obj = {
            "apiVersion": "trainer.kubeflow.org/v1alpha1",
            "kind": "TrainJob",
            "metadata": {"name": "run", "namespace": "team"},
            "spec": {"runtimeRef": {"kind": "TrainingRuntime", "name": "rt"}},
        }
        group = {"group": "trainer.kubeflow.org", "version": "v1alpha1"}
        asked = {
            "uid": "u",
            "kind": {**group, "kind": "TrainJob"},
            "resource": {**group, "resource": "trainjobs"},
            "name": "run",
            "namespace": "team",
            "operation": operation,
            "userInfo": {"username": "ada"},
            "object": obj,
            "oldObject": None,
        }
        review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": asked}
        answer = self.admission.answer(webhook, json.dumps(review).encode())
        code, body = answer if isinstance(answer, tuple) else await answer
        assert code == 200
        response: dict[str, Any] = json.loads(body)["response"]
        return response

    def lookups(self, result: str) -> float:
        return self.metrics.registry.get_sample_value("ckptguard_lookups_total", {"result": result}) or 0


def run(test: Callable[[World, Serving], Coroutine[Any, Any, None]], seconds: float = 2.0) -> None:
    async def whole() -> None:
        async with FakeApi() as api, asyncio.timeout(20):
            world = World(api, seconds)
            try:
                await test(world, Serving(world, seconds))
            finally:
                await world.connection.close()

    asyncio.run(whole())


def test_reads_until_nothing_is_lacking() -> None:
    async def test(world: World, serving: Serving) -> None:
        fill(world)
        assert (await serving.ask())["allowed"] is True
        assert (await serving.ask("/mutate"))["allowed"] is True
        assert serving.lookups("answered") == 2
        world.api.put(RT, IN_POD)
        refused = await serving.ask()
        assert refused["allowed"] is False
        assert "ephemeral-checkpoint" in refused["status"]["message"]

    run(test)


def test_many_at_once_share_their_reads() -> None:
    async def test(world: World, serving: Serving) -> None:
        fill(world)
        answers = await asyncio.gather(*(serving.ask() for _ in range(200)))
        assert all(answer["allowed"] for answer in answers)
        assert (world.gets(CKPT), world.gets(RT)) == (1, 1)

    run(test)


def test_when_time_is_up_nothing_is_denied_for_what_was_not_read() -> None:
    async def test(world: World, serving: Serving) -> None:
        fill(world)
        world.api.delete(CKPT)

        async def slow(request: web.Request) -> None:
            if request.path == CKPT:
                await asyncio.sleep(3)

        world.api.hook = slow
        started = monotonic()
        assert (await serving.ask())["allowed"] is True
        assert monotonic() - started < 2.9
        assert serving.lookups("late") + serving.lookups("answered") == 1

    run(test, seconds=0.3)
