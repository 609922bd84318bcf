"""A real server on loopback for a test: fakes for the engine, a socket that says exactly what it is told."""

from __future__ import annotations

import json
import os
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from webhook.audit import AuditLog, Sink
from webhook.bootstrap import NothingKnown
from webhook.metrics import Metrics
from webhook.model.cluster import ClusterView
from webhook.model.finding import Judged, Origin, Severity
from webhook.model.policy import Policy
from webhook.model.release import Release
from webhook.model.request import Request
from webhook.model.verdict import Decision, Defaulted, Facts
from webhook.server.admission import Admission, FixedViews, Views
from webhook.server.app import Front, State
from webhook.server.gate import Gate
from webhook.server.listener import Ceilings
from webhook.server.run import build_server

UID = "0f9f3f1e-1111-2222-3333-444455556666"
PATCH = ({"op": "add", "path": "/metadata/annotations", "value": {"example.com/seen": "true"}},)
DENIED = Judged(
    "ephemeral-checkpoint",
    Severity.DENY,
    Origin("TrainJob/run", "spec.runtimePatches[0]", "runtimePatches[me] volume ckpt"),
    'volume "ckpt" is an emptyDir',
    "the directory goes with the pod",
    "persistentVolumeClaim: {claimName: train-ckpt}",
)


def review(obj: Any = ..., operation: Any = "CREATE", kind: str = "TrainJob", **request: Any) -> dict[str, Any]:
    """A review of a small TrainJob; keywords replace fields of the request, and None in ``drop`` takes them away."""
    if obj is ...:
        obj = {
            "apiVersion": "trainer.kubeflow.org/v1alpha1",
            "kind": kind,
            "metadata": {"name": "run", "namespace": "team"},
            "spec": {"runtimeRef": {"name": "torch"}},
        }
    return {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": UID,
            "kind": {"group": "trainer.kubeflow.org", "version": "v1alpha1", "kind": kind},
            "resource": {"group": "trainer.kubeflow.org", "version": "v1alpha1", "resource": f"{kind.lower()}s"},
            "namespace": "team",
            "name": "run",
            "operation": operation,
            "userInfo": {"username": "ada", "groups": ["system:authenticated"]},
            "object": obj,
            "oldObject": None,
            "dryRun": False,
        }
        | request,
    }


def body_of(value: Any) -> bytes:
    return value if isinstance(value, bytes) else json.dumps(value).encode()


class Engine:
    """Stands in for the engine: patches everything, denies what is named ``bad``, raises on ``broken``."""

    def __init__(self) -> None:
        self.seen: list[Request] = []
        self.views: list[ClusterView] = []

    def default(self, request: Request, view: ClusterView, policy: Policy, release: Release | None) -> Defaulted:
        self._take(request, view)
        return Defaulted(PATCH, request.object, applied=("seen",))

    def judge(self, request: Request, view: ClusterView, policy: Policy, release: Release | None) -> Decision:
        self._take(request, view)
        facts = Facts(2, "/mnt/ckpt/run", "ckpt", "train-ckpt", "many-nodes")
        if request.name == "bad":
            return Decision("deny", (DENIED,), facts, policy_hash=policy.hash, runtime="ClusterTrainingRuntime/torch")
        return Decision("allow", (), facts, policy_hash=policy.hash, runtime="ClusterTrainingRuntime/torch")

    def _take(self, request: Request, view: ClusterView) -> None:
        self.seen.append(request)
        self.views.append(view)
        if request.name == "broken":
            raise RuntimeError(f"no such thing: {request.object}")


class Lines:
    """A sink that keeps what it is given."""

    name = "lines"

    def __init__(self) -> None:
        self.data = b""
        self.closed = False

    def write(self, data: bytes) -> None:
        self.data += data

    def close(self) -> None:
        self.closed = True

    def records(self, count: int = 1, seconds: float = 5.0) -> list[dict[str, Any]]:
        """The first ``count`` records, waited for."""
        until = time.monotonic() + seconds
        while self.data.count(b"\n") < count and time.monotonic() < until:
            time.sleep(0.005)
        return [json.loads(line) for line in self.data.splitlines()]


class Answered:
    """One HTTP answer."""

    def __init__(self, code: int, headers: Mapping[str, str], body: bytes) -> None:
        self.code = code
        self.headers = headers
        self.body = body

    @property
    def response(self) -> dict[str, Any]:
        whole = json.loads(self.body)
        assert whole["apiVersion"] == "admission.k8s.io/v1"
        assert whole["kind"] == "AdmissionReview"
        response: dict[str, Any] = whole["response"]
        return response

    @property
    def error(self) -> str:
        whole = json.loads(self.body)
        assert list(whole) == ["error"]
        assert b"\n" not in self.body
        assert self.headers["content-type"].startswith("application/json")
        return str(whole["error"])


