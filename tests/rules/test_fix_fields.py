"""Every YAML to paste has its place: the path from ``spec`` down, or a field of what the finding points at."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.rules.cases import case_files, options_of, run_documents
from webhook.cluster.files import load_text
from webhook.model.finding import Judged
from webhook.model.release import infer_release

CRDS = Path(__file__).parents[3] / "shared" / "crds"
LEVELS = {"2.0": "v2.0.1", "2.1": "v2.1.0", "2.2": "v2.2.1", "2.3": "v2.3.0"}
META = {"name", "namespace", "generateName", "labels", "annotations"}


@cache
def schema_of(kind: str, release: str) -> dict[str, Any]:
    file = CRDS / f"trainer-{LEVELS[release]}" / f"{kind.lower()}s.yaml"
    versions = yaml.load(file.read_bytes(), yaml.CSafeLoader)["spec"]["versions"]
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
    for document in yaml.safe_load_all(re.sub(r"<[^<>\n]*>", "1", finding.fix)):
        if "apiVersion" in document:
            assert document["kind"] == "PersistentVolumeClaim"
            continue
        roots = [schema_of(kind, release), schema_of("TrainJob", release)] if "spec" in document else []
        tried = [list(unknown(document, schema)) for schema in [*roots, *places] if below(schema) or roots]
        if all(tried) and set(document) - META:
            wrong.append(f"{finding.at.field}: {finding.fix}: {min(tried, key=len)}")
    return wrong


@pytest.mark.parametrize("path", case_files(), ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_what_is_to_be_pasted_has_a_place(path: Path) -> None:
    if not CRDS.is_dir():
        pytest.skip("the CRDs are not at hand")
    documents = load_text(path.read_bytes(), "case").documents
    found, _ = run_documents(path, documents)
    spec = next((document.object.get("spec") for document in documents if document.kind == "TrainJob"), None)
    release = (options_of(path).trainer or infer_release(spec)).value
    assert [text for _, finding in found for text in misplaced(finding, release)] == []
