"""The table of answers, over a real connection, by the fast lane and by ASGI."""

from __future__ import annotations

import base64
import json
from typing import Any

import jsonpatch
import pytest

from tests.golden import Capture, captures
from tests.server.serving import PATCH, UID, Running, body_of, message, review, serving
from tests.server.test_lane import SlowViews, wait_for
from webhook.server.gate import Gate

LANES = {"lane": (), "asgi": ("TE: trailers",)}


@pytest.fixture(params=LANES)
def by(request: pytest.FixtureRequest) -> tuple[str, ...]:
    """Headers that send a request down one way or the other."""
    return LANES[request.param]


@pytest.mark.parametrize("path", ["/mutate", "/validate", "/mutate?timeout=10s"])
def test_allowed_with_uid(running: Running, by: tuple[str, ...], path: str) -> None:
    answer = running.post(path, review(), *by)
    assert answer.code == 200
    assert answer.headers["content-type"] == "application/json"
    assert "date" in answer.headers
    assert answer.response["uid"] == UID
    assert answer.response["allowed"] is True


def test_a_wish_to_upgrade_is_passed_over(running: Running) -> None:
    """As curl --http2 says it over plain HTTP; the body of the request is not lost by it."""
    wish = ("Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABkAAQAoAAAAAIAAAAA")
    with running.wire() as wire:
        for _ in range(2):
            wire.send(message("/validate", json.dumps(review()).encode(), *wish))
            assert wire.answer().response["uid"] == UID


def test_patch(running: Running, by: tuple[str, ...]) -> None:
    response = running.post("/mutate", review(), *by).response
    assert response["patchType"] == "JSONPatch"
    assert json.loads(base64.b64decode(response["patch"])) == list(PATCH)


def test_denial(running: Running, by: tuple[str, ...]) -> None:
    obj = {"metadata": {"name": "bad"}}
    response = running.post("/validate", review(obj, name="bad"), *by).response
    assert response["allowed"] is False
    assert response["status"]["code"] == 403
    assert response["status"]["reason"] == "Forbidden"
    assert '"ckpt" is an emptyDir [ephemeral-checkpoint]' in response["status"]["message"]
    assert "warnings" not in response
    assert response["auditAnnotations"] == {
        "verdict": "deny",
        "rules": "ephemeral-checkpoint",
        "directory": "/mnt/ckpt/run",
        "claim": "train-ckpt",
        "policy": "built-in",
    }


PASSED: dict[str, dict[str, Any]] = {
    "other kind": review(kind="Pod"),
    "other group": review()
    | {"request": review()["request"] | {"kind": {"group": "apps", "version": "v1alpha1", "kind": "TrainJob"}}},
    "other version": review()
    | {
        "request": review()["request"]
        | {"kind": {"group": "trainer.kubeflow.org", "version": "v2", "kind": "TrainJob"}}
    },
    "kind of a wrong type": review() | {"request": review()["request"] | {"kind": "TrainJob"}},
    "kind name of a wrong type": review()
    | {"request": review()["request"] | {"kind": {"group": "trainer.kubeflow.org", "version": "v1alpha1", "kind": {}}}},
    "delete": review(None, "DELETE"),
    "delete with object": review(operation="DELETE"),
    "connect": review(operation="CONNECT"),
    "object null": review(None),
    "operation of a wrong type": review(operation={"a": 1}),
    "no operation": review(operation=None),
    "subresource": review(operation="UPDATE", subResource="status"),
}


@pytest.mark.parametrize("name", PASSED)
@pytest.mark.parametrize("path", ["/mutate", "/validate"])
def test_nothing_to_decide(running: Running, by: tuple[str, ...], name: str, path: str) -> None:
    before = len(running.engine.seen)
    answer = running.post(path, PASSED[name], *by)
    assert answer.code == 200
    assert answer.response == {"uid": UID, "allowed": True}
    assert len(running.engine.seen) == before


MALFORMED: dict[str, tuple[dict[str, Any], str]] = {
    "object a string": (review("x"), "object"),
    "object a list": (review([1]), "object"),
    "object a number": (review(7), "object"),
    "object false": (review(False), "object"),
    "metadata a string": (review({"metadata": "x"}), "metadata"),
    "name a list": (review({"metadata": {"name": ["x"]}}), "metadata.name"),
    "generateName an object": (review({"metadata": {"generateName": {}}}), "metadata.generateName"),
    "oldObject a string": (review(operation="UPDATE", oldObject="x"), "oldObject"),
    "oldObject's metadata a number": (review(operation="UPDATE", oldObject={"metadata": 1}), "oldObject.metadata"),
}


