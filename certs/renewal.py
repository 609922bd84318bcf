"""Whether a pair is still good. Pure: (PEM, now) -> the reason in words why it has to be replaced, or None.

A ``Fault`` says too how it is to be replaced: one that is broken at once, one that still serves in peace.
"""

from __future__ import annotations

import datetime
import ipaddress
from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple, TypeVar

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID

from certs.certificate import UNREADABLE, read_certificate
from certs.issue import Pair

_SERVING = {ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.ANY_EXTENDED_KEY_USAGE}
_Kind = TypeVar("_Kind", bound=x509.ExtensionType)


class Fault(NamedTuple):
    """Why a pair has to be replaced.

    ``broken``: nobody can use it as it is. ``signer``: it serves, and its successor has another signer, who has to be
    known everywhere first. ``due``: it serves, and its successor has the same signer.
    """

    reason: str
    level: Literal["due", "signer", "broken"] = "due"


def authority_fault(pair: Pair | None, now: datetime.datetime) -> Fault | None:
    """What is wrong with the authority that signs; None while it is good."""
    read = _read(pair)
    if isinstance(read, Fault):
        return read
    constraints = _extension(read, x509.BasicConstraints)
    if constraints is None or not constraints.ca:
        return Fault("the certificate is not that of an authority", "broken")
    if _extension(read, x509.SubjectKeyIdentifier) is None:
        return Fault("the certificate has no key identifier", "broken")
    return _time_fault(read, now)


def leaf_fault(
    pair: Pair | None, names: Sequence[str], authority: bytes, earlier: Iterable[bytes], now: datetime.datetime
) -> Fault | None:
    """What is wrong with the serving pair; None while it is good.

    ``authority`` is the certificate that should have signed it; one of ``earlier`` still serves and is due.
    """
    read = _read(pair)
    if isinstance(read, Fault):
        return read
    fault = _time_fault(read, now)
    if fault is not None and fault.level == "broken":
        return fault
    purposes = _extension(read, x509.ExtendedKeyUsage)
    if purposes is not None and _SERVING.isdisjoint(purposes):
        return Fault("the certificate is not for servers", "broken")
    covered = _names(read)
    missing = [name for name in names if _canonical(name) not in covered]
    unnamed = Fault(f"the certificate is not for {', '.join(missing)}") if missing else None
    if unnamed is not None and names[0] in missing:  # the name that the API server asks for
        return unnamed._replace(level="broken")
    if not _signed_by(read, authority):
        if any(_signed_by(read, other) for other in earlier):
            return Fault("the certificate is signed by an earlier authority", "signer")
        return Fault("the certificate is signed by an unknown authority", "broken")
    return unnamed or fault


def expires(cert: bytes) -> datetime.datetime | None:
    """The end of the first certificate's life; None where it cannot be read."""
    certificate = read_certificate(cert)
    return certificate.not_valid_after_utc if certificate is not None else None


def _read(pair: Pair | None) -> x509.Certificate | Fault:
    """The certificate of a pair whose halves belong together."""
    if pair is None:
        return Fault("there is none yet", "broken")
    if not pair.cert.strip():
        return Fault("the certificate is empty", "broken")
    if not pair.key.strip():
        return Fault("the key is empty", "broken")
    unreadable = Fault("the certificate cannot be read: truncated, or no PEM", "broken")
    certificate = read_certificate(pair.cert)
    if certificate is None:
        return unreadable
    try:
        public = certificate.public_key()
    except UNREADABLE:
        return unreadable
    try:
        key = serialization.load_pem_private_key(pair.key, None)
    except TypeError:
        return Fault("the key is encrypted, and there is nobody to type the password", "broken")
    except (ValueError, UnsupportedAlgorithm):
        return Fault("the key cannot be read: truncated, encrypted, or no PEM", "broken")
    if key.public_key() != public:
        return Fault("the key is not that of the certificate", "broken")
    # It may serve well: whoever put it there is let go of in peace.
    if not isinstance(public, ec.EllipticCurvePublicKey):
        kind = type(public).__name__.removeprefix("_").removesuffix("PublicKey")
        return Fault(f"the key is {kind}, not ECDSA P-256", "signer")
    if public.curve.name != "secp256r1":
        return Fault(f"the key is on the curve {public.curve.name}, not ECDSA P-256", "signer")
    return certificate


def _time_fault(certificate: x509.Certificate, now: datetime.datetime) -> Fault | None:
    start, end = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    if now >= end:
        return Fault(f"expired at {_time(end)}", "broken")
    if now < start:
        return Fault(f"not valid before {_time(start)}", "broken")
    due = start + (end - start) * 2 / 3
    if now >= due:
        return Fault(f"two thirds of its life were over at {_time(due)}; it ends at {_time(end)}")
    return None


def _signed_by(certificate: x509.Certificate, authority: bytes) -> bool:
    signer = read_certificate(authority)
    if signer is None:
        return False
    try:
        certificate.verify_directly_issued_by(signer)
    except (*UNREADABLE, InvalidSignature):
        return False
    return True


def _names(certificate: x509.Certificate) -> set[str]:
    found = _extension(certificate, x509.SubjectAlternativeName)
    if found is None:
        return set()
    addresses = found.get_values_for_type(x509.IPAddress)
    return {*found.get_values_for_type(x509.DNSName), *(str(address) for address in addresses)}


def _canonical(name: str) -> str:
    try:
        return str(ipaddress.ip_address(name))
    except ValueError:
        return name


def _extension(certificate: x509.Certificate, kind: type[_Kind]) -> _Kind | None:
    try:
        return certificate.extensions.get_extension_for_class(kind).value
    except x509.ExtensionNotFound:
        return None


def _time(moment: datetime.datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")
