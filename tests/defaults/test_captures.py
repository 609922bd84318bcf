"""Captured AdmissionReviews and the cases of the rules: our patch applies, and the second one is empty."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.defaults.world import applied, default
from tests.golden import Capture, captures
from tests.rules.cases import case_files, options_of
from webhook.cluster.file_view import FileView
from webhook.cluster.files import load_files
from webhook.model.cluster import Runtime
from webhook.model.names import RUNTIME_KINDS
from webhook.model.policy import Policy
from webhook.model.release import Release, infer_release, parse_release
from webhook.model.request import Request
from webhook.model.verdict import Defaulted

CREATES = [capture for capture in captures() if capture.review["request"]["operation"] == "CREATE"]


def answer(raw: Any, view: FileView, release: Release) -> Defaulted:
    """The answer to a review's request; its patch applies and the second is empty."""
    obj = raw["object"]
    name = obj["metadata"].get("name") or obj["metadata"].get("generateName") or ""
    asked = Request(raw["operation"], raw["kind"]["kind"], raw.get("namespace") or "", name, obj, raw.get("oldObject"))
    done = default(asked, view, Policy(), release)
    assert done.broken == ()
    assert applied(obj, done.patch) == done.object
    again = Request(asked.operation, asked.kind, asked.namespace, name, done.object, asked.old)
    assert default(again, view, Policy(), release).patch == ()
    return done


def runtimes(release: str) -> FileView:
    """The runtimes that were created in the same session."""
    view = FileView([])
    for capture in CREATES:
        obj = capture.review["request"]["object"]
        if capture.release != release or obj["kind"] not in RUNTIME_KINDS:
            continue
        metadata = obj["metadata"]
        view.put_runtime(Runtime(obj["kind"], metadata.get("namespace") or "", metadata["name"], obj, {}))
    return view


@pytest.mark.parametrize("capture", captures(), ids=str)
def test_captured_review(capture: Capture) -> None:
    raw = capture.review["request"]
    done = answer(raw, runtimes(capture.release), parse_release(capture.release))
    if raw["kind"]["kind"] == "TrainJob" and raw["operation"] == "UPDATE":
        assert done.patch == (), "nothing of ours was ever there"


@pytest.mark.parametrize("capture", CREATES, ids=str)
def test_captured_create_with_a_claim_and_the_same_file_again(capture: Capture) -> None:
    raw = capture.review["request"]
    release = parse_release(capture.release)
    view = runtimes(capture.release)
    raw["object"]["metadata"].setdefault("annotations", {})["checkpoint-guard.io/claim"] = "mine"
    stored = answer(raw, view, release).object
    update = {**raw, "operation": "UPDATE", "oldObject": stored}
    assert answer(update, view, release).object["spec"] == stored["spec"]


@pytest.mark.parametrize("path", case_files(), ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_case_of_a_rule(path: Path) -> None:
    loaded = load_files([str(path)])
    for document in loaded.of_kind(*RUNTIME_KINDS, "TrainJob"):
        release = options_of(path).trainer or infer_release(document.object.get("spec"))
        view = FileView(loaded.documents, release)
        raw = {"operation": "CREATE", "kind": {"kind": document.kind}, "object": document.object}
        answer({**raw, "namespace": document.namespace}, view, release)
