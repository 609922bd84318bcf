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
        self.ports: list[Raw] = []
        self._places: dict[tuple[str, Any], list[int]] = {}
        """Number or name -> a heap of the places that had it; of those that have it no more the port tells."""
        for port in ports:
            self._append(port)

    def put(self, port: Raw) -> None:
        places = [at for key in _keys(port) if (at := self._first(key)) is not None]
        if not places:
            self._append(port)
            return
        self.ports[min(places)] = port
        self._know(port, min(places))

    def _append(self, port: Raw) -> None:
        self.ports.append(port)
        self._know(port, len(self.ports) - 1)

    def _know(self, port: Raw, at: int) -> None:
        for key in _keys(port):
            heappush(self._places.setdefault(key, []), at)

    def _first(self, key: tuple[str, Any]) -> int | None:
        places = self._places.get(key)
        while places:
            if key in _keys(self.ports[places[0]]):
                return places[0]
            heappop(places)
        return None


def _keys(port: Raw) -> tuple[tuple[str, Any], tuple[str, Any]]:
    return ("number", port.get("containerPort")), ("name", port.get("name") or "")
