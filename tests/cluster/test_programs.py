"""Programs in ConfigMaps, read in admission: one GET a map, at most four, and nothing of a map in an answer."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine, Mapping
from time import process_time
from typing import Any

import pytest

from tests.cluster.fake_api import FakeApi
from tests.cluster.test_live import RT, TEAM, World, fill, runtime
from tests.server.serving import Lines
from webhook.audit import AuditLog
from webhook.decision import default_object, review_object
from webhook.effective import Maps, mounted_files
from webhook.metrics import Metrics
from webhook.model.cluster import ConfigMap
from webhook.model.policy import Policy, ProgramsPolicy
from webhook.server.admission import HEAVY, Admission
from webhook.server.caller import Caller
from webhook.server.gate import Gate
from webhook.server.pool import Worker

MAPS = f"{TEAM}/configmaps"
SECRET_KEY = "quartz_recipe.py"
TEXT = """\
import torch

violet = torch.nn.Linear(4, 1)
opt = torch.optim.SGD(violet.parameters(), lr=0.1)
for step in range(100000):
    violet(torch.ones(4)).sum().backward()
    opt.step()
    if step % 500 == 0:
        torch.save({"model": violet.state_dict(), "optimizer": opt.state_dict()}, f"/ckpt/run/amber_{step}.pt")
