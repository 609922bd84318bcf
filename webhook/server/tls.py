"""The serving certificate: TLS 1.2 and later, and a new pair taken up while connections go on.

What is mounted is read every few seconds, compared by content, and taken up only if it is no worse than what is in use:
it has to be a pair, valid today, and trusted by whoever calls. Else the one in use stays, a metric and one log line say
why, and the next look may find it mended. Whether the pair in use is trusted decides about ``/readyz`` too.

Validity and trust are not worked out here but tried: a handshake in memory with a client that trusts what the API
server trusts (``caBundle``) and asks for the name that it asks for.
"""

from __future__ import annotations

import asyncio
import logging
import os
import ssl
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from time import monotonic
from typing import Any, Final

from msgspec import Struct

from webhook.cluster.registration import Caller

LOOK_SECONDS: Final = 10.0
"""Between two looks at the mounted files and the registration. The kubelet needs up to a minute to bring a Secret."""

_TRUST_SECONDS: Final = 60.0
"""For so long an answer about trust holds where neither side changed: what is trusted expires one day."""

_log = logging.getLogger("ckptguard.tls")

Callers = Callable[[], Awaitable[Sequence[Caller]]]
"""Reads the registration. What it raises means that it is not known."""


class Pair(Struct, frozen=True):
    """What is mounted: certificate chain, key and the authorities of client certificates, PEM."""

    cert: bytes
    key: bytes
    client_ca: bytes = b""


class PairRefused(Exception):  # noqa: N818 - it is not ours
    """Files that cannot be served; the text says why."""


class LiveContext(ssl.SSLContext):
    """A server context that hands each new connection to the context in use; those that are open keep theirs.

    A whole context is put in place of another, since one into which a second pair is loaded keeps the first where that
    has another kind of key, and goes on serving it to some.
    """

    inner: ssl.SSLContext

    def wrap_bio(self, *args: Any, **kwargs: Any) -> ssl.SSLObject:
        return self.inner.wrap_bio(*args, **kwargs)

    def wrap_socket(self, *args: Any, **kwargs: Any) -> ssl.SSLSocket:
        return self.inner.wrap_socket(*args, **kwargs)


class Told(Struct):
    """Where the certificate's state goes; each is called when it changes."""

    reloaded: Callable[[bool], None] = lambda well: None
    expires: Callable[[float], None] = lambda when: None
    """Unix time."""
    stale: Callable[[bool], None] = lambda stale: None
    """Whether what is mounted is not what is served."""
    trusted: Callable[[bool], None] = lambda trusted: None


class Certificate:
    """The pair in use, and what becomes of it. One event loop."""

    def __init__(
        self,
        cert: Path,
        key: Path,
        client_ca: Path | None = None,
        callers: Callers | None = None,
        told: Told | None = None,
    ) -> None:
        """Load the pair. Raises PairRefused."""
        self._paths = (cert, key, client_ca)
        self._load_callers = callers
        self._told = told or Told()
        self._callers: Sequence[Caller] = ()
        self._unknown: str | None = None
        self._tried: tuple[Pair, tuple[Caller, ...]] | None = None
        self._try_again = 0.0
        self._refused: tuple[Pair | None, str] | None = None
        self.untrusted: str | None = None
        """Why a caller would not trust what is served, in words; None where all do, or none is known."""
        pair = read_pair(cert, key, client_ca)
        self.context = LiveContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.inner = build_context(pair)
        self._pair = pair
        self._tell_expiry()

    async def prepare(self, seconds: float = 1.0) -> None:
        """The first look. Returns when it is known whether callers trust us, or that we may not know."""
        while True:
            await self.look()
            if self._unknown is None:
                return
            await asyncio.sleep(seconds)

    async def follow(self, seconds: float = LOOK_SECONDS) -> None:
        """Look for ever."""
        while True:
            await asyncio.sleep(seconds)
            await self.look()

    async def look(self) -> None:
        """Take up what is mounted if it is new and no worse; find out whether what is served is trusted."""
        mounted: Pair | None = None
        try:
            mounted = read_pair(*self._paths)
        except PairRefused as refused:
            self._refuse(None, str(refused))
        await self._read_callers()
        if mounted == self._pair:
            if self._refused is not None:
                _log.info("the pair at %s is again the one in use", self._paths[0])
                self._settle()
        elif mounted is not None:
            self._consider(mounted)
        self._find_trust()

    def _find_trust(self) -> None:
        tried = (self._pair, tuple(self._callers))
        if tried == self._tried and monotonic() < self._try_again:
            return
        self._tried, self._try_again = tried, monotonic() + _TRUST_SECONDS
        untrusted = distrust(self._pair, self._callers)
        if untrusted != self.untrusted:
            if untrusted is not None:
                _log.error("not ready: %s", untrusted)
            else:
                _log.info("what is served is trusted again")
        self.untrusted = untrusted
        self._told.trusted(untrusted is None)

    async def _read_callers(self) -> None:
        if self._load_callers is None:
            return
        try:
            self._callers = await self._load_callers()
        except Exception as error:
            words = f"{type(error).__name__}: {error}"
            forbidden = getattr(error, "status", 0) == 403
            if words != self._unknown:
                _log.warning("who is trusted cannot be read from the webhook configuration: %s", words)
            if forbidden:
                self._load_callers = None  # the right does not come by itself; a pod that gets it is made anew
            self._unknown = None if forbidden else words
        else:
            self._unknown = None

    def _consider(self, mounted: Pair) -> None:
        try:
            context = build_context(mounted)
            reason = own_fault(mounted)
            if reason is not None and own_fault(self._pair) is None:
                raise PairRefused(reason)
            reason = distrust(mounted, self._callers)
            if reason is not None and distrust(self._pair, self._callers) is None:
                raise PairRefused(reason)
        except PairRefused as refused:
            self._refuse(mounted, str(refused))
            return
        self.context.inner = context
        self._pair = mounted
        _log.info("took up the new pair of %s", self._paths[0])
        self._told.reloaded(True)
        self._tell_expiry()
        self._settle()

    def _refuse(self, mounted: Pair | None, reason: str) -> None:
        if self._refused == (mounted, reason):
            return
        self._refused = (mounted, reason)
        _log.error("the pair at %s is refused, the one in use stays: %s", self._paths[0], reason)
        self._told.reloaded(False)
        self._told.stale(True)

    def _settle(self) -> None:
        self._refused = None
        self._told.stale(False)

    def _tell_expiry(self) -> None:
        end = expiry(self._pair)
        if end is not None:
            self._told.expires(end)


