"""TLS 1.2 and later, and a pair that is swapped while it is in use."""

from __future__ import annotations

import asyncio
import datetime
import ssl
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from tests.server.serving import UID, body_of, message, review, serving
from webhook.server.tls import build_context, follow_pair, load_pair


def write_pair(folder: Path, serial: int, key_of: int | None = None) -> tuple[Path, Path]:
    """A self-signed pair for localhost whose serial number tells it apart; ``key_of`` mixes in another's key."""
    folder.mkdir(exist_ok=True)
    keys = {number: ec.generate_private_key(ec.SECP256R1()) for number in {serial, key_of or serial}}
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"pair {serial}")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(keys[serial].public_key())
        .serial_number(serial)
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), False)
        .sign(keys[serial], hashes.SHA256())
    )
    cert, key = folder / "tls.crt", folder / "tls.key"
    cert.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    key.write_bytes(
        keys[key_of or serial].private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
    )
    return cert, key


def client(*trusted: Path) -> ssl.SSLContext:
    context = ssl.create_default_context()
    for path in trusted:
        context.load_verify_locations(path)
    return context


def test_serves_tls(tmp_path: Path) -> None:
    cert, key = write_pair(tmp_path, 11)
    context = build_context(cert, key)
    assert context.minimum_version is ssl.TLSVersion.TLSv1_2
    for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
        trusting = client(cert)
        trusting.minimum_version = trusting.maximum_version = version
        trusting.set_alpn_protocols(["h2", "http/1.1"])
        with serving(context=context) as running, running.wire(trusting) as wire:
            assert isinstance(wire.socket, ssl.SSLSocket)
            assert wire.socket.selected_alpn_protocol() == "http/1.1"
            for _ in range(3):
                wire.send(message("/mutate", body_of(review())))
                assert wire.answer().response["uid"] == UID


def test_a_new_pair_is_served_at_once(tmp_path: Path) -> None:
    cert, key = write_pair(tmp_path / "old", 21)
    fresh, fresh_key = write_pair(tmp_path / "new", 22)
    context = build_context(cert, key)
    both = client(cert, fresh)
    with serving(context=context) as running, running.wire(both) as kept:
        load_pair(context, fresh, fresh_key)
        with running.wire(both) as wire:
            assert serial(wire.socket) == 22
            wire.send(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
            assert wire.answer().code == 200
        kept.send(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
        assert kept.answer().code == 200


def test_a_pair_that_does_not_match_leaves_the_old_one(tmp_path: Path) -> None:
    cert, key = write_pair(tmp_path / "old", 31)
    mixed, mixed_key = write_pair(tmp_path / "new", 32, key_of=33)
    context = build_context(cert, key)
    with pytest.raises(ssl.SSLError):
        load_pair(context, mixed, mixed_key)
    with pytest.raises(OSError, match="No such file"):
        load_pair(context, tmp_path / "none", mixed_key)
    with serving(context=context) as running, running.wire(client(cert)) as wire:
        assert serial(wire.socket) == 31


def test_files_are_followed(tmp_path: Path) -> None:
    cert, key = write_pair(tmp_path, 41)
    context = build_context(cert, key)
    heard: list[bool] = []

    async def follow() -> None:
        task = asyncio.create_task(follow_pair(context, cert, key, heard.append, 0.02))
        await asyncio.sleep(0.1)
        assert heard == []
        write_pair(tmp_path, 42, key_of=43)
        await asyncio.sleep(0.1)
        assert heard == [False]
        key.unlink()
        await asyncio.sleep(0.1)
        write_pair(tmp_path, 44)
        await asyncio.sleep(0.1)
        assert heard[-1] is True
        task.cancel()

    asyncio.run(follow())
    with serving(context=context) as running, running.wire(client(cert)) as wire:
        assert serial(wire.socket) == 44


def serial(sock: object) -> int:
    assert isinstance(sock, ssl.SSLSocket)
    der = sock.getpeercert(True)
    assert der is not None
    return x509.load_der_x509_certificate(der).serial_number
