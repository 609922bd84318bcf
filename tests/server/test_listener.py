"""Ceilings of connections: who is taken, who gives way, and what a socket that says nothing costs."""

from __future__ import annotations

import contextlib
import resource
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.certs.cluster import leaf
from tests.server.serving import Running, Wire, message, review, serving
from tests.server.test_lane import BODY, SlowViews, wait_for
from tests.server.test_tls import CA, NOW, write
from webhook.server import listener as module
from webhook.server.listener import Ceilings, fitting
from webhook.server.tls import Certificate
from webhook.server.turns import Turns


def count(running: Running, name: str = "ckptguard_connections", **labels: str) -> float:
    value = running.metrics.registry.get_sample_value(name, labels)
    assert value is not None
    return value


def refused(running: Running, why: str) -> float:
    return count(running, "ckptguard_connections_refused_total", why=why)


@contextlib.contextmanager
def sockets(port: int, number: int, source: str = "127.0.0.1") -> Iterator[list[socket.socket]]:
    with contextlib.ExitStack() as stack:
        yield [
            stack.enter_context(socket.create_connection(("127.0.0.1", port), 10, (source, 0))) for _ in range(number)
        ]


def ended(sock: socket.socket) -> bool:
    sock.settimeout(10)
    try:
        return sock.recv(1) == b""
    except ConnectionResetError:
        return True


def test_callers_take_turns() -> None:
    turns: Turns[int] = Turns()
    for number in range(4):
        turns.push("greedy", number)
    turns.push("modest", 9)
    assert len(turns) == 5
    assert [turns.pop() for _ in range(5)] == [0, 9, 1, 2, 3]
    assert not turns
    with pytest.raises(IndexError):
        turns.pop()


def test_the_longest_idle_gives_way_and_one_that_works_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_SETTLED", 0.0)
    with serving(ceilings=Ceilings(20, 3), views=SlowViews(0.6)) as running:
        with running.wire() as working, sockets(running.port, 2) as idle:
            working.send(message("/validate", BODY))
            wait_for(lambda: running.gate.inside == 1)
            with running.wire() as fresh:
                fresh.send(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
                assert fresh.answer().code == 200
            assert ended(idle[0])
            assert working.answer().code == 200
        assert refused(running, "peer") == 1
        wait_for(lambda: count(running) == 0)


def test_one_that_is_arriving_goes_before_one_that_idles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_SETTLED", 0.0)
    with serving(ceilings=Ceilings(20, 2)) as running, running.wire() as kept, running.wire() as half:
        kept.send(message("/validate", BODY))
        assert kept.answer().code == 200
        half.send(message("/validate", BODY)[:-5])
        wait_for(lambda: running.gate.held > 0)
        assert running.post("/validate", review()).code == 200
        assert half.closed()
        kept.send(message("/validate", BODY))
        assert kept.answer().code == 200


def test_where_all_is_full_the_peer_with_most_gives_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_SETTLED", 0.0)
    with (
        serving(ceilings=Ceilings(10, 10)) as running,
        running.wire() as kept,
        sockets(running.port, 9, "127.0.0.2") as greedy,
    ):
        wait_for(lambda: count(running) == 10)
        with running.wire() as fresh:
            fresh.send(message("/validate", BODY))
            assert fresh.answer().code == 200
        assert ended(greedy[0])
        kept.send(message("/validate", BODY))
        assert kept.answer().code == 200
        assert refused(running, "full") == 1


@pytest.fixture
def tls(tmp_path: Path) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """The server's and a client's."""
    context = Certificate(*write(tmp_path, leaf(CA, NOW, names=("localhost",)))).context
    return context, ssl.create_default_context(cadata=CA.cert.decode())


def test_a_socket_that_says_nothing_makes_no_tls_state(tls: tuple[ssl.SSLContext, ssl.SSLContext]) -> None:
    made = []

    class Counting(ssl.SSLContext):
        def wrap_bio(self, *args: object, **kwargs: object) -> ssl.SSLObject:
            made.append(1)
            return tls[0].wrap_bio(*args, **kwargs)  # type: ignore[arg-type]

    with (
        serving(context=Counting(ssl.PROTOCOL_TLS_SERVER), ceilings=Ceilings(100, 100, 1.0)) as running,
        sockets(running.port, 40) as silent,
    ):
        wait_for(lambda: count(running) == 40)
        with Wire(running.port, tls[1]) as wire:
            wire.send(message("/validate", BODY))
            assert wire.answer().code == 200
        assert len(made) == 1
        assert all(ended(one) for one in silent)
        wait_for(lambda: count(running) == 0)
        assert refused(running, "handshake") == 40


def test_a_handshake_that_stops_ends_and_gives_way(
    tls: tuple[ssl.SSLContext, ssl.SSLContext], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_SHAKING", 5)
    out = ssl.MemoryBIO()
    with contextlib.suppress(ssl.SSLWantReadError):
        tls[1].wrap_bio(ssl.MemoryBIO(), out, server_hostname="localhost").do_handshake()
    hello = out.read()
    with serving(context=tls[0], ceilings=Ceilings(100, 100, 60.0)) as running:
        with sockets(running.port, 12) as stopped:
            for one in stopped:
                one.sendall(hello)
            with Wire(running.port, tls[1]) as wire:
                wire.send(message("/validate", BODY))
                assert wire.answer().code == 200
            assert refused(running, "full") >= 8
        wait_for(lambda: count(running) == 0)


def test_fewer_connections_where_descriptors_are_few(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []
    monkeypatch.setattr(resource, "setrlimit", lambda which, limits: asked.append(limits))
    monkeypatch.setattr(resource, "getrlimit", lambda which: (1024, 1024))
    assert fitting(Ceilings(1024, 512)) == Ceilings(640, 512)
    monkeypatch.setattr(resource, "getrlimit", lambda which: (256, 256))
    assert fitting(Ceilings(1024, 512)) == Ceilings(128, 128)
    monkeypatch.setattr(resource, "getrlimit", lambda which: (1024, 1_048_576))
    assert fitting(Ceilings(1024, 512)) == Ceilings(1024, 512)
    assert asked[-1] == (1408, 1_048_576)
