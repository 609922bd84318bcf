"""What is heavy is judged in the worker process: the same answer and audit line, whatever happens to the process."""

from __future__ import annotations

import asyncio
import copy
import json
import os
import signal
import subprocess
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import orjson
import pytest

from tests.server.fuzz import CLAIM, CLASS, RUNTIME, VOLUME
from tests.server.serving import Lines, body_of, review
from webhook.audit import AuditLog
from webhook.cluster.kinds import CLUSTER_RUNTIME, TRAINJOB
from webhook.cluster.live import LiveView, LiveViews, directories_by, work_out_heavy
from webhook.cluster.tables import Tables
from webhook.decision import default_object, review_object
from webhook.metrics import Metrics
from webhook.model.cluster import ClusterView
from webhook.model.policy import Policy
from webhook.model.release import OVERRIDE_FIELDS
from webhook.model.request import Request
from webhook.server import admission as module
from webhook.server import pool
from webhook.server.admission import Admission
from webhook.server.caller import Caller
from webhook.server.gate import Gate
from webhook.server.pool import Died, Overloaded, Worker
from webhook.server.worker import PAGE, Kept, Pages

T = TypeVar("T")
POLICY = Policy()


class Views(LiveViews):
    """Tables alone: what they lack is absent, after one round of looking."""

    def __init__(self, tables: Tables) -> None:
        super().__init__(None, tables, {}, 1)  # type: ignore[arg-type]
        self.tables = tables
        self.rounds = 0

    def at_once(self, request: Request) -> LiveView:
        return LiveView(self.tables, {})

    async def read(self, request: Request, view: ClusterView | None = None) -> LiveView:
        assert isinstance(view, LiveView)
        self.rounds += 1
        view.settle("it was not there")
        view.touched.clear()
        return view

    def weight(self, request: Request) -> int:
        return 0


class Setting:
    """One admission that has a worker and one that has none, over the same tables."""

    def __init__(self) -> None:
        self.tables = Tables()
        for kind, obj in ((CLUSTER_RUNTIME, RUNTIME), ("PersistentVolumeClaim", CLAIM), ("PersistentVolume", VOLUME)):
            self.tables.by_kind[kind].put(json.dumps(obj).encode())
        self.tables.by_kind["StorageClass"].put(json.dumps(CLASS).encode())
        self.metrics = Metrics(process=False)
        self.worker = Worker(self.metrics)
        self.lines = [Lines(), Lines()]
        self.audits = [AuditLog([lines], self.metrics) for lines in self.lines]
        self.admissions = [
            Admission(
                default_object,
                review_object,
                Views(self.tables),
                lambda: POLICY,
                audit,
                self.metrics,
                Gate(),
                worker=worker,
            )
            for audit, worker in zip(self.audits, (None, self.worker), strict=True)
        ]

    async def both(self, path: str, body: bytes, caller: Caller = Caller.ANYBODY) -> list[tuple[int, bytes]]:
        answers = []
        for one in self.admissions:
            answer = one.answer(path, body, "", None, caller)
            answers.append(answer if isinstance(answer, tuple) else await answer)
        return answers

    def records(self) -> list[list[dict[str, Any]]]:
        for audit in self.audits:
            audit.close()
        found = [lines.records() for lines in self.lines]
        for record in (record for records in found for record in records):
            del record["time"], record["durationMs"]
        return found

    def restarts(self, why: str) -> float:
        value = self.metrics.registry.get_sample_value("ckptguard_worker_restarts_total", {"why": why})
        assert value is not None
        return value


def run(job: Callable[[Setting], Awaitable[T]]) -> T:
    async def whole() -> T:
        setting = Setting()
        try:
            return await job(setting)
        finally:
            setting.worker._end(None)
            for audit in setting.audits:
                audit.close()

    return asyncio.run(whole())


def trainjob(**spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": {"name": "run", "namespace": "team"},
        "spec": {"runtimeRef": {"name": "torch"}, **spec},
    }


BODIES = [
    review(trainjob()),
    review(trainjob(trainer={"env": [{"name": "CKPT_DIR", "value": "/tmp/x"}]})),
    review(trainjob(trainer={"numNodes": "two"})),
    review({**trainjob(), "metadata": {"generateName": "run-"}}),
    review({"metadata": []}),
    review({**RUNTIME}, kind="ClusterTrainingRuntime", namespace=""),
    review(trainjob(), "DELETE"),
    review(trainjob(), uid=""),
    b"{",
]


def test_the_same_answer_and_audit_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "HEAVY", 0)

    async def job(setting: Setting) -> None:
        for body in BODIES:
            for path in ("/mutate", "/validate"):
                for caller in Caller:
                    one, other = await setting.both(path, body_of(body), caller)
                    assert one == other
        one_line, other_line = setting.records()
        assert one_line == other_line
        assert len(one_line) > 20
        assert setting.restarts("died") == 0

    run(job)