def read_pair(cert: Path, key: Path, client_ca: Path | None = None) -> Pair:
    """The files' content. Raises PairRefused.

    Read twice: a Secret's files are swapped all at once by the kubelet, but not for someone between two of them.
    """
    before: Pair | None = None
    try:
        for _ in range(5):
            pair = Pair(cert.read_bytes(), key.read_bytes(), client_ca.read_bytes() if client_ca is not None else b"")
            if pair == before:
                return pair
            before = pair
    except OSError as error:
        raise PairRefused(f"{error.filename}: {error.strerror}") from None
    raise PairRefused("the files change all the time")


def build_context(pair: Pair) -> ssl.SSLContext:
    """A server context with that pair. Raises PairRefused."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    try:
        _load(context, pair)
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            raise PairRefused("the key is not that of the certificate") from None
        raise PairRefused("the certificate or the key cannot be read: truncated, or no PEM") from None
    except ValueError as error:
        raise PairRefused(str(error)) from None
    if pair.client_ca:
        # Not required: probes and scrapes come without one. The paths that need it ask for it themselves.
        context.verify_mode = ssl.CERT_OPTIONAL
        try:
            context.load_verify_locations(cadata=pair.client_ca.decode("ascii"))
        except (ssl.SSLError, ValueError) as error:
            raise PairRefused(f"the authorities of client certificates cannot be read: {_words(error)}") from None
    return context


def own_fault(pair: Pair) -> str | None:
    """Why a pair is worth nothing today whoever trusts it: expired, not yet valid, not for servers."""
    return _shake(pair, pair.cert.decode("ascii", "replace"), None)[0]


def distrust(pair: Pair, callers: Sequence[Caller]) -> str | None:
    """Why one of the callers would not take the pair, in words."""
    tried: dict[tuple[str, str], str | None] = {}
    for caller in callers:
        key = (caller.bundle, caller.server)
        if key not in tried:
            tried[key] = _shake(pair, caller.bundle, caller.server)[0]
        if tried[key] is not None:
            return f'webhook "{caller.webhook}" does not trust what is served: {tried[key]}'
    return None


def expiry(pair: Pair) -> float | None:
    """When the certificate expires, Unix time; None where it is not valid now."""
    _, found = _shake(pair, pair.cert.decode("ascii", "replace"), None)
    end = found.get("notAfter")
    return ssl.cert_time_to_seconds(end) if end else None


def _shake(pair: Pair, trusted: str, name: str | None) -> tuple[str | None, dict[str, Any]]:
    """A handshake in memory: what a client has against the pair, and the certificate as it saw it."""
    server = build_context(Pair(pair.cert, pair.key))
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname = name is not None
    client.hostname_checks_common_name = False
    client.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # Go takes whatever is in the bundle as a root, and so do we
    try:
        if trusted.strip():
            client.load_verify_locations(cadata=trusted)
        else:
            client.load_default_certs()
    except (ssl.SSLError, ValueError) as error:
        return f"caBundle cannot be read: {_words(error)}", {}
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    sides = (
        client.wrap_bio(to_client, to_server, server_hostname=name),
        server.wrap_bio(to_server, to_client, server_side=True),
    )
    try:
        for _ in range(4):
            for side in sides:
                try:
                    side.do_handshake()
                except ssl.SSLWantReadError:
                    continue
                if side is sides[0]:
                    return None, side.getpeercert() or {}
    except ssl.SSLCertVerificationError as error:
        return str(error.verify_message).rstrip("."), {}
    except (ssl.SSLError, ValueError) as error:
        return _words(error), {}
    return "the handshake does not end", {}


def _load(context: ssl.SSLContext, pair: Pair) -> None:
    """``load_cert_chain`` for bytes: it takes files alone, and those that are mounted may be swapped meanwhile."""
    content = pair.cert + b"\n" + pair.key

    def no_password() -> str:
        raise ValueError("the key is encrypted")

    try:
        handle = os.memfd_create("tls", os.MFD_CLOEXEC)
    except (AttributeError, OSError):  # not Linux
        with tempfile.NamedTemporaryFile() as file:
            file.write(content)
            file.flush()
            context.load_cert_chain(file.name, password=no_password)
        return
    with open(handle, "wb") as memory:  # noqa: PTH123 - a descriptor
        memory.write(content)
        memory.flush()
        context.load_cert_chain(f"/proc/self/fd/{handle}", password=no_password)


def _words(error: Exception) -> str:
    reason = getattr(error, "reason", None)
    if reason:
        return str(reason).replace("_", " ").lower()
    return " ".join(str(error).split()) or type(error).__name__
