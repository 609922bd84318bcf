"""The policy in force, and its reload from one ConfigMap.

The ConfigMap is watched; its text is read beside the event loop, and what can be used takes the place of the policy in
one assignment, so that each request is judged by one policy from beginning to end. What cannot be used is told, and
the last good one stays; so it does where the ConfigMap is deleted or cannot be read.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import sys
from collections.abc import Awaitable, Callable, Iterator
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import Raw, Struct

from webhook.cluster.kinds import Kind
from webhook.cluster.policy_file import Checked, check_policy
from webhook.cluster.table import Key
from webhook.decision import prepare
from webhook.model.policy import Policy
from webhook.server.pool import packed

if TYPE_CHECKING:
    from webhook.metrics import Metrics

KEY: Final = "policy.yaml"
"""The key of the ConfigMap that holds the file."""
_SWITCH: Final = 0.0005
"""Seconds after which the thread that reads a policy lets requests go on."""
_SHOWN: Final = 20
"""Faults that go to the log; ``ckptguard policy check`` tells all."""
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
        checked = await asyncio.to_thread(_read, text.data, place, self._default_mode)
        if checked.policy is None:
            self._refuse(place, text.version, [str(fault) for fault in checked.faults])
            return
        before, self._policy = self._policy, checked.policy
        self._metrics.policy_stale.set(0)
        for warning in checked.warnings[:_SHOWN]:
            _log.warning("%s", warning)
        if before.hash == checked.policy.hash:
            return
        self._metrics.use_policy(checked.policy.hash)
        self._metrics.policy_reloads["loaded"].inc()
        _log.info("policy %s is in force, after %s: %s at %s", checked.policy.hash, before.hash, place, text.version)
        if self.changed is not None:
            await self.changed(before, checked.policy)

    def gone(self, place: str) -> None:
        """The ConfigMap was deleted."""
        self._refuse(place, "its deletion", ["it is not there"])

    def _refuse(self, place: str, version: str, why: list[str]) -> None:
        self._metrics.policy_reloads["refused"].inc()
        self._metrics.policy_stale.set(1)
        for line in why[:_SHOWN]:
            _log.error("%s", line)
        _log.error("%s at %s cannot be used: policy %s stays in force", place, version, self._policy.hash)


def _read(data: bytes, place: str, default_mode: str | None) -> Checked:
    """In a thread of its own: everything that costs time with a large policy."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(_SWITCH)
    # To look for cycles among all that is being made takes a tenth of a second, in which nobody is answered.
    collected = gc.isenabled()
    gc.disable()
    try:
        checked = check_policy(data, place, default_mode=default_mode)
        if checked.policy is not None:
            prepare(checked.policy)
            packed(checked.policy)
        _let_go(checked)
        return msgspec.structs.replace(checked, piece=None, raw=None)
    finally:
        sys.setswitchinterval(before)
        if collected:
            gc.enable()


def _let_go(checked: Checked) -> None:
    """Free what was read piece by piece: all at once takes long enough to be noticed."""
    entries = checked.raw.get("exceptions") if isinstance(checked.raw, dict) else None
    while entries and isinstance(entries, list):
        entries.pop()
    placed = checked.piece.placed if checked.piece is not None else None
    lines = placed[0].children.get("exceptions") if placed else None
    while lines is not None and lines.children:
        lines.children.popitem()


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
