"""The policy in force, and its reload from one ConfigMap or the mounted file.

The ConfigMap is watched; its text is read beside the event loop (``policy_reading``), and what can be used takes the
place of the policy in one assignment, so that each request is judged by one policy from beginning to end. What cannot
be used is told, and the last good one stays; so it does where the ConfigMap is deleted or cannot be read.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import Raw, Struct

from webhook.cluster.kinds import Kind
from webhook.cluster.table import Key
from webhook.model.moment import day_of
from webhook.model.policy import Policy
from webhook.server.policy_reading import SHOWN, read

if TYPE_CHECKING:
    from webhook.metrics import Metrics

KEY: Final = "policy.yaml"
"""The key of the ConfigMap that holds the file."""
_ANSWERED: Final = 1.0
"""Seconds after which nobody is judged any more by the policy before."""
_LOOK: Final = 0.5
_AT_ONCE: Final = 200
"""Entries of it that are freed at a time."""
_log = logging.getLogger("ckptguard.policy")


class _Meta(Struct, rename="camel"):
    namespace: str = ""
    name: str = ""
    resource_version: str = ""


class _ConfigMap(Struct):
    metadata: _Meta
    data: dict[str, str] | None = None


def kind_of(configmap: str) -> Kind:
    """What to watch: the one ConfigMap of ``NAMESPACE/NAME``."""
    namespace, _, name = configmap.partition("/")
    base = f"/api/v1/namespaces/{namespace}"
    return Kind("policy ConfigMap", base, "configmaps", namespaced=False, only=name, needed=False)


class Text(Struct, frozen=True):
    """One version of the ConfigMap: its text, None where it has no such key."""

    version: str
    data: bytes | None


class PolicyInForce:
    """The policy that requests are judged by; call it to get it."""

    def __init__(self, policy: Policy, metrics: Metrics, default_mode: str | None = None) -> None:
        self._policy = policy
        self._metrics = metrics
        self._default_mode = default_mode
        self._freeing: set[asyncio.Future[None]] = set()
        self.by_configmap = False
        """Whether a ConfigMap has answered, so that the mounted file no longer counts."""
        self.changed: Callable[[Policy, Policy], Awaitable[None]] | None = None
        """Told of the policy before and the one after, once that is in force."""
        metrics.use_policy(policy.hash)
        metrics.policy_stale.set(0)

    def __call__(self) -> Policy:
        return self._policy

    async def take(self, text: Text, place: str) -> None:
        """Put a version of the file in force, if it can be used."""
        if text.data is None:
            self._refuse(place, text.version, [f'it has no key "{KEY}"'])
            return
        checked = await read(text.data, place, self._default_mode)
        if checked.policy is None:
            self._refuse(place, text.version, checked.faults)
            return
        before, self._policy = self._policy, checked.policy
        self._freeing.add(freeing := asyncio.ensure_future(_let_go(before)))
        freeing.add_done_callback(self._freeing.discard)
        self._metrics.policy_stale.set(0)
        if before.hash == checked.policy.hash:
            return
        for warning in checked.warnings:
            _log.warning("%s", warning)
        self._metrics.use_policy(checked.policy.hash)
        self._metrics.policy_reloads["loaded"].inc()
        _log.info("policy %s is in force, after %s: %s at %s", checked.policy.hash, before.hash, place, text.version)
        if self.changed is not None:
            await self.changed(before, checked.policy)

    def gone(self, place: str) -> None:
        """The ConfigMap was deleted."""
        self._refuse(place, "its deletion", ["it is not there"])

    def _refuse(self, place: str, version: str, why: Sequence[str]) -> None:
        self._metrics.policy_reloads["refused"].inc()
        self._metrics.policy_stale.set(1)
        for line in why[:SHOWN]:
            _log.error("%s", line)
        _log.error("%s at %s cannot be used: policy %s stays in force", place, version, self._policy.hash)


async def _let_go(policy: Policy) -> None:
    """Free a policy that was replaced piece by piece: all at once takes long enough to be noticed."""
    index = policy.derived.get("exceptions")
    rest: list[object] = [*policy.exceptions, *policy.namespaces, *(index.every if index is not None else ())]
    del policy, index
    await asyncio.sleep(_ANSWERED)
    while rest:
        del rest[-_AT_ONCE:]
        await asyncio.sleep(0)


Signature = tuple[int, int, int, int]


def signature_of(path: Path) -> Signature | None:
    """What tells one version of a file from another, through links; None where there is no file."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_mtime_ns, found.st_size


class PolicyFile:
    """The mounted file: looked at every half second, and read once it has stayed the same for that long.

    So a file that is being written is not read before it is done. A mounted ConfigMap changes at once, by a link.
    ``seen`` is the signature of the version that is in force.
    """

    def __init__(self, in_force: PolicyInForce, path: Path, seen: Signature | None, every: float = _LOOK) -> None:
        self._in_force = in_force
        self._path = path
        self._seen = seen
        self._every = every

    async def follow(self) -> None:
        """Put each version in force, until cancelled or until a ConfigMap is followed."""
        before = self._seen
        while not self._in_force.by_configmap:
            await asyncio.sleep(self._every)
            now = await asyncio.to_thread(signature_of, self._path)
            if now == before and now != self._seen:
                try:
                    await self._take(now)
                except Exception as error:  # what no test has found; the policy in force stays
                    self._seen = now
                    _log.error("%s: reading it failed with %s", self._path, type(error).__name__, exc_info=error)
            before = now

    async def _take(self, now: Signature | None) -> None:
        if now is None:
            self._seen = None
            self._in_force.gone(str(self._path))
            return
        try:
            data = await asyncio.to_thread(self._path.read_bytes)
        except OSError:
            return  # the next look tells
        if await asyncio.to_thread(signature_of, self._path) == now and not self._in_force.by_configmap:
            self._seen = now
            await self._in_force.take(Text(f"its change of {day_of(now[2] // 10**9)}", data), str(self._path))


class PolicyTable:
    """The ``Table`` of one ConfigMap: each version of it goes to ``follow``."""

    def __init__(self, in_force: PolicyInForce, configmap: str) -> None:
        self._in_force = in_force
        self._place = f"ConfigMap {configmap}"
        self._came = asyncio.Event()
        self._next: Text | None = None
        self._key: Key | None = None
        self._version = ""

    async def follow(self) -> None:
        """Put what comes in force, until cancelled. Of several versions that came meanwhile the newest counts."""
        while True:
            await self._came.wait()
            self._came.clear()
            text, self._next = self._next, None
            if text is None:
                continue
            try:
                await self._in_force.take(text, self._place)
            except Exception as error:  # what no test has found; the policy in force stays
                _log.error("%s: reading it failed with %s", self._place, type(error).__name__, exc_info=error)

    def put(self, raw: Raw | bytes) -> Key | None:
        try:
            found = msgspec.json.decode(raw, type=_ConfigMap)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            return None
        self._key = (found.metadata.namespace, found.metadata.name)
        if found.metadata.resource_version != self._version:
            self._version = found.metadata.resource_version
            self._in_force.by_configmap = True
            text = (found.data or {}).get(KEY)
            self._next = Text(self._version, None if text is None else text.encode("utf-8", "surrogatepass"))
            self._came.set()
        return self._key

    def remove(self, key: Key) -> None:
        if self._key is not None:
            self._key = None
            self._version = ""
            self._next = None
            self._in_force.gone(self._place)

    def all_keys(self) -> Iterator[Key]:
        if self._key is not None:
            yield self._key

    def __len__(self) -> int:
        return int(self._key is not None)
