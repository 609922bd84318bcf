"""Where a provisioner's or driver's volumes can be mounted: the built-in tables and the administrator's own."""

from __future__ import annotations

from collections.abc import Mapping

from webhook.model.policy import BUILT_IN_INLINE_DRIVERS, BUILT_IN_PROVISIONERS, Policy, Reach


def provisioner_reach(name: str, policy: Policy) -> Reach | None:
    """The reach of a provisioner or CSI driver; None where neither table knows it. The policy's own entries win."""
    return _look_up(name, policy.storage.provisioners) or _look_up(name, BUILT_IN_PROVISIONERS)


def inline_reach(driver: str, policy: Policy) -> Reach | None:
    """The reach of a CSI driver that a pod uses inline; None where it is not known to keep anything."""
    return _look_up(driver, policy.storage.inline_drivers) or _look_up(driver, BUILT_IN_INLINE_DRIVERS)


def _look_up(name: str, table: Mapping[str, Reach]) -> Reach | None:
    """The whole name first, then the longest ``*.suffix``; ``*.rbd.csi.ceph.com`` covers the bare name as well, since
    the prefix only tells one installation of a driver from another."""
    if not table or not name:
        return None
    if (reach := table.get(name)) is not None:
        return reach
    rest = name
    while True:
        if (reach := table.get("*." + rest)) is not None:
            return reach
        _, dot, rest = rest.partition(".")
        if not dot:
            return None
