"""AdmissionReviews captured from real API servers, and manifests rebuilt from bug reports, where they are at hand."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.defaults.world import applied
from webhook.cluster.files import FileView, load_files
from webhook.defaults import default
from webhook.model.cluster import Runtime
from webhook.model.names import RUNTIME_KINDS
from webhook.model.policy import Policy
from webhook.model.release import Release, parse_release
from webhook.model.request import Request
from webhook.model.verdict import Defaulted

SHARED = Path(__file__).parents[2].parent / "shared"
REVIEWS = sorted((SHARED / "admission-reviews").glob("trainer-v*/*.json"))
CASES = SHARED / "cases" / "expected.tsv"

pytestmark = pytest.mark.skipif(not SHARED.is_dir(), reason="no folder ../shared here")


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


def runtimes(folder: Path) -> FileView:
    """The runtimes that were created in the same session."""
    view = FileView([])
    for path in sorted(folder.glob("*mutate-*Runtime-CREATE.json")):
        obj = json.loads(path.read_bytes())["request"]["object"]
        metadata = obj["metadata"]
        view.put_runtime(Runtime(obj["kind"], metadata.get("namespace") or "", metadata["name"], obj, {}))
    return view


@pytest.mark.parametrize("path", REVIEWS, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_captured_review(path: Path) -> None:
    raw = json.loads(path.read_bytes())["request"]
    release = parse_release(path.parent.name.removeprefix("trainer-"))
    done = answer(raw, runtimes(path.parent), release)
    if raw["kind"]["kind"] == "TrainJob" and raw["operation"] == "UPDATE":
        assert done.patch == (), "nothing of ours was ever there"


@pytest.mark.parametrize("path", REVIEWS, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_captured_create_with_a_claim_and_the_same_file_again(path: Path) -> None:
    raw = json.loads(path.read_bytes())["request"]
    if raw["operation"] != "CREATE":
        pytest.skip("an UPDATE")
    release = parse_release(path.parent.name.removeprefix("trainer-"))
    view = runtimes(path.parent)
    raw["object"]["metadata"].setdefault("annotations", {})["checkpoint-guard.io/claim"] = "mine"
    stored = answer(raw, view, release).object
    update = {**raw, "operation": "UPDATE", "oldObject": stored}
    assert answer(update, view, release).object["spec"] == stored["spec"]


def cases() -> Iterator[Any]:
    if CASES.is_file():
        with CASES.open() as lines:
            for row in csv.DictReader(lines, delimiter="\t"):
                yield pytest.param(row, id=row["case"])


@pytest.mark.parametrize("row", list(cases()))
def test_case(row: dict[str, str]) -> None:
    release = parse_release(row["trainer"])
    loaded = load_files([str(SHARED / "cases" / row["case"])])
    view = FileView(loaded.documents, release)
    kind, name = row["object"].split("/")
    for document in loaded.of_kind(*RUNTIME_KINDS, "TrainJob"):
        raw = {"operation": "CREATE", "kind": {"kind": document.kind}, "object": document.object}
        done = answer({**raw, "namespace": document.namespace}, view, release)
        if document.kind in RUNTIME_KINDS:
            view.put_runtime(Runtime(document.kind, document.namespace, document.name, done.object, {}))
        if (document.kind, document.name) == (kind, name) and row["patched"] != "any":
            assert bool(done.patch) == (row["patched"] == "yes")
