"""What is kept saves time and changes nothing: any case of any rule gets the same verdict from a guard that remembers.

Each object is asked about in turns: as it is made, by one policy with the cluster in sight and by another without, then
as it is updated and under another name. Once by a guard that has just started, once by one that has seen it all before.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.rules.cases import case_files, documents_of, each_case
from webhook.bootstrap import NothingKnown
from webhook.cluster.documents import Document
from webhook.cluster.file_view import FileView
from webhook.decision import default_object, review_object
from webhook.effective import kept
from webhook.model.cluster import ClusterView
from webhook.model.names import KINDS
from webhook.model.policy import DirectoryPolicy, Limits, Policy
from webhook.model.release import Release
from webhook.model.request import Request
from webhook.programs import cache

OTHER = Policy(
    directory=DirectoryPolicy(variables=("OUTPUT_DIR", "CKPT_DIR")),
    limits=Limits(max_restarts=1, termination_grace_period_seconds=600, lost_work="1m"),
    rules={"unbuildable-pod": "off", "unknown-override-target": "audit", "never-resumed": "deny"},
)
Ask = tuple[Request, ClusterView, Policy, Release]


CASES = case_files()


def check_what_is_remembered(path: Path) -> None:
    asked = list(_asked(path))
    kept.clear()
    cache.clear()
    for ask in asked:
        _answers(ask)
    remembering = [_answers(ask) for ask in asked]
    for ask, answer in zip(asked, remembering, strict=True):
        kept.clear()
        cache.clear()
        assert answer == _answers(ask), ask[0]


test_a_guard_that_remembers_says_the_same = each_case(CASES[::4])(check_what_is_remembered)
test_so_does_it_of_every_case = pytest.mark.full(each_case(CASES)(check_what_is_remembered))


def _answers(ask: Ask) -> Any:
    defaulted = default_object(*ask)
    return defaulted.patch, defaulted.findings, review_object(*ask)


def _asked(path: Path) -> Iterator[Ask]:
    documents = documents_of(path)
    for document in documents:
        if document.kind in KINDS:
            release = Release.V2_3 if "runtimePatches" in (document.object.get("spec") or {}) else Release.V2_1
            made, updated, renamed = _requests(document)
            full = FileView(documents, release)
            yield made, full, Policy(), release
            yield made, NothingKnown(), OTHER, release
            yield updated, full, Policy(), release
            yield renamed, full, Policy(), release


def _requests(document: Document) -> tuple[Request, Request, Request]:
    place = (document.kind, document.namespace)
    before = {**document.object, "spec": {**(document.object.get("spec") or {}), "suspend": True}}
    other = {**document.object, "metadata": {**document.object["metadata"], "name": "zebra"}}
    return (
        Request("CREATE", *place, document.name, document.object),
        Request("UPDATE", *place, document.name, document.object, before),
        Request("CREATE", *place, "zebra", other),
    )
