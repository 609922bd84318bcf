"""How requests are framed: in pieces, behind one another, too slow, odd; and connections that live or end."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace

import pytest

from tests.server.serving import UID, Engine, Running, message, review, serving
from webhook.bootstrap import NothingKnown
from webhook.model.cluster import ClusterView
from webhook.model.request import Request
from webhook.server import app
from webhook.server.caller import Caller as WhoAsks
from webhook.server.gate import BUFFER_LIMIT, Gate, Held
from webhook.server.head import Head, parse_head
from webhook.server.lane import AdmissionProtocol, Line

BODY = json.dumps(review()).encode()
HEAD = (
    b"POST /mutate?timeout=10s HTTP/1.1\r\nHost: a.b.svc:443\r\nUser-Agent: kube-apiserver\r\n"
    b"Content-Length: 12\r\nAccept: application/json\r\nContent-Type: application/json\r\nAccept-Encoding: gzip\r\n"
)
TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def test_plain_head() -> None:
    assert parse_head(HEAD) == Head("/mutate", 12, "")


def test_traceparent_is_read() -> None:
    assert parse_head(HEAD + f"Traceparent: {TRACE}\r\n".encode()) == Head("/mutate", 12, TRACE)


@pytest.mark.parametrize(
    "value", ["", "00-1-2-3", "x" * 200, TRACE.replace("0af7", '"},{'), TRACE + "-" + "x" * 100], ids=range(5)
)
def test_traceparent_that_is_none(value: str) -> None:
    assert parse_head(HEAD + f"traceparent: {value}\r\n".encode()) == Head("/mutate", 12, "")


ODD = {
    "other method": HEAD.replace(b"POST", b"GET"),
    "other path": HEAD.replace(b"/mutate", b"/mutated"),
    "absolute form": HEAD.replace(b"/mutate", b"http://x/mutate"),
    "HTTP/1.0": HEAD.replace(b"HTTP/1.1", b"HTTP/1.0"),
    "two spaces": HEAD.replace(b"POST ", b"POST  "),
    "space in the query": HEAD.replace(b"=10s", b"= 10s"),
    "fragment": HEAD.replace(b"=10s", b"=10s#x"),
    "chunked": HEAD + b"Transfer-Encoding: chunked\r\n",
    "space before the colon": HEAD + b"Transfer-Encoding : chunked\r\n",
    "folded line": HEAD + b" folded\r\n",
    "no colon": HEAD + b"hello\r\n",
    "bare newline": HEAD + b"X: y\nTransfer-Encoding: chunked\r\n",
    "bare return": HEAD + b"X: y\rZ: x\r\n",
    "NUL": HEAD + b"X: \x00\r\n",
    "expect": HEAD + b"Expect: 100-continue\r\n",
    "close": HEAD + b"Connection: close\r\n",
    "upgrade and close": HEAD + b"Connection: close, upgrade\r\nUpgrade: websocket\r\n",
    "two lengths": HEAD + b"Content-Length: 12\r\n",
    "length 0": HEAD.replace(b": 12", b": 0"),
    "negative length": HEAD.replace(b": 12", b": -1"),
    "length with a sign": HEAD.replace(b": 12", b": +1"),
    "length with a comma": HEAD.replace(b": 12", b": 12, 12"),
    "length in other digits": HEAD.replace(b": 12", ": \u0661".encode()),
    "length over the limit": HEAD.replace(b": 12", b": 99999999"),
    "huge length": HEAD.replace(b": 12", b": " + b"9" * 100),
    "no length": HEAD.replace(b"Content-Length: 12\r\n", b""),
    "no host": HEAD.replace(b"Host: a.b.svc:443\r\n", b""),
    "no content type": HEAD.replace(b"Content-Type: application/json\r\n", b""),
    "other content type": HEAD.replace(b"Content-Type: application/json", b"Content-Type: text/plain"),
    "no headers": b"POST /mutate HTTP/1.1\r\n",
}


@pytest.mark.parametrize("name", ODD)
def test_odd_heads_are_left_to_the_parser(name: str) -> None:
    assert parse_head(ODD[name]) is None


@pytest.mark.parametrize("cut", [1, 5, 14, 60, len(HEAD), len(HEAD) + 40, -1, -200])
def test_in_two_pieces(running: Running, cut: int) -> None:
    whole = message("/mutate", BODY)
    with running.wire() as wire:
        for _ in range(2):
            wire.send(whole[:cut], whole[cut:])
            assert wire.answer().response["uid"] == UID


def test_in_many_pieces(running: Running) -> None:
    body = json.dumps(review({"spec": "x" * 300_000})).encode()
    whole = message("/validate", body)
    with running.wire() as wire:
        wire.send(*(whole[at : at + 50_000] for at in range(0, len(whole), 50_000)), pause=0.005)
        assert wire.answer().response["uid"] == UID


def test_one_behind_the_other(running: Running) -> None:
    uids = [f"uid-{number}" for number in range(300)]
    requests = [message("/validate", json.dumps(review(uid=uid)).encode()) for uid in uids]
    with running.wire() as wire:
        wire.send(b"".join(requests))
        assert [wire.answer().response["uid"] for _ in uids] == uids


def test_both_lanes_in_one_connection(running: Running) -> None:
    uids = [f"uid-{number}" for number in range(12)]
    ways: list[tuple[str, ...]] = [(), ("TE: trailers",), ("traceparent: " + TRACE,)]
    requests = [
        message("/validate", json.dumps(review(uid=uid)).encode(), *ways[number % 3]) for number, uid in enumerate(uids)
    ]
    with running.wire() as wire:
        wire.send(b"".join(requests))
        assert [wire.answer().response["uid"] for _ in uids] == uids
        wire.send(*requests, pause=0.01)
        assert [wire.answer().response["uid"] for _ in uids] == uids


def test_what_follows_an_answer_that_waits() -> None:
    with serving(views=SlowViews(0.2)) as running, running.wire() as wire:
        uids = ["a", "b", "c"]
        requests = [message("/validate", json.dumps(review(uid=uid)).encode()) for uid in uids]
        wire.send(requests[0] + requests[1][:50], requests[1][50:], requests[2])
        assert [wire.answer().response["uid"] for _ in uids] == uids


def test_smuggling_is_refused(running: Running) -> None:
    """Both framings in one head: the parser's answer is 400, and nothing behind it is taken for a request."""
    with running.wire() as wire:
        wire.send(message("/validate", BODY, "Transfer-Encoding: chunked"))
        assert wire.answer().code == 400
        assert wire.closed()


