"""What the real JobSet and Job API refused draws a word from us, and what they took draws no denial for its form."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

from tests import golden
from tests.together import together
from webhook.cluster.documents import Document
from webhook.cluster.file_view import FileView
from webhook.cluster.files import load_text
from webhook.decision import review_object
from webhook.model.policy import Policy
from webhook.model.release import Release, parse_release
from webhook.model.request import Request
from webhook.model.verdict import Decision

FORM = {"volume-source-clash", "unbuildable-pod", "unknown-override-target", "env-in-override"}
SAYS_WHY = FORM | {"restart-ruled-out"}

PAIRS = [pair for release in golden.RELEASES for pair in golden.pairs(release)]
EXPECTED = {pair: pair.expected for pair in PAIRS}


def _refused(pair: golden.Pair) -> bool:
    refused = EXPECTED[pair].get("refused") or {}
    return refused.get("by") in ("JobSet", "Job") and "panic" not in refused.get("message", "")


REFUSED = [pair for pair in PAIRS if _refused(pair)]
ACCEPTED = [pair for pair in PAIRS if EXPECTED[pair]["accepted"]]
UPDATED = [pair for pair in PAIRS if pair.update is not None]


def _objects(pair: golden.Pair) -> tuple[list[Document], Release]:
    loaded = load_text(pair.input, "input.yaml")
    assert not loaded.errors, loaded.errors
    return loaded.documents, parse_release(golden.minor(pair.release))


def _review(
    document: Document, view: FileView, release: Release, new: dict[str, Any] | None = None, user: str = ""
) -> Decision:
    old = document.object if new is not None else None
    operation: Literal["CREATE", "UPDATE"] = "CREATE" if new is None else "UPDATE"
    request = Request(
        operation, document.kind, document.namespace, document.name, new or document.object, old, user=user
    )
    decision = review_object(request, view, Policy(), release)
    assert decision.broken == ()
    return decision


def _decisions(pair: golden.Pair) -> Iterator[Decision]:
    documents, release = _objects(pair)
    view = FileView(documents, release)
    for document in documents:
        if document.kind in ("TrainJob", "TrainingRuntime", "ClusterTrainingRuntime"):
            yield _review(document, view, release)


@together(REFUSED, lambda pair: pair.release)
def test_a_refused_pair_is_told_why(pair: golden.Pair) -> None:
    told = [
        finding.rule
        for decision in _decisions(pair)
        for finding in decision.findings
        if finding.rule in SAYS_WHY and finding.severity.value in ("deny", "warn")
    ]
    assert told, EXPECTED[pair]["refused"]["message"]


@together(ACCEPTED, lambda pair: pair.release)
def test_an_accepted_pair_draws_no_denial_for_its_form(pair: golden.Pair) -> None:
    denied = [
        (finding.rule, str(finding.at), finding.problem)
        for decision in _decisions(pair)
        for finding in decision.findings
        if finding.rule in FORM and finding.severity.value == "deny"
    ]
    assert denied == []


def _merged(target: Any, patch: Any) -> Any:
    """RFC 7386."""
    if not isinstance(patch, dict):
        return patch
    out = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            out.pop(key, None)
        else:
            out[key] = _merged(out.get(key), value)
    return out


@together(UPDATED, lambda pair: pair.release)
def test_an_update_that_wedged_the_run_is_denied_and_no_other(pair: golden.Pair) -> None:
    documents, release = _objects(pair)
    steps = pair.update.get("steps") or [{"kind": "TrainJob", "patch": pair.update}]
    verdicts = []
    for step in steps:
        for document in documents:
            if document.kind == step["kind"]:
                new = _merged(document.object, step["patch"])
                decision = _review(document, FileView(documents, release), release, new)
                verdicts += [f.severity.value for f in decision.findings if f.rule == "wedging-update"]
                document.object = new
    stuck = EXPECTED[pair].get("stuck")
    runtime_changed = any(step["kind"] != "TrainJob" for step in steps)
    if stuck:
        assert "deny" in verdicts or (runtime_changed and "warn" in verdicts), verdicts
    else:
        assert "deny" not in verdicts
