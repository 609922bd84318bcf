"""The application: FastAPI for everything a person or a probe asks, and around it the two admission paths.

``Front`` is the ASGI application that is served. It sends ``/mutate`` and ``/validate`` past FastAPI's routing, from
bytes to bytes; ``lane.py`` answers the common case of these even before ASGI.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, MutableMapping
from enum import Enum
from time import perf_counter
from typing import Any, Final

from fastapi import FastAPI, Request, Response
from prometheus_client import generate_latest
from starlette.exceptions import HTTPException

from webhook import __version__
from webhook.metrics import MUTATE, VALIDATE, Metrics
from webhook.server.admission import Admission, Answer
from webhook.server.caller import Caller
from webhook.server.envelope import BODY_LIMIT, error_line
from webhook.server.gate import RETRY_SECONDS, Gate, Held

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

BODY_SECONDS: Final = 5.0
HEAD_SECONDS: Final = 5.0
LOOKS: Final = ("/healthz", "/readyz", "/metrics")
"""What probes and scrapes ask."""
_SHARE: Final = 20
"""A rendering of the metrics is shown for so many times as long as it took: it costs a twentieth of a core at most."""
JSON: Final = b"application/json"
_SCRAPED: Final = b"text/plain; version=0.0.4; charset=utf-8"
_PLAIN: Final = b"text/plain; charset=utf-8"
_READ_ON: Final = 4 * BODY_LIMIT
"""Bytes. So much of a body that is too large is still taken in (and thrown away), since a caller that is cut off while
it sends does not see the answer."""

_log = logging.getLogger("ckptguard.server")


class Phase(Enum):
    """What ``/readyz`` says."""

    STARTING = "starting"
    READY = "ready"
    DRAINING = "draining"


class State:
    """The phase of the process, seen by the probes and by whoever answers."""

    def __init__(self) -> None:
        self.phase = Phase.STARTING
        self.fault: Callable[[], str | None] = lambda: None
        """What in the process hangs for good, so that only a new one helps."""
        self.unready: Callable[[], str | None] = lambda: None
        """Why requests would fail here although the process is ready."""

    def why_unready(self) -> str | None:
        """What ``/readyz`` says; None where requests may be sent here."""
        return self.phase.value if self.phase is not Phase.READY else self.unready()

    @property
    def draining(self) -> bool:
        return self.phase is Phase.DRAINING


class Front:
    """The ASGI application."""

    def __init__(
        self,
        admission: Admission,
        gate: Gate,
        state: State,
        metrics: Metrics,
        docs: bool = False,
        body_seconds: float = BODY_SECONDS,
        head_seconds: float = HEAD_SECONDS,
    ) -> None:
        self.admission = admission
        self.gate = gate
        self.state = state
        self.metrics = metrics
        self.body_seconds = body_seconds
        self.head_seconds = head_seconds
        self.clients: Collection[str] | None = None
        """Common names of client certificates, one of which a caller shows who is told all: empty for any that the TLS
        context verified, None where none is asked for."""
        self._scraped = Scraped(metrics)
        self.fastapi = build_fastapi(self, docs)
        metrics.watch_in_flight(lambda: gate.inside)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] not in (MUTATE, VALIDATE):
            await self.fastapi(scope, receive, send)
            return
        webhook: str = scope["path"]
        try:
            answer = await self._answer(webhook, scope, receive)
        except Exception as error:
            _log.error("%s failed with %s", webhook, type(error).__name__, exc_info=error)
            answer = self.admission.refuse(webhook, 503, "the request could not be read")
        if answer is not None:
            await self._send(send, answer)

    def look(self, path: str) -> tuple[int, bytes, bytes]:
        """Code, content type and body of one of ``LOOKS``."""
        if path == "/metrics":
            return 200, _SCRAPED, self._scraped.text()
        why = self.state.fault() if path == "/healthz" else self.state.why_unready()
        return (200, _PLAIN, b"ok\n") if why is None else (503, JSON, error_line(why))

    def caller(self, certificate: Any) -> Caller:
        """Who asks, by the verified client certificate (as ``ssl`` tells it; None without one)."""
        if self.clients is None:
            return Caller.ANYBODY
        if not certificate:
            return Caller.STRANGER
        names = {value for part in certificate.get("subject", ()) for name, value in part if name == "commonName"}
        return Caller.STRANGER if self.clients and names.isdisjoint(self.clients) else Caller.KNOWN

    async def _answer(self, webhook: str, scope: Scope, receive: Receive) -> Answer | None:
        """None where the caller has gone."""
        admission = self.admission
        if scope["method"] != "POST":
            return await self._unread(receive, admission.refuse(webhook, 405, f"{webhook} takes POST"))
        kind, length, trace = _headers(scope["headers"])
        if not is_json(kind):
            fault = f"the content type is not {JSON.decode()}"
            return await self._unread(receive, admission.refuse(webhook, 415, fault))
        if length > BODY_LIMIT:
            return await self._unread(receive, self._too_large(webhook))
        chunks: list[bytes] = []
        size = 0
        late = False
        began = asyncio.get_running_loop().time()
        connection = scope.get("ckptguard")
        peer = (scope.get("client") or ("",))[0]
        held = Held(peer, connection.transport.abort if connection is not None else _nothing)
        caller = connection.caller if connection is not None else self.caller(None)
        try:
            async with asyncio.timeout(self.body_seconds / 2) as limit:
                more = True
                while more:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        return None
                    chunk = message.get("body", b"")
                    more = message.get("more_body", False)
                    size += len(chunk)
                    if size > BODY_LIMIT:
                        break
                    if 2 * size >= length and not late:  # half of it in half of the time
                        late = True
                        limit.reschedule(began + self.body_seconds)
                    if not self.gate.hold(held, len(chunk)):
                        chunks.clear()
                        self.gate.drop(held)
                        return admission.refuse(webhook, 503, "too many bytes of requests at once")
                    chunks.append(chunk)
                limit.reschedule(None)
            self.gate.arrived(held)
            return await self._complete(webhook, chunks, size, more, trace, caller, receive)
        except TimeoutError:
            return admission.refuse(webhook, 408, "the body arrived too slowly")
        finally:
            self.gate.drop(held)

    async def _complete(
        self,
        webhook: str,
        chunks: list[bytes],
        size: int,
        more: bool,
        trace: str,
        caller: Caller,
        receive: Receive,
    ) -> Answer:
        """The body is here, or too large."""
        if size > BODY_LIMIT:
            chunks.clear()
            refusal = self._too_large(webhook)
            return await self._unread(receive, refusal) if more else refusal
        if not self.gate.enter():
            return self.admission.refuse(webhook, 503, "too many requests at once")
        try:
            body = chunks[0] if len(chunks) == 1 else b"".join(chunks)
            answer = self.admission.answer(webhook, body, trace, None, caller)
            return answer if isinstance(answer, tuple) else await answer
        finally:
            self.gate.leave()

    def _too_large(self, webhook: str) -> Answer:
        return self.admission.refuse(webhook, 413, f"the body is larger than {BODY_LIMIT} bytes")

    async def _unread(self, receive: Receive, answer: Answer) -> Answer:
        """Take in the rest of the body, within limits, and then answer."""
        size = 0
        try:
            async with asyncio.timeout(self.body_seconds):
                while size <= _READ_ON:
                    message = await receive()
                    size += len(message.get("body", b""))
                    if not message.get("more_body", False):
                        break
        except TimeoutError:
            pass
        return answer

    async def _send(self, send: Send, answer: Answer) -> None:
        code, body = answer
        headers = [(b"content-type", JSON), (b"content-length", str(len(body)).encode())]
        if code == 503:
            headers.append((b"retry-after", str(RETRY_SECONDS).encode()))
        elif code == 405:
            headers.append((b"allow", b"POST"))
        # uvicorn skips what is left of a body, so only a body that does not end costs the connection.
        if self.state.draining or code in (408, 413):
            headers.append((b"connection", b"close"))
        await send({"type": "http.response.start", "status": code, "headers": headers})
        await send({"type": "http.response.body", "body": body})


class Scraped:
    """The metrics as text, made anew only when the last text has been shown long enough for what it cost."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._text = b""
        self._until = 0.0

    def text(self) -> bytes:
        """Prometheus' text format."""
        now = perf_counter()
        if now >= self._until:
            self._text = generate_latest(self._metrics.registry)
            done = perf_counter()
            self._until = done + _SHARE * (done - now)
        return self._text


