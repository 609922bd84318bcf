"""AdmissionReview in and out: what may come in, and an answer that always carries the uid.

Reading is strict about the envelope and lenient about the object, since an object that is wrong is the API server's to
refuse. Raises ``NotAReview`` for what has no uid to answer; everything else becomes a ``Review``.
"""

from __future__ import annotations

from binascii import b2a_base64
from collections.abc import Iterable, Mapping, Sequence
from time import time
from typing import Any, Final

import orjson
from msgspec import Struct
from msgspec.structs import replace

from webhook.message import block, denial_text, warning_lines
from webhook.model.deletion import PROTECTED, Deletion
from webhook.model.finding import Judged, Origin, Severity, broken_rule
from webhook.model.names import ALLOW_DELETE, GROUP, KINDS
from webhook.model.printable import printable
from webhook.model.request import Request
from webhook.model.surrogates import without_lone_surrogates
from webhook.model.verdict import Decision, Defaulted

BODY_LIMIT: Final = 7 * 1024 * 1024
"""Bytes. etcd keeps 1.5 MiB an object; a review holds it twice, with JSON's escapes."""
NESTING_LIMIT: Final = 256
"""Objects and lists within each other, the review itself counted."""
API_VERSION: Final = "admission.k8s.io/v1"
VERSION: Final = "v1alpha1"
MESSAGE_LIMIT: Final = 32 * 1024
"""Characters of a denial."""
ANNOTATION_LIMIT: Final = 256
"""Characters of one audit annotation."""

_PLAIN_LOSS: Final = "the object cannot be read, so nothing was checked and nothing was filled in"
_HANDLED: Final = ("CREATE", "UPDATE")


class NotAReview(Exception):  # noqa: N818 - says what the body is, not that we failed
    """The body is nothing that could be answered with a uid. The text says why, in one line."""


class Review(Struct):
    """One AdmissionReview, read.

    ``request`` is None where there is nothing to decide: another kind or version, a subresource, an operation that is
    neither CREATE nor UPDATE, no object, or an object whose envelope is ``malformed``.
    """

    uid: str
    request: Request | None = None
    malformed: Judged | None = None
    about: Request | None = None
    """What the audit log says of a malformed object (without the object)."""
    deletion: Deletion | None = None
    """A DELETE of what a run may need."""


def parse_review(body: bytes) -> Review:
    """Bytes -> Review. Raises NotAReview."""
    review = _decode(body)
    if type(review) is not dict or review.get("kind") != "AdmissionReview":
        raise NotAReview("the body is not an AdmissionReview")
    if review.get("apiVersion") != API_VERSION:
        raise NotAReview(f"the AdmissionReview is not of {API_VERSION}")
    request = review.get("request")
    if type(request) is not dict:
        raise NotAReview("the AdmissionReview has no request")
    uid = request.get("uid")
    if type(uid) is not str or not uid:
        raise NotAReview("the request has no uid")
    operation = request.get("operation")
    if operation == "DELETE":
        return Review(uid, deletion=_deletion(request, uid))
    kind = _our_kind(request.get("kind"))
    obj = request.get("object")
    if kind is None or operation not in _HANDLED or obj is None or request.get("subResource"):
        return Review(uid)
    namespace = _text(request.get("namespace"))
    user, groups = _user(request.get("userInfo"))
    old = request.get("oldObject")
    name, fault = _name(obj, "")
    if fault is None and old is not None:
        fault = _name(old, "oldObject")[1]
    name = name or _text(request.get("name"))
    dry_run = request.get("dryRun") is True
    if fault is not None:
        about = Request(operation, kind, namespace, name, {}, None, user, groups, dry_run, uid, time())
        return Review(uid, None, malformed(about, *fault), about)
    return Review(uid, Request(operation, kind, namespace, name, obj, old, user, groups, dry_run, uid, time()))


def _deletion(request: Mapping[str, Any], uid: str) -> Deletion | None:
    """A DELETE of a kind that runs need; the object itself is looked at for its annotation alone."""
    kind = request.get("kind")
    if type(kind) is not dict or request.get("subResource"):
        return None
    key = (_text(kind.get("group")), _text(kind.get("version")), _text(kind.get("kind")))
    if key not in PROTECTED:
        return None
    old = request.get("oldObject")
    metadata = old.get("metadata") if type(old) is dict else None
    metadata = metadata if type(metadata) is dict else {}
    annotations = metadata.get("annotations")
    user, groups = _user(request.get("userInfo"))
    return Deletion(
        key[2],
        _text(request.get("namespace")),
        # Of a collection the request has no name, each of its objects has.
        _text(metadata.get("name")) or _text(request.get("name")),
        type(annotations) is dict and annotations.get(ALLOW_DELETE) == "true",
        bool(metadata.get("deletionTimestamp")),
        user,
        groups,
        request.get("dryRun") is True,
        uid,
    )


