"""What a scan found, as reports in the cluster: ``Report`` of openreports.io/v1alpha1, else ``PolicyReport`` of
wgpolicyk8s.io/v1alpha2. The CRDs are somebody else's (Kyverno, Trivy, the policy working group) and never made here.

One report a namespace, named ``checkpoint-guard``: what is not plainly allowed, the denials first. Source of the
fields: the ``ReportResult`` type of openreports/reports-api, which both groups share.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec
from msgspec import Struct

from webhook.cluster.access import Refused
from webhook.message import place
from webhook.model.finding import Severity
from webhook.model.names import API_VERSION, REPORT_HASH
from webhook.model.printable import printable
from webhook.reports.review import Reviewed
from webhook.runs.api import Answer, Api, each

Raw = Mapping[str, Any]

NAME: Final = "checkpoint-guard"
MOST: Final = 500
"""Results of one report; the summary counts all."""
_BYTES: Final = 1_000_000
"""Of one report's results: an object is at most some 1.5 MiB."""
_TEXT: Final = 1000
_LABELS: Final = {"app.kubernetes.io/managed-by": NAME}
_SELECTOR: Final = f"app.kubernetes.io/managed-by={NAME}"
_RESULT: Final = {Severity.DENY: ("fail", "high"), Severity.WARN: ("warn", "medium")}
_TRIES: Final = 3


class Served(Struct, frozen=True):
    """An API that takes reports."""

    group: str
    version: str
    kind: str
    resource: str

    @property
    def base(self) -> str:
        return f"/apis/{self.group}/{self.version}"

    def path(self, namespace: str) -> str:
        """The reports of a namespace, ``""``: of all."""
        return f"{self.base}/namespaces/{namespace}/{self.resource}" if namespace else f"{self.base}/{self.resource}"


APIS: Final = (
    Served("openreports.io", "v1alpha1", "Report", "reports"),
    Served("wgpolicyk8s.io", "v1alpha2", "PolicyReport", "policyreports"),
)
"""The first that is served is written."""


class NoReports(Exception):  # noqa: N818 - a state
    """No API that takes reports is served; the text says what is."""


class _Found(Struct):
    """What was found in one namespace."""

    failed: int = 0
    warned: int = 0
    denials: list[dict[str, Any]] = []
    warnings: list[dict[str, Any]] = []


class Reports:
    """Takes in the results of a scan, one after the other; of each namespace it keeps what fits a report."""

    def __init__(self) -> None:
        self._found: dict[str, _Found] = {}

    def take(self, result: Reviewed) -> None:
        """A result; those without a namespace stand in no report."""
        if not result.namespace or result.verdict not in ("deny", "warn"):
            return
        found = self._found.setdefault(result.namespace, _Found())
        for finding in result.findings:
            denied = finding.severity is Severity.DENY
            if finding.severity not in _RESULT:
                continue
            found.failed += denied
            found.warned += not denied
            kept = found.denials if denied else found.warnings
            if len(kept) < MOST:
                kept.append(_entry(result, finding))

    def documents(self, served: Served) -> dict[str, dict[str, Any]]:
        """Namespace -> its report."""
        return {namespace: _document(served, namespace, found) for namespace, found in sorted(self._found.items())}


class Written(Struct):
    """How many reports were written, and what could not be."""

    created: int = 0
    replaced: int = 0
    unchanged: int = 0
    removed: int = 0
    notices: list[str] = []

    def __str__(self) -> str:
        return (
            f"reports: {self.created} created, {self.replaced} replaced, {self.removed} removed, "
            f"{self.unchanged} unchanged"
        )


def served_api(api: Api) -> Served:
    """The API to write. Raises NoReports and Unreachable."""
    told = []
    for one in APIS:
        answer = api.request("GET", one.base)
        names = [resource.get("name") for resource in answer.body.get("resources") or ()] if answer.ok else []
        if one.resource in names:
            return one
        group = api.request("GET", f"/apis/{one.group}")
        others = [str(found.get("version")) for found in group.body.get("versions") or ()] if group.ok else []
        told.append(f"{one.group}/{one.version} is not served" + (f" ({', '.join(others)} is)" if others else ""))
    raise NoReports(f"{', nor '.join(told)}: install the CRDs of one of them")


def write(api: Api, served: Served, reports: Reports, namespace: str | None = None) -> Written:
    """Bring the reports of a namespace (None: of all) to what was found. Raises Refused and Unreachable.

    Only what changed is written, and what is empty is removed. A namespace that is on its way out is passed over.
    """
    done = Written()
    stored = {_namespace(one): one for one in _ours(api, served, namespace)}
    documents = reports.documents(served)
    for where, document in documents.items():
        _bring(api, served, where, document, stored.get(where), done)
    for where, one in stored.items():
        if where not in documents:
            _remove(api, served, where, one, done)
    for other in APIS:
        # Of an API that was written before a better one was installed.
        if other is not served and api.request("GET", other.base).ok:
            for one in _ours(api, other, namespace, absent_ok=True):
                _remove(api, other, _namespace(one), one, done)
    return done


