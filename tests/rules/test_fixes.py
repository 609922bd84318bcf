"""What a denial tells the user to paste does settle it: the text is applied and the rule is asked again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.rules.cases import case_files, run_documents
from webhook.cluster.files import load_text
from webhook.model.release import Release

RULES = ("ephemeral-checkpoint", "node-local-checkpoint", "read-only-checkpoint", "unwritable-claim")
REACHABLE = (
    "apiVersion: storage.k8s.io/v1\nkind: StorageClass\nmetadata: {name: everywhere}\nprovisioner: efs.csi.aws.com"
)


OVERRIDES = {"runtimePatches", "podTemplateOverrides", "podSpecOverrides"}


def pasted(path: Path, served: Release) -> list[list[Any]]:
    """The documents of each fix that is, last of all, a part of the TrainJob."""
    found, _ = run_documents(path, load_text(path.read_bytes(), "case").documents, served)
    fixes = [
        list(yaml.safe_load_all(finding.fix.replace("<class>", "everywhere")))
        for label, finding in found
        if label.startswith("TrainJob/") and "spec:\n" in finding.fix
    ]
    return [documents for documents in fixes if documents[-1].get("spec", {}).keys() & OVERRIDES]


CASES = [path for path in case_files() if path.parent.name in RULES and not path.name.startswith(("allow", "audit"))]


@pytest.mark.parametrize("path", CASES, ids=lambda path: f"{path.parent.name}/{path.stem}")
@pytest.mark.parametrize("served", Release, ids=lambda served: served.value)
def test_the_fix_settles_it(path: Path, served: Release) -> None:
    if any(field in path.read_text() and field != served.override_field for field in OVERRIDES):
        return  # the case is written for another release
    fixes = pasted(path, served)
    if not fixes:
        pytest.skip("the fix belongs into a list of the object, which a person merges")
    for documents in fixes:
        text = [REACHABLE, *(yaml.safe_dump(document) for document in documents[:-1])]
        for document in yaml.safe_load_all(path.read_text()):
            if document["kind"] == "TrainJob":
                for field, entries in documents[-1]["spec"].items():
                    document["spec"][field] = [*(document["spec"].get(field) or ()), *entries]
            text.append(yaml.safe_dump(document))
        after, broken = run_documents(path, load_text("\n---\n".join(text).encode(), "fixed").documents, served)
        assert broken == ()
        assert [finding for label, finding in after if label.startswith("TrainJob/")] == []