@pytest.mark.parametrize("name", MALFORMED)
@pytest.mark.parametrize("path", ["/mutate", "/validate"])
def test_malformed_object(running: Running, by: tuple[str, ...], name: str, path: str) -> None:
    value, field = MALFORMED[name]
    answer = running.post(path, value, *by)
    assert answer.code == 200
    assert answer.response["uid"] == UID
    assert answer.response["allowed"] is True
    (warning,) = answer.response["warnings"]
    assert warning.endswith(f" [malformed-object] ({field})")


REFUSED: dict[str, tuple[bytes, str]] = {
    "empty": (b" ", "not JSON"),
    "text": (b"hello", "not JSON"),
    "truncated": (json.dumps(review()).encode()[:-5], "not JSON"),
    "two documents": (b"{}{}", "not JSON"),
    "no object": (b"[]", "not an AdmissionReview"),
    "null": (b"null", "not an AdmissionReview"),
    "other kind": (b'{"kind":"Status","apiVersion":"v1"}', "not an AdmissionReview"),
    "v1beta1": (
        json.dumps(review() | {"apiVersion": "admission.k8s.io/v1beta1"}).encode(),
        "not of admission.k8s.io/v1",
    ),
    "no request": (json.dumps(review() | {"request": None}).encode(), "no request"),
    "request a string": (json.dumps(review() | {"request": "x"}).encode(), "no request"),
    "no uid": (json.dumps(review(uid=None)).encode(), "no uid"),
    "uid empty": (json.dumps(review(uid="")).encode(), "no uid"),
    "uid a number": (json.dumps(review(uid=7)).encode(), "no uid"),
    "bytes": (bytes(range(256)), "not JSON"),
    "NUL byte": (json.dumps(review()).encode().replace(b"team", b"te\x00m"), "not JSON"),
    "nested 10,000 deep": (b'{"a":' * 10_000 + b"1" + b"}" * 10_000, "nested deeper than 256"),
    "nested 10,000 deep, unclosed": (b"[" * 10_000, "nested deeper than 256"),
    "nested 257 deep": (
        json.dumps(review({"spec": 0})).encode().replace(b'"spec": 0', b'"spec": ' + b"[" * 254 + b"]" * 254),
        "nested deeper than 256",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_no_review(running: Running, by: tuple[str, ...], name: str) -> None:
    body, words = REFUSED[name]
    answer = running.post("/validate", body, *by)
    assert answer.code == 400
    assert words in answer.error


def test_nested_as_deep_as_allowed(running: Running, by: tuple[str, ...]) -> None:
    body = json.dumps(review({"spec": 0})).encode().replace(b'"spec": 0', b'"spec": ' + b"[" * 253 + b"]" * 253)
    assert running.post("/validate", body, *by).code == 200


def test_duplicate_keys_last_wins(running: Running, by: tuple[str, ...]) -> None:
    body = json.dumps(review()).encode().replace(b'"uid"', b'"uid": "first", "uid"', 1)
    assert running.post("/validate", body, *by).response["uid"] == UID
    body = json.dumps(review()).encode().replace(b'"object"', b'"object": "first", "object"', 1)
    assert "warnings" not in running.post("/validate", body, *by).response


@pytest.mark.parametrize(
    "text",
    ["\\u0000", "\\ud800", "\\udfff", "\\ud800\\ud800", "\\\\ud800", "\\ud83d\\ude00", "\\ud83dx", "é", "\\\\\\ud800"],
)
def test_strange_text_keeps_the_uid(running: Running, by: tuple[str, ...], text: str) -> None:
    body = json.dumps(review({"metadata": {"name": "run"}, "spec": {"x": "@"}})).encode().replace(b"@", text.encode())
    answer = running.post("/validate", body, *by)
    assert answer.code == 200
    assert answer.response["uid"] == UID
    expected = json.loads(f'"{text}"').encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    assert running.engine.seen[-1].object["spec"]["x"] == expected


def test_bytes_that_are_no_utf8_are_read_as_go_reads_them(running: Running, by: tuple[str, ...]) -> None:
    body = json.dumps(review({"spec": {"x": "@"}})).encode().replace(b"@", b"\xff")
    assert running.post("/validate", body, *by).response["uid"] == UID
    assert running.engine.seen[-1].object["spec"]["x"] == "\ufffd"


def test_arguments_of_a_mebibyte(running: Running, by: tuple[str, ...]) -> None:
    obj = {"metadata": {"name": "run"}, "spec": {"trainer": {"args": ["a" * 2**20, "b" * 2**20]}}}
    answer = running.post("/validate", review(obj, "UPDATE", oldObject=obj), *by)
    assert answer.code == 200
    assert answer.response["uid"] == UID


@pytest.mark.parametrize("kind", ["text/plain", "application/yaml", "application/jsonp", "", None])
def test_other_content_type(running: Running, by: tuple[str, ...], kind: str | None) -> None:
    answer = running.post("/mutate", review(), *by, kind=kind)
    assert answer.code == 415
    assert "application/json" in answer.error


@pytest.mark.parametrize("kind", ["application/json; charset=utf-8", "Application/JSON", "application/json;x=y"])
def test_json_with_parameters(running: Running, by: tuple[str, ...], kind: str) -> None:
    assert running.post("/mutate", review(), *by, kind=kind).code == 200


def test_too_large(running: Running, by: tuple[str, ...]) -> None:
    limit = 7 * 1024 * 1024
    fits = json.dumps(review({"spec": ""})).encode()
    fits = fits.replace(b'"spec": ""', b'"spec": "' + b"x" * (limit - len(fits)) + b'"')
    assert len(fits) == limit
    assert running.post("/validate", fits, *by).code == 200
    answer = running.post("/validate", fits + b" ", *by)
    assert answer.code == 413
    assert str(limit) in answer.error


@pytest.mark.parametrize(
    "tail", [[b"1\r\n \r\n0\r\n\r\n"], [b"100000\r\n" + b" " * 2**20 + b"\r\n", b"0\r\n\r\n"], [b"1\r\n \r\n"]]
)
def test_too_large_in_chunks(tail: list[bytes]) -> None:
    """By the last byte, by a chunk that is not the last, and with no end at all."""
    head = "POST /mutate HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
    chunk = b"100000\r\n" + b" " * 2**20 + b"\r\n"
    with serving(body_seconds=0.5) as running, running.wire() as wire:
        wire.send(head.encode(), *[chunk] * 7, *tail, pause=0)
        assert wire.answer().code == 413


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "HEAD"])
def test_other_method(running: Running, method: str) -> None:
    with running.wire() as wire:
        wire.send(message("/mutate", b"", method=method))
        if method == "HEAD":
            assert wire.socket.recv(12) == b"HTTP/1.1 405"
            return
        answer = wire.answer()
    assert answer.code == 405
    assert answer.headers["allow"] == "POST"
    assert answer.error


