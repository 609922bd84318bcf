"""Accepts connections, with a ceiling for all of them and one for each peer.

A connection passes three states before it is a request's: it says nothing yet (a socket, and no TLS state), it waits
for its handshake, it shakes hands. So ten thousand sockets that say nothing cost descriptors and no memory, and
handshakes, which cost half a millisecond of processor time each, are begun a few at a time, by peer in turn. Where a
ceiling is reached, that connection of the peer goes that has worked least: one without a handshake, one whose request
does not come to an end, one that idles. None that is being answered ever goes.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import resource
import socket
import ssl
from collections.abc import Callable, Iterable
from time import monotonic
from typing import Any, Final, Protocol

from msgspec import Struct

from webhook.server.turns import Turns

_AT_ONCE: Final = 64
"""Connections accepted in one turn of the loop."""
_SHAKES: Final = 4
"""Handshakes begun in one turn of the loop."""
_SHAKING: Final = 256
"""Handshakes under way at a time: some 75 KiB each."""
_BACKLOG: Final = 1024
_RESERVE: Final = 384
"""Descriptors that connections leave free: live reads, watches, sinks, the certificate's files."""
_SETTLED: Final = 0.25
"""Seconds that a connection has for its handshake or request before it may have to give way."""

_log = logging.getLogger("ckptguard.server")


class Ceilings(Struct, frozen=True):
    """How many connections, and how long a handshake may take in seconds."""

    connections: int = 1024
    per_peer: int = 512
    handshake_seconds: float = 5.0


class Told(Struct):
    """Where it is counted; ``refused`` is told why: ``full``, ``peer``, ``handshake``."""

    refused: Callable[[str], None] = lambda why: None


class Guest(Protocol):
    """A protocol that knows whether it may be asked to leave."""

    def stay(self) -> tuple[int, float] | None:
        """None while it works; else how lightly it goes (lower goes first), and since when it has been so."""
        ...

    def leave_now(self) -> None: ...


class Seat:
    """One connection."""

    __slots__ = ("guest", "peer", "since", "sock", "task")

    def __init__(self, peer: str, sock: socket.socket) -> None:
        self.peer = peer
        self.sock: socket.socket | None = sock
        """Until the handshake begins."""
        self.since = monotonic()
        self.task: asyncio.Task[None] | asyncio.TimerHandle | None = None
        """What ends it: the timer until the handshake begins, then the handshake itself."""
        self.guest: Guest | None = None
        """Once the handshake is done."""

    def stay(self) -> tuple[int, float] | None:
        """See ``Guest.stay``: first those that have not shaken hands."""
        return (0, self.since) if self.guest is None else self.guest.stay()


