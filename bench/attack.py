"""One client that sends its worst against 127.0.0.1, for some seconds.

``python -m bench.attack KIND PORT FROM SECONDS``

It ends by itself. ``FROM`` is the address of loopback that it comes from: another one than the neighbour's, as a
stranger's is, or the same, as with whoever shares a proxy with others.
"""

from __future__ import annotations

import contextlib
import json
import random
import selectors
import socket
import ssl
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from bench.objects import review, trainjob
from bench.serving import read_answer

HEAD = "POST /validate HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n"


def main() -> None:
    """Attack until the time is over."""
    kind, port, source, seconds = sys.argv[1], int(sys.argv[2]), sys.argv[3], float(sys.argv[4])
    until = time.monotonic() + seconds
    print("ready", flush=True)  # noqa: T201
    ATTACKS[kind](port, source, until)


def _context() -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def _connect(port: int, source: str) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), 5, (source, 0))


def _secure(port: int, source: str) -> ssl.SSLSocket:
    return _context().wrap_socket(_connect(port, source), server_hostname="localhost")


def _keep_open(port: int, source: str, until: float, number: int, make: Callable[[int, str], socket.socket]) -> None:
    """So many connections at a time, made anew where the server ends them."""
    held: list[socket.socket] = []
    while time.monotonic() < until:
        with contextlib.suppress(OSError):
            if len(held) < number:
                held.append(make(port, source))
                continue
        with selectors.DefaultSelector() as ready:
            for one in held:
                ready.register(one, selectors.EVENT_READ)
            for key, _ in ready.select(0.05):
                one = key.fileobj  # type: ignore[assignment]
                one.close()
                held.remove(one)


def silent(port: int, source: str, until: float) -> None:
    """5,000 connections that say nothing."""
    _keep_open(port, source, until, 5000, _connect)


def half_shaken(port: int, source: str, until: float) -> None:
    """5,000 handshakes that stop after their first flight."""
    out = ssl.MemoryBIO()
    with contextlib.suppress(ssl.SSLWantReadError):
        _context().wrap_bio(ssl.MemoryBIO(), out, server_hostname="localhost").do_handshake()
    hello = out.read()

    def make(port: int, source: str) -> socket.socket:
        made = _connect(port, source)
        made.sendall(hello)
        return made

    _keep_open(port, source, until, 5000, make)


def slow_bodies(port: int, source: str, until: float) -> None:
    """600 heads with one byte of body."""

    def make(port: int, source: str) -> socket.socket:
        made = _secure(port, source)
        made.sendall(HEAD.format(2000).encode() + b"{")
        return made

    _keep_open(port, source, until, 600, make)


def large_bodies(port: int, source: str, until: float) -> None:
    """Twelve bodies of 7 MiB that stop before their end."""

    def make(port: int, source: str) -> socket.socket:
        made = _secure(port, source)
        made.settimeout(0.5)
        with contextlib.suppress(TimeoutError):
            made.sendall(HEAD.format(7 * 2**20).encode() + b" " * (6 * 2**20))
        return made

    _keep_open(port, source, until, 12, make)


def _closed_loop(port: int, source: str, until: float, clients: int, requests: Sequence[bytes]) -> None:
    """So many clients, each sending its next request when its last is answered."""

    def one(number: int) -> None:
        dice = random.Random(number)  # noqa: S311
        while time.monotonic() < until:
            with contextlib.suppress(OSError, ValueError), _secure(port, source) as wire:
                wire.settimeout(10)
                while time.monotonic() < until:
                    wire.sendall(dice.choice(requests))
                    read_answer(wire)

    threads = [threading.Thread(target=one, args=(number,)) for number in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def metrics(port: int, source: str, until: float) -> None:
    """Four clients on ``/metrics``."""
    _closed_loop(port, source, until, 4, [b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"])


def odd_requests(port: int, source: str, until: float) -> None:
    """Sixteen clients with what the fast lane does not take."""
    _closed_loop(port, source, until, 16, [b"GET /nowhere HTTP/1.1\r\nHost: x\r\n\r\n"])


def _job() -> dict[str, Any]:
    """A TrainJob to change: that of the benchmark is shared."""
    made: dict[str, Any] = json.loads(json.dumps(trainjob()))
    return made


def _posts(objects: Sequence[dict[str, Any]]) -> list[bytes]:
    bodies = [review(one) for one in objects]
    return [HEAD.format(len(body)).encode() + body for body in bodies]


def shapes(port: int, source: str, until: float) -> None:
    """Eight clients with TrainJobs of half a megabyte: variables, overrides, programs, no two alike."""
    made = []
    for seed in range(6):
        many = _job()
        many["metadata"]["name"] = f"many-{seed}"
        trainer = many["spec"].setdefault("trainer", {})
        trainer["env"] = [{"name": f"V{seed}_{i}", "value": f"$(V{seed}_{i - 1})x"} for i in range(9000)]
        text = "\n".join(f"def f{seed}_{i}(x):\n    return x[{i}].mean() * {seed}.{i}" for i in range(900))
        script = _job()
        script["metadata"]["name"] = f"script-{seed}"
        script["spec"].setdefault("trainer", {}).update(command=["python", "-c", text + " " * 100_000], args=[])
        hostile = _job()
        hostile["spec"]["trainer"] = {"command": ["bash", "-c", f": {seed}; a) " + "~" * 33_000]}
        made += [many, script, hostile]
    _closed_loop(port, source, until, 8, _posts(made))


def deep_json(port: int, source: str, until: float) -> None:
    """Four clients with 7 MiB of lists in lists."""
    body = json.dumps({"kind": "AdmissionReview", "x": "@"}).replace('"@"', "[" + "[[[]]]," * 1_000_000 + "1]").encode()
    body = body[: 7 * 2**20 - 10]
    _closed_loop(port, source, until, 4, [HEAD.format(len(body)).encode() + body])


ATTACKS = {
    "silent": silent,
    "half-shaken": half_shaken,
    "slow-bodies": slow_bodies,
    "large-bodies": large_bodies,
    "metrics": metrics,
    "odd-requests": odd_requests,
    "shapes": shapes,
    "deep-json": deep_json,
}

if __name__ == "__main__":
    main()
