"""The worker process: judges what is too large for the event loop. ``python -m webhook.server.worker FD``.

It reads one job at a time from its socket and asks back over it what the engine wants to know of the cluster, so that
tables, live reads and what is unknown are the server's alone. What comes from the server is pickled (it is the same
program), what goes to it is msgpack of plain values. It ends when the socket does.
"""

from __future__ import annotations

import os
import pickle
import resource
import signal
import socket
import struct
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
import orjson

from webhook.cluster.objects import parse_runtime
from webhook.model.cluster import (
    Claim,
    ConfigMap,
    CsiDriver,
    Gap,
    Namespace,
    PersistentVolume,
    Run,
    RunDirectory,
    Runtime,
    StorageClass,
)
from webhook.model.exceptions import Exceptions
from webhook.model.policy import Policy
from webhook.model.release import Release
from webhook.model.request import Request
from webhook.server.caller import Caller
from webhook.server.envelope import NotAReview, parse_review
from webhook.server.judging import answer_review, guarded, pass_by
from webhook.server.packed import unpack

MEMORY: Final = 320 * 1024 * 1024
"""Bytes of data that the process may have; what needs more ends it."""
_NEARLY: Final = MEMORY // 2
RUNTIME_BYTES: Final = 4 * 1024 * 1024
"""Of runtimes as JSON that are kept here; the server counts along."""
PAGE: Final = 500
"""Entries of a list that are sent at a time."""
QUESTIONS: Final = (
    "claim",
    "volume",
    "available_volumes",
    "storage_class",
    "default_storage_class",
    "some_classes",
    "csi_driver",
    "config_map",
    "namespace",
    "runtime",
    "snapshot",
    "runs_of_runtime",
    "directories",
    "excused_runs",
    "exceptions",
    "serves_kueue",
    "release",
    "why_unknown",
)
"""What may be asked of the server's view."""
_LENGTH: Final = struct.Struct(">I")


class Pipe:
    """Frames over a blocking socket."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._file = sock.makefile("rb")

    def get(self) -> Any:
        """The next message of the server. Raises EOFError where it has gone."""
        head = self._file.read(_LENGTH.size)
        if len(head) < _LENGTH.size:
            raise EOFError
        (size,) = _LENGTH.unpack(head)
        data = self._file.read(size)
        if len(data) < size:
            raise EOFError
        return pickle.loads(data)  # noqa: S301 - made by the server that started this process

    def put(self, message: tuple[Any, ...]) -> None:
        data = msgspec.msgpack.encode(message)
        self._sock.sendall(_LENGTH.pack(len(data)) + data)


class Kept:
    """Runtimes by their version, the oldest forgotten first. Both ends keep one, with the same content."""

    def __init__(self) -> None:
        self._sizes: dict[tuple[str, ...], int] = {}
        self._values: dict[tuple[str, ...], Any] = {}
        self._total = 0

    def get(self, key: tuple[str, ...]) -> Any:
        return self._values.get(key)

    def put(self, key: tuple[str, ...], size: int, value: Any) -> None:
        """Keep a value; those before it go where they are too many bytes together."""
        self._sizes[key], self._values[key] = size, value
        self._total += size
        while self._total > RUNTIME_BYTES and len(self._sizes) > 1:
            oldest = next(iter(self._sizes))
            self._total -= self._sizes.pop(oldest)
            del self._values[oldest]


class Pages(Sequence[Any]):
    """A list that lies with the server, fetched by pages."""

    def __init__(self, pipe: Pipe, number: int, length: int, first: Sequence[Any]) -> None:
        self._pipe = pipe
        self._number = number
        self._length = length
        self._pages = {0: first}

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[at] for at in range(*index.indices(self._length))]
        at = index + self._length if index < 0 else index
        if not 0 <= at < self._length:
            raise IndexError(index)
        page = at // PAGE
        found = self._pages.get(page)
        if found is None:
            self._pipe.put(("page", self._number, page))
            found = self._pages[page] = self._pipe.get()[1]
        return found[at % PAGE]

    def __iter__(self) -> Iterator[Any]:
        for at in range(self._length):
            yield self[at]


class RemoteView:
    """The server's view of the cluster. What was asked once in a judgement is not asked again."""

    def __init__(self, pipe: Pipe, runtimes: Kept) -> None:
        self._pipe = pipe
        self._runtimes = runtimes
        self._known: dict[tuple[Any, ...], Any] = {}

    def _ask(self, *question: Any) -> Any:
        if question in self._known:
            return self._known[question]
        self._pipe.put(("ask", *question))
        answer = self._take(self._pipe.get())
        self._known[question] = answer
        return answer

    def _take(self, message: tuple[Any, ...]) -> Any:
        match message:
            case ("value", value):
                return value
            case ("runtime", key):
                return self._runtimes.get(key)
            case ("new runtime", key, kind, text):
                raw = orjson.loads(text)
                made = parse_runtime({**raw, "kind": kind})
                if key:
                    self._runtimes.put(key, len(text), made)
                return made
            case ("list", number, length, first):
                return Pages(self._pipe, number, length, first)
        raise EOFError

    def claim(self, namespace: str, name: str) -> Claim | Gap:
        found: Claim | Gap = self._ask("claim", namespace, name)
        return found

    def volume(self, name: str) -> PersistentVolume | Gap:
        found: PersistentVolume | Gap = self._ask("volume", name)
        return found

    def available_volumes(self, storage_class: str) -> Sequence[PersistentVolume] | Gap:
        found: Sequence[PersistentVolume] | Gap = self._ask("available_volumes", storage_class)
        return found

    def storage_class(self, name: str) -> StorageClass | Gap:
        found: StorageClass | Gap = self._ask("storage_class", name)
        return found

    def default_storage_class(self) -> StorageClass | Gap:
        found: StorageClass | Gap = self._ask("default_storage_class")
        return found

    def some_classes(self) -> Sequence[StorageClass] | Gap:
        found: Sequence[StorageClass] | Gap = self._ask("some_classes")
        return found

    def some_claims(self, namespace: str) -> Sequence[Claim] | Gap:
        return Gap.UNKNOWN

    def csi_driver(self, name: str) -> CsiDriver | Gap:
        found: CsiDriver | Gap = self._ask("csi_driver", name)
        return found

    def config_map(self, namespace: str, name: str) -> ConfigMap | Gap:
        found: ConfigMap | Gap = self._ask("config_map", namespace, name)
        return found

    def namespace(self, name: str) -> Namespace | Gap:
        found: Namespace | Gap = self._ask("namespace", name)
        return found

    def runtime(self, kind: str, namespace: str, name: str) -> Runtime | Gap:
        found: Runtime | Gap = self._ask("runtime", kind, namespace, name)
        return found

    def snapshot(self, namespace: str, trainjob: str) -> Runtime | Gap:
        found: Runtime | Gap = self._ask("snapshot", namespace, trainjob)
        return found

    def runs_of_runtime(self, kind: str, namespace: str, name: str) -> Sequence[Run] | Gap:
        found: Sequence[Run] | Gap = self._ask("runs_of_runtime", kind, namespace, name)
        return found

    def excused_runs(self, namespace: str, besides: str) -> int | Gap:
        found: int | Gap = self._ask("excused_runs", namespace, besides)
        return found

    def directories(self, namespace: str, claim: str, path: str | None = None) -> Sequence[RunDirectory] | Gap:
        found: Sequence[RunDirectory] | Gap = self._ask("directories", namespace, claim, path)
        return found

    def exceptions(self, namespace: str) -> Exceptions | Gap:
        found: Exceptions | Gap = self._ask("exceptions", namespace)
        return found

    def serves_kueue(self) -> bool | None:
        found: bool | None = self._ask("serves_kueue")
        return found

    def release(self) -> Release | None:
        found: Release | None = self._ask("release")
        return found

    def why_unknown(self, kind: str) -> str:
        return str(self._ask("why_unknown", kind))