class Listener:
    """Sockets that listen, and the seats of all connections. One event loop."""

    def __init__(self, sockets: Iterable[socket.socket], ceilings: Ceilings, told: Told | None = None) -> None:
        self.sockets = list(sockets)
        self.ceilings = ceilings
        self._told = told or Told()
        self._seats: dict[str, dict[Seat, None]] = {}
        self._strangers: dict[str, dict[Seat, None]] = {}
        """Those of ``_seats`` without a handshake, the oldest first."""
        self._count = 0
        self._shaking: dict[Seat, float] = {}
        """Handshakes under way, the oldest first, and when each began."""
        self._ready: Turns[Seat] = Turns()
        self._beginning = False
        self._spare: int | None = None
        self._loop: Any = None
        self._make: Callable[[Seat], asyncio.Protocol] = lambda seat: asyncio.Protocol()
        self._context: ssl.SSLContext | None = None

    def open(self, make: Callable[[Seat], asyncio.Protocol], context: ssl.SSLContext | None) -> None:
        """Listen from now on; ``make`` gives the protocol of a connection."""
        self._loop = asyncio.get_running_loop()
        self._make = make
        self._context = context
        for listening in self.sockets:
            listening.listen(_BACKLOG)
            self._loop.add_reader(listening, self._accept, listening)

    @property
    def count(self) -> int:
        """Connections that are open, in whatever state."""
        return self._count

    # ``close`` and ``wait_closed`` are what uvicorn asks of a server.
    def close(self) -> None:
        """Stop listening; connections without a handshake end."""
        for listening in self.sockets:
            if listening.fileno() >= 0:
                self._loop.remove_reader(listening)
                listening.close()
        for seats in list(self._seats.values()):
            for seat in list(seats):
                if seat.guest is None and seat.sock is not None:
                    self._drop(seat)

    async def wait_closed(self) -> None:
        """Connections are waited for by those who own them."""

    def _accept(self, listening: socket.socket) -> None:
        for _ in range(_AT_ONCE):
            try:
                sock, address = listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS):
                    # Somebody else took the descriptors; without a pause this would spin.
                    _log.error("no connection can be accepted: %s", error.strerror)
                    self._loop.remove_reader(listening)
                    self._loop.call_later(0.2, self._again, listening)
                return
            self._take(sock, str(address[0]))

    def _again(self, listening: socket.socket) -> None:
        if listening.fileno() >= 0:
            self._loop.add_reader(listening, self._accept, listening)

    def _take(self, sock: socket.socket, peer: str) -> None:
        seats = self._seats.get(peer)
        if seats is not None and len(seats) >= self.ceilings.per_peer and not self._make_room(peer, "peer"):
            sock.close()
            return
        if self._count >= self.ceilings.connections:
            most = max(self._seats, key=lambda name: len(self._seats[name]))
            fewer = len(self._seats.get(peer, ())) < len(self._seats[most])
            if not self._make_room(most if fewer else peer, "full"):
                sock.close()
                return
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        seat = Seat(peer, sock)
        self._seats.setdefault(peer, {})[seat] = None
        self._strangers.setdefault(peer, {})[seat] = None
        self._count += 1
        if self._context is None:
            self._begin(seat)
            return
        self._loop.add_reader(sock, self._speaks, seat)
        seat.task = self._loop.call_later(self.ceilings.handshake_seconds, self._late, seat)

    def _make_room(self, peer: str, why: str) -> bool:
        """One connection of the peer goes, if one may; either way somebody is refused."""
        self._told.refused(why)
        now = monotonic()
        oldest = next(iter(self._strangers.get(peer, ())), None)
        if oldest is not None:
            settled = now - oldest.since > _SETTLED
            if settled:
                self._drop(oldest)
            return settled
        least: tuple[tuple[int, float], Seat] | None = None
        for seat in self._seats.get(peer, ()):
            standing = seat.stay()
            if standing is not None and now - standing[1] > _SETTLED and (least is None or standing < least[0]):
                least = (standing, seat)
        if least is None:
            return False
        self._drop(least[1])
        return True

    def _speaks(self, seat: Seat) -> None:
        """The first bytes are there: in line for a handshake."""
        self._loop.remove_reader(seat.sock)
        self._ready.push(seat.peer, seat)
        self._go_on()

    def _go_on(self) -> None:
        if self._ready and not self._beginning:
            self._beginning = True
            self._loop.call_soon(self._begin_some)

    def _begin_some(self) -> None:
        self._beginning = False
        begun = 0
        while self._ready and begun < _SHAKES:
            if len(self._shaking) >= _SHAKING and not self._end_one():
                self._beginning = True
                self._loop.call_later(_SETTLED / 5, self._begin_some)
                return
            seat = self._ready.pop()
            if seat.sock is not None:
                self._begin(seat)
                begun += 1
        self._go_on()

    def _end_one(self) -> bool:
        """The oldest handshake of the peer that has most of them ends, if it had its time."""
        counts: dict[str, int] = {}
        for seat in self._shaking:
            counts[seat.peer] = counts.get(seat.peer, 0) + 1
        most = max(counts, key=lambda peer: counts[peer])
        seat = next(seat for seat in self._shaking if seat.peer == most)
        if monotonic() - self._shaking[seat] < _SETTLED:
            return False
        self._told.refused("full")
        self._drop(seat)
        return True

    def _begin(self, seat: Seat) -> None:
        if seat.task is not None:
            seat.task.cancel()
        self._shaking[seat] = monotonic()
        seat.task = self._loop.create_task(self._shake(seat))

    async def _shake(self, seat: Seat) -> None:
        sock, seat.sock = seat.sock, None
        options: dict[str, Any] = {}
        if self._context is not None:
            options = {"ssl": self._context, "ssl_handshake_timeout": self.ceilings.handshake_seconds}
            options["ssl_shutdown_timeout"] = 1.0
        try:
            await self._loop.connect_accepted_socket(lambda: self._make(seat), sock, **options)
        except (OSError, EOFError, TimeoutError, asyncio.CancelledError):
            self._told.refused("handshake")
            self.gone(seat)
        finally:
            seat.task = None
            self._shaking.pop(seat, None)
            self._go_on()

    def _late(self, seat: Seat) -> None:
        if seat.sock is not None:
            self._told.refused("handshake")
            self._drop(seat)

    def _drop(self, seat: Seat) -> None:
        if seat.guest is not None:
            seat.guest.leave_now()
        elif seat.sock is not None:
            self._loop.remove_reader(seat.sock)
            if seat.task is not None:
                seat.task.cancel()
            seat.sock.close()
            seat.sock = None
        elif seat.task is not None:
            self._shaking.pop(seat, None)
            seat.task.cancel()
        self.gone(seat)

    def known(self, seat: Seat) -> None:
        """The handshake is done: ``seat.guest`` says from now on whether it may stay."""
        strangers = self._strangers.get(seat.peer)
        if strangers is not None:
            strangers.pop(seat, None)
            if not strangers:
                del self._strangers[seat.peer]

    def gone(self, seat: Seat) -> None:
        """The connection has ended. Telling it twice does no harm."""
        self.known(seat)
        seats = self._seats.get(seat.peer)
        if seats is not None and seat in seats:
            del seats[seat]
            self._count -= 1
            if not seats:
                del self._seats[seat.peer]


def bind(host: str, port: int) -> list[socket.socket]:
    """Sockets for every address of ``host``. Raises OSError."""
    sockets: list[socket.socket] = []
    try:
        for family, kind, protocol, _, address in socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        ):
            made = socket.socket(family, kind, protocol)
            sockets.append(made)
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            made.setblocking(False)
            made.bind(address)
    except OSError:
        for made in sockets:
            made.close()
        raise
    return sockets


def fitting(ceilings: Ceilings) -> Ceilings:
    """The ceilings, lowered where the process may not open so many descriptors even after asking for them."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = ceilings.connections + _RESERVE
    if soft != resource.RLIM_INFINITY and soft < wanted:
        most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, most), hard))
            soft = max(soft, most)
        except (OSError, ValueError):
            pass
        if soft < wanted:
            fits = max(soft - _RESERVE, soft // 2, 1)
            if fits < ceilings.connections:
                _log.warning("at most %d connections: the process may open %d descriptors", fits, soft)
                return Ceilings(fits, min(ceilings.per_peer, fits), ceilings.handshake_seconds)
    return ceilings
