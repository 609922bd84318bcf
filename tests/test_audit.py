"""Audit lines: what stands in them, and a sink that must never hold anything up."""

from __future__ import annotations

import json
import os
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from tests.server.serving import DENIED, Lines, nobody_reads
from webhook import __version__
from webhook.audit import SCHEMA, AuditLog, DescriptorSink, FileSink, decision_record, patch_record
from webhook.metrics import Metrics
from webhook.model.excuse import Excuse
from webhook.model.finding import Judged, Measure, Origin, Severity, Weight
from webhook.model.request import Request
from webhook.model.script import ProgramFact
from webhook.model.verdict import Decision, Defaulted, Facts

REQUEST = Request("UPDATE", "TrainJob", "team", "run", {}, {}, "ada", ("dev",), True, "uid-1")
TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def value(metrics: Metrics, name: str, sink: str = "lines") -> float:
    return metrics.registry.get_sample_value(name, {"sink": sink}) or 0


def wait_until(true: Any, seconds: float = 20) -> None:
    until = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < until
        time.sleep(0.005)


def written(record: dict[str, Any]) -> dict[str, Any]:
    """The record as a reader of the log sees it."""
    lines = Lines()
    log = AuditLog([lines], Metrics(process=False))
    log.write(record)
    log.close()
    assert lines.closed
    assert lines.data.endswith(b"\n")
    (line,) = lines.records()
    return line


def test_decision_line() -> None:
    private = Judged(
        "node-local-checkpoint",
        Severity.WARN,
        Origin("TrainingRuntime/r", "spec.template", "r"),
        "problem",
        "why",
        "fix",
        private="PersistentVolume pv-1 on node n1",
    )
    decision = Decision(
        "deny",
        (DENIED, private),
        Facts(2, "/ckpt/run", "ckpt", "train-ckpt", "ephemeral", ProgramFact("in-image", "/app/train.py")),
        "enforce",
        "TrainingRuntime/r",
        "2.3",
        "abc",
        ("shared-directory",),
        would_be="deny",
    )
    line = written(decision_record(REQUEST, decision, False, 0.00123456, TRACE))
    assert line.pop("time").endswith("Z")
    assert line == {
        "schema": SCHEMA,
        "webhook": "validate",
        "uid": "uid-1",
        "dryRun": True,
        "user": "ada",
        "operation": "UPDATE",
        "kind": "TrainJob",
        "namespace": "team",
        "name": "run",
        "traceparent": TRACE,
        "runtime": "TrainingRuntime/r",
        "verdict": "deny",
        "wouldBe": "deny",
        "mode": "enforce",
        "findings": [
            {"rule": "ephemeral-checkpoint", "severity": "deny", "at": "spec.runtimePatches[0]"},
            {
                "rule": "node-local-checkpoint",
                "severity": "warn",
                "at": "TrainingRuntime/r spec.template",
                "private": "PersistentVolume pv-1 on node n1",
            },
        ],
        "patched": [],
        "facts": {
            "nodes": 2,
            "directory": "/ckpt/run",
            "volume": "ckpt",
            "claim": "train-ckpt",
            "storage": "ephemeral",
            "program": {"state": "in-image", "path": "/app/train.py", "line": None, "reason": None},
        },
        "trainer": "2.3",
        "broken": ["shared-directory"],
        "durationMs": 1.235,
        "policyHash": "abc",
        "version": __version__,
    }


def test_patch_line_has_paths_and_no_values() -> None:
    patch = ({"op": "add", "path": "/spec/trainer/env/-", "value": {"name": "TOKEN", "value": "hunter2"}},)
    line = written(patch_record(REQUEST, Defaulted(patch, {}, applied=("variables",)), True, 0.001, "abc", ""))
    assert line["patched"] == ["/spec/trainer/env/-"]
    assert line["generateName"] == "run"
    assert "name" not in line
    assert line["defaults"] == ["variables"]
    assert "hunter2" not in json.dumps(line)
    assert "traceparent" not in line


@pytest.mark.parametrize(
    ("kind", "spec", "runtime"),
    [
        ("TrainJob", {"runtimeRef": {"kind": "TrainingRuntime", "name": "r"}}, "TrainingRuntime/r"),
        ("TrainJob", {"runtimeRef": {"name": "torch"}}, "ClusterTrainingRuntime/torch"),
        ("TrainJob", {"runtimeRef": None}, None),
        ("TrainJob", {"runtimeRef": {"name": 3}}, None),
        ("TrainJob", "spec", None),
        ("TrainingRuntime", {}, "TrainingRuntime/run"),
    ],
)
def test_runtime_is_told_where_nothing_was_judged(kind: str, spec: Any, runtime: str | None) -> None:
    """In ``/mutate``, in mode ``off``, while an object is being deleted."""
    request = Request("UPDATE", kind, "team", "run", {"spec": spec})
    assert patch_record(request, Defaulted((), {}), False, 1, "", "")["runtime"] == runtime
    assert decision_record(request, Decision("allow", mode="off"), False, 1, "")["runtime"] == runtime


def test_documented() -> None:
    """Every field of both kinds of line stands in docs/audit-log.md."""
    text = (Path(__file__).parents[1] / "docs" / "audit-log.md").read_text()
    decision = Decision("deny", (DENIED,) * 201, Facts(), release="2.3", broken=("x",))
    told = decision_record(REQUEST, decision, False, 1, TRACE)
    patched = patch_record(REQUEST, Defaulted((), {}, applied=("x",)), True, 1, "", "")
    for field in (*told, *patched, *told["findings"][0], *told["facts"], "private"):
        assert f"`{field}`" in text
    assert f"schema {SCHEMA}" in text


