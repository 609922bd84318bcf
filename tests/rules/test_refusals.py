"""What the real JobSet and Job API refused draws a word from us, and what they took draws no denial for its form.

The pairs were recorded from the real controllers; they are an optional folder beside the project.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from webhook.cluster.files import Document, FileView, load_files
from webhook.decision import review_object
from webhook.model.policy import Policy
from webhook.model.release import Release, parse_release
from webhook.model.request import Request
from webhook.model.verdict import Decision

GOLDEN = Path(__file__).parents[2].parent / "shared" / "golden"
FORM = {"volume-source-clash", "unbuildable-pod", "unknown-override-target", "env-in-override"}
SAYS_WHY = FORM | {"restart-ruled-out"}

pytestmark = pytest.mark.skipif(not GOLDEN.is_dir(), reason="no recorded pairs beside the project (../shared/golden)")

if GOLDEN.is_dir():
    PAIRS = sorted(path.parent for path in GOLDEN.glob("*/*/expected.json"))
    EXPECTED = {pair: json.loads((pair / "expected.json").read_text()) for pair in PAIRS}
else:
    PAIRS, EXPECTED = [], {}


def _id(pair: Path) -> str:
    return f"{pair.parent.name}/{pair.name}"


def _refused(pair: Path) -> bool:
    refused = EXPECTED[pair].get("refused") or {}
    return refused.get("by") in ("JobSet", "Job") and "panic" not in refused.get("message", "")


REFUSED = [pair for pair in PAIRS if _refused(pair)]
ACCEPTED = [pair for pair in PAIRS if EXPECTED[pair]["accepted"]]
UPDATED = [pair for pair in PAIRS if (pair / "update.json").exists()]


def _objects(pair: Path) -> tuple[list[Document], Release]:
    loaded = load_files([str(pair / "input.yaml")])
    assert not loaded.errors, loaded.errors
    return loaded.documents, parse_release(pair.parent.name)


def _review(
    document: Document, view: FileView, release: Release, new: dict[str, Any] | None = None, user: str = ""
) -> Decision:
    old = document.object if new is not None else None
    operation = "CREATE" if new is None else "UPDATE"
    request = Request(
        operation, document.kind, document.namespace, document.name, new or document.object, old, user=user
    )
    decision = review_object(request, view, Policy(), release)
    assert decision.broken == ()
    return decision


def _decisions(pair: Path) -> Iterator[Decision]:
    documents, release = _objects(pair)
    view = FileView(documents, release)
    for document in documents:
        if document.kind in ("TrainJob", "TrainingRuntime", "ClusterTrainingRuntime"):
            yield _review(document, view, release)


@pytest.mark.parametrize("pair", REFUSED, ids=_id)
def test_a_refused_pair_is_told_why(pair: Path) -> None:
    told = [
        finding.rule
        for decision in _decisions(pair)
        for finding in decision.findings
        if finding.rule in SAYS_WHY and finding.severity.value in ("deny", "warn")
    ]
    assert told, EXPECTED[pair]["refused"]["message"]


@pytest.mark.parametrize("pair", ACCEPTED, ids=_id)
def test_an_accepted_pair_draws_no_denial_for_its_form(pair: Path) -> None:
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


@pytest.mark.parametrize("pair", UPDATED, ids=_id)
def test_an_update_that_wedged_the_run_is_denied_and_no_other(pair: Path) -> None:
    documents, release = _objects(pair)
    recorded = json.loads((pair / "update.json").read_text())
    steps = recorded.get("steps") or [{"kind": "TrainJob", "patch": recorded}]
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
