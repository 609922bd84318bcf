"""The fast lane: an admission request that is as plain as the API server's is answered without an ASGI cycle.

**The riskiest file of the server**: it frames HTTP by itself in front of uvicorn's parser and reaches into uvicorn's
protocol class, so ``pyproject.toml`` bounds uvicorn from above, and a test compares both on streams of odd requests. It
stays because the bench's goals are not met without it (docs/decisions.md, 2026-12-01). Time and room of a connection
are limited here too, since only here the first byte of a head and of a body is seen.

An ASGI cycle (scope, task, event, three awaits) costs about as much as a whole decision. So the protocol looks at each
request first: one of the two paths, POST, HTTP/1.1, JSON, a content length within the limit and no header that changes
how the message is framed. Such a request is framed, decided and answered here. Everything else, down to the first odd
byte in a header, goes to uvicorn's own protocol and ``Front``, which give the same answers (a test compares them).

Requests that are complete in one turn of the event loop are decided one after the other, and written only then: a write
runs a good deal of the kernel, after which a decision takes half as long again (docs/decisions.md). Peers take turns,
and what goes to uvicorn goes a few at a time, so a flood of one peer puts little in front of another's request.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from contextlib import suppress
from time import monotonic, perf_counter
from typing import Any, Final

from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from webhook.server.admission import Answer
from webhook.server.app import LOOKS, Front
from webhook.server.caller import Caller
from webhook.server.envelope import error_line
from webhook.server.gate import RETRY_SECONDS, Held
from webhook.server.head import Head, parse_head, parse_look
from webhook.server.listener import Listener, Seat
from webhook.server.turns import Turns

_STARTS: Final = (b"POST /mutate", b"POST /validate")
_LOOK_STARTS: Final = tuple(f"GET {path} HTTP/1.1\r\n".encode() for path in LOOKS)
_READ_AHEAD: Final = 64 * 1024
"""Bytes that the TLS layer takes in of a connection whose request is being worked on."""
_BYWAY: Final = 2
"""Heads that go to uvicorn in one turn of the loop: each costs as much as several decisions."""
_HEAD_LIMIT: Final = 64 * 1024
"""Bytes of request line and headers; the parser itself would take any number."""
_REASONS: Final = {
    200: b"200 OK",
    400: b"400 Bad Request",
    408: b"408 Request Timeout",
    431: b"431 Request Header Fields Too Large",
    503: b"503 Service Unavailable",
}
_TOGETHER: Final = 0.002
"""Seconds after which answers go out although others of the same turn are not decided yet."""
_log = logging.getLogger("ckptguard.server")
_HEADS_KEPT: Final = 512
_HEAD_KEPT: Final = 2048


_heads: dict[bytes, Head] = {}
_looks: dict[bytes, str] = {}


class Line:
    """Complete requests, by peer in the order in which they came, each with the time at which it was complete.

    Beside them what goes to uvicorn's parser, a few heads a turn.
    """

    def __init__(self, front: Front) -> None:
        self._front = front
        self._waiting: Turns[tuple[AdmissionProtocol, Head, bytes, float]] = Turns()
        self._byway: Turns[tuple[AdmissionProtocol, bytes]] = Turns()

    def join(self, protocol: AdmissionProtocol, head: Head, body: bytes) -> None:
        """``protocol.answer`` is called in the next turn of its loop, or a later one."""
        if not self._waiting:
            protocol.loop.call_soon(self._serve)
        self._waiting.push(protocol.peer, (protocol, head, body, perf_counter()))

    def divert(self, protocol: AdmissionProtocol, data: bytes) -> None:
        """``protocol.hand_over`` is called with the data in the next turn of its loop, or a later one."""
        if not self._byway:
            protocol.loop.call_soon(self._pass_on)
        self._byway.push(protocol.peer, (protocol, data))

    def _serve(self) -> None:
        answer = self._front.admission.answer
        waiting = self._waiting
        until = perf_counter() + _TOGETHER
        done = []
        # What no test has found, in one request, must not cost the others their answer.
        while waiting:
            protocol, head, body, since = waiting.pop()
            try:
                done.append((protocol, answer(head.webhook, body, head.trace, since, protocol.caller)))
            except Exception as error:
                protocol.give_up(error)
            if waiting and perf_counter() >= until:
                protocol.loop.call_soon(self._serve)
                break
        for protocol, answered in done:
            try:
                protocol.answer(answered)
            except Exception as error:
                protocol.give_up(error)

    def _pass_on(self) -> None:
        byway = self._byway
        for _ in range(min(_BYWAY, len(byway))):
            protocol, data = byway.pop()
            try:
                protocol.hand_over(data)
            except Exception as error:
                protocol.give_up(error)
        if byway:
            protocol.loop.call_soon(self._pass_on)


class AdmissionProtocol(HttpToolsProtocol):
    """uvicorn's protocol with the fast lane in front. ``front`` and ``line`` are set by ``protocol_for``.

    A connection is in one of four states: between requests or with uvicorn, receiving a body (``_head``), waiting for
    its turn at uvicorn's parser (``_diverted``), waiting for its turn or for the cluster (``_working``). What arrives
    while it waits is kept for later, and no more is read.
    """

    front: Front
    line: Line
    _dated: tuple[list[tuple[bytes, bytes]], bytes] = ([], b"")

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self.peer = ""
        self.caller = Caller.ANYBODY
        self._seat: Seat | None = None
        self._listener: Listener | None = None
        self._last = 0.0
        self._began = 0.0
        self._used = False
        self._head: Head | None = None
        self._body: list[bytes] = []
        self._missing = 0
        self._timer: asyncio.TimerHandle | None = None
        """Of the head or body that is being received."""
        self._working = False
        self._diverted = False
        self._held: Held | None = None
        self._later: list[bytes] = []
        self._leaving = False
        self._between = True
        self._in_head = False
        self._head_size = 0

    def sit(self, seat: Seat, listener: Listener) -> None:
        """The connection has this seat until it ends."""
        self._seat, self._listener = seat, listener
        self.peer = seat.peer

    def stay(self) -> tuple[int, float] | None:
        """For ``listener.Guest``: None while a request is worked on."""
        if self._working or self._diverted:
            return None
        if self._head is not None or self._in_head or not self._between:
            return 1, self._began
        if self.cycle is not None and not self.cycle.response_complete:
            return None
        return (3 if self._used else 2), self._last

    def leave_now(self) -> None:
        """The connection is wanted for somebody else."""
        self.transport.abort()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if self._seat is not None and self._listener is not None:
            self._seat.guest = self
            self._listener.known(self._seat)
        with suppress(AttributeError, NotImplementedError):  # plain TCP of uvloop has no such limits
            transport.set_read_buffer_limits(_READ_AHEAD)  # type: ignore[attr-defined]
        self.caller = self.front.caller(transport.get_extra_info("peercert"))
        self._last = self._began = monotonic()
        self._rest()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._head is not None:
            self._end_body()
            self._let_go()
        self._stop_timer()
        if not self._working:
            self._let_go()
        self._later.clear()
        if self._listener is not None and self._seat is not None:
            self._listener.gone(self._seat)
            # The two know each other, and a ring would keep the TLS buffers (256 KiB) until Python looks for rings.
            self._seat.guest = None
            self._seat = None
        if self.timeout_keep_alive_task is not None:
            self.timeout_keep_alive_task.cancel()
            self.timeout_keep_alive_task = None
        super().connection_lost(exc)
        # uvicorn's request knows its connection too; an answer that is still being made holds the request itself.
        self.cycle = None  # type: ignore[assignment]

    def data_received(self, data: bytes) -> None:
        while data:
            if self._head is not None:
                data = self._more_body(data)
            elif self._working or self._diverted:
                self._keep(data)
                return
            elif self.transport.is_closing():
                return
            else:
                rest = self._begin(data) if self._is_plain(data) else None
                if rest is None:
                    if self._in_head or not self._between or (self.cycle and not self.cycle.response_complete):
                        self.hand_over(data)  # more of what uvicorn has begun with
                    else:
                        self._diverted = True
                        self.flow.pause_reading()
                        self.line.divert(self, data)
                    return
                data = rest

    def _keep(self, data: bytes) -> None:
        """For when the request that is worked on is answered."""
        self._later.append(data)
        self.flow.pause_reading()
        if self._held is None:
            self._held = self._holds()
        if not self.front.gate.hold(self._held, len(data)):
            self.transport.abort()

    def _holds(self) -> Held:
        held = Held(self.peer, self._cut)
        held.arriving = False
        return held

    def _cut(self) -> None:
        """There is no room for what arrives here: somebody else needs it, who holds less."""
        head = self._head
        if head is None:
            self.transport.abort()
            return
        self._end_body()
        self._let_go()
        self._leaving = True
        self._write(self.front.admission.refuse(head.webhook, 503, "too many bytes of requests at once"))

    def _is_plain(self, data: bytes) -> bool:
        return (
            self._between
            and data.startswith(_STARTS)
            and (self.cycle is None or self.cycle.response_complete)
            and not self.flow.write_paused
        )

    def hand_over(self, data: bytes) -> None:
        """To uvicorn's own parser, unless it is a plain look at health or metrics."""
        if self._diverted:
            self._diverted = False
            self.flow.resume_reading()
            if self.transport.is_closing():
                return
            if self._later:
                data += b"".join(self._later)
                self._later.clear()
                self._let_go()
            if data.startswith(_LOOK_STARTS) and self._look(data):
                return
        super().data_received(data)
        if self._in_head:
            self._head_size += len(data)
            if self._head_size > _HEAD_LIMIT and not self.transport.is_closing():
                self._refuse(431, f"the head of the request is larger than {_HEAD_LIMIT} bytes")
                return
        if (
            self.timeout_keep_alive_task is None
            and (self.cycle is None or self.cycle.response_complete)
            and not self.transport.is_closing()
        ):
            self._rest()  # a head that never ends must not keep the connection for ever

    def _look(self, data: bytes) -> bool:
        """Answer a plain GET of health or metrics that is here whole; False where it is for uvicorn."""
        if not data.endswith(b"\r\n\r\n") or data.find(b"\r\n\r\n") != len(data) - 4 or self.flow.write_paused:
            return False
        path = _looks.get(data)
        if path is None:
            path = parse_look(data[:-2])
            if path is None:
                return False
            if len(data) < _HEAD_KEPT:
                if len(_looks) >= _HEADS_KEPT:
                    _looks.clear()
                _looks[data] = path
        code, kind, body = self.front.look(path)
        self._respond(code, body, kind)
        return True

    def _refuse(self, code: int, words: str) -> None:
        """One line, and the end of the connection."""
        self._stop_timer()
        self.transport.write(self._response(code, error_line(words), True))
        self.transport.close()

    def _head_late(self) -> None:
        if self._in_head and not self.transport.is_closing():
            self._refuse(408, f"the head did not arrive within {self.front.head_seconds:g} s")

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    # httptools calls these: between them the parser holds part of a request, which must not be jumped over.
    def on_message_begin(self) -> None:
        self._between = False
        self._in_head = True
        self._head_size = 0
        self._began = monotonic()
        self._stop_timer()
        self._timer = self.loop.call_later(self.front.head_seconds, self._head_late)
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._in_head = False
        self._stop_timer()
        self._used = True
        super().on_headers_complete()
        if self.cycle is not None:
            # For ``Front``: who asks, and whom to ask for room.
            self.scope["ckptguard"] = self  # type: ignore[typeddict-unknown-key]

    def on_message_complete(self) -> None:
        self._between = True
        super().on_message_complete()

    def shutdown(self) -> None:
        """Leave after the answer that is being worked on; at once where there is none."""
        if self._head is not None or self._working or self._diverted:
            self._leaving = True
        else:
            super().shutdown()

    def timeout_keep_alive_handler(self) -> None:
        """Close a connection that has been idle; one that was busy meanwhile gets the rest of its time."""
        self.timeout_keep_alive_task = None
        if self._working or self._diverted:
            return
        left = self._last + self.timeout_keep_alive - self.loop.time()
        if left > 0.01:
            self.timeout_keep_alive_task = self.loop.call_later(left, self.timeout_keep_alive_handler)
        else:
            super().timeout_keep_alive_handler()

    def send_400_response(self, msg: str) -> None:
        """What is not HTTP gets one line of JSON too."""
        body = error_line(msg.rstrip(".").lower())
        self._stop_timer()
        self.transport.write(self._response(400, body, True))
        self.transport.close()

    def _begin(self, data: bytes) -> bytes | None:
        """Take the request that ``data`` starts with -> what comes behind it; None where it is not for this lane."""
        end = data.find(b"\r\n\r\n", 0, _HEAD_LIMIT)
        if end < 0:
            return None
        end += 2
        text = data[:end]
        head = _heads.get(text)
        if head is None:
            head = parse_head(text)
            if head is None:
                return None
            if not head.trace and end < _HEAD_KEPT:
                if len(_heads) >= _HEADS_KEPT:
                    _heads.clear()
                _heads[text] = head
        start = end + 2
        stop = start + head.length
        self._used = True
        if stop <= len(data):
            self._decide(head, data[start:stop])
            return data[stop:]
        self._held = held = Held(self.peer, self._cut)
        if not self.front.gate.hold(held, len(data) - start):
            self._let_go()
            self._leaving = True
            self._write(self.front.admission.refuse(head.webhook, 503, "too many bytes of requests at once"))
            return b""
        self._head = head
        self._body = [data[start:]]
        self._missing = stop - len(data)
        self._began = monotonic()
        self._timer = self.loop.call_later(self.front.body_seconds / 2, self._half_late)
        return b""

    def _more_body(self, data: bytes) -> bytes:
        """Add to the body that is being received; what comes behind it."""
        head, missing, held = self._head, self._missing, self._held
        if head is None or held is None:
            return b""
        if not self.front.gate.hold(held, min(len(data), missing)):
            self._cut()
            return b""
        self._missing = missing - len(data)
        if self._missing > 0:
            self._body.append(data)
            return b""
        self._body.append(data[:missing])
        body = b"".join(self._body)
        self._end_body()
        self.front.gate.arrived(held)
        self._decide(head, body)
        return data[missing:]

    def _end_body(self) -> None:
        self._head = None
        self._body = []
        self._missing = 0
        self._stop_timer()

    def _half_late(self) -> None:
        """Half of the time is over: a body of which less than half is here is too slow."""
        if self._head is not None and 2 * self._missing <= self._head.length:
            self._timer = self.loop.call_later(self.front.body_seconds / 2, self._body_late)
        else:
            self._body_late()

    def _body_late(self) -> None:
        head = self._head
        if head is None:
            return
        self._end_body()
        self._let_go()
        self._leaving = True
        self._write(self.front.admission.refuse(head.webhook, 408, "the body arrived too slowly"))

    def _decide(self, head: Head, body: bytes) -> None:
        if not self.front.gate.enter():
            self._let_go()
            self._write(self.front.admission.refuse(head.webhook, 503, "too many requests at once"))
            return
        self._working = True
        self.line.join(self, head, body)

    def answer(self, answer: Answer | Coroutine[None, None, Answer]) -> None:
        """It is this connection's turn: here is the answer, or what it takes to get one."""
        if isinstance(answer, tuple):
            self._finish(answer)
        else:
            self.flow.pause_reading()
            task = self.loop.create_task(self._wait(answer))
            self.tasks.add(task)
            task.add_done_callback(self.tasks.discard)

    def give_up(self, error: Exception) -> None:
        """There will be no answer, by a fault of ours; the caller is told by the end of the connection."""
        _log.error("a request got no answer: %s", type(error).__name__, exc_info=error)
        self._leave()
        self.transport.abort()

    def _leave(self) -> None:
        """The request is over; what it had of the gate goes back, once."""
        if self._working:
            self._working = False
            self.front.gate.leave()
        self._let_go()

    def _let_go(self) -> None:
        """What is held of the gate's room goes back."""
        held, self._held = self._held, None
        if held is not None:
            self.front.gate.drop(held)

    async def _wait(self, answer: Coroutine[None, None, Answer]) -> None:
        try:
            done = await answer
        except BaseException:  # the server gives up on whatever is left
            self._leave()
            self.transport.close()
            raise
        self._finish(done)

    def _finish(self, answer: Answer) -> None:
        """The answer goes out, and what came in meanwhile is next."""
        self._leave()
        self._write(answer)
        if not self.transport.is_closing():
            self.flow.resume_reading()
        if self._later:
            rest = b"".join(self._later)
            self._later.clear()
            self.data_received(rest)

    def _write(self, answer: Answer) -> None:
        """The answer of a request that has left the gate goes out."""
        self.server_state.total_requests += 1
        if self.transport.is_closing():
            return
        self._respond(*answer)

    def _respond(self, code: int, body: bytes, kind: bytes = b"application/json") -> None:
        close = self._leaving or self.front.state.draining
        self.transport.write(self._response(code, body, close, kind))
        if close:
            self.transport.close()
        else:
            self._rest()

    def _rest(self) -> None:
        """From now on the connection is idle. The timer is set once and looks at ``_last`` when it fires."""
        self._last = self.loop.time()
        if self.timeout_keep_alive_task is None:
            self.timeout_keep_alive_task = self.loop.call_later(
                self.timeout_keep_alive, self.timeout_keep_alive_handler
            )

    def _response(self, code: int, body: bytes, close: bool, kind: bytes = b"application/json") -> bytes:
        defaults, dated = self._dated
        if defaults is not self.server_state.default_headers:
            defaults = self.server_state.default_headers  # uvicorn makes a new list once a second, with the date
            dated = b"".join(b"%s: %s\r\n" % header for header in defaults)
            AdmissionProtocol._dated = (defaults, dated)
        extra = b"connection: close\r\n" if close else b""
        if code == 503:
            extra += b"retry-after: %d\r\n" % RETRY_SECONDS
        return b"HTTP/1.1 %s\r\n%scontent-type: %s\r\n%scontent-length: %d\r\n\r\n%s" % (
            _REASONS[code],
            dated,
            kind,
            extra,
            len(body),
            body,
        )


def protocol_for(front: Front) -> type[AdmissionProtocol]:
    """The protocol class that serves ``front``."""
    return type("FrontProtocol", (AdmissionProtocol,), {"front": front, "line": Line(front)})
