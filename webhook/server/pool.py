"""The server's side of the worker process: starts it, gives it one job at a time, answers what it asks, replaces it.

A process that ends over a job is replaced and the job tried once more; one that takes too long is ended. Then the
request gets 503 instead of a verdict: a CREATE is refused (``failurePolicy: Fail``), never passed unjudged.
"""

from __future__ import annotations

import asyncio
import logging
import pickle
import resource
import socket
import struct
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec
import orjson

from webhook.model.cluster import ClusterView, Runtime
from webhook.model.policy import Policy
from webhook.model.release import Release
from webhook.model.request import Request
from webhook.server.caller import Caller
from webhook.server.judging import Outcome
from webhook.server.packed import packed
from webhook.server.worker import PAGE, QUESTIONS, Kept

if TYPE_CHECKING:
    from webhook.metrics import Metrics

WAITING: Final = 64
"""Jobs that may wait; a further one is refused."""
JOB_SECONDS: Final = 8.0
"""For one judgement. The API server waits 5 s; what takes longer than this never ends."""
GROWN: Final = 112 * 1024 * 1024
"""Bytes of resident memory after a job above which the process is replaced."""
_LENGTH: Final = struct.Struct(">I")
_PIECE: Final = 256 * 1024
_LARGEST: Final = 64 * 1024 * 1024
_log = logging.getLogger("ckptguard.server")


class Overloaded(Exception):  # noqa: N818
    """The job cannot be done; the text says why, for the caller."""


class Died(Exception):  # noqa: N818
    """The process ended in the middle of a job."""


class _Process:
    """One process and the connection to it."""

    def __init__(self, child: subprocess.Popen[bytes], reader: asyncio.StreamReader, writer: asyncio.StreamWriter):
        self.child = child
        self.runtimes = Kept()
        self._reader = reader
        self._writer = writer
        self._lists: list[Any] = []
        self._policy: str | None = None
        """Hash of the policy that the process has."""

    async def put(self, *message: Any) -> None:
        data = memoryview(pickle.dumps(message, pickle.HIGHEST_PROTOCOL))
        self._writer.write(_LENGTH.pack(len(data)))
        for at in range(0, len(data), _PIECE):
            self._writer.write(data[at : at + _PIECE])
            await self._writer.drain()
            if len(data) > _PIECE:
                await asyncio.sleep(0)  # a large body goes over while others are answered

    async def get(self, view: ClusterView | None) -> list[Any]:
        """The next message that is no question; questions are answered from the view."""
        while True:
            (size,) = _LENGTH.unpack(await self._reader.readexactly(_LENGTH.size))
            if size > _LARGEST:
                raise EOFError
            message: list[Any] = msgspec.msgpack.decode(await self._reader.readexactly(size))
            match message:
                case ["ask", str(name), *arguments] if name in QUESTIONS and view is not None:
                    await self._tell(getattr(view, name)(*arguments))
                case ["page", int(number), int(page)]:
                    await self.put("page", list(self._lists[number][page * PAGE : (page + 1) * PAGE]))
                case _:
                    return message

    async def use(self, policy: Policy) -> None:
        """Have further jobs judged by this policy; sent where it is not the one before."""
        if self._policy != policy.hash:
            await self.put("policy", packed(policy))
            self._policy = policy.hash

    def begin(self) -> None:
        """A judgement begins: lists of the one before are gone."""
        self._lists.clear()

    async def _tell(self, value: Any) -> None:
        if isinstance(value, Runtime):
            metadata = value.raw.get("metadata") or {}
            uid, version = metadata.get("uid"), metadata.get("resourceVersion")
            key = (value.kind, value.namespace, value.name, str(uid), str(version)) if version else ()
            if key and self.runtimes.get(key) is not None:
                await self.put("runtime", key)
                return
            text = orjson.dumps(value.raw)
            if key:
                self.runtimes.put(key, len(text), True)
            await self.put("new runtime", key, value.kind, text)
        elif isinstance(value, (list, tuple)) or (hasattr(value, "__getitem__") and not isinstance(value, str)):
            self._lists.append(value)
            await self.put("list", len(self._lists) - 1, len(value), list(value[:PAGE]))
        else:
            await self.put("value", value)

    def end(self) -> None:
        """End the process, whatever it does."""
        self._writer.close()
        self.child.kill()
        with suppress(subprocess.TimeoutExpired):
            self.child.wait(5)


