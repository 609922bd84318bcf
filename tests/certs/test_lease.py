"""Who holds the Lease."""

from __future__ import annotations

import datetime

from certs import lease
from tests.certs.cluster import NOW

METADATA = {"name": "certs", "resourceVersion": "4"}
HELD = {
    "metadata": METADATA,
    "spec": {"holderIdentity": "one", "leaseDurationSeconds": 30, "leaseTransitions": 2, "renewTime": "x"},
}


def test_a_holder_is_waited_for_until_its_lease_has_not_changed() -> None:
    seen = lease.observe(HELD, None, 100.0)
    assert lease.decide(HELD, seen, "two", 100.0) == "wait"
    seen = lease.observe(HELD, seen, 129.0)
    assert lease.decide(HELD, seen, "two", 130.0) == "wait"
    assert lease.decide(HELD, seen, "two", 130.1) == "take"
    changed = {**HELD, "metadata": {**METADATA, "resourceVersion": "5"}}
    assert lease.decide(changed, lease.observe(changed, seen, 130.1), "two", 150.0) == "wait"
    assert lease.decide(HELD, seen, "one", 999.0) == "renew"


def test_free() -> None:
    assert lease.observe(None, None, 1.0) is None
    assert lease.decide(None, None, "two", 1.0) == "take"
    assert lease.decide(lease.release(HELD), None, "two", 1.0) == "take"


def test_what_is_written() -> None:
    made = lease.build(None, "guard", "certs", "one", NOW)
    assert made["metadata"] == {"name": "certs", "namespace": "guard"}
    assert made["spec"]["leaseTransitions"] == 0
    assert made["spec"]["renewTime"] == made["spec"]["acquireTime"] == "2026-03-01T12:00:00.000000Z"
    taken = lease.build(HELD, "guard", "certs", "two", NOW)
    assert taken["metadata"]["resourceVersion"] == "4"
    assert (taken["spec"]["holderIdentity"], taken["spec"]["leaseTransitions"]) == ("two", 3)
    renewed = lease.build(taken, "guard", "certs", "two", NOW + datetime.timedelta(seconds=5))
    assert renewed["spec"]["acquireTime"] == taken["spec"]["acquireTime"]
    assert renewed["spec"]["leaseTransitions"] == 3
