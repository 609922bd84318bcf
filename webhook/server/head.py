"""The head of a plain request, read without an HTTP parser: what is odd is left to uvicorn."""

from __future__ import annotations

import re
from typing import Final

from msgspec import Struct

from webhook.metrics import MUTATE, VALIDATE
from webhook.server.app import checked_trace, is_json
from webhook.server.envelope import BODY_LIMIT

# RFC 9112: a token, a colon with nothing before it, a value on one line without control characters.
_LINES: Final = re.compile(rb"(?:[!#$%&'*+\-.^_`|~0-9A-Za-z]+:[^\x00-\x08\x0a-\x1f\x7f]*\r\n)+")
_QUERY: Final = re.compile(rb"[!-\"$-~]*")


class Head(Struct, frozen=True):
    """What counts of a plain request's head."""

    webhook: str
    length: int
    trace: str


def parse_head(head: bytes) -> Head | None:
    """Request line and header lines, the last CRLF included, -> Head; None where the request is not a plain one."""
    line, _, rest = head.partition(b"\r\n")
    method, _, target = line.partition(b" ")
    target, _, version = target.partition(b" ")
    path, mark, query = target.partition(b"?")
    if method != b"POST" or version != b"HTTP/1.1" or (mark and _QUERY.fullmatch(query) is None):
        return None
    if path == b"/mutate":
        webhook = MUTATE
    elif path == b"/validate":
        webhook = VALIDATE
    else:
        return None
    if _LINES.fullmatch(rest) is None:
        return None
    length = -1
    kind = b""
    trace = ""
    host = False
    for field in rest[:-2].split(b"\r\n"):
        name, _, value = field.partition(b":")
        name = name.lower()
        value = value.strip(b" \t")
        if name == b"content-length":
            if length >= 0 or not value.isdigit() or len(value) > 8:
                return None
            length = int(value)
        elif name == b"content-type":
            kind = value
        elif name == b"traceparent":
            trace = checked_trace(value)
        elif name == b"host":
            host = True
        elif name in _FRAMING or (name == b"connection" and not _stays(value)):
            return None
    if not host or not 0 < length <= BODY_LIMIT or not is_json(kind):
        return None
    return Head(webhook, length, trace)


def parse_look(head: bytes) -> str | None:
    """Request line and header lines of a GET of ``LOOKS``, the last CRLF included, -> path; None where it is odd."""
    line, _, rest = head.partition(b"\r\n")
    if _LINES.fullmatch(rest) is None:
        return None
    host = False
    for field in rest[:-2].split(b"\r\n"):
        name, _, value = field.partition(b":")
        name = name.lower()
        if name == b"host":
            host = True
        elif name in _FRAMING or name == b"content-length" or (name == b"connection" and not _stays(value.strip())):
            return None
    return line.split(b" ")[1].decode() if host else None


_FRAMING: Final = frozenset((b"transfer-encoding", b"expect", b"te", b"trailer", b"proxy-connection"))
_STAYS: Final = frozenset((b"keep-alive", b"upgrade", b"http2-settings"))
"""Said of a connection that goes on as it is: a server may pass over the wish to upgrade it (RFC 9110, 7.8)."""


def _stays(connection: bytes) -> bool:
    return _STAYS.issuperset(token.strip() for token in connection.lower().split(b","))
