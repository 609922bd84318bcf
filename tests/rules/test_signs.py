"""A sign saves time and silences nobody: without its sign a rule has nothing to say, in any case of any rule."""

from __future__ import annotations

from pathlib import Path

from tests.rules.cases import documents_of, each_case
from webhook.cluster.documents import Document
from webhook.cluster.file_view import FileView
from webhook.decision import build_subject
from webhook.model.names import KINDS
from webhook.model.policy import Policy
from webhook.model.release import Release
from webhook.model.request import Request
from webhook.model.sign import signs_of
from webhook.model.subject import Subject
from webhook.rules import RULES
from webhook.storage import claim_signs


@each_case()
def test_no_sign_silences_a_rule(path: Path) -> None:
    documents = documents_of(path)
    for document in documents:
        if document.kind not in KINDS:
            continue
        for release in (Release.V2_1, Release.V2_3):
            for subject in _subjects(document, FileView(documents, release), release):
                signs = signs_of(subject) | claim_signs(subject)
                for rule in RULES:
                    if rule.when and not rule.when & signs:
                        assert list(rule.check(subject)) == [], (rule.id, release)


def _subjects(document: Document, view: FileView, release: Release) -> list[Subject]:
    """The object as it is made, and as an UPDATE that resumes it."""
    before = {**document.object, "spec": {**(document.object.get("spec") or {}), "suspend": True}}
    place = (document.kind, document.namespace, document.name, document.object)
    requests = (Request("CREATE", *place), Request("UPDATE", *place, before))
    return [build_subject(request, view, Policy(), release) for request in requests]
