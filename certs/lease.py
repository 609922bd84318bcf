"""Who of several replicas does the work: a Lease, as the Kubernetes controllers use it.

It only spares work and log lines. Every write is conflict-safe, so two that both think they hold it do no harm.
No clock is compared with another machine's: a holder is gone when its Lease has not changed for the time that the
Lease itself says, on the watcher's own monotonic clock.
"""

from __future__ import annotations

import datetime
from typing import Any, Final, Literal, NamedTuple

Raw = dict[str, Any]

SECONDS: Final = 5
"""Short, since two that both hold it do no harm, and whoever overwrites ``caBundle`` while the holder's node is dead
stops every TrainJob until the next one goes on."""
_TIME: Final = "%Y-%m-%dT%H:%M:%S.%fZ"


class Seen(NamedTuple):
    """The Lease's version when it last changed, and when we saw that (monotonic seconds)."""

    version: str
    at: float


Say = Literal["take", "renew", "wait"]


def observe(lease: Raw | None, seen: Seen | None, monotonic: float) -> Seen | None:
    """What to remember of the Lease: its version, and since when it has been that."""
    if lease is None:
        return None
    version = str(lease["metadata"].get("resourceVersion"))
    return seen if seen is not None and seen.version == version else Seen(version, monotonic)


def decide(lease: Raw | None, seen: Seen | None, me: str, monotonic: float) -> Say:
    """Whether to take the Lease, to renew one that is ours, or to wait."""
    spec = (lease or {}).get("spec") or {}
    holder = spec.get("holderIdentity")
    if lease is None or not holder:
        return "take"
    if holder == me:
        return "renew"
    patience = spec.get("leaseDurationSeconds") or SECONDS
    return "take" if seen is not None and monotonic - seen.at > patience else "wait"


def build(lease: Raw | None, namespace: str, name: str, me: str, now: datetime.datetime) -> Raw:
    """The Lease to write when taking or renewing; it carries the version that was read."""
    spec = dict((lease or {}).get("spec") or {})
    time = now.astimezone(datetime.UTC).strftime(_TIME)
    if spec.get("holderIdentity") != me:
        spec["acquireTime"] = time
        spec["leaseTransitions"] = (spec.get("leaseTransitions") or 0) + (1 if lease is not None else 0)
    spec |= {"holderIdentity": me, "leaseDurationSeconds": SECONDS, "renewTime": time}
    metadata = lease["metadata"] if lease is not None else {"name": name, "namespace": namespace}
    return {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": spec}


def release(lease: Raw) -> Raw:
    """The Lease to write when leaving: the next one need not wait."""
    return {**lease, "spec": {**lease["spec"], "holderIdentity": "", "leaseDurationSeconds": 1}}
