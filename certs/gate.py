"""Whether a CREATE is refused while nobody answers: one entry of the registration, turned when a pod can answer.

The manifests carry ``Ignore``, so that an image which cannot be pulled stops nobody's TrainJob. Once a pod is ready,
which it is not before the registration trusts what it serves, the entry becomes ``Fail``, and again after an apply
wrote it back. It stays ``Fail`` when the pods are gone: a crash must not open the gate. Who wants it open then says
after how long (``CKPTGUARD_IGNORE_AFTER``).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, Literal, NamedTuple

from certs.cluster import VALIDATING, Cluster
from certs.rotation import Done

Raw = dict[str, Any]

ENTRY: Final = "validate.checkpoint-guard.io"
"""The one that judges a CREATE. No other is touched: ``Ignore`` elsewhere is for good, and so is ``Fail``."""

Policy = Literal["Fail", "Ignore"]


class Seen(NamedTuple):
    """One look: when a pod was last known to be ready (or the watcher began), and whether one is now."""

    ready: bool
    since: float


def wanted(found: Policy, seen: Seen, trusted: bool, monotonic: float, ignore_after: float | None) -> Policy:
    """What the entry should be. ``trusted``: the registration has a bundle to trust the pod by; times in seconds."""
    if seen.ready:
        return "Fail" if trusted else found
    if ignore_after is not None and monotonic - seen.since >= ignore_after:
        return "Ignore"
    return found


def entry_of(configuration: Raw) -> Raw | None:
    """The entry that judges a CREATE; None where the configuration has none."""
    return next((hook for hook in configuration.get("webhooks") or () if hook.get("name") == ENTRY), None)


def any_ready(slices: Iterable[Raw]) -> bool:
    """Whether an EndpointSlice has an endpoint that is ready and not on its way out."""
    return any(
        (endpoint.get("conditions") or {}).get("ready") is True
        and (endpoint.get("conditions") or {}).get("terminating") is not True
        for one in slices
        for endpoint in one.get("endpoints") or ()
    )


def patch(configuration: Raw, policy: Policy) -> Raw:
    """A strategic merge patch of that one field, refused (409) where the configuration changed since it was read."""
    return {
        "metadata": {"resourceVersion": configuration["metadata"]["resourceVersion"]},
        "webhooks": [{"name": ENTRY, "failurePolicy": policy}],
    }


class Gate:
    """One replica's view of the entry. Not for several threads."""

    def __init__(
        self, cluster: Cluster, service: str, configurations: tuple[str, ...], ignore_after: float | None = None
    ) -> None:
        self._cluster = cluster
        self._service = service
        self._configurations = configurations
        self._ignore_after = ignore_after
        self._last_ready: float | None = None
        self.open: bool | None = None
        """Whether a CREATE passes unjudged while nobody answers; None while that is not known."""
        self.missing: tuple[str, ...] = ()

    def stand_by(self) -> None:
        """Another replica is at work, or nothing can be seen: time in which this one did not look does not count."""
        self._last_ready = None

    def step(self, monotonic: float) -> tuple[Done, ...]:
        """Turn what is to be turned. A configuration that is gone is not made again. Raises Conflict, Away, Refused."""
        ready = any_ready(self._cluster.endpoint_slices(self._service))
        if ready or self._last_ready is None:
            self._last_ready = monotonic
        seen = Seen(ready, self._last_ready)
        done: list[Done] = []
        missing: list[str] = []
        is_open: bool | None = None
        for name in self._configurations:
            configuration = self._cluster.configuration(VALIDATING, name)
            entry = None if configuration is None else entry_of(configuration)
            if configuration is None or entry is None:
                what = "does not exist" if configuration is None else f"lacks {ENTRY}"
                missing.append(f'{VALIDATING} "{name}" {what}')
                continue
            found: Policy = "Ignore" if entry.get("failurePolicy") == "Ignore" else "Fail"
            trusted = bool((entry.get("clientConfig") or {}).get("caBundle"))
            want = wanted(found, seen, trusted, monotonic, self._ignore_after)
            if want != found:
                self._cluster.patch_configuration(VALIDATING, name, patch(configuration, want))
                done.append(Done("policy", f"turned {ENTRY} to {want}: {self._why(want, seen, monotonic)}"))
            is_open = is_open or want == "Ignore"
        self.open = is_open
        self.missing = tuple(missing)
        return tuple(done)

    def _why(self, want: Policy, seen: Seen, monotonic: float) -> str:
        if want == "Fail":
            return "a pod is ready and trusted"
        return f"no pod was ready for {monotonic - seen.since:.0f} s (CKPTGUARD_IGNORE_AFTER)"
