"""Objects from files: fields that no CRD has, shapes that no rule expects, one fault that two things show."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import pytest

from tests import fast_yaml
from webhook.cluster.file_view import FileView
from webhook.cluster.files import load_text
from webhook.decision import default_object, review_object
from webhook.model.fields import as_stored, unknown_fields
from webhook.model.policy import Policy
from webhook.model.release import Release
from webhook.model.request import Request
from webhook.model.verdict import Decision

RUNTIME = """
apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainingRuntime
metadata: {name: torch, namespace: team}
spec:
  mlPolicy: {numNodes: 1, torch: {}}
  template:
    spec:
      replicatedJobs:
      - name: node
        template:
          metadata: {labels: {trainer.kubeflow.org/trainjob-ancestor-step: trainer}}
          spec:
            template:
              spec:
                containers:
                - name: node
                  image: registry.example/train:1
                  volumeMounts: [{name: models, mountPath: /mnt/models}]
                volumes: [{name: models, persistentVolumeClaim: {claimName: models}}]
"""
TRAINJOB = """
apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainJob
metadata: {name: llm, namespace: team}
spec:
  runtimeRef: {apiGroup: trainer.kubeflow.org, kind: TrainingRuntime, name: torch}
  trainer:
    numNodes: 1
"""
CLAIM = """
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: models, namespace: team}
spec: {accessModes: [ReadWriteMany], storageClassName: shared, resources: {requests: {storage: 500Gi}}}
---
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: shared}
provisioner: nfs.csi.k8s.io
"""
PROGRAM = """
cat > sft.yaml <<EOF
stage: sft
do_train: true
finetuning_type: lora
model_name_or_path: /mnt/models/base
output_dir: /mnt/models/out
overwrite_output_dir: true
EOF
if [ "$N" -gt 1 ]; then
  exec llamafactory-cli train sft.yaml
else
  exec llamafactory-cli train sft.yaml
fi
"""


def documents(**trainer: Any) -> list[Any]:
    job = fast_yaml.safe_load(TRAINJOB)
    job["spec"]["trainer"].update(trainer)
    text = "---".join((RUNTIME, CLAIM, "\n" + fast_yaml.safe_dump_all([job])))
    return load_text(text.encode(), "files.yaml").documents


def of_trainjob(found: list[Any]) -> Request:
    job = next(one for one in found if one.kind == "TrainJob")
    return Request("CREATE", job.kind, job.namespace, job.name, job.object)


def review(found: list[Any], release: Release = Release.V2_3) -> Decision:
    return review_object(of_trainjob(found), FileView(found, release), Policy(), release)


def test_a_directory_that_the_program_names_is_no_reason_to_declare_another() -> None:
    plain, named = documents(), documents(command=["bash", "-c"], args=[PROGRAM])
    release = Release.V2_3
    assert default_object(of_trainjob(plain), FileView(plain, release), Policy(), release).patch
    assert not default_object(of_trainjob(named), FileView(named, release), Policy(), release).patch
    assert "directory-not-used" not in {finding.rule for finding in review(named).findings}


def test_one_fault_is_told_once() -> None:
    found = review(documents(command=["bash", "-c"], args=[PROGRAM])).findings
    told = [(finding.rule, finding.at, finding.problem) for finding in found]
    assert "overwritten-output" in {rule for rule, _, _ in told}
    assert len(set(told)) == len(told)


WRONG: tuple[Any, ...] = ("a", ["a"], [1], {"a": 1}, 1, None, [None], [["a"]], [{"name": 1}], {"name": ["x"]})
FIELDS = ("volumeMounts", "volumes", "env", "containers", "template", "command", "labels", "failurePolicy", "name")


def places(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, dict):
        yield value
        for one in list(value.values()):
            yield from places(one)
    elif isinstance(value, list):
        for one in value:
            yield from places(one)


@pytest.mark.parametrize("wrong", WRONG, ids=repr)
def test_no_rule_breaks_on_a_field_of_any_shape(wrong: Any) -> None:
    found = documents(env=[{"name": "CKPT_DIR", "value": "/nowhere/run"}])
    for document in found:
        for place in places(document.object) if document.kind in ("TrainJob", "TrainingRuntime") else ():
            for field in FIELDS:
                before = copy.copy(place)
                place[field] = copy.deepcopy(wrong)
                assert review(found).broken == (), (document.kind, field)
                place.clear()
                place.update(before)


def test_what_the_crd_lacks_is_not_stored() -> None:
    job = fast_yaml.safe_load(TRAINJOB)
    assert as_stored(job, "TrainJob", "2.3") is job
    job["spec"]["trainer"]["numNode"] = 2
    job["spec"]["runtimePatches"] = [{"manager": "a.example/b", "oops": 1}]
    job["spec"]["podSpecOverrides"] = []
    assert [(path, name) for path, name, _, _ in unknown_fields(job, "TrainJob", "2.3")] == [
        ("spec.runtimePatches[0]", "oops"),
        ("spec.trainer", "numNode"),
    ]
    stored = as_stored(job, "TrainJob", "2.3")
    assert stored["spec"]["trainer"] == {"numNodes": 1}
    assert stored["spec"]["runtimePatches"] == [{"manager": "a.example/b"}]
    assert "podSpecOverrides" in stored["spec"]


def test_an_api_server_has_dropped_them() -> None:
    found = documents(numNode=4)
    request = of_trainjob(found)
    sent = Request("CREATE", "TrainJob", "team", "llm", request.object, uid="1")
    rules = {finding.rule for finding in review(found).findings}
    there = review_object(sent, FileView(found, Release.V2_3), Policy(), Release.V2_3)
    assert "unknown-field" in rules
    assert "unknown-field" not in {finding.rule for finding in there.findings}


def test_many_are_counted() -> None:
    found = review(documents(**{f"field{at}x": 1 for at in range(40)})).findings
    told = [finding.problem for finding in found if finding.rule == "unknown-field"]
    assert len(told) == 17
    assert told[-1].startswith("and 24 more")
