"""Captured AdmissionReviews and the cases of the rules: our patch applies, and the second one is empty."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from tests.defaults.world import applied, default
from tests.golden import Capture, captures
from tests.rules.cases import documents_of, each_case, options_of
from tests.together import together
from webhook.cluster.file_view import FileView
from webhook.model.cluster import Runtime
from webhook.model.names import KINDS, RUNTIME_KINDS
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


@cache
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


@together(captures(), lambda capture: capture.release)
def test_captured_review(capture: Capture) -> None:
    raw = capture.review["request"]
    done = answer(raw, runtimes(capture.release), parse_release(capture.release))
    if raw["kind"]["kind"] == "TrainJob" and raw["operation"] == "UPDATE":
        assert done.patch == (), "nothing of ours was ever there"


@together(CREATES, lambda capture: capture.release)
def test_captured_create_with_a_claim_and_the_same_file_again(capture: Capture) -> None:
    raw = capture.review["request"]
    release = parse_release(capture.release)
    view = runtimes(capture.release)
    raw["object"]["metadata"].setdefault("annotations", {})["checkpoint-guard.io/claim"] = "mine"
    stored = answer(raw, view, release).object
    update = {**raw, "operation": "UPDATE", "oldObject": stored}
    assert answer(update, view, release).object["spec"] == stored["spec"]


@each_case()
def test_case_of_a_rule(path: Path) -> None:
    documents = documents_of(path)
    for document in documents:
        if document.kind not in KINDS:
            continue
        release = options_of(path).trainer or infer_release(document.object.get("spec"))
        view = FileView(documents, release)
        raw = {"operation": "CREATE", "kind": {"kind": document.kind}, "object": document.object}
        answer({**raw, "namespace": document.namespace}, view, release)
