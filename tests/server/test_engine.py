"""The server with the real engine: captured reviews, patches that apply and settle, fuzzed bodies.

``CKPTGUARD_FUZZ=100000`` sets the number of fuzzed bodies.
"""

from __future__ import annotations

import base64
import copy
import json
import os
import random
from pathlib import Path
from typing import Any

import jsonpatch
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.server.serving import UID, Lines, body_of, captures, review
from webhook.audit import AuditLog
from webhook.bootstrap import NothingKnown
from webhook.decision import default_object, review_object
from webhook.metrics import Metrics
from webhook.model.cluster import Gap, Runtime
from webhook.model.policy import Policy
from webhook.server.admission import Admission, FixedViews
from webhook.server.gate import Gate

EXAMPLES = int(os.environ.get("CKPTGUARD_FUZZ", "3000"))
RUNTIME = Runtime(
    "ClusterTrainingRuntime",
    "",
    "torch",
    {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "ClusterTrainingRuntime",
        "metadata": {"name": "torch"},
        "spec": {
            "mlPolicy": {"numNodes": 2, "torch": {}},
            "template": {
                "spec": {
                    "replicatedJobs": [
                        {
                            "name": "node",
                            "template": {
                                "metadata": {"labels": {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}},
                                "spec": {
                                    "template": {
                                        "spec": {"containers": [{"name": "node", "image": "example.com/train"}]}
                                    }
                                },
                            },
                        }
                    ]
                }
            },
        },
    },
    {},
)


class OneRuntime(NothingKnown):
    """Knows one runtime under every name."""

    def runtime(self, kind: str, namespace: str, name: str) -> Runtime | Gap:
        return RUNTIME


class Guard:
    """The engine behind the envelope, without the wire."""

    def __init__(self) -> None:
        self.metrics = Metrics(process=False)
        self.lines = Lines()
        self.audit = AuditLog([self.lines], self.metrics, 1)
        policy = Policy()
        self.admission = Admission(
            default_object, review_object, FixedViews(OneRuntime()), lambda: policy, self.audit, self.metrics, Gate()
        )

    def ask(self, path: str, body: bytes) -> tuple[int, dict[str, Any]]:
        answer = self.admission.answer(path, body)
        assert isinstance(answer, tuple)
        return answer[0], json.loads(answer[1])

    def mutate(self, value: Any) -> list[dict[str, Any]]:
        code, answer = self.ask("/mutate", body_of(value))
        assert code == 200
        assert answer["response"]["allowed"] is True
        patch = answer["response"].get("patch")
        return json.loads(base64.b64decode(patch)) if patch else []

    def broken(self) -> dict[str, float]:
        """Parts of ours that raised."""
        return {
            sample.labels["part"]: sample.value
            for family in self.metrics.registry.collect()
            for sample in family.samples
            if sample.name == "ckptguard_broken_total"
        }


@pytest.fixture(scope="module")
def guard() -> Guard:
    return Guard()


