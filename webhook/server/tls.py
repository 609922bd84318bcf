"""The serving certificate: a context of TLS 1.2 and later, and a new pair swapped into it while it serves."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Final

RELOAD_SECONDS: Final = 10.0
"""How often the mounted files are looked at. The kubelet needs up to a minute to bring a new Secret."""

_log = logging.getLogger("ckptguard.tls")

Marks = tuple[tuple[int, int, int], ...]


def build_context(cert: Path, key: Path) -> ssl.SSLContext:
    """A server context with the pair loaded. Raises OSError or ssl.SSLError for files that are no pair."""
    context = _empty()
    load_pair(context, cert, key)
    return context


def load_pair(context: ssl.SSLContext, cert: Path, key: Path) -> None:
    """Put the pair into a context that may be in use: handshakes from now on get it.

    Tried on a context of its own first, since OpenSSL takes the certificate before it finds that the key is another's.
    Raises OSError or ssl.SSLError, and then ``context`` is as it was.
    """
    _empty().load_cert_chain(cert, key)
    context.load_cert_chain(cert, key)


async def follow_pair(
    context: ssl.SSLContext,
    cert: Path,
    key: Path,
    reloaded: Callable[[bool], None],
    seconds: float = RELOAD_SECONDS,
) -> None:
    """Load the pair whenever its files change, for ever. A pair that does not load leaves the old one in use.

    ``reloaded`` hears of each attempt whether it worked. Files that changed under our hands are loaded again.
    """
    seen = _marks(cert, key)
    while True:
        await asyncio.sleep(seconds)
        marks = _marks(cert, key)
        if marks == seen or marks is None:
            continue
        try:
            load_pair(context, cert, key)
        except (OSError, ssl.SSLError) as error:
            _log.error("the new pair %s, %s is refused, the old one stays in use: %s", cert, key, error)
            reloaded(False)
        else:
            _log.info("loaded the new pair %s, %s", cert, key)
            reloaded(True)
        if _marks(cert, key) == marks:
            seen = marks


def _empty() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    return context


def _marks(*paths: Path) -> Marks | None:
    """What tells one version of the files from another; None while one is missing (a Secret is swapped by symlink)."""
    try:
        found = [path.stat() for path in paths]
    except OSError:
        return None
    return tuple((stat.st_ino, stat.st_mtime_ns, stat.st_size) for stat in found)
