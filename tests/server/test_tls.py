"""TLS 1.2 and later, a pair that is swapped while it is in use, and whether it is trusted."""

from __future__ import annotations

import asyncio
import base64
import datetime
import json
import ssl
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import NameOID

from tests.certs.cluster import DAY, NAMES, authority, leaf
from tests.server.serving import UID, body_of, message, review, serving
from webhook.cluster.access import Refused, Unreachable
from webhook.cluster.registration import Caller, load_callers, parse_callers
from webhook.server.app import State
from webhook.server.caller import Caller as WhoAsks
from webhook.server.tls import Certificate, PairRefused, Told, distrust, expiry, own_fault, read_pair


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


NOW = datetime.datetime.now(datetime.UTC)
CA = authority(NOW)


def write(folder: Path, pair: tuple[bytes, bytes]) -> tuple[Path, Path]:
    """Put the pair into the folder."""
    folder.mkdir(exist_ok=True)
    cert, key = folder / "tls.crt", folder / "tls.key"
    cert.write_bytes(pair[0])
    key.write_bytes(pair[1])
    return cert, key


def mount(folder: Path, version: str, pair: tuple[bytes, bytes]) -> tuple[Path, Path]:
    """Put the pair there as the kubelet does: a new directory, then one link that is moved onto it."""
    write(folder / version, pair)
    link = folder / "..new"
    link.symlink_to(version)
    link.rename(folder / "..data")
    paths = folder / "tls.crt", folder / "tls.key"
    for path in paths:
        if not path.is_symlink():
            path.symlink_to(f"..data/{path.name}")
    return paths


class Heard:
    """What a certificate told."""

    def __init__(self) -> None:
        self.reloads: list[bool] = []
        self.expires = 0.0
        self.stale: list[bool] = []
        self.trusted: list[bool] = []
        self.told = Told(self.reloads.append, self._expires, self.stale.append, self.trusted.append)

    def _expires(self, when: float) -> None:
        self.expires = when


def look(certificate: Certificate, times: int = 1) -> None:
    for _ in range(times):
        asyncio.run(certificate.look())


def test_serves_tls(tmp_path: Path) -> None:
    cert, key = write_pair(tmp_path, 11)
    context = Certificate(cert, key).context
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


def test_prefers_1_3_and_refuses_1_1(tmp_path: Path) -> None:
    cert, key = write_pair(tmp_path, 12)
    with serving(context=Certificate(cert, key).context) as running:
        with running.wire(client(cert)) as wire:
            assert isinstance(wire.socket, ssl.SSLSocket)
            assert wire.socket.version() == "TLSv1.3"
        old = client(cert)
        with pytest.warns(DeprecationWarning, match="TLSv1"):
            old.minimum_version = ssl.TLSVersion.TLSv1
        with pytest.warns(DeprecationWarning, match="TLSv1_1"):
            old.maximum_version = ssl.TLSVersion.TLSv1_1
        old.set_ciphers("ALL:@SECLEVEL=0")
        with pytest.raises(ssl.SSLError):
            running.wire(old)


