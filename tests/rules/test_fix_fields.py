"""Every YAML to paste has its place: the path from ``spec`` down, or a field of what the finding points at."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests import fast_yaml, golden
from tests.rules.cases import documents_of, each_case, options_of, run_case
from webhook.cluster.file_view import FileView
from webhook.decision import review_object
from webhook.model.finding import Judged
from webhook.model.policy import Policy
from webhook.model.release import Release, infer_release
from webhook.model.request import Request

META = {"name", "namespace", "generateName", "labels", "annotations"}


@cache
def schema_of(kind: str, release: str) -> dict[str, Any]:
    versions = fast_yaml.safe_load(golden.crd(golden.TRAINERS[release], f"{kind.lower()}s"))["spec"]["versions"]
    schema: dict[str, Any] = versions[0]["schema"]["openAPIV3Schema"]
    return schema


def below(schema: dict[str, Any]) -> dict[str, Any]:
    """The fields of a map, or of the entries of a list."""
    schema = schema.get("items", schema)
    return dict(schema.get("properties") or {})


def levels(schema: dict[str, Any], field: str) -> Iterator[dict[str, Any]]:
    """The schema at the field and at each of its parents."""
    yield schema
    for name in re.findall(r"(?:^|\.)([A-Za-z]+)", re.sub(r"\[[^]]*\]", "", field.partition(" line ")[0])):
        schema = below(schema).get(name) or {}
        yield schema


def unknown(value: Any, schema: dict[str, Any]) -> Iterator[str]:
    """Fields that the schema does not have."""
    for one in value if isinstance(value, list) else [value]:
        if not isinstance(one, dict) or "additionalProperties" in schema or not below(schema):
            continue
        for key, inner in one.items():
            if key not in below(schema):
                yield key
            else:
                yield from unknown(inner, below(schema)[key])


def misplaced(finding: Judged, release: str) -> list[str]:
    if not re.match(r"(#[^\n]*\n)*(- )?[A-Za-z]+:(\n| )", finding.fix) or re.search(r"# .*\bin\b", finding.fix):
        return []  # no YAML, or it says itself where it belongs
    kind = finding.at.object.partition("/")[0]
    places = list(levels(schema_of(kind, release), finding.at.field))
    wrong: list[str] = []
    for document in fast_yaml.safe_load_all(re.sub(r"<[^<>\n]*>", "1", finding.fix)):
        if "apiVersion" in document:
            assert document["kind"] == "PersistentVolumeClaim"
            continue
        roots = [schema_of(kind, release), schema_of("TrainJob", release)] if "spec" in document else []
        tried = [list(unknown(document, schema)) for schema in [*roots, *places] if below(schema) or roots]
        if all(tried) and set(document) - META:
            wrong.append(f"{finding.at.field}: {finding.fix}: {min(tried, key=len)}")
    return wrong


@each_case()
def test_what_is_to_be_pasted_has_a_place(path: Path) -> None:
    found, _ = run_case(path)
    spec = next((document.object.get("spec") for document in documents_of(path) if document.kind == "TrainJob"), None)
    release = (options_of(path).trainer or infer_release(spec)).value
    assert [text for _, finding in found for text in misplaced(finding, release)] == []


FAULTS = (
    "containers: [{livenessProbe: {httpGet: {port: 0}}}]",
    "containers: [{livenessProbe: {httpGet: {port: 80, scheme: FTP}}}]",
    "containers: [{lifecycle: {preStop: {exec: {command: []}}}}]",
    "containers: [{lifecycle: {postStart: {}}}]",
    "containers: [{securityContext: {seccompProfile: {type: Localhost, localhostProfile: /a}}}]",
    "containers: [{env: [{name: A, valueFrom: {resourceFieldRef: {resource: limits.cpu, divisor: 7}}}]}]",
    "affinity: {nodeAffinity: {preferredDuringSchedulingIgnoredDuringExecution: [{weight: 0}]}}",
    "affinity: {podAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [{labelSelector: {}}]}}",
    "affinity: {podAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [{topologyKey: a, namespaces: [A]}]}}",
    "volumes: [{name: a, downwardAPI: {items: [{path: b, fieldRef: {fieldPath: c}}]}}]",
    "volumes: [{name: a, projected: {sources: [{serviceAccountToken: {path: ../b}}]}}]",
    "volumes: [{name: a, projected: {sources: [{secret: {name: b, items: [{key: c, path: /d}]}}]}}]",
    "volumes: [{name: a, hostPath: {path: ../b}}]",
)


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_deep_in_the_pod_has_its_path(fault: str) -> None:
    pod = fast_yaml.safe_load(fault)
    node = {"name": "node", "image": "a", **pod.pop("containers", [{}])[0]}
    job = {"name": "node", "template": {"spec": {"template": {"spec": {**pod, "containers": [node]}}}}}
    runtime = {"spec": {"template": {"spec": {"replicatedJobs": [job]}}}}
    request = Request("CREATE", "TrainingRuntime", "team", "torch", runtime, None)
    decision = review_object(request, FileView([], Release.V2_3), Policy(), Release.V2_3)
    found = [finding for finding in decision.findings if finding.rule == "unbuildable-pod"]
    assert found
    assert [text for finding in found for text in misplaced(finding, "2.3")] == []