def malformed(request: Request, field: str, problem: str) -> Judged:
    """The finding for a field of a wrong type that keeps the request from being read at all."""
    return Judged(
        "malformed-object",
        Severity.WARN,
        Origin(f"{request.kind}/{request.name}", field, field),
        problem,
        _PLAIN_LOSS,
        f"write {field} as the CRD has it: kubectl explain {request.kind.lower()}",
    )


def broken(request: Request, error: Exception) -> Judged:
    """The finding for a fault of ours that no part of the engine caught. The error's own text may be the user's."""
    return broken_rule(
        f"{request.kind}/{request.name}",
        "checkpoint-guard",
        f'the check failed on this object with "{type(error).__name__}"',
        "nothing was checked, so a fault that loses the run may have passed",
    )


def allow(uid: str, warnings: Sequence[str] = ()) -> bytes:
    """The answer that lets the object through as it is."""
    response: dict[str, Any] = {"uid": uid, "allowed": True}
    if warnings:
        response["warnings"] = warnings
    return _wrap(response)


def patched(uid: str, defaulted: Defaulted, policy_hash: str) -> bytes:
    """The answer of ``/mutate``: allowed, with the patch in base64 where there is one."""
    response: dict[str, Any] = {"uid": uid, "allowed": True}
    if defaulted.patch:
        response["patchType"] = "JSONPatch"
        response["patch"] = b2a_base64(orjson.dumps(defaulted.patch), newline=False).decode("ascii")
        response["auditAnnotations"] = {"defaults": _joined(defaulted.applied), "policy": _clipped(policy_hash)}
    if defaulted.findings:
        response["warnings"] = warning_lines(defaulted.findings)
    return _wrap(response)


def judged(uid: str, decision: Decision, own: str, remark: str = "") -> bytes:
    """The answer of ``/validate``; ``own`` is ``<Kind>/<name>``. A denial holds every finding, so no warnings.

    ``remark`` is one more warning, with a denial too.
    """
    annotations = {"verdict": decision.verdict, "policy": _clipped(decision.policy_hash)}
    facts = decision.facts
    if facts.directory:
        annotations["directory"] = _clipped(facts.directory)
    if facts.claim:
        annotations["claim"] = _clipped(facts.claim)
    response: dict[str, Any] = {"uid": uid, "allowed": decision.verdict != "deny", "auditAnnotations": annotations}
    if decision.findings:
        annotations["rules"] = _joined(finding.rule for finding in decision.findings)
        if decision.verdict == "deny":
            response["status"] = _forbidden(denial_text(decision, own, MESSAGE_LIMIT))
        elif warnings := warning_lines(decision.findings):
            response["warnings"] = warnings
    if remark:
        response["warnings"] = (*response.get("warnings", ()), remark)
    return _wrap(response)


def deletion_judged(uid: str, decision: Decision, own: str) -> bytes:
    """The answer to a DELETE; ``own`` is ``<Kind>/<name>``."""
    annotations = {"verdict": decision.verdict, "policy": _clipped(decision.policy_hash)}
    response: dict[str, Any] = {"uid": uid, "allowed": decision.verdict != "deny", "auditAnnotations": annotations}
    if decision.findings:
        annotations["rules"] = _joined(finding.rule for finding in decision.findings)
    if decision.verdict == "deny":
        lines = [f"{printable(own)} is protected while an unfinished run needs it"]
        lines += [line for finding in decision.findings for line in block(finding, own)]
        response["status"] = _forbidden("\n".join(lines)[:MESSAGE_LIMIT])
    elif warnings := warning_lines(decision.findings):
        response["warnings"] = warnings
    return _wrap(response)


def without_maps(findings: tuple[Judged, ...]) -> tuple[Judged, ...]:
    """The findings without keys and text of ConfigMaps, which whoever is answered may have no right to read."""
    if all(finding.concealed is None for finding in findings):
        return findings
    told = [finding if finding.concealed is None else _without_map(finding, *finding.concealed) for finding in findings]
    return tuple({(finding.rule, finding.at, finding.problem): finding for finding in told}.values())


def _without_map(finding: Judged, at: Origin, why: str) -> Judged:
    problem = "a file of a ConfigMap that the program is read from has this fault"
    fix = "ckptguard review FILE --live    # with your own rights it tells the line, and what to write there"
    return replace(finding, at=at, problem=problem, why=why, text=fix, subject="", private="", lines=None)


def for_anybody(findings: tuple[Judged, ...]) -> tuple[Judged, ...]:
    """The findings without the names of other objects: a number, and the command that lists them."""
    if all(finding.counted is None for finding in findings):
        return findings
    told = [
        finding
        if finding.counted is None
        else replace(finding, problem=finding.counted[0], text=finding.counted[1], subject="", counted=None)
        for finding in findings
    ]
    return tuple({(finding.rule, finding.at, finding.problem): finding for finding in told}.values())


