"""Every way in which a pair can be bad has its words, and its level."""

from __future__ import annotations

import datetime

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID

from certs.issue import Pair
from certs.renewal import Fault, authority_fault, expires, leaf_fault
from tests.certs.cluster import DAY, NAMES, NOW, authority, leaf

SIGNER = authority()
GOOD = leaf(SIGNER)


def fault(pair: Pair | None, at: datetime.datetime = NOW, names: tuple[str, ...] = NAMES) -> Fault | None:
    return leaf_fault(pair, names, SIGNER.cert, [], at)


def self_signed(key: rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey, ca: bool = False) -> Pair:
    name = x509.Name([])
    builder = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(7)
        .not_valid_before(NOW - DAY)
        .not_valid_after(NOW + DAY)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(one) for one in NAMES]), True)
        .add_extension(x509.BasicConstraints(ca, None), True)
    )
    return Pair(
        builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM),
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()),
    )


def test_good_until_two_thirds() -> None:
    assert authority_fault(SIGNER, NOW) is None
    assert fault(GOOD) is None
    assert fault(GOOD, NOW + 59 * DAY) is None
    due = fault(GOOD, NOW + 60 * DAY)
    assert due == Fault(
        "two thirds of its life were over at 2026-04-30T11:40:00Z; it ends at 2026-05-30T12:00:00Z", "due"
    )
    assert authority_fault(SIGNER, NOW + 486 * DAY) is None
    late = authority_fault(SIGNER, NOW + 487 * DAY)
    assert late is not None
    assert late.level == "due"


def test_outside_its_life() -> None:
    assert fault(GOOD, NOW + 90 * DAY) == Fault("expired at 2026-05-30T12:00:00Z", "broken")
    assert fault(GOOD, NOW - DAY) == Fault("not valid before 2026-03-01T11:00:00Z", "broken")
    assert authority_fault(SIGNER, NOW + 999 * DAY) == Fault("expired at 2028-02-29T12:00:00Z", "broken")
    assert authority_fault(SIGNER, NOW - DAY) == Fault("not valid before 2026-03-01T11:00:00Z", "broken")


RSA = rsa.generate_private_key(public_exponent=65537, key_size=2048)
ENCRYPTED = serialization.load_pem_private_key(GOOD.key, None).private_bytes(
    serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.BestAvailableEncryption(b"secret")
)


@pytest.mark.parametrize(
    ("pair", "expected"),
    [
        (None, Fault("there is none yet", "broken")),
        (Pair(b"", GOOD.key), Fault("the certificate is empty", "broken")),
        (Pair(GOOD.cert, b" \n"), Fault("the key is empty", "broken")),
        (
            Pair(GOOD.cert[:300], GOOD.key),
            Fault("the certificate cannot be read: truncated, or no PEM", "broken"),
        ),
        (
            Pair(GOOD.cert, GOOD.key[:90]),
            Fault("the key cannot be read: truncated, encrypted, or no PEM", "broken"),
        ),
        (
            Pair(GOOD.cert, ENCRYPTED),
            Fault("the key is encrypted, and there is nobody to type the password", "broken"),
        ),
        (Pair(GOOD.cert, leaf(SIGNER).key), Fault("the key is not that of the certificate", "broken")),
        (Pair(GOOD.key, GOOD.cert), Fault("the certificate cannot be read: truncated, or no PEM", "broken")),
        (self_signed(RSA), Fault("the key is RSA, not ECDSA P-256", "signer")),
        (
            self_signed(ec.generate_private_key(ec.SECP384R1())),
            Fault("the key is on the curve secp384r1, not ECDSA P-256", "signer"),
        ),
    ],
    ids=["none", "no-cert", "no-key", "cut-cert", "cut-key", "encrypted", "mismatched", "swapped", "rsa", "p384"],
)
def test_unusable(pair: Pair | None, expected: Fault) -> None:
    assert fault(pair) == expected
    assert authority_fault(pair, NOW) == expected


def test_an_authority_signs() -> None:
    assert authority_fault(GOOD, NOW) == Fault("the certificate is not that of an authority", "broken")
    bare = self_signed(ec.generate_private_key(ec.SECP256R1()), ca=True)
    assert authority_fault(bare, NOW) == Fault("the certificate has no key identifier", "broken")


def test_names() -> None:
    assert fault(GOOD, names=("other.guard.svc",)) == Fault("the certificate is not for other.guard.svc", "broken")
    # What the API server asks for is there: no haste.
    assert fault(GOOD, names=(NAMES[0], "10.0.0.1")) == Fault("the certificate is not for 10.0.0.1", "due")
    assert fault(leaf(SIGNER, names=("a.b.svc", "::1")), names=("a.b.svc", "0:0:0:0:0:0:0:1")) is None


@pytest.mark.parametrize(
    ("purpose", "expected"),
    [
        (ExtendedKeyUsageOID.CLIENT_AUTH, Fault("the certificate is not for servers", "broken")),
        (ExtendedKeyUsageOID.ANY_EXTENDED_KEY_USAGE, None),
        (ExtendedKeyUsageOID.SERVER_AUTH, None),
    ],
)
def test_purposes(purpose: x509.ObjectIdentifier, expected: Fault | None) -> None:
    signer = x509.load_pem_x509_certificate(SIGNER.cert)
    signing = serialization.load_pem_private_key(SIGNER.key, None)
    assert isinstance(signing, ec.EllipticCurvePrivateKey)
    good = x509.load_pem_x509_certificate(GOOD.cert)
    builder = x509.CertificateBuilder(
        signer.subject, good.subject, good.public_key(), 7, good.not_valid_before_utc, good.not_valid_after_utc
    )
    names = good.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    builder = builder.add_extension(names.value, names.critical)
    builder = builder.add_extension(x509.ExtendedKeyUsage([purpose]), False)
    cert = builder.sign(signing, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
    assert fault(Pair(cert, GOOD.key)) == expected


def test_signers() -> None:
    newer = authority()
    by_earlier = leaf_fault(GOOD, NAMES, newer.cert, [SIGNER.cert], NOW)
    assert by_earlier == Fault("the certificate is signed by an earlier authority", "signer")
    by_unknown = leaf_fault(GOOD, NAMES, newer.cert, [], NOW)
    assert by_unknown == Fault("the certificate is signed by an unknown authority", "broken")
    assert leaf_fault(GOOD, NAMES, b"nonsense", [b"", SIGNER.cert[:99]], NOW) == by_unknown


def test_expires() -> None:
    assert expires(GOOD.cert) == NOW + 90 * DAY
    assert expires(b"nonsense") is None
