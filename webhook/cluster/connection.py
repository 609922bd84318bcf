"""A connection to the API server: the official client's configuration and credentials, and bytes in and out.

The kubernetes client is imported when a connection is opened, since it costs half a second and some 20 MB.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import suppress
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

import msgspec

from webhook.cluster.access import NoCluster, Refused, Unreachable, kubeconfig_of

if TYPE_CHECKING:
    import aiohttp

CONNECT_SECONDS: Final = 5.0
PAGE_SECONDS: Final = 60.0
"""The API server's own limit for a request that is no watch."""
MOUNTED: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_RELOAD_SECONDS: Final = 5.0
_LINE_LIMIT: Final = 32 * 1024 * 1024
"""Bytes of one watch event: an object is at most some 3 MiB."""
# Compressed lists cost more processor time on both sides than the bytes cost on a cluster's network.
_HEADERS: Final = {"Accept": "application/json", "Accept-Encoding": "identity", "User-Agent": "checkpoint-guard"}


class _Status(msgspec.Struct):
    message: str = ""


Load = Callable[[], Awaitable[Any]]
"""Makes a ``kubernetes.aio`` Configuration. Raises NoCluster."""


def configuration(
    kubeconfig: Path | None = None, inside_first: bool = False, mounted: Path = MOUNTED, context: str | None = None
) -> Load:
    """From the kubeconfig given, else ``$KUBECONFIG``, ``~/.kube/config`` or the pod's own service account.

    ``inside_first`` asks for the service account before ``~/.kube/config``: what a server in a pod wants.
    ``mounted`` is where its token and CA are. ``context`` is that of the kubeconfig to use; None for the current one.
    """

    async def load() -> Any:
        from kubernetes.aio.client import Configuration
        from kubernetes.aio.config import ConfigException, load_kube_config
        from kubernetes.aio.config.incluster_config import InClusterConfigLoader
        from yaml import YAMLError

        made = Configuration()
        try:
            name = kubeconfig_of(kubeconfig, context, inside_first)
            if name is None:
                # It reads the token again once a minute.
                loader = InClusterConfigLoader(str(mounted / "token"), str(mounted / "ca.crt"))  # type: ignore[no-untyped-call]
                loader.load_and_set(made)  # type: ignore[no-untyped-call]
            else:
                # Without persist_config nothing is written to a user's file.
                await load_kube_config(name, context, client_configuration=made, persist_config=False)  # type: ignore[no-untyped-call]
        except ConfigException as error:
            raise NoCluster(f"the cluster's configuration cannot be used: {error}") from None
        except (OSError, ValueError, TypeError, KeyError, AttributeError, YAMLError) as error:
            raise NoCluster(f"the cluster's configuration cannot be read: {_words(error)}") from None
        return made

    return load


