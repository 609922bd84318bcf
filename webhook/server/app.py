"""The application: FastAPI for everything a person or a probe asks, and around it the two admission paths.

``Front`` is the ASGI application that is served. It sends ``/mutate`` and ``/validate`` past FastAPI's routing, from
bytes to bytes; ``lane.py`` answers the common case of these even before ASGI.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, MutableMapping
from enum import Enum
from typing import Any, Final

from fastapi import FastAPI, Request, Response
from prometheus_client import generate_latest
from starlette.exceptions import HTTPException

from webhook import __version__
from webhook.metrics import MUTATE, VALIDATE, Metrics
from webhook.server.admission import Admission, Answer
from webhook.server.envelope import BODY_LIMIT, error_line
from webhook.server.gate import RETRY_SECONDS, Gate

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

BODY_SECONDS: Final = 10.0
JSON: Final = b"application/json"
_SCRAPED: Final = "text/plain; version=0.0.4"
_READ_ON: Final = 4 * BODY_LIMIT
"""Bytes. So much of a body that is too large is still taken in (and thrown away), since a caller that is cut off while
it sends does not see the answer."""

_REFUSED_SECONDS: Final = 1.0
"""For the body of a request that there is no room for."""

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
    ) -> None:
        self.admission = admission
        self.gate = gate
        self.state = state
        self.body_seconds = body_seconds
        self.clients: Collection[str] | None = None
        """Common names of client certificates, one of which the admission paths ask for: empty for any that the TLS
        context verified, None where none is asked for."""
        self.fastapi = build_fastapi(state, metrics, docs)
        metrics.watch_in_flight(lambda: gate.inside)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] not in (MUTATE, VALIDATE):
            await self.fastapi(scope, receive, send)
            return
        webhook: str = scope["path"]
        if not self.gate.enter():
            refusal = self.admission.refuse(webhook, 503, "too many requests at once")
            await self._send(send, await self._unread(receive, refusal, _REFUSED_SECONDS))
            return
        try:
            answer = await self._answer(webhook, scope, receive)
        except Exception as error:
            _log.error("%s failed with %s", webhook, type(error).__name__, exc_info=error)
            answer = self.admission.refuse(webhook, 503, "the request could not be read")
        finally:
            self.gate.leave()
        if answer is not None:
            await self._send(send, answer)

    async def turn_away(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The application for a connection without the client certificate that is asked for: probes and metrics."""
        if scope["type"] != "http" or scope["path"] not in (MUTATE, VALIDATE):
            await self.fastapi(scope, receive, send)
            return
        refusal = self.admission.refuse(scope["path"], 403, "a client certificate of the API server is asked for")
        await self._send(send, await self._unread(receive, refusal))

    def is_stranger(self, certificate: Any) -> bool:
        """Whether a connection with this verified client certificate (as ``ssl`` tells it) is to be turned away."""
        if self.clients is None:
            return False
        if not certificate:
            return True
        names = {value for part in certificate.get("subject", ()) for name, value in part if name == "commonName"}
        return bool(self.clients) and names.isdisjoint(self.clients)

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
        size = held = 0
        try:
            async with asyncio.timeout(self.body_seconds):
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
                    if more:
                        if not self.gate.hold(len(chunk)):
                            chunks.clear()
                            return admission.refuse(webhook, 503, "too many requests at once")
                        held += len(chunk)
                    chunks.append(chunk)
        except TimeoutError:
            return admission.refuse(webhook, 408, f"the body did not arrive within {self.body_seconds:g} s")
        finally:
            self.gate.drop(held)
        if size > BODY_LIMIT:
            chunks.clear()
            refusal = self._too_large(webhook)
            return await self._unread(receive, refusal) if more else refusal
        answer = admission.answer(webhook, chunks[0] if len(chunks) == 1 else b"".join(chunks), trace)
        return answer if isinstance(answer, tuple) else await answer

    def _too_large(self, webhook: str) -> Answer:
        return self.admission.refuse(webhook, 413, f"the body is larger than {BODY_LIMIT} bytes")

    async def _unread(self, receive: Receive, answer: Answer, seconds: float | None = None) -> Answer:
        """Take in the rest of the body, within limits, and then answer."""
        size = 0
        try:
            async with asyncio.timeout(self.body_seconds if seconds is None else seconds):
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


def build_fastapi(state: State, metrics: Metrics, docs: bool) -> FastAPI:
    """The application without the admission paths."""
    app = FastAPI(
        title="Checkpoint Guard",
        version=__version__,
        docs_url="/docs" if docs else None,
        openapi_url="/openapi.json" if docs else None,
        redoc_url=None,
        redirect_slashes=False,
    )

    @app.get("/healthz", summary="The process runs")
    async def healthz() -> Response:
        if (fault := state.fault()) is not None:
            return _error(503, fault)
        return Response("ok\n", media_type="text/plain")

    @app.get("/readyz", summary="Requests may be sent here")
    async def readyz() -> Response:
        if state.phase is not Phase.READY:
            return _error(503, state.phase.value)
        if (why := state.unready()) is not None:
            return _error(503, why)
        return Response("ok\n", media_type="text/plain")

    @app.get("/metrics", summary="Prometheus metrics")
    async def scrape() -> Response:
        return Response(generate_latest(metrics.registry), media_type=_SCRAPED)

    async def http_error(request: Request, error: Exception) -> Response:
        if isinstance(error, HTTPException):
            return _error(error.status_code, str(error.detail).lower(), error.headers)
        return _error(503, "the request failed")

    app.add_exception_handler(HTTPException, http_error)
    app.add_exception_handler(Exception, http_error)
    return app


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
