"""An API server for tests that does exactly what it is told, on loopback and without TLS."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine
from typing import Any

from aiohttp import web
from kubernetes.aio.client import Configuration

from webhook.cluster.connection import Connection

Object = dict[str, Any]
Reply = web.StreamResponse | None


class FakeApi:
    """Serves objects by path. ``refuse`` and ``hook`` make it misbehave; ``seen`` has every request, query included."""

    def __init__(self) -> None:
        self.objects: dict[str, Object] = {}
        """By path: ``/api/v1/namespaces/team/persistentvolumeclaims/ckpt``."""
        self.version = 100
        self.seen: list[tuple[str, dict[str, str]]] = []
        self.refuse: dict[str, int] = {}
        """Status by path."""
        self.hook: Callable[[web.Request], Coroutine[Any, Any, Reply]] | None = None
        self.tokens: list[str | None] = []
        self._watches: dict[str, list[asyncio.Queue[bytes | None]]] = {}
        self._runner: web.AppRunner | None = None
        self.port = 0
        self.counts = True
        """Whether a page says how many objects come after it."""

    async def __aenter__(self) -> FakeApi:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def start(self) -> None:
        """Listen; again on the same port after ``stop``."""
        app = web.Application()
        app.router.add_get("/{path:.*}", self._serve)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self.port)
        await site.start()
        self.port = int(self._runner.addresses[0][1])

    async def stop(self) -> None:
        """Hang up and listen no more."""
        for queues in self._watches.values():
            for queue in queues:
                queue.put_nowait(None)
        if self._runner is not None:
            await self._runner.cleanup()

    def connection(self) -> Connection:
        async def load() -> Any:
            made = Configuration()
            made.host = f"http://127.0.0.1:{self.port}"
            return made

        return Connection(load)

    def put(self, path: str, obj: Object) -> Object:
        """Store an object and tell those who watch; ``metadata`` is filled in by the path."""
        self.version += 1
        parts = path.strip("/").split("/")
        metadata = {**obj.get("metadata", {}), "name": parts[-1], "resourceVersion": str(self.version)}
        if "namespaces" in parts[:-2]:
            metadata["namespace"] = parts[parts.index("namespaces") + 1]
        stored = {**obj, "metadata": metadata}
        kind = "MODIFIED" if path in self.objects else "ADDED"
        self.objects[path] = stored
        self.tell(path, {"type": kind, "object": stored})
        return stored

    def delete(self, path: str) -> None:
        self.version += 1
        gone = self.objects.pop(path)
        gone = {**gone, "metadata": {**gone["metadata"], "resourceVersion": str(self.version)}}
        self.tell(path, {"type": "DELETED", "object": gone})

    def tell(self, path: str, event: Object) -> None:
        self.send(_collection(path), json.dumps(event).encode() + b"\n")

    def send(self, collection: str, data: bytes | None) -> None:
        """Raw bytes to every watch of a collection; None ends them in the middle of the stream."""
        for queue in self._watches.get(collection, ()):
            queue.put_nowait(data)

    def watching(self, collection: str) -> int:
        return len(self._watches.get(collection, ()))

    def requests(self, collection: str, **wanted: str) -> list[dict[str, str]]:
        """Queries of the requests for a path that have these parameters."""
        return [query for path, query in self.seen if path == collection and wanted.items() <= query.items()]

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        path, query = request.path, dict(request.query)
        self.seen.append((path, query))
        self.tokens.append(request.headers.get("Authorization"))
        if self.hook is not None and (reply := await self.hook(request)) is not None:
            return reply
        if (status := self.refuse.get(path)) is not None:
            return web.json_response({"kind": "Status", "code": status, "message": f"refused {status}"}, status=status)
        if query.get("watch"):
            return await self._watch(request)
        if path in self.objects:
            return web.json_response(self.objects[path])
        if _is_collection(path):
            return self._page(path, query)
        return web.json_response({"kind": "Status", "code": 404, "message": "not found"}, status=404)

    def _page(self, collection: str, query: dict[str, str]) -> web.Response:
        items = [obj for path, obj in self.objects.items() if _collection(path) == collection or
                 path.startswith(f"{collection}/")]  # fmt: skip
        start = int(query.get("continue") or 0)
        end = start + int(query.get("limit") or 500)
        metadata: Object = {"resourceVersion": str(self.version)}
        if end < len(items):
            metadata["continue"] = str(end)
            if self.counts:
                metadata["remainingItemCount"] = len(items) - end
        return web.json_response({"kind": "List", "metadata": metadata, "items": items[start:end]})

    async def _watch(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        queue: asyncio.Queue[bytes | None] = asyncio.Queue()
        queues = self._watches.setdefault(request.path, [])
        queues.append(queue)
        try:
            await response.prepare(request)
            while (data := await queue.get()) is not None:
                await response.write(data)
            if request.transport is not None:
                request.transport.close()
        except ConnectionError:
            pass
        finally:
            queues.remove(queue)
        return response


def _collection(path: str) -> str:
    """The path of all objects of a kind from that of one."""
    parts = path.rsplit("/", 1)[0].split("/")
    if "namespaces" in parts[:-1]:
        at = parts.index("namespaces")
        parts = parts[:at] + parts[at + 2 :]
    return "/".join(parts)


def _is_collection(path: str) -> bool:
    last = path.rsplit("/", 1)[-1]
    return last.endswith(("claims", "volumes", "classes", "namespaces", "runtimes", "trainjobs")) or last in (
        "customresourcedefinitions",
        "checkpointexceptions",
    )


async def until(true: Callable[..., object], seconds: float = 5.0) -> None:
    """Wait for something to become true."""
    for _ in range(round(seconds / 0.005)):
        if true():
            return
        await asyncio.sleep(0.005)
    raise AssertionError("did not become true in time")