def serve(pipe: Pipe) -> None:
    """Do jobs until the server goes. Raises EOFError then."""
    from webhook.decision import default_object, review_object

    runtimes = Kept()
    policy = Policy()
    while True:
        job = pipe.get()
        if job[0] == "policy":
            policy = unpack(job[1])
        elif job[0] == "directories":
            pipe.put(("directories", _directories(pipe, runtimes, job[1], policy, job[2])))
        elif job[0] == "review":
            _, webhook, body, release, caller, trace = job
            try:
                review = parse_review(body)
            except NotAReview as fault:
                pipe.put(("refused", str(fault)))
                continue
            request = review.request
            if request is None:
                pipe.put(("outcome", pass_by(webhook, review, policy, Caller(caller), trace), resident()))
                continue
            pipe.put(("request", _stub(request)))
            while pipe.get()[0] == "judge":
                view = RemoteView(pipe, runtimes)
                try:
                    outcome = answer_review(
                        webhook, request, view, policy, release, default_object, review_object, Caller(caller), trace
                    )
                except (EOFError, MemoryError):
                    raise
                except Exception as error:
                    outcome = guarded(webhook, request, error, Caller(caller))
                if outcome.broken and resident() > _NEARLY:
                    raise MemoryError  # a part may have been left out for want of memory: that is no verdict
                pipe.put(("outcome", outcome, resident()))


def _directories(
    pipe: Pipe, runtimes: Kept, trainjob: Mapping[str, Any], policy: Policy, release: Release | None
) -> list[tuple[str, str]]:
    from webhook.cluster.directories import checkpoint_directories
    from webhook.model.shape import check_shape

    class Released(RemoteView):
        def release(self) -> Release | None:
            return release or super().release()

    try:
        check_shape("TrainJob", trainjob)
        return list(checkpoint_directories(Released(pipe, runtimes), trainjob, policy))
    except (EOFError, MemoryError):
        raise
    except Exception:  # a fault of the engine on this object: without it the others are still told
        return []


def _stub(request: Request) -> Request:
    """The request without its objects, but for what the audit log says of them."""
    metadata, spec = request.object.get("metadata") or {}, request.object.get("spec")
    reference = spec.get("runtimeRef") if type(spec) is dict else None
    known = {name: metadata[name] for name in ("name", "generateName") if name in metadata}
    return msgspec.structs.replace(request, object={"metadata": known, "spec": {"runtimeRef": reference}}, old=None)


def resident() -> int:
    """Bytes of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def main() -> int:
    """Serve the socket whose descriptor is the argument."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # the server ends this process, after the last answer
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
    os.nice(5)
    with socket.socket(fileno=int(sys.argv[1])) as sock:
        try:
            serve(Pipe(sock))
        except (EOFError, OSError):
            return 0
        except MemoryError:
            return 3
    return 0


if __name__ == "__main__":
    sys.exit(main())