def _ours(api: Api, served: Served, namespace: str | None, absent_ok: bool = False) -> Iterator[Raw]:
    try:
        for one in each(api, served.path(namespace or ""), {"labelSelector": _SELECTOR}, page=100):
            if (one.get("metadata") or {}).get("name") == NAME:
                yield one
    except Refused:
        if not absent_ok:
            raise


def _bring(
    api: Api, served: Served, namespace: str, document: dict[str, Any], stored: Raw | None, done: Written
) -> None:
    path = served.path(namespace)
    for _ in range(_TRIES):
        if stored is None:
            answer = api.request("POST", path, None, document)
            if answer.ok:
                done.created += 1
                return
        elif _hash(stored) == _hash(document):
            done.unchanged += 1
            return
        else:
            version = (stored.get("metadata") or {}).get("resourceVersion")
            wanted = {**document, "metadata": {**document["metadata"], "resourceVersion": version}}
            answer = api.request("PUT", f"{path}/{NAME}", None, wanted)
            if answer.ok:
                done.replaced += 1
                return
        if answer.code not in (404, 409):
            break
        # Another scan was faster, or it was removed: look again.
        found = api.request("GET", f"{path}/{NAME}")
        if found.code == 404 and answer.code == 404 and stored is None:
            break
        stored = found.body if found.ok else None
    if not _going(api, namespace, answer):
        done.notices.append(f"namespace {namespace}: its report cannot be written: {answer.message[:200]}")


def _remove(api: Api, served: Served, namespace: str, stored: Raw, done: Written) -> None:
    metadata = stored.get("metadata") or {}
    wanted = {name: metadata[name] for name in ("uid", "resourceVersion") if metadata.get(name)}
    answer = api.request("DELETE", f"{served.path(namespace)}/{NAME}", None, {"preconditions": wanted})
    if answer.ok:
        done.removed += 1
    elif answer.code not in (404, 409):  # gone, or another scan has just written it
        done.notices.append(f"namespace {namespace}: its report cannot be removed: {answer.message[:200]}")


def _going(api: Api, namespace: str, answer: Answer) -> bool:
    """Whether a write failed because the namespace is gone or on its way out."""
    if answer.code not in (403, 404):
        return False
    causes = (answer.body.get("details") or {}).get("causes") or ()
    if any(isinstance(cause, dict) and cause.get("reason") == "NamespaceTerminating" for cause in causes):
        return True
    return api.request("GET", f"/api/v1/namespaces/{namespace}").code == 404


def _document(served: Served, namespace: str, found: _Found) -> dict[str, Any]:
    kept: list[dict[str, Any]] = []
    room = _BYTES
    for entry in (*found.denials, *found.warnings):
        room -= len(msgspec.json.encode(entry))
        if room < 0 or len(kept) == MOST:
            break
        kept.append(entry)
    content = {
        "scope": {"apiVersion": "v1", "kind": "Namespace", "name": namespace},
        "summary": {"pass": 0, "fail": found.failed, "warn": found.warned, "error": 0, "skip": 0},
        "results": kept,
    }
    digest = hashlib.sha256(msgspec.json.encode(content)).hexdigest()[:16]
    metadata = {"name": NAME, "namespace": namespace, "labels": dict(_LABELS), "annotations": {REPORT_HASH: digest}}
    return {"apiVersion": f"{served.group}/{served.version}", "kind": served.kind, "metadata": metadata, **content}


def _entry(result: Reviewed, finding: Any) -> dict[str, Any]:
    outcome, severity = _RESULT[finding.severity]
    return {
        "source": NAME,
        "policy": NAME,
        "rule": finding.rule,
        "category": "Checkpoints",
        "severity": severity,
        "result": outcome,
        "scored": True,
        "resources": [
            {"apiVersion": API_VERSION, "kind": result.kind, "namespace": result.namespace, "name": result.name}
        ],
        "message": _cut(finding.problem),
        "properties": {"at": _cut(place(finding, result.label)), "why": _cut(finding.why)},
    }


def _cut(text: str) -> str:
    text = printable(text)
    return text if len(text) <= _TEXT else text[: _TEXT - 1] + "…"


def _hash(report: Raw) -> str:
    return str(((report.get("metadata") or {}).get("annotations") or {}).get(REPORT_HASH) or "")


def _namespace(report: Raw) -> str:
    return str((report.get("metadata") or {}).get("namespace") or "")