"""


class Serving:
    """The admission part of a server, with an audit log that can be read."""

    def __init__(self, world: World, policy: Policy, worker: bool) -> None:
        self.world = world
        self.metrics = Metrics(process=False)
        self.lines = Lines()
        self.audit = AuditLog([self.lines], self.metrics)
        self.worker = Worker(self.metrics) if worker else None
        self.admission = Admission(
            default_object,
            review_object,
            world.views,
            lambda: policy,
            self.audit,
            self.metrics,
            Gate(),
            lookup_seconds=20,
            worker=self.worker,
        )

    async def ask(self, caller: Caller = Caller.ANYBODY, webhook: str = "/validate") -> dict[str, Any]:
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
            "operation": "CREATE",
            "userInfo": {"username": "ada"},
            "object": obj,
        }
        review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": asked}
        answer = self.admission.answer(webhook, json.dumps(review).encode(), caller=caller)
        code, body = answer if isinstance(answer, tuple) else await answer
        assert code == 200
        found: dict[str, Any] = json.loads(body)["response"]
        return found

    def record(self) -> dict[str, Any]:
        self.audit.close()
        found: dict[str, Any] = self.lines.records()[-1]
        return found

    def reads(self) -> list[str]:
        return [path.rpartition("/")[2] for path, _ in self.world.api.seen if path.startswith(MAPS)]


def run(
    test: Callable[[Serving], Coroutine[Any, Any, None]], policy: Policy | None = None, worker: bool = False
) -> None:
    async def whole() -> None:
        async with FakeApi() as api, asyncio.timeout(60):
            world = World(api, 20)
            serving = Serving(world, policy or Policy(), worker)
            try:
                fill(world)
                await test(serving)
            finally:
                if serving.worker is not None:
                    serving.worker._end(None)
                await world.connection.close()

    asyncio.run(whole())


def in_maps(texts: Mapping[str, Mapping[str, str]], world: World, command: list[str]) -> None:
    """Store maps, and a runtime that mounts each at ``/<its name>`` and starts ``command``."""
    stored = runtime({"persistentVolumeClaim": {"claimName": "ckpt"}})
    pod = stored["spec"]["template"]["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    node = pod["containers"][0]
    node["command"] = command
    for name, data in texts.items():
        pod["volumes"].append({"name": name, "configMap": {"name": name}})
        node["volumeMounts"].append({"name": name, "mountPath": f"/{name}"})
        world.api.put(f"{MAPS}/{name}", {"data": dict(data)})
    world.api.put(RT, stored)


@pytest.mark.parametrize("worker", [False, True])
@pytest.mark.parametrize("caller", [Caller.ANYBODY, Caller.KNOWN])
def test_a_fault_is_told_and_nothing_of_the_map(caller: Caller, worker: bool) -> None:
    text = TEXT + "# " + "x" * (HEAVY - len(TEXT) - 100 if worker else 0) + "\n"

    async def test(serving: Serving) -> None:
        in_maps({"code": {SECRET_KEY: text}}, serving.world, ["torchrun", f"/code/{SECRET_KEY}"])
        answer = await serving.ask(caller)
        assert answer["allowed"] is True
        said = json.dumps(answer)
        for rule in ("never-resumed", "unlimited-checkpoints", "unguarded-rank-write"):
            assert f"a file of a ConfigMap that the program is read from has this fault [{rule}]" in said
        for word in ("amber", "violet", "state_dict", "data[", "line "):
            assert word not in said, word
        # That the runtime's command names the file is its own text.
        assert SECRET_KEY not in said
        assert serving.reads() == ["code"]
        record = serving.record()
        assert record["facts"]["program"] == {
            "state": "read",
            "path": f"/code/{SECRET_KEY}",
            "line": 1,
            "reason": None,
        }
        assert "amber" not in json.dumps(record)
        if serving.worker is not None:
            assert serving.worker.pid is not None

    run(test, worker=worker)


def test_a_directory_that_the_map_names_is_not_judged_in_an_answer() -> None:
    text = TEXT.replace("/ckpt/run/amber", "/tmp/amber/step")

    async def test(serving: Serving) -> None:
        in_maps({"code": {"a.py": text}}, serving.world, ["python", "/code/a.py"])
        said = json.dumps(await serving.ask())
        assert "directory-not-used" in said
        assert "ephemeral-checkpoint" not in said
        assert "/tmp/amber" not in said

    run(test)


def test_what_the_command_says_itself_is_quoted() -> None:
    async def test(serving: Serving) -> None:
        in_maps({"code": {"train.py": TEXT}}, serving.world, ["bash", "-c", "python /code/train.py | tee log"])
        lines = (await serving.ask())["warnings"]
        told = next(line for line in lines if "[exit-status-lost]" in line)
        assert "tee" in told
        assert "ConfigMap" not in told

    run(test)


def test_mutate_reads_none() -> None:
    async def test(serving: Serving) -> None:
        in_maps({"code": {"a.py": TEXT}}, serving.world, ["python", "/code/a.py"])
        await serving.ask(webhook="/mutate")
        assert serving.reads() == []

    run(test)


def test_policy_reads_none() -> None:
    async def test(serving: Serving) -> None:
        in_maps({"code": {"a.py": TEXT}}, serving.world, ["python", "/code/a.py"])
        assert "never-resumed" not in json.dumps(await serving.ask())
        assert serving.reads() == []
        assert serving.record()["facts"]["program"]["state"] == "not-found"

    run(test, Policy(programs=ProgramsPolicy(config_maps="off")))


def test_a_map_that_nothing_leads_to_is_not_read() -> None:
    async def test(serving: Serving) -> None:
        in_maps({"code": {"a.py": TEXT}, "other": {"b.json": "{}"}}, serving.world, ["python", "/code/a.py"])
        await serving.ask()
        assert serving.reads() == ["code"]

    run(test)


def test_at_most_four_are_read() -> None:
    async def test(serving: Serving) -> None:
        texts = {f"m{number}": {"a.py": TEXT} for number in range(7)}
        command = "\n".join(f"python /m{number}/a.py" for number in range(7))
        in_maps(texts, serving.world, ["bash", "-c", command])
        await serving.ask()
        assert sorted(serving.reads()) == ["m0", "m1", "m2", "m3"]
        assert serving.record()["facts"]["program"]["state"] == "partly-read"

    run(test)


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        (404, 'there is no ConfigMap "code"'),
        (403, "the guard's service account may not get configmaps in namespace team"),
        (500, "answers 500"),
    ],
)
def test_what_cannot_be_read_denies_nothing_and_is_said(status: int, reason: str) -> None:
    async def test(serving: Serving) -> None:
        in_maps({"code": {"a.py": TEXT}}, serving.world, ["python", "/code/a.py"])
        serving.world.api.refuse[f"{MAPS}/code"] = status
        answer = await serving.ask()
        assert answer["allowed"] is True
        assert "warnings" not in answer
        fact = serving.record()["facts"]["program"]
        assert fact["state"] == "not-found"
        assert reason in fact["reason"]

    run(test)


def test_a_changed_map_is_read_anew_and_an_unchanged_one_parsed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    from webhook.programs import cache, reading

    cache.clear()
    parsed: list[str] = []
    real = reading.read_script

    def counted(*arguments: Any, **named: Any) -> Any:
        parsed.append("once")
        return real(*arguments, **named)

    monkeypatch.setattr(reading, "read_script", counted)

    async def test(serving: Serving) -> None:
        in_maps({"code": {"a.py": TEXT}}, serving.world, ["python", "/code/a.py"])
        path = f"{MAPS}/code"
        serving.world.api.objects[path]["metadata"]["uid"] = "one"
        for _ in range(3):
            assert "never-resumed" in json.dumps(await serving.ask())
        # Once while nobody knew the map, once with it.
        assert len(parsed) == 2
        serving.world.api.put(path, {"metadata": {"uid": "one"}, "data": {"a.py": "print(1)\n"}})
        assert "never-resumed" not in json.dumps(await serving.ask())
        assert serving.reads() == ["code"] * 4

    run(test)


def test_very_many_mounts_and_sources_cost_no_more_than_a_few() -> None:
    def laid_out(number: int) -> float:
        sources = [{"configMap": {"name": f"m{one}"}} for one in range(number)]
        job: Any = type("Job", (), {"volume": lambda _, __: {"name": "p", "projected": {"sources": sources}}})()
        mounts = [{"name": "p", "mountPath": f"/s{one}"} for one in range(number)]
        asked: list[str] = []

        def look_up(name: str) -> ConfigMap:
            asked.append(name)
            return ConfigMap("team", name, {"a.py": "x = 1\n"})

        began = process_time()
        text = "python " + " ".join(f"/s{one}/a.py" for one in range(2000))
        mounted_files(job, {"volumeMounts": mounts}, ["bash", "-c"], [text], Maps(look_up, lambda: "why"))
        assert len(asked) == 4
        return process_time() - began

    laid_out(100)
    assert min(laid_out(4000) for _ in range(3)) < 4 * min(laid_out(2000) for _ in range(3)) + 0.02