def test_a_large_body_is_not_read_here(monkeypatch: pytest.MonkeyPatch) -> None:
    def nobody(body: bytes) -> None:
        raise AssertionError

    async def job(setting: Setting) -> None:
        body = body_of(review(trainjob(trainer={"args": ["x" * module.HEAVY]})))
        small = body_of(review(trainjob()))
        monkeypatch.setattr(module, "parse_review", nobody)
        answer = setting.admissions[1].answer("/validate", body)
        assert not isinstance(answer, tuple)
        assert json.loads((await answer)[1])["response"]["allowed"] is not None
        refused = setting.admissions[1].answer("/validate", small)
        assert isinstance(refused, tuple)  # read here, where it fails
        assert refused[0] == 400

    run(job)


def test_what_costs_more_than_it_weighs_is_judged_in_the_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    dense = body_of(review(trainjob(trainer={"command": ["bash", "-c", "a=1;b=2\n" * 1200]})))
    plain = body_of(review({**trainjob(), "metadata": {"name": "run", "annotations": {"x": "word " * 4000}}}))
    assert len(dense) < len(plain) < module.HEAVY

    async def job(setting: Setting) -> None:
        asked: list[bytes] = []
        admission = setting.admissions[1]
        elsewhere = admission._elsewhere

        def noted(*arguments: Any) -> Any:
            asked.append(arguments[1])
            return elsewhere(*arguments)

        monkeypatch.setattr(admission, "_elsewhere", noted)
        for body in (dense, plain):
            answer = admission.answer("/validate", body)
            answer = answer if isinstance(answer, tuple) else await answer
            assert answer[0] == 200
        assert asked == [dense]

    run(job)


def test_a_runtime_counts_for_what_refers_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    tables = Tables()
    large = copy.deepcopy(RUNTIME)
    large["metadata"]["annotations"] = {"x": "y" * module.HEAVY}
    tables.by_kind[CLUSTER_RUNTIME].put(orjson.dumps(large))
    views = LiveViews(None, tables, {}, 1)  # type: ignore[arg-type]
    request = Request("CREATE", "TrainJob", "team", "run", trainjob())
    assert views.weight(request) > module.HEAVY
    tables.by_kind[CLUSTER_RUNTIME].remove(("", "torch"))
    assert views.weight(request) == 0
    odds: tuple[Any, ...] = (None, [], {"runtimeRef": 5}, {"runtimeRef": {"kind": [], "name": {}}})
    for odd in odds:
        assert views.weight(Request("CREATE", "TrainJob", "team", "run", {"spec": odd})) == 0


@pytest.mark.parametrize("field", OVERRIDE_FIELDS)
def test_each_override_counts_for_the_runtime_that_it_goes_through(field: str) -> None:
    tables = Tables()
    grown = copy.deepcopy(RUNTIME)
    grown["metadata"]["annotations"] = {"x": "y" * (module.HEAVY // 4)}
    tables.by_kind[CLUSTER_RUNTIME].put(orjson.dumps(grown))
    views = LiveViews(None, tables, {}, 1)  # type: ignore[arg-type]
    plain = trainjob()
    plain["spec"] = {name: value for name, value in plain["spec"].items() if name not in OVERRIDE_FIELDS}

    def weight(value: Any) -> int:
        obj = {**plain, "spec": {**plain["spec"], field: value}}
        return views.weight(Request("CREATE", "TrainJob", "team", "run", obj))

    alone = views.weight(Request("CREATE", "TrainJob", "team", "run", plain))
    assert weight([]) == weight(None) == weight({"a": 1}) == alone < module.HEAVY // 2
    assert alone <= weight([{}] * 2) < 1.1 * alone, "the usual one or two are nothing"
    assert weight([{}] * 120) > module.HEAVY


def test_killed_between_two_jobs_and_in_the_middle_of_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "HEAVY", 0)
    body = body_of(BODIES[0])

    async def job(setting: Setting) -> None:
        first = await setting.both("/validate", body)
        pid = setting.worker.pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        assert await setting.both("/validate", body) == first
        assert setting.restarts("died") == 1
        views = setting.admissions[1]._views
        kill = [True, False]

        class Deadly(LiveView):
            def claim(self, namespace: str, name: str) -> Any:
                if kill and kill.pop(0) and setting.worker.pid is not None:
                    os.kill(setting.worker.pid, signal.SIGKILL)
                return super().claim(namespace, name)

        monkeypatch.setattr(views, "at_once", lambda request: Deadly(setting.tables, {}))
        assert await setting.both("/validate", body) == first
        assert setting.restarts("died") == 2
        kill[:] = [True, True]
        answer = setting.admissions[1].answer("/validate", body)
        assert not isinstance(answer, tuple)
        assert (await answer)[0] == 503
        assert setting.restarts("died") == 4
        assert await setting.both("/validate", body) == first
        one_line, other_line = setting.records()
        assert one_line == other_line[: len(one_line)]
        assert len(other_line) == len(one_line)

    run(job)


def test_what_takes_too_long_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "HEAVY", 0)

    async def job(setting: Setting) -> None:
        await setting.both("/validate", body_of(BODIES[0]))
        pid = setting.worker.pid
        assert pid is not None
        os.kill(pid, signal.SIGSTOP)
        setting.worker._seconds = 0.2
        answer = setting.admissions[1].answer("/validate", body_of(BODIES[0]))
        assert not isinstance(answer, tuple)
        code, text = await answer
        assert code == 503
        assert "too long" in text.decode()
        assert setting.restarts("late") == 1
        setting.worker._seconds = 20
        one, other = await setting.both("/validate", body_of(BODIES[0]))
        assert one == other

    run(job)


