"""``caBundle`` of the webhook configurations: which authorities stand in it, and how it is written.

All of them, from the authority that signs now to those before it that have not expired: a serving pod gets its new
pair when its kubelet brings it, so two authorities are always trusted while one takes over from the other. Whatever
else somebody writes there is replaced.
"""

from __future__ import annotations

import base64
import binascii
import datetime
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.x509.oid import NameOID

from certs.certificate import read_certificate
from certs.issue import ORGANIZATION

Raw = dict[str, Any]

LIMIT: Final = 10
"""Authorities in a bundle: what a rotation by hand every minute leaves while kubelets need two."""
_END: Final = b"-----END CERTIFICATE-----"


def split(pem: bytes) -> tuple[bytes, ...]:
    """The certificates of a PEM text, one each; what cannot be read is left out."""
    read = (read_certificate(part + _END) for part in pem.split(_END)[:-1])
    return tuple(one.public_bytes(serialization.Encoding.PEM) for one in read if one is not None)


def trusted(current: bytes, earlier: Iterable[bytes], now: datetime.datetime) -> tuple[bytes, ...]:
    """The authorities to trust: ``current`` first, then those before it that have not expired, the newest first."""
    others: dict[bytes, datetime.datetime] = {}
    for pem in earlier:
        for one in split(pem):
            certificate = x509.load_pem_x509_certificate(one)
            if is_authority(certificate) and certificate.not_valid_after_utc > now:
                others[one] = certificate.not_valid_before_utc
    first = split(current)
    for one in first:
        others.pop(one, None)
    return (*first, *sorted(others, key=lambda one: (others[one], one), reverse=True))[:LIMIT]


def is_authority(certificate: x509.Certificate) -> bool:
    """Whether it may sign others."""
    try:
        return certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    except x509.ExtensionNotFound:
        return False


def ours(configurations: Iterable[Raw]) -> tuple[bytes, ...]:
    """Authorities of our making in the bundles: what is still served where the Secrets are lost."""
    found: dict[bytes, None] = {}
    for configuration in configurations:
        for hook in configuration.get("webhooks") or ():
            for one in split(bundle_of(hook) or b""):
                names = x509.load_pem_x509_certificate(one).subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)
                if [name.value for name in names] == [ORGANIZATION]:
                    found[one] = None
    return tuple(found)


def bundle_of(hook: Mapping[str, Any]) -> bytes | None:
    """The PEM text in a webhook's ``caBundle``; None where there is none."""
    text = (hook.get("clientConfig") or {}).get("caBundle")
    if not text:
        return None
    try:
        return base64.b64decode(text)
    except (binascii.Error, ValueError):
        return b""


def wrong(configuration: Raw, authorities: Sequence[bytes]) -> tuple[str, ...]:
    """The webhooks of a configuration whose bundle is not exactly this one, each with what is wrong."""
    wanted = b"".join(authorities)
    found = []
    for hook in configuration.get("webhooks") or ():
        bundle = bundle_of(hook)
        if bundle == wanted:
            continue
        have = set(split(bundle or b""))
        if bundle is None:
            what = "has none"
        elif not have >= set(authorities):
            what = f"lacks {len(set(authorities) - have)} of {len(authorities)} authorities"
        elif have > set(authorities):
            what = f"trusts {len(have - set(authorities))} too many"
        else:
            what = "is in another order or form"
        found.append(f"{hook.get('name', '?')}: {what}")
    return tuple(found)


def patch(configuration: Raw, authorities: Sequence[bytes]) -> Raw:
    """A strategic merge patch that sets every bundle, refused (409) where the configuration changed since it was read.

    It names nothing but the bundles, so that nobody else's fields become ours.
    """
    text = base64.b64encode(b"".join(authorities)).decode()
    return {
        "metadata": {"resourceVersion": configuration["metadata"]["resourceVersion"]},
        "webhooks": [
            {"name": hook["name"], "clientConfig": {"caBundle": text}} for hook in configuration.get("webhooks") or ()
        ],
    }