def _forbidden(message: str) -> dict[str, Any]:
    return {"metadata": {}, "status": "Failure", "message": message, "reason": "Forbidden", "code": 403}


def told_strangers(uid: str, allowed: bool, findings: Sequence[Judged]) -> bytes:
    """The answer for a caller who does not show the certificate that is asked for: verdict and rule ids, no patch."""
    response: dict[str, Any] = {"uid": uid, "allowed": allowed}
    rules = _joined(finding.rule for finding in findings if finding.severity is not Severity.AUDIT)
    if not allowed:
        message = f"refused by {rules}; more is told to the API server's client certificate alone"
        response["status"] = {
            "metadata": {},
            "status": "Failure",
            "message": message,
            "reason": "Forbidden",
            "code": 403,
        }
    elif rules:
        response["warnings"] = [f"[{rules}]"]
    return _wrap(response)


def error_line(message: str) -> bytes:
    """``{"error": "..."}`` on one line."""
    return orjson.dumps({"error": message})


def _wrap(response: Mapping[str, Any]) -> bytes:
    return orjson.dumps({"apiVersion": API_VERSION, "kind": "AdmissionReview", "response": response})


def _decode(body: bytes) -> Any:
    try:
        review = orjson.loads(body)
    except orjson.JSONDecodeError as first:
        # A lone surrogate is JSON by its grammar, and Go reads it (like bytes that are no UTF-8) as U+FFFD.
        try:
            review = orjson.loads(without_lone_surrogates(body.decode("utf-8", "replace")))
        except orjson.JSONDecodeError:
            if "depth" in first.msg:
                raise NotAReview(_too_deep()) from None
            raise NotAReview(f"the body is not JSON: {first.msg} at byte {first.pos}") from None
    # Most reviews hold fewer brackets than the limit, so nothing has to be walked.
    if body.count(b"{") + body.count(b"[") > NESTING_LIMIT and _deeper_than(review, NESTING_LIMIT):
        raise NotAReview(_too_deep())
    return review


def _too_deep() -> str:
    return f"the body is nested deeper than {NESTING_LIMIT}"


def _deeper_than(value: Any, limit: int) -> bool:
    """Level by level, so that hostile nesting meets no recursion."""
    level = [value]
    for _ in range(limit):
        level = [
            inner
            for outer in level
            for inner in (outer.values() if type(outer) is dict else outer)
            if type(inner) is dict or type(inner) is list
        ]
        if not level:
            return False
    return True


def _our_kind(kind: object) -> str | None:
    if type(kind) is not dict or kind.get("group") != GROUP or kind.get("version") != VERSION:
        return None
    name = kind.get("kind")
    return name if name in KINDS else None


def _name(obj: object, prefix: str) -> tuple[str, tuple[str, str] | None]:
    """The object's name or generateName, and the fault (field, problem) that keeps it from being read."""
    if type(obj) is not dict:
        return "", (prefix or "object", f"{_type(obj)} where an object belongs")
    metadata = obj.get("metadata")
    if metadata is None:
        return "", None
    path = f"{prefix}.metadata" if prefix else "metadata"
    if type(metadata) is not dict:
        return "", (path, f"{_type(metadata)} where an object belongs")
    for key in ("name", "generateName"):
        value = metadata.get(key)
        if type(value) is str:
            if value:
                return value, None
        elif value is not None:
            return "", (f"{path}.{key}", f"{_type(value)} where a string belongs")
    return "", None


def _type(value: object) -> str:
    if value is True or value is False:
        return "a boolean"
    return {str: "a string", list: "a list", dict: "an object", type(None): "null"}.get(type(value), "a number")


def _user(info: object) -> tuple[str, tuple[str, ...]]:
    if type(info) is not dict:
        return "", ()
    groups = info.get("groups")
    return _text(info.get("username")), (
        tuple(group for group in groups if type(group) is str) if type(groups) is list else ()
    )


def _text(value: object) -> str:
    return value if type(value) is str else ""


def _clipped(text: str) -> str:
    text = printable(text[:ANNOTATION_LIMIT])
    return text if len(text) <= ANNOTATION_LIMIT else text[: ANNOTATION_LIMIT - 1] + "…"


def _joined(words: Iterable[str]) -> str:
    """The words, each once, with commas; those that no longer fit are left out and counted."""
    kept: list[str] = []
    used = 0
    all_words = list(dict.fromkeys(words))
    for word in all_words:
        used += len(word) + 1
        if used > ANNOTATION_LIMIT - len(",+99"):
            return ",".join([*kept, f"+{len(all_words) - len(kept)}"])
        kept.append(word)
    return ",".join(kept)
