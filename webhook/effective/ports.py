"""The ports of a container as Trainer builds them (``pkg/apply``, ``UpsertPort``)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from webhook.model.pod import Raw

_OWN_PORT: Final = {"containerPort": 29500}


def built_ports(ports: Sequence[Raw], trains: bool) -> list[Raw]:
    """A container's ports, with Trainer's own one where it ``trains`` under torch, JAX or XGBoost.

    Trainer puts each port in place of the first one of its number or of its name, and to have no name is a name too: so
    its own replaces the first that has none, and of two without a name only the last is left, twice.
    """
    own = [*ports]
    if trains:
        _put_port(own, _OWN_PORT)
    out = [*ports]
    for port in own:
        _put_port(out, port)
    return out


def _put_port(ports: list[Raw], port: Raw) -> None:
    number, name = port.get("containerPort"), port.get("name") or ""
    for index, other in enumerate(ports):
        if other.get("containerPort") == number or (other.get("name") or "") == name:
            ports[index] = port
            return
    ports.append(port)
