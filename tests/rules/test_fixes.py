"""What a denial tells the user to paste does settle it: the text is applied and the rule is asked again."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests import fast_yaml
from tests.rules.cases import case_files, documents_of, each_case, run_case, run_documents
from tests.together import together
from webhook.cluster.file_view import FileView
from webhook.cluster.files import load_text
from webhook.decision import default_object, review_object
from webhook.model.finding import Severity
from webhook.model.policy import Policy
from webhook.model.release import Release
from webhook.model.request import Request

RULES = (
    "claim-not-shared",
    "ephemeral-checkpoint",
    "node-local-checkpoint",
    "read-only-checkpoint",
    "unusable-claim",
    "unwritable-claim",
)
REACHABLE = (
    "apiVersion: storage.k8s.io/v1\nkind: StorageClass\nmetadata: {name: everywhere}\nprovisioner: efs.csi.aws.com"
)


OVERRIDES = {"runtimePatches", "podTemplateOverrides", "podSpecOverrides"}


def pasted(path: Path, served: Release) -> list[list[Any]]:
    """The documents of each fix that is, last of all, a part of the TrainJob."""
    found, _ = run_documents(path, documents_of(path), served)
    fixes = [
        list(fast_yaml.safe_load_all(finding.fix.replace("<class>", "everywhere")))
        for label, finding in found
        if label.startswith("TrainJob/") and "spec:\n" in finding.fix
    ]
    return [documents for documents in fixes if documents[-1].get("spec", {}).keys() & OVERRIDES]


def entries_of(path: Path) -> list[str]:
    """The words of the last line of a case's text, which says where the program has to save."""
    return path.with_suffix(".txt").read_text().rstrip().rpartition("\n")[2].replace(",", "").split()


CASES = [path for path in case_files() if path.parent.name in RULES and not path.name.startswith(("allow", "audit"))]


@together(
    [(path, served) for path in CASES for served in Release],
    lambda case: f"{case[0].parent.name}-{case[1].value}",
    lambda case: f"{case[0].stem} {case[1].value}",
)
def test_the_fix_settles_it(case: tuple[Path, Release]) -> None:
    path, served = case
    if any(field in path.read_text() and field != served.override_field for field in OVERRIDES):
        return  # the case is written for another release
    fixes = pasted(path, served)
    if not fixes:
        return  # the fix belongs into a list of the object, which a person merges
    found, _ = run_documents(path, documents_of(path), served, every=True)
    before = {finding.rule for label, finding in found if label.startswith("TrainJob/")}
    for documents in fixes:
        text = [REACHABLE, *(fast_yaml.safe_dump(document) for document in documents[:-1])]
        for document in fast_yaml.safe_load_all(path.read_text()):
            if document["kind"] == "TrainJob":
                for field, entries in documents[-1]["spec"].items():
                    document["spec"][field] = [*(document["spec"].get(field) or ()), *entries]
                if path.stem.startswith("warn-address"):
                    # The other part of such a fix: the program's own directory, as its last remark says.
                    there = next(word for word in entries_of(path) if word.startswith("/"))
                    args = document["spec"]["trainer"]["args"]
                    document["spec"]["trainer"]["args"] = [re.sub(r"\w+://\w+/\w+", there, one) for one in args]
            text.append(fast_yaml.safe_dump(document))
        fixed = load_text("\n---\n".join(text).encode(), "fixed").documents
        after, broken = run_documents(path, fixed, served, every=True)
        assert broken == ()
        left = [finding for label, finding in after if label.startswith("TrainJob/")]
        assert [finding for finding in left if finding.rule == path.parent.name] == []
        assert {finding.rule for finding in left if finding.severity is Severity.DENY} <= before


ENV_CASES = [path for path in case_files() if path.parent.name in ("per-attempt-directory", "unexpanded-directory")]