@pytest.mark.parametrize("path", captures(), ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_captured(guard: Guard, path: Path) -> None:
    captured = json.loads(path.read_bytes())
    request = captured["request"]
    patch = guard.mutate(captured)
    after = jsonpatch.apply_patch(request["object"], patch)
    assert guard.mutate(captured | {"request": request | {"object": after}}) == []
    code, answer = guard.ask("/validate", body_of(captured | {"request": request | {"object": after}}))
    assert code == 200
    assert answer["response"]["uid"] == request["uid"]
    assert guard.broken() == {}


def test_captures_are_there() -> None:
    if not captures():
        pytest.skip("no folder ../shared beside the project")
    assert len(captures()) >= 20


SEEDS = [path.read_bytes() for path in captures()] or [
    body_of(review()),
    body_of(review(RUNTIME.raw, kind="ClusterTrainingRuntime")),
    body_of(review(operation="UPDATE", oldObject=review()["request"]["object"])),
]
VALUES: list[Any] = [
    None,
    True,
    0,
    -1,
    2**63,
    1e400,
    "",
    "x",
    "\u0000",
    "\ud800",
    "$(CKPT_DIR)",
    "/mnt/ckpt",
    [],
    [None],
    ["x"],
    [[]],
    {},
    {"": None},
    {"name": "node"},
    [{"name": "CKPT_DIR", "value": "/mnt/ckpt"}],
    [{"name": "node", "volumeMounts": [{"name": "a", "mountPath": "/mnt"}]}],
]
KEYS = ["metadata", "spec", "name", "env", "volumes", "template", "trainer", "value", "valueFrom", "subPath", "kind"]


def places(value: Any, out: list[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
    """Every (container, key) of a JSON value."""
    if isinstance(value, dict):
        for key, inner in value.items():
            out.append((value, key))
            places(inner, out)
    elif isinstance(value, list):
        for key, inner in enumerate(value):
            out.append((value, key))
            places(inner, out)
    return out


def garbled(seed: int) -> bytes:
    """A captured review with some of its values or bytes changed."""
    dice = random.Random(seed)
    body = dice.choice(SEEDS)
    if dice.random() < 0.7:
        value = json.loads(body)
        start = value if dice.random() < 0.2 else value["request"]
        for _ in range(dice.choice((1, 1, 1, 2, 5))):
            where, key = dice.choice(places(start, []))
            action = dice.random()
            if action < 0.5:
                where[key] = copy.deepcopy(dice.choice(VALUES))
            elif action < 0.6:
                where[key] = copy.deepcopy(where[dice.choice(list(where))] if isinstance(where, dict) else where)
            elif action < 0.8:
                del where[key]
                if not where and start is value:
                    break
            elif isinstance(where, dict):
                where[dice.choice(KEYS)] = copy.deepcopy(where[key])
            else:
                where.insert(0, copy.deepcopy(dice.choice(VALUES)))
            if not places(start, []):
                break
        body = json.dumps(value).encode()
    if dice.random() < 0.4:
        data = bytearray(body)
        for _ in range(dice.choice((1, 1, 2, 8))):
            at = dice.randrange(len(data) + 1)
            action = dice.random()
            if action < 0.4:
                data[at : at + 1] = bytes([dice.randrange(256)])
            elif action < 0.7:
                data[at : at + dice.randrange(1, 40)] = b""
            elif action < 0.9:
                data[at:at] = dice.choice(
                    (b'"', b"{", b"[", b"}", b"\\", b"\\ud800", b"[" * 300, b"\x00", b"\xff", b",", b"1e999")
                )
            else:
                del data[at:]
        body = bytes(data)
    return body


def uid_in(body: bytes) -> str | None:
    """The uid as another reader of JSON finds it; None where there is none or the body is none."""
    try:
        value = json.loads(body.decode("utf-8", "replace"))
        uid = value["request"]["uid"]
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
    return uid.encode("utf-16", "surrogatepass").decode("utf-16", "replace") if isinstance(uid, str) else None


@settings(max_examples=EXAMPLES, deadline=None, database=None, suppress_health_check=list(HealthCheck))
@given(seed=st.integers(0, 2**63), path=st.sampled_from(["/mutate", "/validate"]))
def test_fuzzed(guard: Guard, seed: int, path: str) -> None:
    body = garbled(seed)
    before = guard.broken()
    code, answer = guard.ask(path, body)
    if code == 400:
        assert list(answer) == ["error"]
        return
    assert code == 200
    response = answer["response"]
    assert response["uid"] == uid_in(body)
    assert response["allowed"] or path == "/validate"
    for warning in response.get("warnings", ()):
        assert len(warning) <= 120
        assert warning.isprintable()
    if "patch" in response:
        obj = json.loads(body.decode("utf-8", "replace"))["request"]["object"]
        jsonpatch.apply_patch(obj, json.loads(base64.b64decode(response["patch"])))
    assert guard.broken() == before, body


@settings(max_examples=EXAMPLES // 10, deadline=None, database=None, suppress_health_check=list(HealthCheck))
@given(body=st.binary(max_size=200))
def test_any_bytes(guard: Guard, body: bytes) -> None:
    code, answer = guard.ask("/validate", body)
    assert code == 400
    assert list(answer) == ["error"]


def test_a_huge_argument(guard: Guard) -> None:
    spec = {"runtimeRef": {"name": "torch"}, "trainer": {"args": ["$(A)" * 2**18], "command": ["python " * 2**17]}}
    obj = {"metadata": {"name": "run"}, "spec": spec}
    for path in ("/mutate", "/validate"):
        code, answer = guard.ask(path, body_of(review(obj)))
        assert code == 200
        assert answer["response"]["uid"] == UID