@pytest.mark.parametrize("path", ["/", "/mutate/", "/docs", "/openapi.json", "/validate/x", "/nope"])
def test_other_path(running: Running, path: str) -> None:
    answer = running.post(path, review())
    assert answer.code == 404
    assert answer.error == "not found"


def test_health(running: Running) -> None:
    assert running.get("/healthz").body == b"ok\n"
    assert running.get("/readyz").code == 200
    answer = running.get("/metrics")
    assert answer.code == 200
    assert answer.headers["content-type"].startswith("text/plain")
    assert b"ckptguard_webhook_requests_total{" in answer.body


def test_not_http_is_answered_in_json(running: Running) -> None:
    with running.wire() as wire:
        wire.send(b"\x16\x03\x01 hello\r\n\r\n")
        answer = wire.answer()
    assert answer.code == 400
    assert answer.error


@pytest.mark.parametrize("path", ["/mutate", "/validate"])
def test_a_fault_of_ours_lets_it_through(by: tuple[str, ...], path: str) -> None:
    with serving() as running:
        answer = running.post(path, review({"metadata": {"name": "broken"}}), *by)
        assert answer.code == 200
        assert answer.response["uid"] == UID
        assert answer.response["allowed"] is True
        (warning,) = answer.response["warnings"]
        assert " [broken-rule] (" in warning
        assert "no such thing" not in warning
        assert running.metrics.registry.get_sample_value("ckptguard_broken_total", {"part": "server"}) == 1
        (line,) = running.lines.records()
        assert line["uid"] == UID
        assert line["findings"][0]["rule"] == "broken-rule"


def test_too_many_at_once(by: tuple[str, ...]) -> None:
    with serving(gate=Gate(1, 1), views=SlowViews(0.4)) as running:
        with running.wire() as one, running.wire() as two:
            for wire in (one, two):
                wire.send(message("/mutate", body_of(review())))
            wait_for(lambda: running.gate.inside == 2)
            answer = running.post("/mutate", review(), *by)
            assert answer.code == 503
            assert int(answer.headers["retry-after"]) >= 1
            assert answer.error
            assert [wire.answer().code for wire in (one, two)] == [200, 200]
        wait_for(lambda: running.gate.inside == 0)
        assert running.post("/mutate", review(), *by).code == 200


@pytest.mark.parametrize("capture", captures(), ids=str)
def test_captured(running: Running, by: tuple[str, ...], capture: Capture) -> None:
    captured = capture.review
    for webhook in ("/mutate", "/validate"):
        answer = running.post(webhook, capture.body, *by)
        assert answer.code == 200
        assert answer.response["uid"] == captured["request"]["uid"]
    patch = json.loads(base64.b64decode(running.post("/mutate", capture.body).response["patch"]))
    assert jsonpatch.apply_patch(captured["request"]["object"], patch)
