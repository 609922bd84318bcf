"""One decision -> one JSON line, handed to a writer that never makes an answer wait.

Lines are made and queued before the answer goes out; a thread for each sink writes them in batches. A sink that stalls
fills its own queue, after which its lines are lost and counted. Fields and their order are the contract of
``docs/audit-log.md``; ``SCHEMA`` changes when one changes its meaning or goes. A line holds no values out of a patch
and no text of a training program.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

import orjson

from webhook import __version__
from webhook.message import place
from webhook.model.printable import json_printable

if TYPE_CHECKING:
    from prometheus_client import Counter

    from webhook.metrics import Metrics
    from webhook.model.deletion import Deletion
    from webhook.model.finding import Judged, Severity, Weight
    from webhook.model.request import Request
    from webhook.model.script import ProgramFact
    from webhook.model.verdict import Decision, Defaulted

SCHEMA: Final = 1
TEXT_LIMIT: Final = 1024
"""Characters of one value that a user chose (a directory, a user name)."""
LIST_LIMIT: Final = 200
"""Findings and patched paths of one line; ``truncated`` says that there were more."""
_BATCH_SECONDS: Final = 0.02
"""The writer sleeps this long after it wakes: under load one write for many lines, and one switch of threads."""
_log = logging.getLogger("ckptguard.audit")
_OPTIONS: Final = orjson.OPT_UTC_Z | orjson.OPT_APPEND_NEWLINE


class Sink(Protocol):
    """Where lines go. ``write`` may block as long as it likes; OSError means that the bytes are lost."""

    name: str

    def write(self, data: bytes) -> None: ...

    def close(self) -> None: ...


class DescriptorSink:
    """An open file descriptor, such as standard output. It is not ours to close."""

    def __init__(self, descriptor: int, name: str) -> None:
        self.name = name
        self._descriptor = descriptor

    def write(self, data: bytes) -> None:
        _write_all(self._descriptor, data)

    def close(self) -> None:
        pass


class FileSink:
    """A file, appended to; opened again when it was moved away or removed (log rotation).

    With ``limit`` it is rotated here: before it would grow beyond so many bytes it becomes ``<name>.1``, that one
    ``<name>.2`` and so on, and of these ``keep`` stay.
    """

    name = "file"

    def __init__(self, path: Path, limit: int = 0, keep: int = 5) -> None:
        self._path = path
        self._limit = limit
        self._keep = keep
        self._descriptor = self._open()

    def _open(self) -> int:
        return os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o640)

    def write(self, data: bytes) -> None:
        try:
            there = self._path.stat()
            ours = os.fstat(self._descriptor)
            moved = (there.st_dev, there.st_ino) != (ours.st_dev, ours.st_ino)
            full = self._limit > 0 and ours.st_size > 0 and ours.st_size + len(data) > self._limit
        except FileNotFoundError:
            moved, full = True, False
        if full and not moved:
            self._rotate()
        if moved or full:
            fresh = self._open()
            os.close(self._descriptor)
            self._descriptor = fresh
        _write_all(self._descriptor, data)

    def _rotate(self) -> None:
        """What is there moves on by one; the oldest goes. A name that cannot be moved stays, and is written on."""
        names = [self._path, *(Path(f"{self._path}.{number}") for number in range(1, self._keep + 1))]
        if self._keep == 0:
            with suppress(OSError):
                self._path.unlink()
        for at in range(len(names) - 2, -1, -1):
            with suppress(OSError):
                names[at].replace(names[at + 1])

    def close(self) -> None:
        os.close(self._descriptor)


class _Writer:
    """One sink, its bounded queue and its thread."""

    def __init__(self, sink: Sink, limit: int, metrics: Metrics) -> None:
        self._sink = sink
        self._limit = limit
        self._lines: deque[bytes] = deque()
        self._wake = threading.Event()
        self._stop = False
        self._torn = False
        self._fault: str | None = None
        """Why lines are being lost, as it was logged; None while none is."""
        self._written: Counter
        self._lost: Counter
        self._written, self._lost = metrics.audit_sink(sink.name, lambda: len(self._lines))
        self._thread = threading.Thread(target=self._run, name=f"audit-{sink.name}", daemon=True)
        self._thread.start()

    def put(self, line: bytes) -> None:
        lines = self._lines
        if len(lines) >= self._limit:
            self._lost.inc()
            self._lose(f"it takes none, and {self._limit} wait already")
            return
        lines.append(line)
        if not self._wake.is_set():
            self._wake.set()

    def close(self, timeout: float) -> None:
        self._stop = True
        self._wake.set()
        self._thread.join(timeout)
        left = len(self._lines)
        if left:
            self._lost.inc(left)

    def _run(self) -> None:
        while True:
            self._wake.wait()
            if not self._stop:
                time.sleep(_BATCH_SECONDS)
            # Cleared before the queue is read: a line that comes in between wakes us again.
            self._wake.clear()
            self._drain()
            if self._stop:
                self._drain()
                self._sink.close()
                return

    def _drain(self) -> None:
        """Write what is queued now; what comes in meanwhile waits for the next time."""
        lines = self._lines
        left = len(lines)
        while left:
            batch = [lines.popleft() for _ in range(min(left, 1024))]
            left -= len(batch)
            data = b"".join(batch)
            if self._torn:
                data = b"\n" + data
            try:
                self._sink.write(data)
            except OSError as error:
                self._torn = True
                self._lost.inc(len(batch))
                self._lose(error.strerror or str(error))
            else:
                self._torn = False
                self._written.inc(len(batch))
                if self._fault is not None:
                    self._fault = None
                    _log.info("audit lines are written to %s again", self._sink.name)

    def _lose(self, why: str) -> None:
        """Said once, until lines are written again."""
        if self._fault is None:
            self._fault = why
            _log.error("audit lines are lost, requests are answered all the same: %s: %s", self._sink.name, why)


class AuditLog:
    """Queues lines for every sink; never blocks, never raises."""

    def __init__(self, sinks: Sequence[Sink], metrics: Metrics, limit: int = 8192) -> None:
        self._writers = tuple(_Writer(sink, limit, metrics) for sink in sinks)

    def write(self, record: dict[str, Any]) -> None:
        """Queue one record."""
        line = orjson.dumps(record, option=_OPTIONS)
        if not line.isascii() or b"\x7f" in line or b"##[" in line:
            line = json_printable(line.decode()).encode()
        for writer in self._writers:
            writer.put(line)

    def close(self, timeout: float = 2.0) -> None:
        """Write what is queued, for at most ``timeout`` seconds a sink."""
        for writer in self._writers:
            writer.close(timeout)


def decision_record(
    request: Request, decision: Decision, generated: bool, seconds: float, trace: str
) -> dict[str, Any]:
    """The line of a verdict. ``generated`` says that the name is a generateName; ``seconds`` is what it took."""
    record = _head("validate", request, generated, trace)
    record["runtime"] = decision.runtime or _runtime(request)
    record["verdict"] = decision.verdict
    if decision.judged or decision.findings:
        record["wouldBe"] = decision.would_be
    record["mode"] = decision.mode
    record["findings"] = _findings(decision.findings, f"{request.kind}/{request.name}")
    record["patched"] = []
    facts = decision.facts
    record["facts"] = {
        "nodes": facts.nodes,
        "directory": _clip(facts.directory),
        "volume": _clip(facts.volume),
        "claim": _clip(facts.claim),
        "storage": facts.storage,
        "program": _program(facts.program),
    }
    if decision.release is not None:
        record["trainer"] = decision.release
    if decision.broken:
        record["broken"] = decision.broken
    if len(decision.findings) > LIST_LIMIT:
        record["truncated"] = True
    return _tail(record, seconds, decision.policy_hash)


def deletion_record(deletion: Deletion, decision: Decision, trace: str) -> dict[str, Any]:
    """The line of a DELETE that somebody was told something about."""
    record = _head("validate", deletion, False, trace)
    record["runtime"] = None
    record["verdict"] = decision.verdict
    record["mode"] = decision.mode
    record["findings"] = _findings(decision.findings, f"{deletion.kind}/{deletion.name}")
    record["patched"] = []
    record["facts"] = None
    return _tail(record, 0.0, decision.policy_hash)


def patch_record(
    request: Request, defaulted: Defaulted, generated: bool, seconds: float, policy_hash: str, trace: str
) -> dict[str, Any]:
    """The line of ``/mutate``: which paths it changed, never to what."""
    record = _head("mutate", request, generated, trace)
    record["runtime"] = _runtime(request)
    record["verdict"] = "allow"
    record["mode"] = defaulted.mode
    record["findings"] = _findings(defaulted.findings, f"{request.kind}/{request.name}")
    record["patched"] = [_clip(str(edit.get("path", ""))) for edit in defaulted.patch[:LIST_LIMIT]]
    record["facts"] = None
    if defaulted.applied:
        record["defaults"] = defaulted.applied
    if defaulted.broken:
        record["broken"] = defaulted.broken
    if len(defaulted.patch) > LIST_LIMIT or len(defaulted.findings) > LIST_LIMIT:
        record["truncated"] = True
    return _tail(record, seconds, policy_hash)


def took(record: dict[str, Any], seconds: float) -> dict[str, Any]:
    """The record with the time that its request took."""
    record["durationMs"] = round(seconds * 1000, 3)
    return record


def _head(webhook: str, request: Request | Deletion, generated: bool, trace: str) -> dict[str, Any]:
    record: dict[str, Any] = {
        "schema": SCHEMA,
        "time": datetime.now(UTC),
        "webhook": webhook,
        "uid": _clip(request.uid),
        "dryRun": request.dry_run,
        "user": _clip(request.user),
        "operation": request.operation,
        "kind": request.kind,
        "namespace": _clip(request.namespace),
        "generateName" if generated else "name": _clip(request.name),
    }
    if trace:
        record["traceparent"] = trace
    return record


def _runtime(request: Request) -> str | None:
    """What the TrainJob refers to, a runtime itself; None where the object does not say."""
    if request.kind != "TrainJob":
        return f"{request.kind}/{_clip(request.name)}"
    spec = request.object.get("spec")
    reference = spec.get("runtimeRef") if type(spec) is dict else None
    if type(reference) is not dict or type(name := reference.get("name")) is not str or not name:
        return None
    return _clip(f"{reference.get('kind') or 'ClusterTrainingRuntime'}/{name}")


def _tail(record: dict[str, Any], seconds: float, policy_hash: str) -> dict[str, Any]:
    record["durationMs"] = round(seconds * 1000, 3)
    record["policyHash"] = policy_hash
    record["version"] = __version__
    return record


def _findings(findings: Sequence[Judged], own: str) -> list[dict[str, Any]]:
    told = []
    for finding in findings[:LIST_LIMIT]:
        entry: dict[str, Any] = {
            "rule": finding.rule,
            "severity": finding.severity.value,
            "at": _clip(place(finding, own)) or "",
        }
        if finding.weight is not None:
            _weight(entry, finding.severity, finding.weight)
        if finding.private:
            entry["private"] = _clip(finding.private) or ""
        told.append(entry)
    return told


def _weight(entry: dict[str, Any], severity: Severity, weight: Weight) -> None:
    """How a finding came to its severity, as far as the severity alone does not say it."""
    if weight.enforced is not severity:
        entry["enforced"] = weight.enforced.value
    if weight.own is not weight.enforced:
        entry["own"] = weight.own.value
    if weight.most is not None:
        entry["most"] = weight.most.value
    if weight.required:
        entry["required"] = True
    if (measure := weight.measure) is not None:
        bounds = (("floor", measure.floor), ("ceiling", measure.ceiling))
        entry["measure"] = {
            "value": measure.value,
            **{name: bound for name, bound in bounds if bound is not None},
            "unit": measure.unit,
        }
    if (excuse := weight.excuse) is not None:
        entry["exception"] = {
            "reason": _clip(excuse.reason),
            "owner": _clip(excuse.owner),
            "until": excuse.until,
            "from": excuse.source,
        }


def _program(fact: ProgramFact | None) -> dict[str, Any] | None:
    if fact is None:
        return None
    return {"state": fact.state, "path": _clip(fact.path), "line": fact.line, "reason": _clip(fact.reason)}


def _clip(text: str | None) -> str | None:
    if text is None or len(text) <= TEXT_LIMIT:
        return text
    return text[: TEXT_LIMIT - 1] + "…"


def _write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]