def test_how_a_finding_came_to_its_severity() -> None:
    """So that another policy can weigh it again."""
    excuse = Excuse(("short-grace",), "scratch", "team-a", "2027-01-01", 0.0, "exceptions[0]")
    weight = Weight(Severity.DENY, Severity.AUDIT, Severity.WARN, True, excuse, Measure(30, "s", floor=60))
    at = Origin("TrainJob/run", "spec.x", "x")
    one = Judged("short-grace", Severity.AUDIT, at, "p", "w", "f", weight=weight)
    plain = Judged("a", Severity.WARN, at, "p", "w", "f", weight=Weight(Severity.WARN, Severity.WARN))
    lowered = Judged("b", Severity.WARN, at, "p", "w", "f", weight=Weight(Severity.DENY, Severity.DENY))
    decision = Decision("warn", (one, plain, lowered), mode="warn", would_be="deny")
    line = written(decision_record(REQUEST, decision, False, 0.001, ""))
    assert line["wouldBe"] == "deny"
    assert line["findings"] == [
        {
            "rule": "short-grace",
            "severity": "audit",
            "at": "spec.x",
            "own": "deny",
            "most": "warn",
            "required": True,
            "measure": {"value": 30, "floor": 60, "unit": "s"},
            "exception": {"reason": "scratch", "owner": "team-a", "until": "2027-01-01", "from": "exceptions[0]"},
        },
        {"rule": "a", "severity": "warn", "at": "spec.x"},
        {"rule": "b", "severity": "warn", "at": "spec.x", "enforced": "deny"},
    ]
    text = (Path(__file__).parents[1] / "docs" / "audit-log.md").read_text()
    for field in (*line["findings"][0], *line["findings"][0]["measure"], *line["findings"][0]["exception"], "enforced"):
        assert f"`{field}`" in text
    assert "wouldBe" not in decision_record(REQUEST, Decision("allow", mode="off", judged=False), False, 1, "")


def test_a_file_is_rotated_where_it_is_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    sink = FileSink(path, 100, 2)
    for number in range(6):
        sink.write(f"{number}".encode() * 60 + b"\n")
    sink.close()
    assert sorted(file.name for file in tmp_path.iterdir()) == ["audit.log", "audit.log.1", "audit.log.2"]
    assert [(tmp_path / name).read_bytes()[:1] for name in ("audit.log", "audit.log.1", "audit.log.2")] == [
        b"5",
        b"4",
        b"3",
    ]
    large = FileSink(path, 10, 0)
    large.write(b"x" * 50)
    large.write(b"y" * 50)
    large.close()
    assert path.read_bytes() == b"y" * 50


def test_a_line_is_bounded() -> None:
    long = Decision("warn", (DENIED,) * 1000, Facts(directory="/" + "x" * 2**20))
    line = json.dumps(written(decision_record(REQUEST, long, False, 1, "")))
    assert len(line) < 40_000
    assert '"truncated": true' in line
    many = tuple({"op": "add", "path": "/" + "y" * 5000} for _ in range(1000))
    assert len(json.dumps(written(patch_record(REQUEST, Defaulted(many, {}), False, 1, "", "")))) < 300_000


def test_a_stalled_sink_costs_its_own_lines_alone() -> None:
    read, write = nobody_reads()
    metrics = Metrics(process=False)
    lines = Lines()
    log = AuditLog([DescriptorSink(write, "stdout"), lines], metrics, limit=50)
    slowest = 0.0
    for number in range(200):
        started = time.monotonic()
        log.write({"number": number})
        slowest = max(slowest, time.monotonic() - started)
        time.sleep(0.0005)
    assert slowest < 2  # a sink that is waited for would take for ever
    assert len(lines.records(200)) == 200
    assert value(metrics, "ckptguard_audit_lines_lost_total", "stdout") > 0
    assert value(metrics, "ckptguard_audit_lines_lost_total") == 0
    assert value(metrics, "ckptguard_audit_queue_length", "stdout") == 50
    # It goes on when somebody reads again.
    reader = threading.Thread(target=lambda: [os.read(read, 65536) for _ in range(100)], daemon=True)
    reader.start()
    wait_until(lambda: value(metrics, "ckptguard_audit_queue_length", "stdout") == 0)
    log.close()


class Failing(Lines):
    """A sink that fails for a while, as a full disk does."""

    def __init__(self) -> None:
        super().__init__()
        self.fails = True

    def write(self, data: bytes) -> None:
        if self.fails:
            super().write(data[:5])
            raise OSError(28, "No space left on device")
        super().write(data)


def test_a_failed_write_is_counted_and_tears_no_later_line() -> None:
    sink = Failing()
    metrics = Metrics(process=False)
    log = AuditLog([sink], metrics)
    log.write({"number": 1})
    wait_until(lambda: value(metrics, "ckptguard_audit_lines_lost_total") == 1)
    sink.fails = False
    log.write({"number": 2})
    log.close()
    assert sink.data.splitlines()[-1] == b'{"number":2}'
    assert value(metrics, "ckptguard_audit_lines_total") == 1


def test_file_is_appended_to_and_rotated(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    path.write_text("before\n")
    metrics = Metrics(process=False)
    log = AuditLog([FileSink(path)], metrics)
    log.write({"number": 1})
    wait_until(lambda: value(metrics, "ckptguard_audit_lines_total", "file") == 1)
    path.rename(tmp_path / "audit.log.1")
    log.write({"number": 2})
    log.close()
    assert (tmp_path / "audit.log.1").read_text() == 'before\n{"number":1}\n'
    assert path.read_text() == '{"number":2}\n'


def test_a_file_that_cannot_be_opened(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        FileSink(tmp_path / "none" / "audit.log")
