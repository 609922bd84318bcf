"""Certificates that somebody damaged: nobody stumbles over one, and what cannot be used is replaced."""

from __future__ import annotations

import base64
from collections.abc import Callable

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization

from certs import bundle
from certs.certificate import read_certificate
from certs.cluster import VALIDATING
from certs.issue import ORGANIZATION, Pair
from certs.renewal import authority_fault, expires, leaf_fault
from certs.rotation import Rotation
from tests.certs.cluster import NAMES, NOW, SETTINGS, FakeCluster, authority, leaf

SIGNER = authority()
SERVING = leaf(SIGNER)

Damage = Callable[[bytes], bytes]
DAMAGES: dict[str, Damage] = {
    "a version that there is not": lambda der: der.replace(b"\xa0\x03\x02\x01\x02", b"\xa0\x03\x02\x01\x3c", 1),
    "a subject that is no text": lambda der: _last(der, ORGANIZATION.encode(), b"\xff" * len(ORGANIZATION)),
    "a text of another kind": lambda der: _last(der, b"\x0c\x13" + ORGANIZATION.encode(), b"\x1e\x13" + b"x" * 19),
    "an extension twice": lambda der: der.replace(b"\x55\x1d\x0f", b"\x55\x1d\x13"),
    "an extension that does not parse": lambda der: der.replace(b"\x55\x1d\x0f", b"\x55\x1d\x11"),
    "a time that there is not": lambda der: der.replace(b"\x17\x0d2", b"\x17\x0d9", 1).replace(b"Z0", b"X0", 1),
    "cut": lambda der: der[:200],
}


def _last(der: bytes, one: bytes, two: bytes) -> bytes:
    before, found, after = der.rpartition(one)
    assert found
    return before + two + after


def damaged(pem: bytes, damage: Damage) -> bytes:
    der = x509.load_pem_x509_certificate(pem).public_bytes(serialization.Encoding.DER)
    changed = damage(der)
    assert changed != der
    text = base64.encodebytes(changed)
    return b"-----BEGIN CERTIFICATE-----\n" + text + b"-----END CERTIFICATE-----\n"


@pytest.mark.parametrize("kind", DAMAGES)
def test_a_damaged_certificate_is_none(kind: str) -> None:
    bad = damaged(SIGNER.cert, DAMAGES[kind])
    assert read_certificate(bad) is None
    assert expires(bad) is None
    assert bundle.split(bad + SIGNER.cert) == (SIGNER.cert,)
    assert bundle.trusted(SIGNER.cert, [bad], NOW) == (SIGNER.cert,)
    hooks = [{"webhooks": [{"clientConfig": {"caBundle": base64.b64encode(bad + SIGNER.cert).decode()}}]}]
    assert bundle.ours(hooks) == (SIGNER.cert,)
    for fault in (
        authority_fault(Pair(bad, SIGNER.key), NOW),
        leaf_fault(Pair(damaged(SERVING.cert, DAMAGES[kind]), SERVING.key), NAMES, SIGNER.cert, [], NOW),
    ):
        assert fault is not None
        assert (fault.reason, fault.level) == ("the certificate cannot be read: truncated, or no PEM", "broken")
    # Signed by nobody that can be told.
    unknown = leaf_fault(SERVING, NAMES, bad, [bad], NOW)
    assert unknown is not None
    assert unknown.level == "broken"


@pytest.mark.parametrize("kind", DAMAGES)
@pytest.mark.parametrize("name", [SETTINGS.secret, SETTINGS.authority_secret])
def test_a_damaged_secret_heals(kind: str, name: str) -> None:
    cluster = FakeCluster()
    rotation = Rotation(cluster, SETTINGS)
    rotation.step(NOW, 0.0)
    held = cluster.secret(name)
    assert held is not None
    cert = base64.b64decode(held["data"]["tls.crt"])
    held["data"]["tls.crt"] = base64.b64encode(damaged(cert, DAMAGES[kind])).decode()
    cluster.put("Secret", held)
    hooks = cluster.objects[VALIDATING, "checkpoint-guard"]["webhooks"]
    hooks[0]["clientConfig"]["caBundle"] = base64.b64encode(damaged(SIGNER.cert, DAMAGES[kind])).decode()
    at = 100.0
    while rotation.step(NOW, at).done:
        at += 100.0
    assert rotation.faults(NOW) == ()
