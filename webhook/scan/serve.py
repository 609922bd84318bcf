"""``ckptguard scan --metrics``: scan again and again, and serve what was found to Prometheus, over plain HTTP."""

from __future__ import annotations

import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import FrameType
from typing import Final

from msgspec import Struct

from webhook.cluster.kinds import TRAINJOB
from webhook.reports.review import Reviewed

_PATIENCE: Final = 600.0
"""Seconds that a scan may take beyond its turn before ``/healthz`` gives it up."""
VERDICTS: Final = ("allow", "warn", "deny", "exempt", "not-judged")


class Figures(Struct):
    """What the last scan that came to its end found, and how the scans go."""

    runs: Counter[tuple[str, str]] = Counter()
    """By namespace and verdict."""
    seconds: float = 0.0
    ended: float = 0.0
    """Unix time; 0 before the first."""
    failures: int = 0


def count(results: Iterable[Reviewed], also: Callable[[Reviewed], None] | None = None) -> Counter[tuple[str, str]]:
    """TrainJobs by namespace and verdict, one result at a time. ``also`` is given each result."""
    found: Counter[tuple[str, str]] = Counter()
    for result in results:
        if result.kind == TRAINJOB:
            unjudged = result.verdict == "allow" and not result.judged
            found[result.namespace, "not-judged" if unjudged else result.verdict] += 1
        if also is not None:
            also(result)
    return found


def text(figures: Figures) -> str:
    """In Prometheus' text format. A namespace has every verdict, so that one which goes is seen to fall to 0."""
    lines = [
        "# HELP ckptguard_runs Unfinished TrainJobs by namespace and by what enforce would say of them.",
        "# TYPE ckptguard_runs gauge",
    ]
    for namespace in sorted({namespace for namespace, _ in figures.runs}):
        for verdict in VERDICTS:
            number = figures.runs[namespace, verdict]
            lines.append(f'ckptguard_runs{{namespace="{namespace}",verdict="{verdict}"}} {number}')
    lines += [
        "# HELP ckptguard_scan_seconds How long the last scan took.",
        "# TYPE ckptguard_scan_seconds gauge",
        f"ckptguard_scan_seconds {figures.seconds:.3f}",
        "# HELP ckptguard_scan_ended_seconds When the last scan came to its end, in Unix time; 0 before the first.",
        "# TYPE ckptguard_scan_ended_seconds gauge",
        f"ckptguard_scan_ended_seconds {figures.ended:.0f}",
        "# HELP ckptguard_scan_failures_total Scans that did not come to an end; the figures before them stay.",
        "# TYPE ckptguard_scan_failures_total counter",
        f"ckptguard_scan_failures_total {figures.failures}",
    ]
    return "\n".join(lines) + "\n"


class Loop:
    """Scans until SIGTERM or SIGINT. ``turn`` makes one scan and gives its counts; None where it failed."""

    def __init__(self, turn: Callable[[], Counter[tuple[str, str]] | None], every: float) -> None:
        self.figures = Figures()
        self._turn = turn
        self._every = every
        self._ended = threading.Event()
        self._began = time.monotonic()

    def run(self) -> None:
        """Until ``end``. A figure of a scan that failed is that of the one before."""
        while not self._ended.is_set():
            self._began = time.monotonic()
            found = self._turn()
            took = time.monotonic() - self._began
            before = self.figures
            if found is None:
                self.figures = Figures(before.runs, before.seconds, before.ended, before.failures + 1)
            else:
                # A namespace without runs is kept for a while at 0 by its verdicts of before.
                gone = Counter(dict.fromkeys((key for key in before.runs if before.runs[key]), 0))
                self.figures = Figures(_with_zeros(found, gone), took, time.time(), before.failures)
            self._ended.wait(max(0.0, self._every - took))

    def end(self) -> None:
        """End after the scan that runs."""
        self._ended.set()

    def alive(self) -> bool:
        """Whether scans come to their ends in time."""
        return time.monotonic() - self._began < self._every + _PATIENCE

    def until_signal(self) -> None:
        """Have SIGTERM and SIGINT end it."""

        def end(number: int, frame: FrameType | None) -> None:
            self.end()

        signal.signal(signal.SIGTERM, end)
        signal.signal(signal.SIGINT, end)


def _with_zeros(found: Counter[tuple[str, str]], gone: Counter[tuple[str, str]]) -> Counter[tuple[str, str]]:
    for key in gone:
        found.setdefault(key, 0)
    return found


def listen(address: tuple[str, int], loop: Loop) -> ThreadingHTTPServer:
    """Serve ``/metrics`` and ``/healthz`` in a thread. Raises OSError for an address that cannot be had."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        timeout = 30

        def do_GET(self) -> None:
            if self.path == "/metrics":
                self._answer(200, text(loop.figures))
            elif self.path == "/healthz":
                alive = loop.alive()
                self._answer(200 if alive else 503, "ok\n" if alive else "a scan does not come to its end\n")
            else:
                self._answer(404, "not found\n")

        def _answer(self, code: int, said: str) -> None:
            body = said.encode()
            self.send_response(code)
            self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name in the base class
            pass

    server = ThreadingHTTPServer(address, Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, name="metrics", daemon=True).start()
    return server