def test_a_new_pair_is_served_at_once_and_open_connections_go_on(tmp_path: Path) -> None:
    cert, key = write_pair(tmp_path, 21)
    trusting = client(cert)
    certificate = Certificate(cert, key)
    with serving(context=certificate.context) as running, running.wire(trusting) as kept:
        write_pair(tmp_path, 22)
        trusting.load_verify_locations(cert)
        look(certificate)
        with running.wire(trusting) as wire:
            assert serial(wire.socket) == 22
            wire.send(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
            assert wire.answer().code == 200
        kept.send(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
        assert kept.answer().code == 200
        assert serial(kept.socket) == 21


def test_a_key_of_another_kind_replaces_the_old_one_for_everybody(tmp_path: Path) -> None:
    cert, key = write_pair(tmp_path, 23)
    certificate = Certificate(cert, key)
    write_rsa(tmp_path, 24)
    look(certificate)
    trusting = client(cert)
    with serving(context=certificate.context) as running, running.wire(trusting) as wire:
        assert serial(wire.socket) == 24


ENCRYPTED = serialization.load_pem_private_key(leaf(CA).key, None).private_bytes(
    serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.BestAvailableEncryption(b"x")
)
GOOD, OTHER = leaf(CA, NOW), leaf(CA, NOW)


@pytest.mark.parametrize(
    ("pair", "words"),
    [
        ((GOOD.cert, OTHER.key), "the key is not that of the certificate"),
        ((OTHER.cert[:300], OTHER.key), "cannot be read: truncated, or no PEM"),
        ((OTHER.cert, OTHER.key[:80]), "cannot be read: truncated, or no PEM"),
        ((b"", b""), "cannot be read: truncated, or no PEM"),
        ((OTHER.cert, ENCRYPTED), "the key is encrypted"),
        (leaf(CA, NOW - 100 * DAY), "certificate has expired"),
        (leaf(CA, NOW + 2 * DAY), "certificate is not yet valid"),
    ],
    ids=["mismatched", "cut-cert", "cut-key", "empty", "encrypted", "expired", "not-yet-valid"],
)
def test_a_broken_pair_leaves_the_old_one_and_heals(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, pair: tuple[bytes, bytes], words: str
) -> None:
    heard = Heard()
    certificate = Certificate(*mount(tmp_path, "one", GOOD), told=heard.told)
    old = certificate.context.inner
    mount(tmp_path, "two", pair)
    look(certificate, 3)
    assert certificate.context.inner is old
    assert (heard.reloads, heard.stale) == ([False], [True])
    assert [words in record.getMessage() for record in caplog.records] == [True]
    mount(tmp_path, "three", OTHER)
    look(certificate)
    assert certificate.context.inner is not old
    assert (heard.reloads, heard.stale) == ([False, True], [True, False])
    assert heard.expires == expiry(read_pair(tmp_path / "tls.crt", tmp_path / "tls.key"))


def test_missing_files_and_the_old_pair_back(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    heard = Heard()
    cert, key = write(tmp_path, GOOD)
    certificate = Certificate(cert, key, told=heard.told)
    old = certificate.context.inner
    key.unlink()
    look(certificate, 3)
    assert (heard.reloads, heard.stale) == ([False], [True])
    assert f"{key}: No such file or directory" in caplog.text
    write(tmp_path, GOOD)
    look(certificate)
    assert (heard.reloads, heard.stale) == ([False], [True, False])
    assert certificate.context.inner is old


def test_a_pair_that_becomes_valid_is_taken_up_though_the_files_stay(tmp_path: Path) -> None:
    certificate = Certificate(*write(tmp_path, GOOD))
    soon = leaf(CA, datetime.datetime.now(datetime.UTC) + datetime.timedelta(hours=1, seconds=2))
    write(tmp_path, soon)
    look(certificate)
    old = certificate.context.inner
    for _ in range(40):
        look(certificate)
        if certificate.context.inner is not old:
            return
        asyncio.run(asyncio.sleep(0.1))
    raise AssertionError("never taken up")


def test_what_cannot_be_served_from_the_start(tmp_path: Path) -> None:
    with pytest.raises(PairRefused, match="No such file"):
        Certificate(tmp_path / "none", tmp_path / "none")
    with pytest.raises(PairRefused, match="not that of the certificate"):
        Certificate(*write(tmp_path, (GOOD.cert, OTHER.key)))
    # An expired one is served: it is all there is, and what is not trusted is not ready.
    heard = Heard()
    Certificate(*write(tmp_path, leaf(CA, NOW - 100 * DAY)), told=heard.told)
    assert heard.expires == 0


def caller(bundle: bytes, server: str = NAMES[0]) -> Caller:
    return Caller("validate.checkpoint-guard.io", server, bundle.decode())


def test_trust_is_what_the_api_server_would_find(tmp_path: Path) -> None:
    pair = read_pair(*write(tmp_path, GOOD))
    stranger = authority(NOW)
    for bundle in (CA.cert, CA.cert + stranger.cert, stranger.cert + CA.cert, GOOD.cert):
        assert distrust(pair, [caller(bundle)]) is None
    start = 'webhook "validate.checkpoint-guard.io" does not trust what is served: '
    for bundle, server, words in (
        (stranger.cert, NAMES[0], "unable to get local issuer certificate"),
        (b"", NAMES[0], "unable to get local issuer certificate"),
        (b"junk", NAMES[0], "caBundle cannot be read"),
        (CA.cert, "other.guard.svc", "Hostname mismatch, certificate is not valid for 'other.guard.svc'"),
        (CA.cert, "127.0.0.1", "IP address mismatch, certificate is not valid for '127.0.0.1'"),
    ):
        assert (distrust(pair, [caller(CA.cert), caller(bundle, server)]) or "").startswith(start + words)
    assert distrust(pair, []) is None
    assert own_fault(pair) is None


class Registration:
    """Stands in for the API server's answer to who is registered."""

    def __init__(self, *callers: Caller) -> None:
        self.callers = callers
        self.error: Exception | None = None
        self.reads = 0

    async def __call__(self) -> tuple[Caller, ...]:
        self.reads += 1
        if self.error is not None:
            raise self.error
        return self.callers


def test_ready_only_while_trusted(tmp_path: Path) -> None:
    registration = Registration(caller(authority(NOW).cert))
    certificate = Certificate(*write(tmp_path, GOOD), callers=registration)
    state = State()
    state.unready = lambda: certificate.untrusted
    look(certificate)
    assert "does not trust what is served" in (state.unready() or "")
    registration.callers = (caller(CA.cert),)
    look(certificate)
    assert state.unready() is None
    registration.error = Unreachable("no answer in time")
    look(certificate)
    assert state.unready() is None
    registration.error = None
    registration.callers = ()
    look(certificate)
    assert state.unready() is None


def test_a_pair_that_callers_do_not_trust_yet_waits_for_them(tmp_path: Path) -> None:
    fresh = authority(NOW)
    registration = Registration(caller(CA.cert))
    heard = Heard()
    certificate = Certificate(*write(tmp_path, GOOD), callers=registration, told=heard.told)
    old = certificate.context.inner
    write(tmp_path, leaf(fresh, NOW))
    look(certificate, 2)
    assert certificate.context.inner is old
    assert certificate.untrusted is None
    assert heard.stale == [True]
    registration.callers = (caller(fresh.cert + CA.cert),)
    look(certificate)
    assert certificate.context.inner is not old
    assert (certificate.untrusted, heard.stale) == (None, [True, False])
    # Where the one in use is not trusted either, there is nothing to lose.
    registration.callers = (caller(authority(NOW).cert),)
    write(tmp_path, leaf(CA, NOW))
    now = certificate.context.inner
    look(certificate)
    assert certificate.context.inner is not now


def test_getting_ready_waits_for_an_api_server_that_is_away_and_not_for_a_right(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    registration = Registration(caller(CA.cert))
    registration.error = Unreachable("no answer in time")
    certificate = Certificate(*write(tmp_path, GOOD), callers=registration)

    async def heal() -> None:
        task = asyncio.create_task(certificate.prepare(0.01))
        await asyncio.sleep(0.1)
        assert not task.done()
        registration.error = None
        await task

    asyncio.run(heal())
    assert len(caplog.records) == 1
    forbidden = Registration()
    forbidden.error = Refused(403, "may not")
    certificate = Certificate(*write(tmp_path, GOOD), callers=forbidden)
    asyncio.run(certificate.prepare(0.01))
    look(certificate, 3)
    assert forbidden.reads == 1
    assert certificate.untrusted is None


def test_callers_are_read_from_both_configurations() -> None:
    bundle = base64.b64encode(CA.cert).decode()
    service = {"service": {"name": "guard", "namespace": "team"}, "caBundle": bundle}
    bodies = {
        "mutating": {"webhooks": [{"name": "a", "clientConfig": service}]},
        "validating": {"webhooks": [{"name": "b", "clientConfig": {"url": "https://[::1]:8/x", "caBundle": "!"}}]},
    }

    async def get(path: str) -> bytes:
        kind = path.rpartition("/")[0].rpartition("/")[2].removesuffix("webhookconfigurations")
        assert path == f"/apis/admissionregistration.k8s.io/v1/{kind}webhookconfigurations/checkpoint-guard"
        if kind not in bodies:
            raise Refused(404, "not found")
        return json.dumps(bodies[kind]).encode()

    first = Caller("a", "guard.team.svc", CA.cert.decode())
    found = asyncio.run(load_callers(get))
    assert found[0] == first
    assert found[1].server == "::1"
    del bodies["validating"]
    assert asyncio.run(load_callers(get)) == (first,)
    urls = ("https://127.0.0.1:9443/validate", "https://guard.example:8443/x", "https://guard.example")
    callers = parse_callers({"webhooks": [{"name": "u", "clientConfig": {"url": url}} for url in urls]})
    assert [one.server for one in callers] == ["127.0.0.1", "guard.example", "guard.example"]
    assert parse_callers({"webhooks": None}) == ()


def test_client_certificates(tmp_path: Path) -> None:
    """Without one verdict and rule ids alone; any other authority's is refused in the handshake."""
    cert, key = write_pair(tmp_path / "own", 61)
    client_ca = tmp_path / "clients.crt"
    client_ca.write_bytes(CA.cert)
    context = Certificate(cert, key, client_ca).context
    # Authorities' own certificates: those of our leaves are for servers alone.
    known, foreign = write(tmp_path / "known", CA), write(tmp_path / "foreign", authority(NOW))
    body = message("/validate", body_of(review()))
    with serving(context=context) as running:
        running.front.clients = ()
        with running.wire(client(cert)) as wire:
            wire.send(b"GET /readyz HTTP/1.1\r\nHost: x\r\n\r\n")
            assert wire.answer().code == 200
            wire.send(body)
            assert wire.answer().response == {"uid": UID, "allowed": True}
            wire.send(message("/mutate", body_of(review())))
            assert wire.answer().response == {"uid": UID, "allowed": True}
            for by in ((), ("TE: trailers",)):
                wire.send(message("/validate", body_of(review({"metadata": {"name": "bad"}})), *by))
                response = wire.answer().response
                assert set(response) == {"uid", "allowed", "status"}
                assert not response["allowed"]
                assert response["status"]["message"].startswith("refused by ephemeral-checkpoint; ")
            assert running.lines.records(4)[-1]["facts"]["claim"] == "train-ckpt"
        trusting = client(cert)
        trusting.load_cert_chain(*known)
        with running.wire(trusting) as wire:
            for _ in range(2):
                wire.send(body)
                assert wire.answer().response["uid"] == UID
        running.front.clients = ("kube-apiserver",)
        with running.wire(trusting) as wire:
            wire.send(body)
            assert "auditAnnotations" not in wire.answer().response
        trusting = client(cert)
        trusting.load_cert_chain(*foreign)
        # With TLS 1.3 the client hears of it when it reads.
        with pytest.raises((ssl.SSLError, EOFError, ConnectionError)), running.wire(trusting) as wire:  # noqa: PT012
            wire.send(body)
            wire.answer()


def test_the_name_of_a_client() -> None:
    with serving() as running:
        front = running.front
        subject = {"subject": ((("organizationName", "x"),), (("commonName", "kube-apiserver"),))}
        assert front.caller(None) is WhoAsks.ANYBODY
        front.clients = ("kube-apiserver",)
        known, stranger = WhoAsks.KNOWN, WhoAsks.STRANGER
        asked: tuple[dict[str, Any] | None, ...] = (subject, {"subject": ()}, {}, None)
        assert [front.caller(one) for one in asked] == [known, stranger, stranger, stranger]


def test_rotation_under_load_drops_nothing(tmp_path: Path) -> None:
    """New connections and old ones, while a pair of a new authority is taken up every few milliseconds."""
    signers = [authority(NOW) for _ in range(4)]
    certificate = Certificate(*mount(tmp_path, "0", leaf(CA, NOW, names=("localhost",))))
    trusting = ssl.create_default_context(cadata="".join(one.cert.decode() for one in (CA, *signers)))
    body = message("/mutate", body_of(review()))
    with serving(context=certificate.context) as running, running.wire(trusting) as kept:
        for turn in range(1, 41):
            mount(tmp_path, str(turn), leaf(signers[turn % 4], NOW, names=("localhost",)))
            look(certificate)
            for wire in (kept, running.wire(trusting)):
                wire.send(body)
                assert wire.answer().response["uid"] == UID
                if wire is not kept:
                    wire.socket.close()


def write_rsa(folder: Path, number: int) -> None:
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    name = x509.Name([])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(number)
        .not_valid_before(NOW - DAY)
        .not_valid_after(NOW + DAY)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), True)
        .sign(key, hashes.SHA256())
    )
    write(
        folder,
        (
            certificate.public_bytes(serialization.Encoding.PEM),
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            ),
        ),
    )


def serial(sock: object) -> int:
    assert isinstance(sock, ssl.SSLSocket)
    der = sock.getpeercert(True)
    assert der is not None
    return x509.load_der_x509_certificate(der).serial_number
