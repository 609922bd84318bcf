"""``/healthz`` and ``/metrics`` of ``ckptguard certs run``, over plain HTTP, in a thread of their own."""

from __future__ import annotations

import datetime
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Final

from certs.loop import Clock, Keeper, Status

_PATIENCE: Final = 120.0
"""Seconds without a turn of the loop: longer than all time-outs of one turn together."""


def serve_health(listen: str, status: Status, keeper: Keeper, clock: Clock, interval: float) -> ThreadingHTTPServer:
    """Serve on ``ADDR:PORT`` until the process ends. Raises ValueError for another form, OSError for a taken port."""
    host, _, port = listen.rpartition(":")
    if not (port.isascii() and port.isdigit()) or int(port) > 65_535:
        raise ValueError(f'"{listen}" is not ADDR:PORT')
    started = clock.monotonic()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        timeout = 30

        def do_GET(self) -> None:
            if self.path == "/healthz":
                silent = clock.monotonic() - max(status.last_turn, started)
                alive = silent < interval + _PATIENCE
                self._answer(200 if alive else 503, "ok\n" if alive else f"no turn for {silent:.0f} s\n")
            elif self.path == "/metrics":
                self._answer(200, metrics_text(status, keeper))
            else:
                self._answer(404, "not found\n")

        def _answer(self, code: int, text: str) -> None:
            body = text.encode()
            self.send_response(code)
            self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name in the base class
            pass

    server = ThreadingHTTPServer((host.strip("[]") or "0.0.0.0", int(port)), Handler)  # noqa: S104 - asked for
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, name="health", daemon=True).start()
    return server


def metrics_text(status: Status, keeper: Keeper) -> str:
    """The metrics in Prometheus' text format. Seen by the replica that leads; the others say 0 and nothing."""
    lines = [
        "# HELP ckptguard_certs_leading Whether this replica holds the Lease.",
        "# TYPE ckptguard_certs_leading gauge",
        f"ckptguard_certs_leading {int(status.leading)}",
        "# HELP ckptguard_certs_failing Whether the last turn failed; what stands stays in use. Alert on 10 minutes.",
        "# TYPE ckptguard_certs_failing gauge",
        f"ckptguard_certs_failing {int(status.fault is not None)}",
        "# HELP ckptguard_certs_failures_total Turns that failed.",
        "# TYPE ckptguard_certs_failures_total counter",
        f"ckptguard_certs_failures_total {status.failures}",
        "# HELP ckptguard_certs_writes_total Writes: authorities (ca), pairs (leaf), bundles, lists (order), "
        "failurePolicy (policy).",
        "# TYPE ckptguard_certs_writes_total counter",
    ]
    lines += [f'ckptguard_certs_writes_total{{what="{what}"}} {count}' for what, count in status.writes.items()]
    if keeper.gate is not None and keeper.gate.open is not None:
        lines += [
            "# HELP ckptguard_certs_open Whether a CREATE passes unjudged while nobody answers (Ignore).",
            "# TYPE ckptguard_certs_open gauge",
            f"ckptguard_certs_open {int(keeper.gate.open)}",
        ]
    rotation = keeper.rotation
    ends = {} if rotation is None else {"leaf": rotation.leaf_ends, "ca": rotation.authority_ends}
    known = {what: end for what, end in ends.items() if end is not None}
    if known:
        lines.append("# HELP ckptguard_certs_expires_seconds When the certificate expires, in Unix time.")
        lines.append("# TYPE ckptguard_certs_expires_seconds gauge")
        lines += [f'ckptguard_certs_expires_seconds{{what="{what}"}} {_unix(end)}' for what, end in known.items()]
    return "\n".join(lines) + "\n"


def _unix(moment: datetime.datetime) -> int:
    return int(moment.timestamp())
