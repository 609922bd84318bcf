"""Garbled bodies against the real engine: never a 5xx, never a wrong uid, never slow, and memory stays level.

``CKPTGUARD_FUZZ=100000`` sets the number of bodies; each is asked on both paths. A failure names its seed:
``garbled(seed)`` is the body, ``OddCluster().draw(seed // 20)`` the cluster.
"""

from __future__ import annotations

import base64
import gc
import json
import os
import random
import time
from collections.abc import Iterable
from pathlib import Path

import jsonpatch
import pytest

from tests.server.fuzz import OddCluster, garbled, uid_in
from tests.server.serving import Lines
from webhook.audit import AuditLog
from webhook.decision import default_object, review_object
from webhook.message import LINE
from webhook.metrics import Metrics
from webhook.model.policy import Policy
from webhook.server.admission import Admission, FixedViews
from webhook.server.gate import Gate

BODIES = int(os.environ.get("CKPTGUARD_FUZZ", "1000"))
PER_CLUSTER = 20
SLOW_SECONDS = 1.0
"""Of processor time, for one answer. The API server waits ten; a body here has some tens of kilobytes."""
CACHES_KILOBYTES = 96 * 1024
"""What all that is kept of bodies seen before may come to, however many there are."""


class CountedMetrics(Metrics):
    """Says at once which part raised."""

    def __init__(self) -> None:
        super().__init__(process=False)
        self.parts: list[str] = []

    def broke(self, parts: Iterable[str]) -> None:
        parts = list(parts)
        self.parts += parts
        super().broke(parts)


class Nowhere(Lines):
    """Takes lines and keeps none: memory is watched here."""

    def write(self, data: bytes) -> None:
        assert data.endswith(b"\n")


def test_garbled_bodies() -> None:
    answer_garbled(BODIES)


@pytest.mark.full
@pytest.mark.skipif("CKPTGUARD_FUZZ" in os.environ, reason="so many bodies are asked for by number")
def test_a_million_garbled_bodies() -> None:
    answer_garbled(1_000_000)


def answer_garbled(bodies: int) -> None:
    """Each on both paths, against a cluster that changes with every twentieth."""
    metrics = CountedMetrics()
    cluster = OddCluster()
    policy = Policy()
    audit = AuditLog([Nowhere()], metrics, 8192)
    admission = Admission(default_object, review_object, FixedViews(cluster), lambda: policy, audit, metrics, Gate())
    slowest = (0.0, 0, "")
    codes: dict[int, int] = {}
    level = resident()
    for seed in range(bodies):
        if seed % PER_CLUSTER == 0:
            cluster.draw(seed // PER_CLUSTER)
        body = garbled(seed)
        for path in ("/mutate", "/validate"):
            started = time.thread_time()
            answered = admission.answer(path, body)
            spent = time.thread_time() - started
            slowest = max(slowest, (spent, seed, path))
            assert isinstance(answered, tuple), seed
            code, text = answered
            codes[code] = codes.get(code, 0) + 1
            answer = json.loads(text)
            if code == 400:
                assert list(answer) == ["error"], seed
                continue
            assert code == 200, seed
            response = answer["response"]
            assert response["uid"] == uid_in(body), seed
            assert response["allowed"] or path == "/validate", seed
            for warning in response.get("warnings", ()):
                assert len(warning) <= LINE, seed
                assert warning.isprintable(), seed
            if "patch" in response:
                obj = json.loads(body.decode("utf-8", "replace"))["request"]["object"]
                jsonpatch.apply_patch(obj, json.loads(base64.b64decode(response["patch"])))
            assert not metrics.parts, (seed, path, metrics.parts)
    audit.close(1)
    assert codes[200] > codes[400] > 0
    assert slowest[0] < SLOW_SECONDS, slowest
    grown = resident() - level
    print(f"{codes}, slowest {slowest[0] * 1e3:.1f} ms of seed {slowest[1]}, {grown / 1024:+.1f} MiB")
    assert grown < CACHES_KILOBYTES


def test_any_bytes() -> None:
    metrics = CountedMetrics()
    policy = Policy()
    audit = AuditLog([Nowhere()], metrics, 8192)
    admission = Admission(
        default_object, review_object, FixedViews(OddCluster()), lambda: policy, audit, metrics, Gate()
    )
    dice = random.Random(1)
    for _ in range(BODIES // 10):
        body = dice.randbytes(dice.randrange(200))
        answered = admission.answer("/validate", body)
        assert isinstance(answered, tuple)
        assert answered[0] == 400, body
        assert list(json.loads(answered[1])) == ["error"], body
    audit.close(1)


def resident() -> int:
    """Kilobytes of this process."""
    gc.collect()
    status = Path("/proc/self/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS:"))
