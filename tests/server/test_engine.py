"""The server with the real engine: captured reviews, patches that apply and settle."""

from __future__ import annotations

import base64
import json
from typing import Any

import jsonpatch
import pytest

from tests.golden import Capture, captures
from tests.server.serving import UID, Lines, body_of, review
from webhook.audit import AuditLog
from webhook.bootstrap import NothingKnown
from webhook.decision import default_object, review_object
from webhook.metrics import Metrics
from webhook.model.cluster import Gap, Runtime
from webhook.model.policy import Policy
from webhook.server.admission import Admission, FixedViews
from webhook.server.gate import Gate

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
            if sample.name == "ckptguard_broken_total" and sample.value
        }


@pytest.fixture(scope="module")
def guard() -> Guard:
    return Guard()


@pytest.mark.parametrize("capture", captures(), ids=str)
def test_captured(guard: Guard, capture: Capture) -> None:
    captured = capture.review
    request = captured["request"]
    patch = guard.mutate(captured)
    after = jsonpatch.apply_patch(request["object"], patch)
    assert guard.mutate(captured | {"request": request | {"object": after}}) == []
    code, answer = guard.ask("/validate", body_of(captured | {"request": request | {"object": after}}))
    assert code == 200
    assert answer["response"]["uid"] == request["uid"]
    assert guard.broken() == {}


def test_a_huge_argument(guard: Guard) -> None:
    spec = {"runtimeRef": {"name": "torch"}, "trainer": {"args": ["$(A)" * 2**18], "command": ["python " * 2**17]}}
    obj = {"metadata": {"name": "run"}, "spec": spec}
    for path in ("/mutate", "/validate"):
        code, answer = guard.ask(path, body_of(review(obj)))
        assert code == 200
        assert answer["response"]["uid"] == UID


@pytest.mark.parametrize(
    ("metadata", "field", "name"),
    [
        ({"name": "run-x7", "generateName": "run-"}, "name", "run-x7"),
        ({"generateName": "run-"}, "generateName", "run-"),
        ({}, "name", "run"),
        (None, "name", "run"),
    ],
)
def test_audit_line_names_the_object(metadata: Any, field: str, name: str) -> None:
    """By the name that it has, the one that it will get, or the one that the request gives."""
    guard = Guard()
    guard.ask("/validate", body_of(review({"metadata": metadata, "spec": {"runtimeRef": {"name": "torch"}}})))
    (line,) = guard.lines.records()
    assert {key: line[key] for key in ("name", "generateName") if key in line} == {field: name}
