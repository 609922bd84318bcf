"""The process: getting ready, leaving without losing a request."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.server.serving import Wire, message, review, serving
from tests.server.test_lane import wait_for

BODY = json.dumps(review()).encode()


@contextmanager
def process(**flags: object) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    port = free_port()
    command = [sys.executable, "-m", "tests.server.serve_fake", f"listen=127.0.0.1:{port}", "insecure_http=true"]
    command += [f"{name}={value}" for name, value in flags.items()]
    child = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=Path(__file__).parents[2],
        env={"CKPTGUARD_NO_CLUSTER": "true"},
    )
    try:
        wait_for(lambda: ready(port) == 200, 20)
        yield child, port
    finally:
        child.kill()
        child.communicate()


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port


def ready(port: int) -> int:
    try:
        with Wire(port) as wire:
            wire.send(b"GET /readyz HTTP/1.1\r\nHost: x\r\n\r\n")
            return wire.answer().code
    except (OSError, EOFError):
        return 0


def test_ready_only_when_prepared() -> None:
    opened = threading.Event()

    async def prepare() -> None:
        await asyncio.to_thread(opened.wait)

    with serving(prepare=prepare) as running:
        answer = running.get("/readyz")
        assert answer.code == 503
        assert answer.error == "starting"
        assert running.get("/healthz").code == 200
        opened.set()
        wait_for(lambda: running.get("/readyz").code == 200)


def test_sigterm_takes_requests_until_the_delay_is_over() -> None:
    with process(pre_stop_delay=2) as (child, port), Wire(port) as kept, Wire(port) as half:
        kept.send(message("/validate", BODY))
        assert kept.answer().code == 200
        half.send(message("/validate", BODY)[:-5])
        child.send_signal(signal.SIGTERM)
        wait_for(lambda: ready(port) == 503)
        # New connections and kept ones are still served; each is told to go elsewhere.
        with Wire(port) as fresh:
            fresh.send(message("/validate", BODY))
            assert fresh.answer().headers["connection"] == "close"
        kept.send(message("/validate", BODY))
        answer = kept.answer()
        assert answer.code == 200
        assert answer.headers["connection"] == "close"
        wait_for(lambda: ready(port) == 0)
        half.send(BODY[-5:])
        assert half.answer().code == 200
        out, _ = child.communicate(timeout=10)
        assert child.returncode == 0
        assert len(out.splitlines()) == 4


def test_a_second_signal_skips_the_delay() -> None:
    with process(pre_stop_delay=60) as (child, _):
        child.send_signal(signal.SIGTERM)
        time.sleep(0.3)
        assert child.poll() is None
        child.send_signal(signal.SIGTERM)
        assert child.wait(10) == 0


def test_nobody_reads_standard_output() -> None:
    """A stalled pipe costs audit lines and not one answer."""
    with process(audit_queue=100, pre_stop_delay=0) as (child, port), Wire(port) as wire:
        slowest = 0.0
        for _ in range(1500):
            started = time.monotonic()
            wire.send(message("/validate", BODY))
            assert wire.answer().code == 200
            slowest = max(slowest, time.monotonic() - started)
        assert slowest < 5  # an answer that waits for the pipe never comes
        wire.send(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
        lost = [
            line for line in wire.answer().body.splitlines() if line.startswith(b"ckptguard_audit_lines_lost_total")
        ]
        assert float(lost[0].split()[-1]) > 100
        child.send_signal(signal.SIGTERM)
        assert child.wait(15) == 0
