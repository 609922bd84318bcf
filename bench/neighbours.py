"""What a client feels while another one sends its worst: answers, times and refusals, in one run with quiet before."""

from __future__ import annotations

import contextlib
import os
import socket
import ssl
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from bench.attack import ATTACKS
from bench.measure import Row, milliseconds, resident_mebibytes
from bench.objects import review, trainjob
from bench.serving import _free_ports, _pair, _started, read_answer

HERE = Path(__file__).parent
SECONDS = float(os.environ.get("NEIGHBOURS_SECONDS", "6"))
_PAUSE = 0.01
_FRESH = 20
"""Every so many requests come on a new connection."""
_ALONE = ("shapes", "deep-json")
"""What a tenant can send through the API server too: then it comes from the neighbour's own address."""


class Felt(NamedTuple):
    """What the neighbour felt, in seconds."""

    times: list[float]
    health: float
    """The slowest health check."""
    refused: int
    failed: int

    @property
    def p99(self) -> float:
        return sorted(self.times)[int(len(self.times) * 0.99)]


def measure_neighbours(_: int, __: int) -> list[Row]:
    """A row for each attack as a stranger, and for those of a tenant as one."""
    rows = []
    with tempfile.TemporaryDirectory() as name:
        cert, key = _pair(Path(name))
        (port,) = _free_ports(1)
        command = [sys.executable, "-m", "bench.guarded", f"listen=127.0.0.1:{port}", "no_cluster=true"]
        command += [f"tls_cert={cert}", f"tls_key={key}", f"audit_file={Path(name) / 'audit'}", "audit_stdout=false"]
        with _started(command, port) as pid:
            context = ssl.create_default_context(cafile=cert)
            _feel(context, port, 1.0)
            for kind in ATTACKS:
                for source in ("127.0.0.2", "127.0.0.1") if kind in _ALONE else ("127.0.0.2",):
                    quiet = _feel(context, port, SECONDS / 2)
                    with _attacked(kind, port, source):
                        felt = _feel(context, port, SECONDS)
                    rows += _rows(f"{kind}, {'a stranger' if source == '127.0.0.2' else 'a tenant'}", quiet, felt)
                    time.sleep(1.0)
            rows.append(Row("resident memory afterwards", f"{resident_mebibytes(pid):.0f} MiB", "", None, ""))
    return rows


def _rows(what: str, quiet: Felt, felt: Felt) -> list[Row]:
    return [
        Row(
            f"{what}: p99 more than quiet",
            milliseconds(felt.p99),
            f"{milliseconds(quiet.p99)} quiet",
            (felt.p99 - quiet.p99) * 1e3,
            "<= 30",
            f"median {milliseconds(statistics.median(felt.times))}, {len(felt.times)} answers",
        ),
        Row(f"{what}: slowest, s", milliseconds(max(felt.times)), "", max(felt.times), "<= 1"),
        Row(f"{what}: slowest health check, s", milliseconds(felt.health), "", felt.health, "<= 1"),
        Row(
            f"{what}: 503 and lost", f"{felt.refused} and {felt.failed}", "", float(felt.refused + felt.failed), "<= 0"
        ),
    ]


def _feel(context: ssl.SSLContext, port: int, seconds: float) -> Felt:
    body = review(trainjob())
    head = (
        f"POST /validate HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    request = head.encode() + body
    times: list[float] = []
    health, refused, failed, number = 0.0, 0, 0, 0
    until = time.monotonic() + seconds
    kept: ssl.SSLSocket | None = None
    while time.monotonic() < until:
        number += 1
        began = time.perf_counter()
        try:
            if kept is None or number % _FRESH == 0:
                if kept is not None:
                    kept.close()
                raw = socket.create_connection(("127.0.0.1", port), 10)
                kept = context.wrap_socket(raw, server_hostname="localhost")
            if number % 10 == 5:
                _exchange(kept, b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
                health = max(health, time.perf_counter() - began)
            else:
                refused += _exchange(kept, request) != 200
                times.append(time.perf_counter() - began)
        except OSError:
            failed += 1
            kept = None
        time.sleep(_PAUSE)
    if kept is not None:
        kept.close()
    return Felt(times or [99.0], health, refused, failed)


def _exchange(wire: socket.socket, request: bytes) -> int:
    """The code of the answer. Raises OSError where the connection is gone."""
    wire.sendall(request)
    return read_answer(wire)


@contextlib.contextmanager
def _attacked(kind: str, port: int, source: str) -> Iterator[None]:
    command = [sys.executable, "-m", "bench.attack", kind, str(port), source, str(SECONDS + 2)]
    child = subprocess.Popen(command, cwd=HERE.parent, stdout=subprocess.PIPE)  # noqa: S603 - fixed words
    try:
        if child.stdout is not None:
            child.stdout.readline()
        time.sleep(1.0)
        yield
    finally:
        child.kill()
        child.wait()
