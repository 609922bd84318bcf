"""The server against the floor: a Go webhook that decides nothing; and against a bare FastAPI."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from bench.measure import Row, compare, cpu_seconds, microseconds, milliseconds, resident_mebibytes
from bench.objects import review, trainjob

HERE = Path(__file__).parent
CONNECTIONS = (8, 64)
WARM_UP = 2000


class Load(NamedTuple):
    """One run of the load generator."""

    per_core_second: float
    p99: float
    """Seconds."""


def measure_serving(rounds: int, requests: int) -> list[Row]:
    """Requests per processor second, and p99, of verdicts and patches, each server alone on one core.

    ``new``: each request as if its spec had not been seen before; else the server knows the one TrainJob of the load.
    """
    if missing := lacking("h2load", "go", "openssl", "taskset"):
        return [Row(f"serving: no {', '.join(missing)} (apt-get install nghttp2-client golang)", "", "", None, "")]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        cert, key = _pair(folder)
        body = folder / "review.json"
        body.write_bytes(review(trainjob()))
        floor = folder / "floor"
        subprocess.run(["go", "build", "-o", str(floor), "."], cwd=HERE / "floor", check=True, env=go_environment())  # noqa: S603, S607
        ports = _free_ports(3)
        ours = [sys.executable, "-m", "bench.guarded", f"listen=127.0.0.1:{ports[0]}", "no_cluster=true"]
        ours += [f"tls_cert={cert}", f"tls_key={key}", "audit_file=" + str(folder / "audit.log"), "audit_stdout=false"]
        forgetful = [*ours[:3], f"listen=127.0.0.1:{ports[2]}", *ours[4:], "forget=true"]
        against = [str(floor), "-listen", f"127.0.0.1:{ports[1]}", "-tls-cert", str(cert), "-tls-key", str(key)]
        loads: dict[tuple[str, int], list[Load]] = defaultdict(list)
        with (
            _started(_pinned(ours), ports[0]) as guard,
            _started(_pinned(forgetful), ports[2]) as anew,
            _started(_pinned(against), ports[1], GOMAXPROCS="1") as go,
        ):
            targets = {
                "floor": (go, f"https://127.0.0.1:{ports[1]}/validate"),
                "validate": (guard, f"https://127.0.0.1:{ports[0]}/validate"),
                "mutate": (guard, f"https://127.0.0.1:{ports[0]}/mutate"),
                "validate, new": (anew, f"https://127.0.0.1:{ports[2]}/validate"),
                "mutate, new": (anew, f"https://127.0.0.1:{ports[2]}/mutate"),
            }
            for pid, url in targets.values():
                _load(pid, url, 8, WARM_UP, body, folder)
            for _ in range(max(rounds, 5)):
                for connections in CONNECTIONS:
                    for target, (pid, url) in targets.items():
                        loads[target, connections].append(_load(pid, url, connections, requests, body, folder))
    rows = []
    goals = {8: ">= 0.7", 64: ">= 0.9"}
    for connections in CONNECTIONS:
        base = loads["floor", connections]
        for target in list(targets)[1:]:
            mine = loads[target, connections]
            rows.append(
                compare(
                    f"/{target} a core-second, {connections} connections",
                    [load.per_core_second for load in mine],
                    [load.per_core_second for load in base],
                    goals[connections],
                    lambda rate: f"{rate:.0f}/s",
                    "Go floor",
                )
            )
            rows.append(
                compare(
                    f"/{target} p99, {connections} connections",
                    [load.p99 for load in mine],
                    [load.p99 for load in base],
                    "<= 1.2" if connections == 8 else "",
                    microseconds,
                    "Go floor",
                )
            )
    return rows


def measure_start(rounds: int, requests: int) -> list[Row]:
    """Process start to listening, and resident memory after some requests, against a bare FastAPI application."""
    ours_start: list[float] = []
    bare_start: list[float] = []
    ours_memory: list[float] = []
    bare_memory: list[float] = []
    body = review(trainjob())
    for _ in range(max(rounds, 5)):
        port, other = _free_ports(2)
        command = [
            sys.executable,
            "-m",
            "webhook",
            "serve",
            "--listen",
            f"127.0.0.1:{port}",
            "--insecure-http",
            "--no-cluster",
        ]
        bare = [sys.executable, "-m", "uvicorn", "bench.bare:app", "--port", str(other), "--log-level", "warning"]
        for its_command, its_port, start, memory in (
            (bare, other, bare_start, bare_memory),
            (command, port, ours_start, ours_memory),
        ):
            started = time.monotonic()
            with _started(its_command, its_port) as pid:
                start.append(time.monotonic() - started)
                _ask(its_port, body, min(requests, 500))
                memory.append(resident_mebibytes(pid))
    return [
        compare("listening after", ours_start, bare_start, "<= 1.5", milliseconds, "bare FastAPI"),
        compare("resident memory", ours_memory, bare_memory, "<= 1.2", lambda size: f"{size:.1f} MiB", "bare FastAPI"),
    ]


def _pinned(command: list[str]) -> list[str]:
    """On the last core; the load generator has the first."""
    return ["taskset", "-c", str(max(os.sched_getaffinity(0))), *command]


def _load(pid: int, url: str, connections: int, requests: int, body: Path, folder: Path) -> Load:
    log = folder / "h2load.log"
    log.unlink(missing_ok=True)
    command = ["taskset", "-c", "0", "h2load", "--h1", "-t1", f"-c{connections}", f"-n{requests}", f"-d{body}"]
    command += ["-H", "content-type: application/json", f"--log-file={log}", url]
    before = cpu_seconds(pid)
    done = subprocess.run(command, capture_output=True, text=True, check=True)  # noqa: S603 - fixed words
    spent = cpu_seconds(pid) - before
    if f"{requests} succeeded" not in done.stdout:
        raise RuntimeError(done.stdout)
    times = sorted(int(line.split()[2]) for line in log.read_text().splitlines())
    return Load(requests / spent, times[int(len(times) * 0.99)] / 1e6)


def lacking(*tools: str) -> list[str]:
    """Those of the tools that are not installed."""
    return [tool for tool in tools if shutil.which(tool) is None]


@contextmanager
def _started(command: Sequence[str], port: int, log: Path | None = None, **environment: str) -> Iterator[int]:
    """The process, listening; what it says on standard error goes to ``log``."""
    with Path(os.devnull if log is None else log).open("wb") as errors:
        child = subprocess.Popen(  # noqa: S603 - fixed words
            command,
            stdout=subprocess.DEVNULL,
            stderr=errors,
            cwd=HERE.parent,
            env={**os.environ, **environment},
        )
    try:
        until = time.monotonic() + 30
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                break
            except OSError:
                if child.poll() is not None or time.monotonic() > until:
                    raise RuntimeError(f"{' '.join(command)} does not listen") from None
                time.sleep(0.002)
        yield child.pid
    finally:
        child.send_signal(signal.SIGKILL)
        child.wait()


def _ask(port: int, body: bytes, count: int) -> None:
    """The same request again and again on one connection."""
    with socket.create_connection(("127.0.0.1", port), 5) as wire:
        wire.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for _ in range(count):
            _exchange(wire, body)


def _exchange(wire: socket.socket, body: bytes) -> None:
    """One request and its answer. Raises OSError where the connection is gone."""
    head = (
        f"POST /validate HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    wire.sendall(head.encode() + body)
    read_answer(wire)


def read_answer(wire: socket.socket) -> int:
    """Reads one answer whole; its code. Raises OSError where the connection is gone."""
    data = b""
    while b"\r\n\r\n" not in data:
        data += _some(wire)
    answer, _, rest = data.partition(b"\r\n\r\n")
    length = next(int(line[16:]) for line in answer.lower().split(b"\r\n") if line.startswith(b"content-length: "))
    while len(rest) < length:
        rest += _some(wire)
    return int(answer.split(b" ")[1])


def _some(wire: socket.socket) -> bytes:
    data = wire.recv(65536)
    if not data:
        raise ConnectionResetError("closed by the server")
    return data


def _pair(folder: Path) -> tuple[Path, Path]:
    """A self-signed ECDSA P-256 pair."""
    cert, key = folder / "tls.crt", folder / "tls.key"
    command = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:prime256v1",
        "-nodes",
        "-days",
        "2",
    ]
    command += [
        "-subj",
        "/CN=localhost",
        "-addext",
        "subjectAltName=DNS:localhost",
        "-keyout",
        str(key),
        "-out",
        str(cert),
    ]
    subprocess.run(command, capture_output=True, check=True)  # noqa: S603 - fixed words
    return cert, key


def _free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()


def go_environment() -> dict[str, str]:
    """For a build that depends on nothing outside."""
    return {**os.environ, "CGO_ENABLED": "0", "GOFLAGS": "-trimpath", "GOWORK": "off"}


def measure_idle(_: int, __: int) -> list[Row]:
    """A hundred connections, each idle for another number of seconds between two requests: how many are answered."""
    body = review(trainjob())
    with tempfile.TemporaryDirectory() as name:
        cert, key = _pair(Path(name))
        (port,) = _free_ports(1)
        command = [sys.executable, "-m", "webhook", "serve", "--listen", f"127.0.0.1:{port}", "--no-cluster"]
        with _started([*command, "--tls-cert", str(cert), "--tls-key", str(key)], port):
            context = ssl.create_default_context(cafile=cert)
            wires = []
            for _ in range(100):
                raw = socket.create_connection(("127.0.0.1", port), 10)
                wires.append(context.wrap_socket(raw, server_hostname="localhost"))
                _exchange(wires[-1], body)
            started = time.monotonic()
            failed = 0
            for seconds, wire in enumerate(wires, 1):
                time.sleep(max(0.0, started + seconds - time.monotonic()))
                try:
                    _exchange(wire, body)
                except OSError:
                    failed += 1
                wire.close()
    return [Row("connections lost at gaps of 1 to 100 s", f"{failed} of {len(wires)}", "", float(failed), "<= 0")]