class Session:
    """One job with the process: the review is read there once, and judged as often as the view had to learn more."""

    def __init__(self, worker: Worker, process: _Process) -> None:
        self._worker = worker
        self._process = process

    async def read(
        self, webhook: str, body: bytes, policy: Policy, caller: Caller, trace: str
    ) -> str | Outcome | Request:
        """Why the body is no review; the answer, where there is nothing to judge; else the request."""
        release = self._worker.release
        await self._worker.within(self._process, self._process.use(policy))
        await self._worker.within(
            self._process, self._process.put("review", webhook, body, release, caller.value, trace)
        )
        message = await self._worker.within(self._process, self._process.get(None))
        if message[0] == "refused":
            return str(message[1])
        if message[0] == "outcome":
            return self._outcome(message)
        return msgspec.convert(message[1], Request)

    async def judge(self, view: ClusterView) -> Outcome:
        """The answer by this view."""
        self._process.begin()
        await self._worker.within(self._process, self._process.put("judge"))
        return self._outcome(await self._worker.within(self._process, self._process.get(view)))

    def _outcome(self, message: list[Any]) -> Outcome:
        self._worker.resident = message[2]
        return msgspec.convert(message[1], Outcome)


class Worker:
    """The process, made anew when it ends. One event loop."""

    def __init__(self, metrics: Metrics, release: Release | None = None, seconds: float = JOB_SECONDS) -> None:
        self.release = release
        self.resident = 0
        self._metrics = metrics
        self._seconds = seconds
        self._process: _Process | None = None
        self._turn = asyncio.Lock()
        self._waiting = 0
        metrics.watch_worker(lambda: self._waiting, self._measure)

    @property
    def pid(self) -> int | None:
        """Of the process, where there is one."""
        return None if self._process is None else self._process.child.pid

    def has_room(self) -> bool:
        """Whether one more job may wait."""
        return self._waiting < WAITING

    async def run(self) -> None:
        """Keep a process until cancelled."""
        try:
            with suppress(Overloaded):  # the next job tries again
                async with self._turn:
                    await self._ready()
            await asyncio.Event().wait()
        finally:
            self._end(None)

    @asynccontextmanager
    async def session(self) -> AsyncIterator[Session]:
        """The process for one job. Raises Overloaded; inside, Died where the process ends."""
        if not self.has_room():
            raise Overloaded("too many large objects at once")
        self._waiting += 1
        try:
            async with self._turn:
                process = await self._ready()
                try:
                    yield Session(self, process)
                    await self.within(process, process.put("done"))
                except (EOFError, OSError, msgspec.MsgspecError, IndexError) as error:
                    self._end("died")
                    raise Died from error
                except BaseException:
                    if self._process is process:  # in the middle of a job: nobody knows what it would say next
                        self._end(None)
                    raise
                if self.resident > GROWN:
                    self._end("grown")
        finally:
            self._waiting -= 1

    async def directories(
        self, trainjob: Mapping[str, Any], view: ClusterView, policy: Policy
    ) -> list[tuple[str, str]]:
        """Claim and path of each checkpoint directory. Raises Overloaded, Died."""
        async with self._turn:
            process = await self._ready()
            try:
                process.begin()
                await self.within(process, process.use(policy))
                await self.within(process, process.put("directories", trainjob, self.release))
                message = await self.within(process, process.get(view))
                return msgspec.convert(message[1], list[tuple[str, str]])
            except (EOFError, OSError, msgspec.MsgspecError, IndexError) as error:
                self._end("died")
                raise Died from error
            except BaseException:
                if self._process is process:
                    self._end(None)
                raise

    async def within(self, process: _Process, job: Any) -> Any:
        """What the process answers, if it does in time. Raises Overloaded."""
        try:
            async with asyncio.timeout(self._seconds):
                return await job
        except TimeoutError:
            if self._process is process:
                self._end("late")
            raise Overloaded("judging this object takes too long") from None

    async def _ready(self) -> _Process:
        if self._process is None:
            ours: socket.socket | None = None
            try:
                ours, its = socket.socketpair()
                with its:
                    ours.setblocking(False)
                    child = subprocess.Popen(  # noqa: S603, ASYNC220 - fixed words; a fork and no wait
                        [sys.executable, "-m", "webhook.server.worker", str(its.fileno())],
                        stdin=subprocess.DEVNULL,
                        stdout=subprocess.DEVNULL,
                        pass_fds=[its.fileno()],
                    )
                reader, writer = await asyncio.open_connection(sock=ours)
            except OSError as error:
                if ours is not None:
                    ours.close()
                _log.error("no worker process can be started: %s", error.strerror or error)
                raise Overloaded("the process that judges large objects cannot be started") from None
            self._process = _Process(child, reader, writer)
            _log.info("worker process %d started", child.pid)
        return self._process

    def _end(self, why: str | None) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.end()
        self.resident = 0
        if why is not None:
            self._metrics.worker_restarts[why].inc()
            level = logging.INFO if why == "grown" else logging.ERROR
            _log.log(level, "worker process %d ended: %s", process.child.pid, why)

    def _measure(self) -> float:
        try:
            pages = Path(f"/proc/{self.pid}/statm").read_text().split()[1]
        except (OSError, IndexError):
            return 0.0
        return float(int(pages) * resource.getpagesize())
