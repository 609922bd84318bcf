"""The two Secrets, in cert-manager's layout: one with the authority, which only we read, and one that pods mount.

``tls.crt`` and ``tls.key`` are the pair; ``ca.crt`` holds every authority that is trusted, the signing one first.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from certs.issue import Pair

Raw = dict[str, Any]

TYPE: Final = "kubernetes.io/tls"
_FOREIGN: Final = "cert-manager.io/certificate-name"


class Stored(NamedTuple):
    """What a Secret holds. ``pair`` None where a half is missing or is not base64."""

    pair: Pair | None
    authorities: bytes


def read(secret: Raw | None) -> Stored:
    """A Secret's content; of one that does not exist, nothing."""
    data = (secret or {}).get("data") or {}
    cert, key, authorities = (_decoded(data.get(name)) for name in ("tls.crt", "tls.key", "ca.crt"))
    pair = None if cert is None or key is None else Pair(cert, key)
    return Stored(pair, authorities or b"")


def build(previous: Raw | None, namespace: str, name: str, pair: Pair, authorities: Sequence[bytes]) -> Raw:
    """The Secret to write: a new one, or ``previous`` with other data and everything else as it was.

    With ``previous`` it carries that one's resourceVersion, so that the write fails where somebody else was faster.
    """
    data = {
        "tls.crt": base64.b64encode(pair.cert).decode(),
        "tls.key": base64.b64encode(pair.key).decode(),
        "ca.crt": base64.b64encode(b"".join(authorities)).decode(),
    }
    if previous is None:
        labels = {"app.kubernetes.io/name": "checkpoint-guard", "app.kubernetes.io/managed-by": "ckptguard-certs"}
        return {
            "apiVersion": "v1",
            "kind": "Secret",
            "type": TYPE,
            "metadata": {"name": name, "namespace": namespace, "labels": labels},
            "data": data,
        }
    return {**previous, "data": {**(previous.get("data") or {}), **data}}


def untouchable(secret: Raw | None) -> str | None:
    """Why a Secret is not ours to write, in words; None where it is."""
    if secret is None:
        return None
    metadata = secret["metadata"]
    if _FOREIGN in (metadata.get("annotations") or {}):
        return f'Secret "{metadata["name"]}" belongs to cert-manager: run either that or this'
    if secret.get("immutable"):
        return f'Secret "{metadata["name"]}" is immutable: delete it, and a new one is made'
    return None


def _decoded(text: str | None) -> bytes | None:
    if text is None:
        return None
    try:
        return base64.b64decode(text)
    except (binascii.Error, ValueError):
        return None