class Wire:
    """One connection, byte by byte."""

    def __init__(self, port: int, tls: ssl.SSLContext | None = None) -> None:
        raw = socket.create_connection(("127.0.0.1", port), 10)
        raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket = raw if tls is None else tls.wrap_socket(raw, server_hostname="localhost")
        self._rest = b""

    def __enter__(self) -> Wire:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send(self, *pieces: bytes, pause: float = 0.02) -> None:
        for number, piece in enumerate(pieces):
            if number:
                time.sleep(pause)
            self.socket.sendall(piece)

    def answer(self) -> Answered:
        """The next answer on this connection. Raises EOFError where the server has closed it."""
        while b"\r\n\r\n" not in self._rest:
            self._more()
        head, _, self._rest = self._rest.partition(b"\r\n\r\n")
        lines = head.decode().split("\r\n")
        headers = {}
        for line in lines[1:]:
            name, _, value = line.partition(": ")
            headers[name.lower()] = value
        while len(self._rest) < int(headers["content-length"]):
            self._more()
        length = int(headers["content-length"])
        body, self._rest = self._rest[:length], self._rest[length:]
        return Answered(int(lines[0].split()[1]), headers, body)

    def closed(self) -> bool:
        """Whether the server closes the connection (within the socket's time-out)."""
        try:
            return self._rest == b"" and self.socket.recv(1) == b""
        except ConnectionResetError:
            return True

    def _more(self) -> None:
        data = self.socket.recv(65536)
        if not data:
            raise EOFError
        self._rest += data


def message(path: str, body: bytes, *extra: str, kind: str | None = "application/json", method: str = "POST") -> bytes:
    """The bytes of a request as the API server writes it."""
    lines = [f"{method} {path} HTTP/1.1", "Host: checkpoint-guard", "User-Agent: test", f"Content-Length: {len(body)}"]
    if kind is not None:
        lines.append(f"Content-Type: {kind}")
    return "\r\n".join([*lines, *extra, "", ""]).encode() + body


class Running:
    """The server as it runs."""

    def __init__(
        self, port: int, engine: Engine, metrics: Metrics, lines: Lines, state: State, gate: Gate, front: Front
    ) -> None:
        self.port = port
        self.engine = engine
        self.metrics = metrics
        self.lines = lines
        self.state = state
        self.gate = gate
        self.front = front

    def wire(self, tls: ssl.SSLContext | None = None) -> Wire:
        return Wire(self.port, tls)

    def post(self, path: str, value: Any, *extra: str, kind: str | None = "application/json") -> Answered:
        with self.wire() as wire:
            wire.send(message(path, body_of(value), *extra, kind=kind))
            return wire.answer()

    def get(self, path: str) -> Answered:
        with self.wire() as wire:
            wire.send(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
            return wire.answer()


@contextmanager
def serving(
    views: Views | None = None,
    gate: Gate | None = None,
    context: ssl.SSLContext | None = None,
    body_seconds: float = 10.0,
    head_seconds: float = 5.0,
    ceilings: Ceilings | None = None,
    lookup_seconds: float = 2.0,
    sinks: Sequence[Sink] = (),
    queue: int = 8192,
    keep_alive: float | None = None,
    engine: Engine | None = None,
    prepare: Callable[[], Any] | None = None,
    lane: bool = True,
) -> Iterator[Running]:
    """Serve on a free port of loopback, in a thread, until the block ends."""
    engine = engine or Engine()
    metrics = Metrics(process=False)
    lines = Lines()
    gate = gate or Gate()
    state = State()
    policy = Policy()
    audit = AuditLog([lines, *sinks], metrics, queue)
    admission = Admission(
        engine.default,
        engine.judge,
        views or FixedViews(NothingKnown()),
        lambda: policy,
        audit,
        metrics,
        gate,
        lookup_seconds=lookup_seconds,
    )
    front = Front(admission, gate, state, metrics, body_seconds=body_seconds, head_seconds=head_seconds)
    server = build_server(front, "127.0.0.1", 0, context, 0, 5, prepare, ceilings=ceilings)
    if not lane:
        server.config.http_protocol_class = HttpToolsProtocol
    if keep_alive is not None:
        server.config.timeout_keep_alive = keep_alive  # type: ignore[assignment]
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        until = time.monotonic() + 10
        while not server.started and time.monotonic() < until:
            time.sleep(0.005)
        port = server.servers[0].sockets[0].getsockname()[1]
        if prepare is None:
            while state.phase.value != "ready" and time.monotonic() < until:
                time.sleep(0.005)
        yield Running(port, engine, metrics, lines, state, gate, front)
    finally:
        server.should_exit = True
        thread.join(15)
        audit.close(0.2)
        assert not thread.is_alive()


def nobody_reads() -> tuple[int, int]:
    """A full pipe, (read end, write end): whoever writes to it waits."""
    read, write = os.pipe()
    os.set_blocking(write, False)
    try:
        while True:
            os.write(write, b"x" * 4096)
    except BlockingIOError:
        pass
    os.set_blocking(write, True)
    return read, write
