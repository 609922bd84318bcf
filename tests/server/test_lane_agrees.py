"""Whatever the fast lane takes, uvicorn's own protocol answers in the same way."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.server.serving import Running, review, serving

BODIES = [
    json.dumps(review()).encode(),
    json.dumps(review({"metadata": {"name": "bad"}})).encode(),
    json.dumps(review("x")).encode(),
    json.dumps(review(uid="")).encode(),
    b"{",
    b"x" * 20_000,
]
LINES = [b"POST /mutate HTTP/1.1", b"POST /validate HTTP/1.1", b"POST /validate?timeout=5s&a=%20 HTTP/1.1"]
ODD_LINES = [
    b"POST /mutate HTTP/1.0",
    b"GET /mutate HTTP/1.1",
    b"POST  /mutate HTTP/1.1",
    b"POST /mutate?a b HTTP/1.1",
    b"POST /mutate# HTTP/1.1",
]
HEADERS = [
    b"User-Agent: kube-apiserver",
    b"Accept: */*",
    b"ACCEPT-ENCODING:gzip",
    b"traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
    b"Connection: keep-alive",
    b"connection: Close",
    b"X-Empty:",
    b"X-High: \xff\xfe",
    b"Cookie: a=b;  c=d ",
    b"Transfer-Encoding: identity",
    b"TE: trailers",
    b"Upgrade-Insecure-Requests: 1",
    b"X-Tab:\ta",
]
ODD_HEADERS = [
    b"X Y: 1",
    b" folded",
    b"nothing",
    b": empty",
    b"X: \x00",
    b"Content-Length: 3",
    b"X: a\rb",
    b"X: a\nY: b",
    b"Host: again",
]


@pytest.fixture(scope="module")
def plain() -> Iterator[Running]:
    with serving(lane=False) as server:
        yield server


def stream(dice: random.Random) -> list[bytes]:
    """A few requests, the last of which asks for the end."""
    requests = []
    for last in (False, False, True):
        body = dice.choice(BODIES)
        lines = [dice.choice(LINES if dice.random() < 0.9 else ODD_LINES), b"Host: x"]
        headers = [b"Content-Type: application/json", b"Content-Length: %d" % len(body)]
        headers += dice.sample(HEADERS, dice.randrange(4))
        if dice.random() < 0.1:
            headers.append(dice.choice(ODD_HEADERS))
        if dice.random() < 0.05:
            headers.pop(0)
        dice.shuffle(headers)
        if last:
            headers.append(b"Connection: close")
        requests.append(b"\r\n".join([*lines, *headers, b"", b""]) + body)
        if dice.random() < 0.05:
            requests[-1] = dice.choice((b"\r\n", b"x", b"\x00")) + requests[-1]
    return requests


def heard(running: Running, requests: list[bytes], seed: int) -> list[tuple[int, bytes]]:
    """Codes and bodies, each request sent in pieces once the one before is answered, until the connection ends.

    What is no HTTP gets our own words from one protocol and uvicorn's from the other, so that body does not count.
    """
    dice = random.Random(seed)
    answers = []
    with running.wire() as wire:
        try:
            for data in requests:
                cuts = sorted(dice.randrange(len(data)) for _ in range(dice.randrange(3)))
                wire.send(*(data[a:b] for a, b in zip([0, *cuts], [*cuts, len(data)], strict=True)), pause=0.001)
                answer = wire.answer()
                ours = answer.headers["content-type"] == "application/json" and not answer.body.startswith(
                    b'{"error":"inv'
                )
                answers.append((answer.code, answer.body if ours else b""))
            assert wire.closed()
        except (EOFError, OSError):
            pass
    return answers


@settings(max_examples=150, deadline=None, database=None, suppress_health_check=list(HealthCheck))
@given(seed=st.integers(0, 2**63))
def test_same_answers(running: Running, plain: Running, seed: int) -> None:
    requests = stream(random.Random(seed))
    for last in (False, False, True):
        # A connection that is closed while its caller still sends may take the last answer with it, by either protocol:
        # then it is asked once more. A 400 that never comes is no agreement.
        one, other = heard(running, requests, seed), heard(plain, requests, seed)
        if one == other:
            break
        assert not last, (one, other, requests)