def build_fastapi(front: Front, docs: bool) -> FastAPI:
    """The application without the admission paths."""
    app = FastAPI(
        title="Checkpoint Guard",
        version=__version__,
        docs_url="/docs" if docs else None,
        openapi_url="/openapi.json" if docs else None,
        redoc_url=None,
        redirect_slashes=False,
    )

    def shown(path: str) -> Response:
        code, kind, body = front.look(path)
        headers = {"content-type": kind.decode()}
        if code == 503:
            headers["retry-after"] = str(RETRY_SECONDS)
        return Response(body, code, headers)

    @app.get("/healthz", summary="The process runs")
    async def healthz() -> Response:
        return shown("/healthz")

    @app.get("/readyz", summary="Requests may be sent here")
    async def readyz() -> Response:
        return shown("/readyz")

    @app.get("/metrics", summary="Prometheus metrics")
    async def scrape() -> Response:
        return shown("/metrics")

    async def http_error(request: Request, error: Exception) -> Response:
        if isinstance(error, HTTPException):
            return _error(error.status_code, str(error.detail).lower(), error.headers)
        return _error(503, "the request failed")

    app.add_exception_handler(HTTPException, http_error)
    app.add_exception_handler(Exception, http_error)
    return app


def _nothing() -> None:
    """There is no connection to end."""


def is_json(content_type: bytes) -> bool:
    """Whether the content type is JSON, parameters aside."""
    return content_type == JSON or content_type.partition(b";")[0].strip().lower() == JSON


def _error(code: int, message: str, headers: Any = None) -> Response:
    response = Response(error_line(message), code, headers, media_type="application/json")
    if code == 503:
        response.headers["retry-after"] = str(RETRY_SECONDS)
    return response


def _headers(headers: Iterable[tuple[bytes, bytes]]) -> tuple[bytes, int, str]:
    """Content type, content length (0 where it is not said) and traceparent."""
    kind, length, trace = b"", 0, ""
    for name, value in headers:
        if name == b"content-type":
            kind = value
        elif name == b"content-length":
            length = int(value) if value.isdigit() else 0
        elif name == b"traceparent":
            trace = checked_trace(value)
    return kind, length, trace


def checked_trace(value: bytes) -> str:
    """A W3C traceparent as text; empty where it is none."""
    parts = value.split(b"-")
    if len(parts) < 4 or [len(part) for part in parts[:4]] != [2, 32, 16, 2] or len(value) > 128:
        return ""
    return value.decode("ascii") if value.replace(b"-", b"").isalnum() else ""