class Connection:
    """GET, LIST and WATCH as bytes. Opened at the first request; credentials are read again when they are refused."""

    def __init__(self, load: Load) -> None:
        self._load = load
        self._configuration: Any = None
        self._session: aiohttp.ClientSession | None = None
        self._options: dict[str, Any] = {}
        self._transport: object = None
        self._retired: list[aiohttp.ClientSession] = []
        self._opening = asyncio.Lock()
        self._reloaded = float("-inf")
        self._doubtful = False
        """Whether the API server refused the credentials, or we its certificate."""

    async def get(self, path: str, params: Mapping[str, str] | None = None, seconds: float = PAGE_SECONDS) -> bytes:
        """The body of a GET. Raises Refused, Unreachable, NoCluster."""
        import aiohttp

        limits = aiohttp.ClientTimeout(total=seconds, sock_connect=CONNECT_SECONDS)
        try:
            async with await self._send(path, params, limits) as response:
                if response.status != 200:
                    raise await self._refusal(response)
                return bytes(await response.read())
        except (TimeoutError, aiohttp.ClientError, OSError) as error:
            raise self._lost(error) from error

    async def watch(self, path: str, params: Mapping[str, str], silence: float) -> AsyncGenerator[list[bytes], None]:
        """The whole lines of a watch, as they arrive; ends when the server ends it.

        Raises Unreachable where nothing arrives for ``silence`` seconds or the connection breaks, and Refused.
        What stands behind the last line break is never handed out.
        """
        import aiohttp

        limits = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS, sock_read=silence)
        try:
            async with await self._send(path, params, limits) as response:
                if response.status != 200:
                    raise await self._refusal(response)
                yield []
                rest = b""
                while True:
                    chunk = await response.content.readany()
                    if not chunk:
                        return
                    lines = (rest + chunk).split(b"\n") if rest else chunk.split(b"\n")
                    rest = lines.pop()
                    if len(rest) > _LINE_LIMIT:
                        raise Unreachable("a watch event without end")
                    if lines:
                        yield lines
        except (TimeoutError, aiohttp.ClientError, OSError) as error:
            raise self._lost(error) from error

    def _lost(self, error: BaseException) -> Unreachable:
        import aiohttp

        if isinstance(error, aiohttp.ClientSSLError):
            self._doubtful = True  # the authority may have been renewed
        return Unreachable(_words(error))

    async def reload(self) -> None:
        """Read the credentials again. Raises NoCluster."""
        self._reloaded = monotonic()
        self._doubtful = False
        made = await self._load()
        if self._session is not None and _transport(made) != self._transport:
            # Watches that run on the old session end in their own time: closing it under them leaves them hanging.
            self._retired.append(self._session)
            self._session = None
            for old in self._retired[:-2]:
                await old.close()
            del self._retired[:-2]
        self._configuration = made

    async def close(self) -> None:
        """Let go of all connections."""
        for session in (self._session, *self._retired):
            if session is not None:
                await session.close()
        self._session = None
        self._retired.clear()

    async def _send(self, path: str, params: Mapping[str, str] | None, limits: aiohttp.ClientTimeout) -> Any:
        from yarl import URL

        session, headers = await self._ready()
        url = URL(self._configuration.host + path, encoded=True)
        return session.get(url, params=params, headers=headers, timeout=limits, **self._options)

    async def _ready(self) -> tuple[aiohttp.ClientSession, dict[str, str]]:
        if self._doubtful and monotonic() - self._reloaded > _RELOAD_SECONDS:
            with suppress(NoCluster):  # those at hand may do again
                await self.reload()
        if self._session is None:
            async with self._opening:
                if self._session is None:
                    await self._open()
        session, made = self._session, self._configuration
        if session is None:
            raise Unreachable("the connection was closed")
        headers = dict(_HEADERS)
        try:
            # The client's hook reads a projected token again once a minute.
            token = await made.get_api_key_with_prefix("BearerToken")
        except Exception as error:
            raise Unreachable(f"the credentials cannot be read: {_words(error)}") from error
        if token:
            kind, _, value = token.strip().partition(" ")
            headers["Authorization"] = f"{kind.capitalize()} {value.strip()}"
        return session, headers

    async def _open(self) -> None:
        import ssl

        import aiohttp
        from kubernetes.aio.client.rest import RESTClientObject

        made = self._configuration or await self._load()
        try:
            context = RESTClientObject(made).ssl_context
        except (OSError, ssl.SSLError) as error:
            raise NoCluster(f"the cluster's certificates cannot be used: {error}") from None
        self._configuration = made
        self._transport = _transport(made)
        self._options = {}
        if made.proxy:
            self._options["proxy"] = made.proxy
        if made.tls_server_name:
            self._options["server_hostname"] = made.tls_server_name
        # No limit here: the watches hold connections for good, and live reads have a limit of their own.
        connector = aiohttp.TCPConnector(limit=0, ssl=context, keepalive_timeout=60)
        self._session = aiohttp.ClientSession(connector=connector, trust_env=True, read_bufsize=2**18)

    async def _refusal(self, response: Any) -> Refused:
        try:
            message = msgspec.json.decode(await response.content.read(65536), type=_Status).message
        except (msgspec.MsgspecError, UnicodeDecodeError):
            message = ""
        after = response.headers.get("Retry-After", "")
        if response.status == 401:
            self._doubtful = True
        return Refused(response.status, message, float(after) if after.isdigit() else 0.0)


def _transport(made: Any) -> object:
    """What connections are made of: where this differs, they have to be made anew."""
    files = [made.ssl_ca_cert, made.cert_file, made.key_file]
    dated = [(name, Path(name).stat().st_mtime_ns) for name in files if name and Path(name).exists()]
    return made.host, made.proxy, made.tls_server_name, made.verify_ssl, made.ca_cert_data, dated


def _words(error: BaseException) -> str:
    if isinstance(error, TimeoutError):
        return "no answer in time"
    text = " ".join(str(error).split())
    return text[:200] or type(error).__name__
