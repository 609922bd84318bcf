"""Takes away what stands outside the manifests or has to go first, so that an uninstall leaves nothing behind.

The registration goes first: from then on nobody waits for the guard. Then the keeper of the certificates, which would
make its Secrets anew, and what it made. Each part may be gone already; none needs a running guard.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from msgspec import Struct

from webhook.runs.api import Api
from webhook.runs.installation import CONFIGURATION, KINDS

_REGISTRATION: Final = "/apis/admissionregistration.k8s.io/v1"
_SECONDS: Final = 60.0
_KEEPERS: Final = ("checkpoint-guard-certs", "checkpoint-guard-keeper")
"""With the certificates, and without them where cert-manager makes them."""


class Removed(Struct, frozen=True):
    """One part: what it is called, and why it is still there (empty: it is gone)."""

    label: str
    fault: str = ""


class Clock(Struct, frozen=True):
    """Seconds that only grow, and a pause."""

    monotonic: Callable[[], float]
    sleep: Callable[[float], None]


def remove(api: Api, namespace: str, clock: Clock, registration_alone: bool = False) -> Iterator[Removed]:
    """Delete it, in the order that hurts nobody. Raises Unreachable."""
    # Validation first: it is what refuses.
    for kind in sorted(KINDS, reverse=True):
        yield _delete(api, f'{kind} "{CONFIGURATION}"', f"{_REGISTRATION}/{KINDS[kind]}/{CONFIGURATION}")
    if registration_alone:
        return
    core = f"/api/v1/namespaces/{namespace}"
    for name in _KEEPERS:
        yield _delete(api, f'Deployment "{name}"', f"/apis/apps/v1/namespaces/{namespace}/deployments/{name}")
    yield _wait_for_pods(api, f"{core}/pods", clock)
    for name in ("checkpoint-guard-tls", "checkpoint-guard-ca"):
        yield _delete(api, f'Secret "{name}"', f"{core}/secrets/{name}")
    for name in _KEEPERS:
        yield _delete(api, f'Lease "{name}"', f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/{name}")


def _delete(api: Api, label: str, path: str) -> Removed:
    answer = api.request("DELETE", path, {"propagationPolicy": "Background"})
    return Removed(label, "" if answer.ok or answer.code == 404 else answer.message)


def _wait_for_pods(api: Api, path: str, clock: Clock) -> Removed:
    label = "pods of the keeper"
    selector = "app.kubernetes.io/name=checkpoint-guard,app.kubernetes.io/component in (certs,keeper)"
    until = clock.monotonic() + _SECONDS
    while True:
        answer = api.request("GET", path, {"labelSelector": selector})
        if not answer.ok:
            return Removed(label, answer.message)
        if not answer.body.get("items"):
            return Removed(label)
        if clock.monotonic() >= until:
            # One on a node that is gone cannot write either.
            return Removed(label, f"still there after {_SECONDS:.0f} s")
        clock.sleep(1.0)