@pytest.mark.parametrize("headers", [(), ("TE: trailers",)])
def test_a_slow_body_is_given_up(headers: tuple[str, ...]) -> None:
    with serving(body_seconds=0.2) as running, running.wire() as wire:
        wire.send(message("/mutate", BODY, *headers)[:-10])
        answer = wire.answer()
        assert answer.code == 408
        assert answer.headers["connection"] == "close"
        assert answer.error
        assert wire.closed()
        assert running.gate.inside == 0


@pytest.mark.parametrize("headers", [(), ("TE: trailers",)])
def test_a_caller_that_leaves_is_forgotten(headers: tuple[str, ...]) -> None:
    with serving(gate=Gate(1, 0)) as running:
        with running.wire() as wire:
            wire.send(message("/mutate", BODY, *headers)[:-10])
            wait_for(lambda: running.gate.held == len(BODY) - 10)
            assert running.gate.inside == 0
        wait_for(lambda: running.gate.held == 0)
        assert running.post("/mutate", review(), *headers).code == 200


def test_bodies_held_are_bounded() -> None:
    gate = Gate()
    with serving(gate=gate) as running:
        working = Held("other", lambda: None)
        working.arriving = False
        assert gate.hold(working, BUFFER_LIMIT - 1000)
        with running.wire() as wire:
            wire.send(message("/mutate", b" " * 5000)[:-10])
            assert wire.answer().code == 503
        gate.drop(working)
        assert gate.held == 0


