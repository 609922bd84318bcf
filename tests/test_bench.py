"""What the benchmark measures on is what an API server sends: its parts are as large as real ones."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bench.objects import managed_fields, review, trainjob

CAPTURED = Path(__file__).parents[2] / "shared" / "admission-reviews"


def _captured() -> list[Any]:
    found = []
    for path in sorted(CAPTURED.glob("*/*-CREATE*.json")):
        obj = json.loads(path.read_bytes())["request"]["object"]
        (entry,) = obj["metadata"]["managedFields"]
        if obj["kind"] == "TrainJob" and entry["operation"] == "Update":
            found.append(pytest.param(obj, entry["fieldsV1"], id=f"{path.parent.name} {path.stem}"))
    return found or [pytest.param({}, {}, marks=pytest.mark.skip(f"there is no {CAPTURED}"))]


@pytest.mark.parametrize(("obj", "fields"), _captured())
def test_managed_fields_are_those_of_the_api_server(obj: dict[str, Any], fields: dict[str, Any]) -> None:
    own = {key: obj["metadata"][key] for key in ("annotations", "generateName") if key in obj["metadata"]}
    assert managed_fields(own, obj["spec"]) == fields


def test_the_review_is_whole() -> None:
    metadata = json.loads(review(trainjob()))["request"]["object"]["metadata"]
    (entry,) = metadata["managedFields"]
    assert set(entry["fieldsV1"]) == {"f:metadata", "f:spec"}
    assert metadata["annotations"]
