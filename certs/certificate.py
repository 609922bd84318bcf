"""Reads a certificate that anybody may have written: whole, or not at all."""

from __future__ import annotations

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm

UNREADABLE = (
    ValueError,
    TypeError,
    UnsupportedAlgorithm,
    x509.InvalidVersion,
    x509.DuplicateExtension,
    x509.UnsupportedGeneralNameType,
)
"""What the library raises for one that is damaged: not all of these are ValueErrors, and some come late."""


def read_certificate(pem: bytes) -> x509.Certificate | None:
    """The first certificate of a PEM text; None where it, or a part of it that is parsed when asked for, is damaged."""
    try:
        certificate = x509.load_pem_x509_certificate(pem)
        for part in ("subject", "issuer", "extensions", "not_valid_before_utc", "not_valid_after_utc"):
            getattr(certificate, part)
    except UNREADABLE:
        return None
    return certificate
