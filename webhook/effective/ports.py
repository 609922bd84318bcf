"""The ports of a container as Trainer builds them (``pkg/apply``, ``UpsertPort``)."""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heappop, heappush
from typing import Any, Final

from webhook.model.pod import Raw

_OWN_PORT: Final = {"containerPort": 29500}


def built_ports(ports: Sequence[Raw], trains: bool) -> list[Raw]:
    """A container's ports, with Trainer's own one where it ``trains`` under torch, JAX or XGBoost.

    Trainer puts each port in place of the first one of its number or of its name, and to have no name is a name too: so
    its own replaces the first that has none, and of two without a name only the last is left, twice.
    """
    own = _Ports(ports)
    if trains:
        own.put(_OWN_PORT)
    out = _Ports(ports)
    for port in own.ports:
        out.put(port)
    return out.ports


class _Ports:
    """A list of ports that knows where the first of a number or of a name stands, however long it is."""

    def __init__(self, ports: Sequence[Raw]) -> None:
        self.ports = list(ports)
        self._numbers: dict[Any, list[int]] = {}
        """Number -> a heap of the places that had it; of those that have it no more the port tells."""
        self._names: dict[str, list[int]] = {}
        """The same by name."""
        for at, port in enumerate(ports):
            self._numbers.setdefault(port.get("containerPort"), []).append(at)
            self._names.setdefault(port.get("name") or "", []).append(at)

    def put(self, port: Raw) -> None:
        ports, number, name = self.ports, port.get("containerPort"), port.get("name") or ""
        numbered, named = self._numbers.setdefault(number, []), self._names.setdefault(name, [])
        while numbered and ports[numbered[0]].get("containerPort") != number:
            heappop(numbered)
        while named and (ports[named[0]].get("name") or "") != name:
            heappop(named)
        at = min(numbered[:1] + named[:1], default=len(ports))
        ports[at : at + 1] = (port,)
        for places in (numbered, named):
            if not places or places[0] != at:
                heappush(places, at)
