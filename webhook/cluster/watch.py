"""Keeps tables like the cluster: list in pages, then watch, for as long as the process lives.

A watch that ends is taken up where it ended. Only where the API server no longer knows that place (410), or where what
it sends makes no sense, everything is listed again. Nothing here ever empties a table because the API server is away.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Sequence
from contextlib import aclosing
from time import monotonic, perf_counter
from typing import Any, Final

import msgspec
from msgspec import Struct

from webhook.cluster.access import NoCluster, Refused, Unreachable
from webhook.cluster.connection import Connection
from webhook.cluster.kinds import Event, Kind, Marked, Page, Status
from webhook.cluster.table import Key, Table

SLICE_SECONDS: Final = 0.001
"""For so long objects are taken in before requests get their turn."""

_log = logging.getLogger("ckptguard.cluster")
_page = msgspec.json.Decoder(Page).decode
_event = msgspec.json.Decoder(Event).decode
_marked = msgspec.json.Decoder(Marked).decode
_status = msgspec.json.Decoder(Status).decode


class Pace(Struct, frozen=True):
    """Times, in seconds."""

    watch: float = 420.0
    """For so long a watch is asked to last, give or take a third."""
    silence: float = 150.0
    """A watch is dead when it says nothing for so long: bookmarks come about every minute."""
    first: float = 0.2
    """The pause after a first failure; it doubles with each further one."""
    longest: float = 15.0
    unserved: float = 10.0
    """How often it is looked whether a kind is served that was not."""


PACE: Final = Pace()


class _Gone(Exception):  # noqa: N818
    """The place in the stream of changes is not known any more; everything has to be listed again."""


class _Nonsense(Exception):  # noqa: N818
    """The API server sent what cannot be read."""


class Watch:
    """One kind. ``run`` never ends; all else is for probes, metrics and views."""

    def __init__(
        self,
        kind: Kind,
        connection: Connection,
        table: Table,
        pace: Pace = PACE,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self.kind = kind
        self.table = table
        self.synced = asyncio.Event()
        """Set once everything has been listed, for good."""
        self.trouble: str | None = "it has not been listed yet"
        """Why the table may be behind; None while the watch runs."""
        self.moved = monotonic()
        """When the loop last did anything at all."""
        self.heard = monotonic()
        """When the API server last said something of this kind: an object, a page, a bookmark."""
        self.served = True
        """Whether the cluster has the kind at all, as far as is known."""
        self.position = 0
        """The resourceVersion up to which the table is known to be complete."""
        self.wake = asyncio.Event()
        self._connection = connection
        self._pace = pace
        self.relisted: Callable[[], None] = lambda: None
        """Called when everything has to be listed once more."""
        self._chance = chance
        self._failures = 0
        self._nonsense = 0
        self._stale: dict[str, set[str]] = {}
        self._slice = 0.0

    def dead(self) -> bool:
        """Whether the loop hangs. An API server that is away is no death: the loop goes on asking."""
        return monotonic() - self.moved > 2 * self._pace.silence + self._pace.longest

    async def run(self) -> None:
        """List and watch until cancelled."""
        version: str | None = None
        listed = False
        while True:
            self.moved = monotonic()
            pause = 0.0
            try:
                if version is None:
                    await self._find_out()
                    if listed:
                        self.relisted()
                    version = await self._list()
                    self.served = listed = True
                    self.trouble = None
                    self.synced.set()
                    self._nonsense = 0
                began = monotonic()
                version = await self._watch(version)
                if monotonic() - began < 1.0:
                    pause = self._pause()  # a server that ends every watch at once
                else:
                    self._failures = 0
            except _Gone as gone:
                _log.info("%s: %s; listing again", self.kind.name, gone)
                version = None
                pause = self._pause()
            except _Nonsense as nonsense:
                version = self._resume(version)
                self._nonsense += 1
                if self._nonsense >= 3:
                    version = None
                pause = self._trouble(f"the API server sent what cannot be read: {nonsense}")
            except Refused as refused:
                version = self._resume(version)
                if refused.status == 404:
                    # Not served: there are none. Trainer may be installed later.
                    self._drop_all()
                    self.served = False
                    version, listed = None, False
                    self.trouble = None
                    self.synced.set()
                    self.heard = monotonic()
                    pause = self._pace.unserved
                elif refused.status == 410:
                    version = None
                    pause = self._pause()
                else:
                    pause = max(self._trouble(_refusal(self.kind, refused)), min(refused.retry_after, 30.0))
            except (Unreachable, NoCluster) as error:
                version = self._resume(version)
                pause = self._trouble(f"the API server cannot be reached: {error}")
            except Exception as error:
                # What no test has found. The server answers on; from the start, since nobody knows how far this came.
                _log.error("%s: the watch failed with %s", self.kind.name, type(error).__name__, exc_info=error)
                version = None
                pause = self._trouble(f"the watch failed with {type(error).__name__}")
            self.moved = monotonic()
            if pause:
                await self._sleep(pause)

    async def _find_out(self) -> None:
        """Raises Refused with 404 where an optional kind is not served: without the right to list it there is a 403."""
        if not self.kind.optional:
            return
        try:
            await self._connection.get(self.kind.base)
        except Refused as refused:
            if refused.status == 404:
                raise

    async def list_once(self) -> None:
        """Take everything in once, beside a watch of the same table. Raises what the connection raises."""
        await self._list()

    def _resume(self, version: str | None) -> str | None:
        """Where to go on: as far as the table is complete."""
        return str(self.position) if version is not None and self.position else version

    async def _list(self) -> str:
        self._stale = {}
        for namespace, name in self.table.all_keys():
            self._stale.setdefault(namespace, set()).add(name)
        params = {"limit": str(self.kind.page)}
        if self.kind.only:
            params["fieldSelector"] = f"metadata.name={self.kind.only}"
        self._slice = perf_counter()
        while True:
            body = await self._connection.get(self.kind.collection, params)
            self.moved = self.heard = monotonic()
            try:
                page = _page(body)
            except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
                raise _Nonsense(str(error)) from None
            for item in page.items or ():
                self._seen(self._put(item))
                if perf_counter() - self._slice > SLICE_SECONDS:
                    await self._yield()
            if not page.metadata.continue_:
                break
            params["continue"] = page.metadata.continue_
        for namespace, names in self._stale.items():
            for name in names:
                self.table.remove((namespace, name))
        self._stale = {}
        self._advance(page.metadata.resource_version)
        return page.metadata.resource_version

    def _put(self, raw: msgspec.Raw) -> Key | None:
        """Takes an object in. A fault of ours on one object takes neither the others nor the watch with it."""
        try:
            return self.table.put(raw)
        except Exception as error:
            _log.error("%s: an object cannot be taken in: %s", self.kind.name, type(error).__name__, exc_info=error)
            return None

    def _seen(self, key: Key | None) -> None:
        if key is not None and self._stale:
            names = self._stale.get(key[0])
            if names is not None:
                names.discard(key[1])

    async def _watch(self, version: str) -> str:
        params = {
            "watch": "1",
            "resourceVersion": version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(max(1, round(self._pace.watch * (2 + self._chance() * 2) / 3))),
        }
        if self.kind.only:
            params["fieldSelector"] = f"metadata.name={self.kind.only}"
        # Closed at once, whatever happens: an abandoned watch would go on receiving.
        async with aclosing(self._connection.watch(self.kind.collection, params, self._pace.silence)) as stream:
            async for lines in stream:
                self.moved = self.heard = monotonic()
                if not lines:
                    # Connected: what went wrong is over.
                    self.trouble = None
                    continue
                self._slice = perf_counter()
                for line in lines:
                    if line:
                        version = self._take(line)
                        if perf_counter() - self._slice > SLICE_SECONDS:
                            await self._yield()
                self._failures = 0
                self._nonsense = 0
                self._advance(version)
        return version

    def _take(self, line: bytes) -> str:
        try:
            event = _event(line)
            if event.type == "ERROR":
                status = _status(event.object)
                if status.code == 410:
                    raise _Gone(status.message or "too old")
                raise Refused(status.code or 500, status.message)
            meta = _marked(event.object).metadata
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise _Nonsense(str(error)) from None
        if event.type == "DELETED":
            self.table.remove((meta.namespace, meta.name))
        elif event.type != "BOOKMARK" and self._put(event.object) is None:
            # What the table has of it is no longer true: whoever needs it reads it, and learns that it is unknown.
            self.table.remove((meta.namespace, meta.name))
        if meta.resource_version:
            self._advance(meta.resource_version)
        return meta.resource_version or str(self.position)

    def _advance(self, version: str) -> None:
        # Versions are opaque by the book; etcd's are numbers, and from 1.35 on the API promises that they compare.
        if version.isdigit():
            self.position = int(version)

    def _drop_all(self) -> None:
        for key in list(self.table.all_keys()):
            self.table.remove(key)

    async def _yield(self) -> None:
        await asyncio.sleep(0)
        self._slice = perf_counter()
        self.moved = monotonic()

    def _trouble(self, words: str) -> float:
        if self.trouble != words:
            _log.warning("%s: %s", self.kind.name, words)
        self.trouble = words
        return self._pause()

    def _pause(self) -> float:
        self._failures += 1
        longest = min(self._pace.first * 2.0 ** min(self._failures - 1, 16), self._pace.longest)
        return longest * (0.5 + self._chance() / 2)

    async def _sleep(self, seconds: float) -> None:
        self.wake.clear()
        try:
            async with asyncio.timeout(seconds):
                await self.wake.wait()
        except TimeoutError:
            pass


class Watches:
    """All watches of a process."""

    def __init__(self, watches: Sequence[Watch], close: Callable[[], Any]) -> None:
        self.watches = tuple(watches)
        self.by_kind = {watch.kind.name: watch for watch in watches}
        self._close = close

    async def run(self) -> None:
        """Watch until cancelled."""
        try:
            async with asyncio.TaskGroup() as group:
                for watch in self.watches:
                    group.create_task(watch.run(), name=f"watch {watch.kind.name}")
        finally:
            await self._close()

    async def wait_synced(self) -> None:
        """Returns when every kind has been listed once; says every while what it waits for."""
        waiting = [asyncio.ensure_future(watch.synced.wait()) for watch in self.watches if watch.kind.needed]
        try:
            while True:
                _, pending = await asyncio.wait(waiting, timeout=10)
                if not pending:
                    return
                for watch in self.watches:
                    if not watch.synced.is_set():
                        _log.warning("not ready: %s: %s", watch.kind.name, watch.trouble)
        finally:
            for waiter in waiting:
                waiter.cancel()

    def try_again(self) -> None:
        """Look now whether what failed, or was not served, is there."""
        for watch in self.watches:
            watch.wake.set()

    def fault(self) -> str | None:
        """Which watch hangs, for ``/healthz``."""
        for watch in self.watches:
            if watch.dead():
                return f"the watch of {watch.kind.name} hangs"
        return None


def _refusal(kind: Kind, refused: Refused) -> str:
    if refused.status == 403:
        return f"the guard's service account may not list and watch {kind.resource}"
    if refused.status == 401:
        return "the API server does not accept the guard's credentials"
    return f"the API server answers {refused.status}: {refused.message[:200]}"
