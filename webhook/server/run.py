"""Runs a ``Front`` under uvicorn: one worker, one loop, and an end that loses no request."""

from __future__ import annotations

import asyncio
import ctypes
import gc
import logging
import signal
import ssl
import sys
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from time import monotonic
from types import FrameType
from typing import Any, Final

import uvicorn
from uvicorn.config import STARTUP_FAILURE

from webhook.server.app import Front, Phase
from webhook.server.lane import AdmissionProtocol, protocol_for
from webhook.server.listener import Ceilings, Listener, Seat, Told, bind, fitting

KEEP_ALIVE_SECONDS: Final = 120
"""Longer than the API server's 90 s: with a shorter time it sends into a connection that we are just closing."""
_GENERATIONS: Final = (700, 10, 10)
"""Objects made before Python looks for cycles: its own numbers, since a closed connection's request and protocol form a
ring that holds TLS buffers of 256 KiB. What was there at the start is frozen, so that a look stays short."""

_MALLOC: Final = ((-3, 1024 * 1024), (-1, 8 * 1024 * 1024), (-8, 2))
"""mmap threshold and trim threshold in bytes, arenas: malloc.h's M_MMAP_THRESHOLD, M_TRIM_THRESHOLD, M_ARENA_MAX.

Above the 256 KiB that ``ssl`` takes for each read: else each request would cost a mapping of memory."""

_log = logging.getLogger("ckptguard.server")

Job = Callable[[], Coroutine[Any, Any, None]]


def spare_collections() -> None:
    """From now on Python does not look for cycles among what is there already."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_GENERATIONS)


def spare_memory() -> None:
    """From now on glibc gives large buffers back when they are freed, instead of keeping them for the next ones."""
    with suppress(OSError, AttributeError):
        mallopt = ctypes.CDLL(None).mallopt
        for option, value in _MALLOC:
            mallopt(option, value)


class GuardServer(uvicorn.Server):
    """uvicorn's server with a drain.

    It listens first and is ready once ``prepare`` is done. On SIGTERM it is no longer ready, but goes on answering for
    ``pre_stop`` seconds (endpoints and load balancers need that long to hear of it), each answer closing its
    connection; then it stops listening and finishes what is in flight. A second signal, or SIGINT, skips the wait.
    """

    def __init__(
        self,
        config: uvicorn.Config,
        front: Front,
        pre_stop: float,
        prepare: Job | None = None,
        background: Sequence[Job] = (),
        ceilings: Ceilings | None = None,
    ) -> None:
        super().__init__(config)
        self._ceilings = ceilings or Ceilings()
        self.failed = False
        self._front = front
        self._pre_stop = pre_stop
        self._prepare = prepare
        self._background = background
        self._leave_at: float | None = None
        self._jobs: set[asyncio.Task[None]] = set()

    async def startup(self, sockets: Any = None) -> None:
        """Listen by ourselves: uvicorn's server has no ceilings, and forgets who a connection comes from."""
        spare_memory()
        config = self.config
        try:
            bound = bind(config.host, config.port)
        except OSError as error:
            _log.error("cannot listen on %s port %d: %s", config.host, config.port, error.strerror or error)
            sys.exit(STARTUP_FAILURE)
        listener = Listener(bound, fitting(self._ceilings), Told(self._front.metrics.refused_connection))
        self._front.metrics.watch_connections(lambda: listener.count)

        def make(seat: Seat) -> asyncio.Protocol:
            protocol = config.http_protocol_class(  # type: ignore[call-arg]
                config=config, server_state=self.server_state, app_state={}, _loop=asyncio.get_running_loop()
            )
            if isinstance(protocol, AdmissionProtocol):
                protocol.sit(seat, listener)
            return protocol

        listener.open(make, config.ssl)
        self.servers = [listener]  # type: ignore[list-item]
        self.started = True
        for listening in bound:
            host, port = listening.getsockname()[:2]
            _log.info("listening on %s port %d, %s", host, port, "TLS" if config.ssl else "plain HTTP")
        if not self.should_exit:
            self._start(self._get_ready())
            for job in self._background:
                self._start(job())

    async def shutdown(self, sockets: Any = None) -> None:
        self._front.state.phase = Phase.DRAINING
        await super().shutdown(sockets)
        for job in self._jobs:
            job.cancel()
        await asyncio.gather(*self._jobs, return_exceptions=True)

    async def on_tick(self, counter: int) -> bool:
        if self._leave_at is not None and monotonic() >= self._leave_at:
            self.should_exit = True
        return await super().on_tick(counter)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Called in the main thread, between two steps of the loop."""
        first = self._leave_at is None
        self._front.state.phase = Phase.DRAINING
        self._leave_at = monotonic() + self._pre_stop if first and sig == signal.SIGTERM else monotonic()
        if not first and self.should_exit:
            self.force_exit = True

    async def _get_ready(self) -> None:
        if self._prepare is not None:
            await self._prepare()
        spare_collections()
        if self._front.state.phase is Phase.STARTING:
            self._front.state.phase = Phase.READY

    def _start(self, job: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(job)
        self._jobs.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.critical("a task of the server died, so the server leaves", exc_info=error)
            self.failed = True
            self.should_exit = True


def build_server(
    front: Front,
    host: str,
    port: int,
    context: ssl.SSLContext | None,
    pre_stop: float,
    drain_seconds: float,
    prepare: Job | None = None,
    background: Sequence[Job] = (),
    ceilings: Ceilings | None = None,
) -> GuardServer:
    """A server that is ready to ``run``. ``context`` None means plain HTTP; ``port`` 0 takes a free one."""
    config = uvicorn.Config(
        front,
        host=host,
        port=port,
        loop="uvloop",
        http=protocol_for(front),
        ws="none",
        lifespan="off",
        interface="asgi3",
        proxy_headers=False,
        server_header=False,
        access_log=False,
        log_config=None,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=max(1, round(drain_seconds)),
    )
    config.load()
    config.ssl = context
    return GuardServer(
        config=config, front=front, pre_stop=pre_stop, prepare=prepare, background=background, ceilings=ceilings
    )