@each_case(ENV_CASES)
def test_the_variables_settle_it_in_the_order_in_which_they_are_pasted(path: Path) -> None:
    found, _ = run_case(path)
    pastes = [finding.fix for label, finding in found if label.startswith("TrainJob/") and "trainer:" in finding.fix]
    for paste in pastes:
        env = fast_yaml.safe_load(paste)["spec"]["trainer"]["env"]
        documents = list(fast_yaml.safe_load_all(path.read_text()))
        for document in documents:
            if document["kind"] == "TrainJob":
                trainer = document["spec"].setdefault("trainer", {})
                own = [one for one in trainer.get("env") or () if one["name"] not in {new["name"] for new in env}]
                trainer["env"] = [*env, *own]
        fixed = load_text(fast_yaml.safe_dump_all(documents).encode(), "fixed").documents
        after, _ = run_documents(path, fixed, every=True)
        left = [finding for label, finding in after if label.startswith("TrainJob/")]
        assert [
            finding for finding in left if finding.rule == path.parent.name or finding.severity is Severity.DENY
        ] == []


@each_case()
def test_a_fix_that_begins_as_yaml_is_yaml(path: Path) -> None:
    """Placeholders too: a text that is pasted first and filled in then should not break the file on the way."""
    found, _ = run_case(path)
    for _, finding in found:
        if re.match(r"(- )?[A-Za-z]+:(\n| )", finding.fix):
            assert list(fast_yaml.safe_load_all(finding.fix))


UNDECLARED = """\
apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainingRuntime
metadata: {name: plain, namespace: team}
spec:
  template:
    spec:
      failurePolicy: {maxRestarts: 3}
      replicatedJobs:
      - name: node
        template:
          metadata: {labels: {trainer.kubeflow.org/trainjob-ancestor-step: trainer}}
          spec:
            backoffLimit: 0
            template:
              spec:
                terminationGracePeriodSeconds: 60
                containers:
                - {name: node, image: train, volumeMounts: [MOUNTS]}
                volumes: [VOLUMES]
---
apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainJob
metadata: {name: run, namespace: team}
spec:
  runtimeRef: {kind: TrainingRuntime, name: plain}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: mine, namespace: team}
spec: {accessModes: [ReadWriteMany], storageClassName: everywhere}
---
apiVersion: v1
kind: Namespace
metadata: {name: team, labels: {checkpoint-guard.io/require: "true"}}
---
"""


@pytest.mark.parametrize("mounted", [False, True])
@pytest.mark.parametrize("served", Release, ids=lambda served: served.value)
def test_what_a_namespace_requires_is_there_after_one_paste(served: Release, mounted: bool) -> None:
    """The directory alone would be refused next, for want of a volume under it."""
    text = UNDECLARED.replace("MOUNTS", "{name: d, mountPath: /data}" if mounted else "")
    text = text.replace("VOLUMES", "{name: d, persistentVolumeClaim: {claimName: mine}}" if mounted else "") + REACHABLE
    documents = {document["kind"]: document for document in fast_yaml.safe_load_all(text)}
    view = FileView(load_text(text.encode(), "case").documents, served)
    request = Request("CREATE", "TrainJob", "team", "run", documents["TrainJob"])
    (found,) = review_object(request, view, Policy(), served).findings
    assert (found.rule, found.severity) == ("undeclared-checkpoint", Severity.DENY)

    paste = fast_yaml.safe_load(found.fix.replace("<claim>", "mine").replace("<run>", "run"))
    fixed = {**documents["TrainJob"], "metadata": {**documents["TrainJob"]["metadata"], **paste.get("metadata", {})}}
    fixed["spec"] = {**fixed["spec"], **paste["spec"]}
    done = default_object(Request("CREATE", "TrainJob", "team", "run", fixed), view, Policy(), served)
    after = review_object(Request("CREATE", "TrainJob", "team", "run", done.object), view, Policy(), served)
    assert after.findings == ()
    assert after.facts.claim == "mine"
