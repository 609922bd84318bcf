"""Who calls this server, and whom they trust: the webhook configurations, read from the API server."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Awaitable, Callable
from typing import Any, Final

import msgspec
from msgspec import Struct

from webhook.cluster.access import Refused

NAME: Final = "checkpoint-guard"
"""Of both configurations."""
_PATH: Final = "/apis/admissionregistration.k8s.io/v1"
_RESOURCES: Final = ("mutatingwebhookconfigurations", "validatingwebhookconfigurations")
_SECONDS: Final = 5.0

Get = Callable[[str], Awaitable[bytes]]
"""The body of a GET of a path. Raises what ``webhook.cluster.connection`` raises."""


class Caller(Struct, frozen=True):
    """How the API server calls one webhook of ours: which name it asks for, and which authorities it trusts.

    ``bundle`` is PEM text; empty where the registration has none, and the API server trusts those of its own machine.
    """

    webhook: str
    server: str
    bundle: str


async def load_callers(get: Get) -> tuple[Caller, ...]:
    """The callers that are registered; none where there is no registration. Raises Refused, Unreachable, NoCluster."""
    found: list[Caller] = []
    for resource in _RESOURCES:
        try:
            body = await get(f"{_PATH}/{resource}/{NAME}")
        except Refused as refused:
            if refused.status == 404:
                continue
            raise
        found += parse_callers(msgspec.json.decode(body))
    return tuple(found)


def parse_callers(configuration: dict[str, Any]) -> tuple[Caller, ...]:
    """A webhook configuration -> its callers."""
    found = []
    for hook in configuration.get("webhooks") or ():
        client = hook.get("clientConfig") or {}
        service = client.get("service")
        if service is not None:
            server = f"{service['name']}.{service['namespace']}.svc"
        else:
            server = _host(client.get("url") or "")
        found.append(Caller(hook.get("name") or "", server, _bundle(client.get("caBundle"))))
    return tuple(found)


def _bundle(text: str | None) -> str:
    try:
        return base64.b64decode(text or "").decode()
    except (binascii.Error, ValueError):
        return "unreadable"


def _host(url: str) -> str:
    authority = url.partition("://")[2].partition("/")[0].rpartition("@")[2]
    if authority.startswith("["):
        return authority[1:].partition("]")[0]
    return authority.partition(":")[0]