def test_bytes_held_are_bytes_received_and_the_largest_holder_gives_way() -> None:
    gate = Gate()
    cut: list[str] = []
    greedy, modest = [Held("greedy", partial(cut.append, name)) for name in "ab"], Held("modest", lambda: None)
    assert gate.hold(greedy[0], BUFFER_LIMIT // 2)
    assert gate.hold(greedy[1], BUFFER_LIMIT // 2 - 10)
    assert gate.hold(modest, 100)
    assert cut == ["a"]
    assert gate.held == BUFFER_LIMIT // 2 - 10 + 100
    gate.arrived(greedy[1])
    assert not gate.hold(modest, BUFFER_LIMIT)
    for held in (*greedy, modest):
        gate.drop(held)
    assert gate.held == 0


def test_idle_connections_end_and_busy_ones_live() -> None:
    with serving(keep_alive=2) as running, running.wire() as busy, running.wire() as idle, running.wire() as silent:
        for _ in range(6):
            busy.send(message("/mutate", BODY))
            assert busy.answer().code == 200
            time.sleep(0.5)
        idle.socket.settimeout(10)
        silent.socket.settimeout(10)
        assert idle.closed()
        assert silent.closed()
        busy.send(message("/mutate", BODY, "TE: trailers"))
        assert busy.answer().code == 200
        busy.socket.settimeout(10)
        assert busy.closed()


@pytest.mark.parametrize("path", ["/mutate", "/readyz"])
def test_an_endless_head_is_refused(running: Running, path: str) -> None:
    with running.wire() as wire:
        wire.send(f"POST {path} HTTP/1.1\r\nHost: x\r\n".encode())
        with contextlib.suppress(OSError):
            for _ in range(40):
                wire.send(b"X-More: " + b"x" * 4000 + b"\r\n")
                time.sleep(0.001)
        assert wire.answer().code == 431
        assert wire.closed()


def test_an_unfinished_head_ends() -> None:
    with serving(keep_alive=0.3) as running, running.wire() as wire:
        wire.send(b"POST /mut")
        wire.socket.settimeout(10)
        assert wire.closed()


def test_an_unfinished_head_has_its_own_time() -> None:
    with serving(head_seconds=0.2) as running, running.wire() as wire:
        wire.send(b"POST /mutate HTTP/1.1\r\nHost: x\r\n")
        assert wire.answer().code == 408
        assert wire.closed()


@pytest.mark.parametrize("headers", [(), ("TE: trailers",)])
def test_a_body_comes_at_a_rate(headers: tuple[str, ...]) -> None:
    """Less than half of it in half of the time: no more is waited for. ``body_seconds`` is longer than a wire waits."""
    with serving(body_seconds=15) as running, running.wire() as slow, running.wire() as steady:
        slow.send(message("/mutate", BODY, *headers)[: 1 - len(BODY)])
        steady.send(message("/mutate", BODY, *headers)[:-1])
        assert slow.answer().code == 408
        steady.send(b"}")
        assert steady.answer().code == 200


@pytest.mark.parametrize("headers", [(), ("TE: trailers",)])
def test_arriving_bodies_take_no_place_of_working_requests(headers: tuple[str, ...]) -> None:
    with serving(gate=Gate(1, 1)) as running, contextlib.ExitStack() as stack:
        for _ in range(30):
            stack.enter_context(running.wire()).send(message("/mutate", BODY, *headers)[: 1 - len(BODY)])
        wait_for(lambda: running.gate.held == 30)
        assert running.post("/validate", review()).code == 200


def test_metrics_are_rendered_at_a_bounded_cost(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    made = []

    def render(registry: object) -> bytes:
        made.append(registry)
        time.sleep(0.02)
        return b"made"

    monkeypatch.setattr(app, "generate_latest", render)
    scraped = app.Scraped(running.metrics)
    assert [scraped.text() for _ in range(100)] == [b"made"] * 100
    assert len(made) == 1


def test_a_plain_look_is_answered_as_uvicorn_does(running: Running) -> None:
    for path in ("/healthz", "/readyz", "/metrics"):
        plain = running.get(path)
        with running.wire() as wire:
            wire.send(f"GET {path} HTTP/1.1\r\nHost: x\r\nTE: trailers\r\n\r\n".encode())
            odd = wire.answer()
        assert (plain.code, plain.headers["content-type"]) == (odd.code, odd.headers["content-type"])
        if path != "/metrics":
            assert plain.body == odd.body


class SlowViews:
    """Reads the cluster for every request, and takes its time."""

    def __init__(self, seconds: float, fails: bool = False) -> None:
        self.seconds = seconds
        self.fails = fails
        self.running = 0
        self.most = 0
        self.late = NothingKnown()
        self.read_view = NothingKnown()

    def at_once(self, request: Request) -> ClusterView | None:
        return None

    def lacks(self, view: ClusterView, denies: bool) -> bool:
        return False

    async def read(self, request: Request, view: ClusterView | None) -> ClusterView:
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            await asyncio.sleep(self.seconds)
        finally:
            self.running -= 1
        if self.fails:
            raise ConnectionError("refused")
        return self.read_view

    def without(self, request: Request, view: ClusterView | None) -> ClusterView:
        return self.late

    def weight(self, request: Request) -> int:
        return 0

    def read_weight(self, view: ClusterView) -> int:
        return 0


@pytest.mark.parametrize("headers", [(), ("TE: trailers",)])
@pytest.mark.parametrize(
    ("seconds", "fails", "result"), [(0, False, "answered"), (9, False, "late"), (0, True, "failed")]
)
def test_look_ups_have_a_budget(headers: tuple[str, ...], seconds: float, fails: bool, result: str) -> None:
    views = SlowViews(seconds, fails)
    engine = Engine()
    with serving(views=views, lookup_seconds=0.5, engine=engine) as running:
        assert running.post("/validate", review(), *headers).response["uid"] == UID
        assert engine.views == [views.read_view if result == "answered" else views.late]
        assert running.metrics.registry.get_sample_value("ckptguard_lookups_total", {"result": result}) == 1
        assert running.gate.inside == 0


def test_look_ups_at_a_time_are_bounded() -> None:
    views = SlowViews(0.1)
    with serving(views=views, gate=Gate(2, 50)) as running:
        wires = [running.wire() for _ in range(8)]
        for wire in wires:
            wire.send(message("/validate", BODY))
        assert [wire.answer().code for wire in wires] == [200] * 8
        assert views.most == 2
        for wire in wires:
            wire.socket.close()


def test_in_flight_is_answered_before_the_end() -> None:
    with serving(views=SlowViews(0.5)) as running:
        wires = [running.wire() for _ in range(3)]
        wires[0].send(message("/validate", BODY))
        wires[1].send(message("/validate", BODY, "TE: trailers"))
        wires[2].send(message("/validate", BODY)[:-5])
        wait_for(lambda: running.gate.inside == 2 and running.gate.held > len(BODY))
        running.state.phase = type(running.state.phase).DRAINING
        wires[2].send(BODY[-5:])
        for wire in wires:
            answer = wire.answer()
            assert answer.code == 200
            assert answer.headers["connection"] == "close"
            assert wire.closed()
            wire.socket.close()


def wait_for(true: Callable[[], object], seconds: float = 20) -> None:
    until = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < until
        time.sleep(0.005)


class Caller:
    """A connection that is its own event loop: `turn` runs what was put off until the next turn."""

    def __init__(self, seen: list[str], name: str, fails: bool = False) -> None:
        self.seen, self.name, self.fails = seen, name, fails
        self.peer, self.caller = name, WhoAsks.ANYBODY
        self.loop = self
        self.soon: list[Callable[[], None]] = []

    def call_soon(self, job: Callable[[], None]) -> None:
        self.soon.append(job)

    def turn(self) -> None:
        jobs, self.soon[:] = list(self.soon), []
        for job in jobs:
            job()

    def answer(self, answer: str) -> None:
        self.seen.append(f"write {answer}")
        if self.fails:
            raise RuntimeError("no way")

    def give_up(self, error: Exception) -> None:
        self.seen.append(f"give up {self.name}: {error}")


def _line(seen: list[str], slow: str = "", broken: str = "") -> Line:
    def answer(_: str, body: bytes, __: str, since: float, ___: WhoAsks) -> str:
        name = body.decode()
        assert since <= time.perf_counter()
        seen.append(f"decide {name}")
        if name == slow:
            time.sleep(0.003)
        if name == broken:
            raise ValueError("no answer")
        return name

    return Line(SimpleNamespace(admission=SimpleNamespace(answer=answer)))  # type: ignore[arg-type]


def _join(line: Line, caller: Caller) -> None:
    line.join(caller, Head("/validate", 1, ""), caller.name.encode())  # type: ignore[arg-type]


def test_one_turn_is_decided_together_and_written_then() -> None:
    seen: list[str] = []
    line, one, two = _line(seen), Caller(seen, "one"), Caller(seen, "two")
    _join(line, one)
    _join(line, two)
    assert seen == []
    one.turn()
    assert seen == ["decide one", "decide two", "write one", "write two"]
    _join(line, two)
    two.turn()
    assert seen[4:] == ["decide two", "write two"]


def test_a_slow_decision_does_not_hold_back_what_was_decided_before() -> None:
    seen: list[str] = []
    line, one, two = _line(seen, slow="one"), Caller(seen, "one"), Caller(seen, "two")
    _join(line, one)
    _join(line, two)
    one.turn()
    assert seen == ["decide one", "write one"]
    one.turn()
    assert seen[2:] == ["decide two", "write two"]
    assert one.soon == two.soon == []


def test_a_fault_in_one_costs_no_other() -> None:
    seen: list[str] = []
    line, one, two, three = _line(seen, broken="two"), *(Caller(seen, name) for name in ("one", "two", "three"))
    one.fails = True
    for caller in (one, two, three):
        _join(line, caller)
    one.turn()
    assert [entry for entry in seen if "decide" not in entry] == [
        "give up two: no answer", "write one", "give up one: no way", "write three",
    ]  # fmt: skip
    _join(line, three)
    three.turn()
    assert seen[-1] == "write three"


def test_a_request_of_ours_that_fails_ends_its_connection(
    running: Running, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: object) -> None:
        raise ValueError

    monkeypatch.setattr(AdmissionProtocol, "_write", broken)
    with running.wire() as wire:
        wire.send(message("/validate", BODY))
        assert wire.closed()
    monkeypatch.undo()
    assert running.gate.inside == 0
    assert "a request got no answer: ValueError" in caplog.text
    assert running.post("/validate", review()).code == 200


def test_many_connections_at_once(running: Running) -> None:
    wires = [running.wire() for _ in range(40)]
    for _ in range(3):
        for number, wire in enumerate(wires):
            wire.send(message("/validate", json.dumps(review(uid=f"uid-{number}")).encode()), pause=0)
        assert [wire.answer().response["uid"] for wire in wires] == [f"uid-{number}" for number in range(40)]
    for wire in wires:
        wire.socket.close()
    wait_for(lambda: running.gate.inside == 0)


def test_a_caller_that_leaves_in_line_is_forgotten(running: Running) -> None:
    for _ in range(20):
        with running.wire() as wire:
            wire.send(message("/validate", BODY))
    wait_for(lambda: running.gate.inside == 0)
    assert running.post("/validate", review()).code == 200


@pytest.mark.parametrize("headers", [(), ("TE: trailers",)])
def test_what_a_request_had_of_the_gate_comes_back(headers: tuple[str, ...]) -> None:
    """However it ends: answered at once, after a look-up, given up, left alone."""
    gate = Gate()
    large = json.dumps(review({"spec": "x" * 300_000})).encode()
    with serving(gate=gate, views=SlowViews(0.05), body_seconds=0.3) as running:
        for body in (BODY, large):
            assert running.post("/validate", json.loads(body), *headers).code == 200
            with running.wire() as wire:
                wire.send(message("/validate", body, *headers)[:-10])
                assert wire.answer().code == 408
            with running.wire() as wire:
                wire.send(message("/validate", body, *headers)[:-10])
            with running.wire() as wire:
                wire.send(message("/validate", body, *headers))
        wait_for(lambda: gate.inside == gate.held == 0)
