"""Certificates as a verifier sees them."""

from __future__ import annotations

import datetime
import ssl

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.verification import PolicyBuilder, Store, VerificationError

from certs.issue import BACKDATED, issue_authority, issue_leaf, new_key, service_names
from tests.certs.cluster import DAY, NAMES, NOW, authority, leaf


def verify(cert: bytes, *authorities: bytes, name: str = NAMES[0], at: datetime.datetime = NOW) -> None:
    """As strictly as the rules for web servers ask (RFC 5280 and the CA/Browser Forum's profile)."""
    store = Store([x509.load_pem_x509_certificate(one) for one in authorities])
    builder = PolicyBuilder().store(store).time(at)
    builder.build_server_verifier(x509.DNSName(name)).verify(x509.load_pem_x509_certificate(cert), [])


def test_a_strict_verifier_accepts_it_under_each_name() -> None:
    signer = authority()
    pair = leaf(signer)
    assert service_names("guard", "team") == ("guard.team.svc", "guard.team", "guard.team.svc.cluster.local")
    for name in NAMES:
        verify(pair.cert, signer.cert, name=name)
    with pytest.raises(VerificationError):
        verify(pair.cert, signer.cert, name="checkpoint-guard.other.svc")
    with pytest.raises(VerificationError):
        verify(pair.cert, authority().cert)


def test_a_clock_that_is_behind_accepts_it() -> None:
    signer = authority()
    verify(leaf(signer).cert, signer.cert, at=NOW - BACKDATED)
    with pytest.raises(VerificationError):
        verify(leaf(signer).cert, signer.cert, at=NOW - BACKDATED - datetime.timedelta(seconds=1))


def test_two_authorities_in_one_bundle_do_not_disturb_each_other() -> None:
    old, new = authority(), authority()
    for signer in (old, new):
        verify(leaf(signer).cert, old.cert, new.cert)
        verify(leaf(signer).cert, new.cert, old.cert)


def test_keys_are_p256_and_belong_to_their_certificates() -> None:
    for pair in (authority(), leaf(authority())):
        public = x509.load_pem_x509_certificate(pair.cert).public_key()
        assert isinstance(public, ec.EllipticCurvePublicKey)
        assert public.curve.name == "secp256r1"
        assert b"BEGIN PRIVATE KEY" in pair.key


def test_the_same_input_gives_the_same_certificate_but_for_its_signature() -> None:
    key = new_key()
    signer = issue_authority(key, NOW)
    again = issue_authority(key, NOW)
    leaf_key = new_key()
    pairs = [issue_leaf(NAMES, leaf_key, one, NOW) for one in (signer, again)]
    read = [x509.load_pem_x509_certificate(one.cert) for one in pairs]
    assert read[0].tbs_certificate_bytes == read[1].tbs_certificate_bytes
    assert 0 < read[0].serial_number < 2**159
    other = x509.load_pem_x509_certificate(issue_leaf(NAMES, leaf_key, signer, NOW + DAY).cert)
    assert other.serial_number != read[0].serial_number


def test_a_pair_does_not_outlive_its_authority() -> None:
    signer = authority(days=10)
    read = x509.load_pem_x509_certificate(leaf(signer, days=90).cert)
    assert read.not_valid_after_utc == NOW + 10 * DAY
    short = x509.load_pem_x509_certificate(leaf(signer, days=1 / 1440).cert)
    assert short.not_valid_before_utc == NOW - datetime.timedelta(seconds=6)


def test_addresses_are_names_too() -> None:
    signer = authority()
    names = x509.load_pem_x509_certificate(leaf(signer, names=("127.0.0.1", "::1", "localhost")).cert).extensions
    found = names.get_extension_for_class(x509.SubjectAlternativeName).value
    assert [str(one) for one in found.get_values_for_type(x509.IPAddress)] == ["127.0.0.1", "::1"]
    assert found.get_values_for_type(x509.DNSName) == ["localhost"]


def test_openssl_takes_the_bundle() -> None:
    context = ssl.create_default_context(cadata=(authority().cert + authority().cert).decode())
    assert context.cert_store_stats()["x509_ca"] >= 2