def test_the_queue_is_bounded_and_a_grown_process_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "HEAVY", 0)
    monkeypatch.setattr(pool, "WAITING", 1)
    monkeypatch.setattr(pool, "GROWN", 1)

    async def job(setting: Setting) -> None:
        waiting = asyncio.create_task(setting.both("/validate", body_of(BODIES[0])))
        while not setting.worker._waiting:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        refused = setting.admissions[1].answer("/validate", body_of(BODIES[0]))
        assert isinstance(refused, tuple)
        assert refused[0] == 503
        with pytest.raises(Overloaded):
            async with setting.worker.session():
                pass
        one, other = await waiting
        assert one == other
        assert setting.restarts("grown") == 1
        assert setting.worker.pid is None

    run(job)


def test_where_no_process_can_be_started_nothing_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "HEAVY", 0)

    def none(*_: object, **__: object) -> None:
        raise OSError(12, "Cannot allocate memory")

    async def job(setting: Setting) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(subprocess, "Popen", none)
            answer = setting.admissions[1].answer("/validate", body_of(BODIES[0]))
            assert not isinstance(answer, tuple)
            assert (await answer)[0] == 503
        one, other = await setting.both("/validate", body_of(BODIES[0]))
        assert one == other

    run(job)


def test_lists_come_by_pages() -> None:
    class Pipe:
        asked: list[int] = []

        def put(self, message: tuple[Any, ...]) -> None:
            self.asked.append(message[2])

        def get(self) -> Any:
            page = self.asked[-1]
            return "page", list(range(1200))[page * PAGE : (page + 1) * PAGE]

    pages = Pages(Pipe(), 0, 1200, list(range(PAGE)))  # type: ignore[arg-type]
    assert (len(pages), pages[0], pages[-1], pages[:3], pages[499:502]) == (1200, 0, 1199, [0, 1, 2], [499, 500, 501])
    assert list(pages) == list(range(1200))
    assert sorted(Pipe.asked) == [1, 2]
    with pytest.raises(IndexError):
        pages[1200]


def test_kept_runtimes_are_bounded_by_bytes() -> None:
    kept = Kept()
    for number in range(5):
        kept.put((str(number),), 2 * 1024 * 1024, number)
    assert [kept.get((str(number),)) for number in range(5)] == [None, None, None, 3, 4]


def test_directories_of_heavy_runtimes_are_worked_out_in_the_worker() -> None:
    async def job(setting: Setting) -> None:
        tables = setting.tables
        found: list[Any] = []
        for heavy in (None, 0):
            tables.runs.work_out_by(directories_by(tables, POLICY, heavy=heavy))
            env = [{"name": "CKPT_DIR", "value": "/state/run"}]
            tables.by_kind[TRAINJOB].put(json.dumps(trainjob(trainer={"env": env})).encode())
            if heavy == 0:
                assert not tables.runs.directories("team", "state", None)

                async def elsewhere(one: Any, view: ClusterView) -> list[tuple[str, str]]:
                    return await setting.worker.directories(one, view, POLICY)

                working = asyncio.create_task(work_out_heavy(tables, elsewhere))
                while tables.runs.next_heavy() is not None:  # noqa: ASYNC110
                    await asyncio.sleep(0.005)
                working.cancel()
            found.append(list(tables.runs.directories("team", "state", None)))
            tables.by_kind[TRAINJOB].remove(("team", "run"))
        assert found[0] == found[1] != []

    run(job)


def test_directories_for_which_the_process_ends_are_none() -> None:
    async def job(setting: Setting) -> None:
        tables = setting.tables
        tables.runs.work_out_by(directories_by(tables, POLICY, heavy=0))
        tables.by_kind[TRAINJOB].put(json.dumps(trainjob()).encode())

        async def elsewhere(one: Any, view: ClusterView) -> list[tuple[str, str]]:
            raise Died

        working = asyncio.create_task(work_out_heavy(tables, elsewhere))
        while tables.runs.next_heavy() is not None:  # noqa: ASYNC110
            await asyncio.sleep(0.005)
        working.cancel()
        assert len(tables.runs) == 1

    run(job)
