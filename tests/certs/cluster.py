"""A cluster in memory that keeps versions as the API server does, and pairs to put into it."""

from __future__ import annotations

import base64
import copy
import datetime
import itertools
from collections.abc import Callable
from typing import Any

from certs.cluster import MUTATING, VALIDATING, Away, Conflict
from certs.issue import Pair, issue_authority, issue_leaf, new_key, service_names
from certs.rotation import Settings

Raw = dict[str, Any]

NOW = datetime.datetime(2026, 3, 1, 12, tzinfo=datetime.UTC)
DAY = datetime.timedelta(days=1)
NAMES = service_names("checkpoint-guard", "guard")
SETTINGS = Settings(namespace="guard", names=NAMES)


class FakeCluster:
    """Implements ``certs.cluster.Cluster``. ``before_write`` is called ahead of each write; ``away`` makes all fail."""

    def __init__(self, configurations: bool = True) -> None:
        self.objects: dict[tuple[str, str], Raw] = {}
        self.writes: list[tuple[str, str]] = []
        self.away = False
        self.endpoints: list[Raw] = []
        """Conditions of the Service's endpoints."""
        self.before_write: Callable[[str, str], None] = lambda kind, name: None
        self._versions = itertools.count(1)
        if configurations:
            for kind, hooks in ((MUTATING, ("mutate", "put-back")), (VALIDATING, ("validate",))):
                self.put(kind, registration(kind, *hooks))

    def put(self, kind: str, found: Raw) -> None:
        """Set an object, as somebody else would."""
        found = copy.deepcopy(found)
        found["metadata"]["resourceVersion"] = str(next(self._versions))
        self.objects[kind, found["metadata"]["name"]] = found

    def secret(self, name: str) -> Raw | None:
        return self._get("Secret", name)

    def write_secret(self, secret: Raw) -> None:
        self._write("Secret", secret)

    def configuration(self, kind: str, name: str) -> Raw | None:
        return self._get(kind, name)

    def patch_configuration(self, kind: str, name: str, patch: Raw) -> None:
        found = self._get(kind, name)
        if found is None:
            raise Conflict("not found")
        for hook in patch["webhooks"]:
            mine = next(one for one in found["webhooks"] if one["name"] == hook["name"])
            mine["clientConfig"] |= hook.get("clientConfig", {})
            mine |= {key: value for key, value in hook.items() if key == "failurePolicy"}
        found["metadata"] |= patch["metadata"]
        self._write(kind, found)

    def endpoint_slices(self, service: str) -> list[Raw]:
        if self.away:
            raise Away("503: no answer")
        return [{"endpoints": [{"conditions": one} for one in self.endpoints]}]

    def lease(self, name: str) -> Raw | None:
        return self._get("Lease", name)

    def write_lease(self, lease: Raw) -> None:
        self._write("Lease", lease)

    def bundle(self, kind: str = VALIDATING) -> bytes:
        """The bundle of a configuration's first webhook."""
        return base64.b64decode(self.objects[kind, "checkpoint-guard"]["webhooks"][0]["clientConfig"]["caBundle"])

    def data(self, name: str, key: str) -> bytes:
        return base64.b64decode(self.objects["Secret", name]["data"][key])

    def pair(self, name: str = SETTINGS.secret) -> Pair:
        return Pair(self.data(name, "tls.crt"), self.data(name, "tls.key"))

    def _get(self, kind: str, name: str) -> Raw | None:
        if self.away:
            raise Away("503: no answer")
        return copy.deepcopy(self.objects.get((kind, name)))

    def _write(self, kind: str, found: Raw) -> None:
        if self.away:
            raise Away("503: no answer")
        name = found["metadata"]["name"]
        self.before_write(kind, name)
        held = self.objects.get((kind, name))
        version = found["metadata"].get("resourceVersion")
        if version != (held["metadata"]["resourceVersion"] if held else None):
            raise Conflict(f'{kind} "{name}" has changed')
        self.writes.append((kind, name))
        self.put(kind, found)


def registration(kind: str, *hooks: str) -> Raw:
    """A webhook configuration as it is installed: without a bundle."""
    client = {"service": {"name": "checkpoint-guard", "namespace": "guard", "path": "/validate"}}
    return {
        "kind": kind,
        "metadata": {"name": "checkpoint-guard"},
        "webhooks": [{"name": f"{hook}.checkpoint-guard.io", "clientConfig": dict(client)} for hook in hooks],
    }


def authority(now: datetime.datetime = NOW, days: float = 730) -> Pair:
    return issue_authority(new_key(), now, days * DAY)


def leaf(signer: Pair, now: datetime.datetime = NOW, days: float = 90, names: tuple[str, ...] = NAMES) -> Pair:
    return issue_leaf(names, new_key(), signer, now, days * DAY)


def stored(name: str, pair: Pair, authorities: bytes) -> Raw:
    """A Secret with that content."""
    data = {"tls.crt": pair.cert, "tls.key": pair.key, "ca.crt": authorities}
    return {
        "kind": "Secret",
        "type": "kubernetes.io/tls",
        "metadata": {"name": name, "namespace": "guard"},
        "data": {key: base64.b64encode(value).decode() for key, value in data.items()},
    }
