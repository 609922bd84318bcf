"""Secrets in cert-manager's layout."""

from __future__ import annotations

from certs import secret
from certs.issue import Pair
from tests.certs.cluster import authority, leaf, stored

SIGNER = authority()
PAIR = leaf(SIGNER)


def test_a_new_one() -> None:
    made = secret.build(None, "guard", "tls", PAIR, [SIGNER.cert])
    assert made["type"] == "kubernetes.io/tls"
    assert sorted(made["data"]) == ["ca.crt", "tls.crt", "tls.key"]
    assert secret.read(made) == secret.Stored(PAIR, SIGNER.cert)
    assert "resourceVersion" not in made["metadata"]


def test_an_old_one_keeps_everything_else() -> None:
    old = stored("tls", Pair(b"a", b"b"), b"c")
    old["metadata"] |= {"resourceVersion": "7", "labels": {"team": "ml"}}
    old["data"]["extra"] = "eA=="
    old["type"] = "Opaque"
    made = secret.build(old, "guard", "tls", PAIR, [SIGNER.cert])
    assert made["metadata"] == old["metadata"]
    assert made["type"] == "Opaque"  # the API server does not let it change
    assert made["data"]["extra"] == "eA=="
    assert secret.read(made).pair == PAIR
    assert secret.read(old).pair == Pair(b"a", b"b")


def test_whatever_is_in_it() -> None:
    assert secret.read(None) == secret.Stored(None, b"")
    assert secret.read({"metadata": {}, "data": None}) == secret.Stored(None, b"")
    assert secret.read({"data": {"tls.crt": "YQ==", "tls.key": "=b"}}).pair is None


def test_not_ours_to_write() -> None:
    found = stored("tls", PAIR, b"")
    assert secret.untouchable(None) is None
    assert secret.untouchable(found) is None
    assert secret.untouchable(found | {"immutable": True}) is not None
    found["metadata"]["annotations"] = {"cert-manager.io/certificate-name": "guard"}
    assert secret.untouchable(found) == 'Secret "tls" belongs to cert-manager: run either that or this'
