"""Makes certificates. Pure: names, key and time come in, PEM goes out; nothing is read, written or drawn by lot.

Keys are ECDSA P-256: every API server takes them, and a handshake costs less than with RSA.
"""

from __future__ import annotations

import datetime
import hashlib
import ipaddress
from collections.abc import Sequence
from typing import Final, NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

AUTHORITY_LIFE: Final = datetime.timedelta(days=730)
LEAF_LIFE: Final = datetime.timedelta(days=90)
BACKDATED: Final = datetime.timedelta(hours=1)
"""So far an API server's clock may be behind ours. Of short lives (tests), a tenth."""
ORGANIZATION: Final = "checkpoint-guard.io"

Key = ec.EllipticCurvePrivateKey


class Pair(NamedTuple):
    """A certificate and its private key, PEM each."""

    cert: bytes
    key: bytes


def new_key() -> Key:
    """A fresh private key: the one thing here that is left to chance."""
    return ec.generate_private_key(ec.SECP256R1())


def key_pem(key: Key) -> bytes:
    """PKCS#8, not encrypted: what a Secret of type kubernetes.io/tls holds."""
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def service_names(service: str, namespace: str) -> tuple[str, ...]:
    """The DNS names of a Service. The API server asks for ``<service>.<namespace>.svc``."""
    short = f"{service}.{namespace}"
    return (f"{short}.svc", short, f"{short}.svc.cluster.local")


def issue_authority(key: Key, now: datetime.datetime, life: datetime.timedelta = AUTHORITY_LIFE) -> Pair:
    """A certificate authority of its own root. Its subject tells it from those before it."""
    identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    subject = x509.Name(
        [
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, ORGANIZATION),
            x509.NameAttribute(NameOID.COMMON_NAME, f"checkpoint-guard-ca-{identifier.digest.hex()[:8]}"),
        ]
    )
    certificate = (
        _builder(subject, subject, key, now, life)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
        .add_extension(identifier, critical=False)
        .sign(key, hashes.SHA256())
    )
    return Pair(certificate.public_bytes(serialization.Encoding.PEM), key_pem(key))


def issue_leaf(
    names: Sequence[str],
    key: Key,
    authority: Pair,
    now: datetime.datetime,
    life: datetime.timedelta = LEAF_LIFE,
) -> Pair:
    """A serving certificate for DNS names and addresses; it does not outlive the authority that signs it.

    Raises ValueError for an authority that cannot be read (``renewal.authority_fault`` says why).
    """
    signer = x509.load_pem_x509_certificate(authority.cert)
    signing = serialization.load_pem_private_key(authority.key, None)
    if not isinstance(signing, ec.EllipticCurvePrivateKey):
        raise ValueError("the authority's key is not ECDSA")
    subject = x509.Name([x509.NameAttribute(NameOID.ORGANIZATION_NAME, ORGANIZATION)])
    certificate = (
        _builder(subject, signer.subject, key, now, life, signer.not_valid_after_utc)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName([_general_name(name) for name in names]), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(
                signer.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
            ),
            critical=False,
        )
        .sign(signing, hashes.SHA256())
    )
    return Pair(certificate.public_bytes(serialization.Encoding.PEM), key_pem(key))


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: Key,
    now: datetime.datetime,
    life: datetime.timedelta,
    latest: datetime.datetime | None = None,
) -> x509.CertificateBuilder:
    start = now - min(BACKDATED, life / 10)
    end = now + life
    public = key.public_key()
    # Twenty bytes with the first bit clear, and another for every key and start: no need to draw it by lot.
    seed = public.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    digest = hashlib.sha256(seed + start.isoformat().encode()).digest()
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public)
        .serial_number((int.from_bytes(digest[:20], "big") >> 1) | 1)
        .not_valid_before(start)
        .not_valid_after(end if latest is None else min(end, latest))
    )


def _usage(signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)
